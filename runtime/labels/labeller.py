"""Labels for the scene, once a second: when to look, what a look changed, and the scene with its labels on.

    labeller.saw(scene)                                      each scene of the reflex, as it comes
    if labeller.due(device_ns):                              a picture is here
        look = labeller.begin(camera_label, device_ns, picture.shape[1], picture.shape[0])
        boxes = await worker.run(lambda: detector.detect(picture), declared.detect_ms)
        for change in labeller.take(look, boxes): ...        an event each; labeller.lost(look) when it failed
    scene = labeller.applied(scene)                          for all that speaks

Detection may take long, and others may be before it in the worker's queue: the scene that belongs to the picture is set
aside meanwhile. Matching and voting are quick and belong to the main loop. Pictures are upright: see ``view.upright``.
All times are the device's. Knows no detector and makes no events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from handrail.runtime.labels.detector import Box
from handrail.runtime.labels.matching import match
from handrail.runtime.labels.view import View
from handrail.runtime.labels.votes import Votes
from handrail.runtime.scene import Scene
from handrail.streams.cameras import Rig

NS_PER_S = 1_000_000_000
KEPT_S = 1.0  # of scenes
MOST_SCENES = 64
APART_S = 0.15  # a scene farther from the picture says too little of it
LOST_S = 5.0  # a look that nobody has brought back


@dataclass(frozen=True, slots=True)
class Look:
    """A picture on its way through the detector."""

    number: int
    camera_label: str
    device_ns: int  # capture
    width: int  # px, upright
    height: int


@dataclass(frozen=True, slots=True)
class Change:
    obstacle_id: int
    label: str | None  # None: it no longer has one
    device_ns: int  # capture of the picture that decided it


class Labeller:
    def __init__(self, rig: Rig, period_s: float = 1.0) -> None:
        self._rig = rig
        self._period_ns = round(period_s * NS_PER_S)
        self._views: dict[tuple[str, int, int], View] = {}
        self._votes = Votes()
        self._count = 0
        self.seam()

    def seam(self) -> None:
        """Ids, places and times start anew; a look that is under way counts for nothing."""
        self._scenes: deque[Scene] = deque(maxlen=MOST_SCENES)
        self._last_ns: int | None = None  # of the last look begun
        self._out: Look | None = None
        self._nearest: Scene | None = None  # to the look that is out
        self._labels: dict[int, str] = {}
        self._votes.reset()

    def saw(self, scene: Scene) -> None:
        """Each scene, in order of time; with or without labels on."""
        self._scenes.append(scene)
        while scene.device_ns - self._scenes[0].device_ns > KEPT_S * NS_PER_S:
            self._scenes.popleft()
        if self._out is not None:
            self._nearest = _nearer(self._out.device_ns, self._nearest, scene)
        ids = {o.id for o in scene.obstacles}
        if not self._labels.keys() <= ids:
            self._labels = {id: label for id, label in self._labels.items() if id in ids}
        self._votes.keep(ids)

    def due(self, device_ns: int) -> bool:
        """Whether a picture captured then should be looked at: once a period, one at a time, and there is something."""
        if self._last_ns is not None:
            waited_ns = device_ns - self._last_ns
            if waited_ns < self._period_ns or (self._out is not None and waited_ns < LOST_S * NS_PER_S):
                return False
        return bool(self._scenes) and bool(self._scenes[-1].obstacles)

    def begin(self, camera_label: str, device_ns: int, width: int, height: int) -> Look:
        """``width``, ``height``: of the upright picture. Raises SourceError when the rig has no such camera."""
        key = (camera_label, width, height)
        if key not in self._views:
            self._views[key] = View(self._rig, *key)
        self._count += 1
        self._out, self._last_ns = Look(self._count, camera_label, device_ns, width, height), device_ns
        self._nearest = None
        for scene in self._scenes:
            self._nearest = _nearer(device_ns, self._nearest, scene)
        return self._out

    def take(self, look: Look, boxes: Sequence[Box]) -> tuple[Change, ...]:
        """What the detector found; the changes it makes, by id. A look from before a seam, or one that was given up,
        changes nothing."""
        scene = self._nearest
        if look != self._out:
            return ()
        self._out = self._nearest = None
        if scene is None or abs(scene.device_ns - look.device_ns) > APART_S * NS_PER_S:
            return ()
        view = self._views[look.camera_label, look.width, look.height]
        self._votes.look(match(boxes, view, scene, look.device_ns))
        there = {o.id for o in self._scenes[-1].obstacles}
        self._votes.keep(there)
        before, self._labels = self._labels, self._votes.labels()
        changed = [id for id in sorted(there) if before.get(id) != self._labels.get(id)]
        return tuple(Change(id, self._labels.get(id), look.device_ns) for id in changed)

    def lost(self, look: Look) -> None:
        """The detector failed: it was no look, and says nothing against a name."""
        if look == self._out:
            self._out = self._nearest = None

    def applied(self, scene: Scene) -> Scene:
        """The same scene, its obstacles called what they are."""
        if not self._labels:
            return scene
        labels = self._labels
        obstacles = tuple(
            msgspec.structs.replace(o, label=labels[o.id]) if o.id in labels else o for o in scene.obstacles
        )
        return msgspec.structs.replace(scene, obstacles=obstacles)


def _nearer(device_ns: int, one: Scene | None, other: Scene) -> Scene:
    return other if one is None or abs(other.device_ns - device_ns) < abs(one.device_ns - device_ns) else one
