"""Labels in a session: colour pictures to the detector, what it found to the obstacles, changes to the log."""

from __future__ import annotations

from collections.abc import Callable

from handrail.runtime.answer.pictures import Looker, Picture
from handrail.runtime.engine.worker import Worker
from handrail.runtime.events import AnyEvent, Labelled
from handrail.runtime.labels.detector import Detector
from handrail.runtime.labels.labeller import Labeller
from handrail.runtime.scene import Scene
from handrail.streams.clock import now_ns


class Labels:
    def __init__(
        self, labeller: Labeller, detector: Detector, worker: Worker, detect_ms: float,
        emit: Callable[[AnyEvent], None], start_ns: int,
    ) -> None:  # fmt: skip
        self._labeller, self._detector, self._worker = labeller, detector, worker
        self._detect_ms, self._emit, self._start_ns = detect_ms, emit, start_ns

    @property
    def looker(self) -> Looker:
        return Looker("labels", self._look)

    def applied(self, scene: Scene) -> Scene:
        """A new scene of the reflex, its obstacles called what they are known as."""
        self._labeller.saw(scene)
        return self._labeller.applied(scene)

    def seam(self) -> None:
        self._labeller.seam()

    async def _look(self, picture: Picture) -> None:
        if not self._labeller.due(picture.device_ns):
            return
        height, width = picture.pixels.shape[:2]
        look = self._labeller.begin(picture.camera, picture.device_ns, width, height)
        try:
            boxes = await self._worker.run(
                "labels.detect", lambda: self._detector.detect(picture.pixels), self._detect_ms
            )  # fmt: skip
        except Exception:
            self._labeller.lost(look)  # a failure is no vote against a name
            raise
        for change in self._labeller.take(look, boxes):
            self._emit(Labelled(now_ns() - self._start_ns, change.obstacle_id, change.label, change.device_ns))
