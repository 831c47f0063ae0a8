"""The reflex worker process: rig, reset and looks in, scenes out. Started by ``ProcessRunner``."""

from __future__ import annotations

import time

from handrail.runtime.machine import usable_cores
from handrail.runtime.reflex import wire
from handrail.runtime.reflex.reflex import Reflex
from handrail.runtime.reflex.runner import blank_look, see_with
from handrail.runtime.reflex.stereo import MOST_THREADS
from handrail.streams.cameras import Rig
from handrail.streams.child import serve


class Worker:
    def __init__(self) -> None:
        self._reflex: Reflex | None = None

    def answer(self, message: bytes) -> bytes:
        match wire.decode_request(message):
            case wire.RigRequest(rig):
                self._reflex = _warmed_up(Rig.from_json(rig))
                return wire.encode(wire.Answer(None, {}))
            case wire.ResetRequest():
                self._ready().reset()
                return wire.encode(wire.Answer(None, {}))
            case wire.LookRequest() as request:
                reflex = self._ready()
                scene = see_with(reflex, request.look())
                return wire.encode(wire.Answer(scene, dict(reflex.stages_ms)))

    def rest(self) -> None:
        if self._reflex is not None:
            self._reflex.rest()

    def _ready(self) -> Reflex:
        assert self._reflex is not None, "the rig comes first"
        return self._reflex


def _warmed_up(rig: Rig) -> Reflex:
    warm_up = blank_look(rig)
    threads = MOST_THREADS if usable_cores() > MOST_THREADS else 1  # none for it alone: what runs beside it would lose
    if warm_up is not None:
        throwaway = Reflex(rig, time.perf_counter_ns, threads)
        for _ in range(2):
            see_with(throwaway, warm_up)
    return Reflex(rig, time.perf_counter_ns, threads)


if __name__ == "__main__":
    worker = Worker()
    serve(worker.answer, worker.rest)
