"""What the report keeps of a run while it goes on: a bounded number of frames with their scenes.

Frames are spread evenly over the run however long it gets, and those that decided an alert are kept beside them; at
most ``2 * MOST_FRAMES + 1`` small ones are held. Pictures are kept as ``Redacted`` only; a live session's frames are
kept without picture. ``shown`` holds what questions were answered from. The methods fit a session's
hooks: call ``on_event`` for a scene before ``on_seen`` for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from handrail.runtime.events import Alerted, AnyEvent, SceneChanged
from handrail.runtime.redacted import Redacted
from handrail.runtime.reflex.depth import DepthView, Pose
from handrail.runtime.report.draw import Outline, depth_picture, outline, reduced
from handrail.runtime.report.shown import ShownPictures
from handrail.runtime.scene import Scene
from handrail.streams.samples import Sample
from handrail.streams.source import SourceInfo

if TYPE_CHECKING:
    from handrail.runtime.reflex.runner import Seen  # brings the whole reflex along

MOST_FRAMES = 40
PICTURE_PX = 640  # longest side; the reflex's view has some 500
DEPTH_PX = 320

T = TypeVar("T")


class Spread(Generic[T]):
    """At most ``limit`` items, evenly spaced over all that were offered, the first included."""

    def __init__(self, limit: int) -> None:
        if limit < 2:
            raise ValueError(f"limit: expected at least 2, got {limit}")
        self._limit, self._step, self.offered = limit, 1, 0
        self.items: list[T] = []

    def offer(self, make: Callable[[], T]) -> None:
        """``make`` is called only when its item will be kept."""
        if self.offered % self._step == 0:
            self.items.append(make())
        self.offered += 1
        if len(self.items) > self._limit:
            self.items = self.items[::2]
            self._step *= 2


@dataclass(frozen=True, slots=True)
class Picture:
    """A rectified left image with its depth and what is drawn on it, all small."""

    image: Redacted
    depth: Redacted
    outlines: dict[int, Outline]  # obstacle id -> px of ``image``


@dataclass(frozen=True, slots=True)
class Frame:
    t_ns: int  # when its scene was there, since the session started
    scene: Scene
    picture: Picture | None  # None: a live session, or depth was computed in another process
    alert: bool
    elsewhere: bool = False  # depth was computed in another process and stayed there


class ReportBuilder:
    def __init__(self) -> None:
        self._info: SourceInfo | None = None
        self._spread: Spread[Frame] = Spread(MOST_FRAMES)
        self._alerts: Spread[Frame] = Spread(MOST_FRAMES)
        self._newest: tuple[int, Seen] | None = None
        self._scene_ns = 0
        self.shown = ShownPictures()

    def on_open(self, info: SourceInfo) -> None:
        self._info = info
        self.shown.on_open(info)

    def on_sample(self, sample: Sample) -> None:
        self.shown.on_sample(sample)

    def on_event(self, event: AnyEvent) -> None:
        self.shown.on_event(event)
        match event:
            case SceneChanged():
                self._scene_ns = event.t_ns
            case Alerted() if self._newest is not None and self._newest[1].scene.device_ns == event.device_ns:
                t_ns, seen = self._newest
                if not self._alerts.items or self._alerts.items[-1].t_ns != t_ns:  # several alerts, one frame
                    self._alerts.offer(lambda: self._frame(t_ns, seen, alert=True))

    def on_seen(self, seen: Seen) -> None:
        self._newest = (self._scene_ns, seen)
        self._spread.offer(lambda: self._frame(self._scene_ns, seen))

    def frames(self) -> list[Frame]:
        """What was kept, in order of time; the run's last frame is always among them."""
        kept = {frame.t_ns: frame for frame in self._spread.items}
        if self._newest is not None and self._newest[0] not in kept:
            kept[self._newest[0]] = self._frame(*self._newest)
        kept |= {frame.t_ns: frame for frame in self._alerts.items}
        return [kept[t_ns] for t_ns in sorted(kept)]

    @property
    def info(self) -> SourceInfo | None:
        return self._info

    def _frame(self, t_ns: int, seen: Seen, *, alert: bool = False) -> Frame:
        picture = None
        if self._info is not None and self._info.recorded and seen.view is not None and seen.pose is not None:
            picture = take_picture(seen.scene, seen.view, seen.pose, self._info)
        elsewhere = seen.scene.coverage is not None and seen.view is None
        return Frame(t_ns, seen.scene, picture, alert, elsewhere)


def take_picture(scene: Scene, view: DepthView, pose: Pose, info: SourceInfo) -> Picture:
    """Small copies of a view's image and depth, with the outline of every obstacle that is in the picture."""
    small = reduced(view, PICTURE_PX)
    outlines = {}
    for o in scene.obstacles:
        line = outline(o, scene.wearer, small, pose, info.rig.T_device_cpf)
        if line is not None:
            outlines[o.id] = line
    depth = np.ascontiguousarray(depth_picture(reduced(view, DEPTH_PX)))
    return Picture(Redacted.from_recording(small.image, info), Redacted.from_recording(depth, info), outlines)
