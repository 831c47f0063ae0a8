"""The reflex in its worker process: killed at any moment it is one error, and the next look works."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from handrail.runtime.reflex.runner import ProcessRunner, blank_look
from handrail.streams.child import ChildDied
from handrail.streams.world.scenario import load_rig


def test_a_worker_killed_between_looks_is_told_and_the_next_look_has_a_new_one() -> None:
    rig = load_rig(2)
    look = blank_look(rig)
    assert look is not None

    async def main() -> None:
        runner = ProcessRunner(rig)
        await runner.start()
        for ask in (lambda: runner.see(look), runner.reset):
            pid = runner._child.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            while not runner._child.lost:  # noqa: ASYNC110 - a real process
                await asyncio.sleep(0.01)
            with pytest.raises(ChildDied, match="between looks"):
                await ask()
            assert (await runner.see(look)).scene.device_ns == look.device_ns
        await runner.close()

    asyncio.run(main())
