"""The reflex: frames and motion in, a scene out. A pure function of its inputs and state, with no loop and no threads.

    reflex = Reflex(rig)
    reflex.imu("imu-left", batch); reflex.pose("vio", poses)      # as they arrive
    scene = reflex.pair(left, right, device_ns)                   # once a stereo pair
    reflex.rest()                                                 # after the scene has been handed on

``last_view``, ``last_pose`` and ``stages_ms`` tell of the newest pair; durations come from the clock that is given and
never go into scenes. A pair that can't be judged still gives a scene: without coverage, and with the reason.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter_ns

import msgspec

from handrail.runtime.reflex.depth import DepthView, Pose
from handrail.runtime.reflex.odometry import Odometry
from handrail.runtime.reflex.quality import REMEMBERED, Fingerprint, PairWatch, fingerprint, judge_frame
from handrail.runtime.reflex.stereo import MOST_THREADS, StereoDepth
from handrail.runtime.reflex.surroundings import Surroundings
from handrail.runtime.scene import FrameQuality, Scene, Wearer
from handrail.streams.cameras import Rig
from handrail.streams.errors import SourceError
from handrail.streams.samples import ImageFrame, ImuBatch, PoseBatch


class Reflex:
    """Raises SourceError when the rig has no stereo pair."""

    def __init__(
        self, rig: Rig, clock_ns: Callable[[], int] = perf_counter_ns, threads: int = MOST_THREADS
    ) -> None:
        if rig.stereo_pair is None:
            raise SourceError("the glasses' calibration has no forward SLAM pair: depth can't be measured")
        left = rig.cameras[rig.stereo_pair[0]]
        self._shape = (left.height, left.width)
        self._stages = Stages(clock_ns)
        self._stereo = StereoDepth(rig, threads)
        self._pairs = PairWatch(rig, self._stereo.rectifier)
        self._odometry = Odometry(rig)
        self._surroundings = Surroundings(rig.T_device_cpf)
        self._fingerprints: deque[Fingerprint] = deque(maxlen=REMEMBERED)
        self.last_view: DepthView | None = None
        self.last_pose: Pose | None = None

    @property
    def stages_ms(self) -> dict[str, float]:
        """How long each stage of the newest pair took, in order, and "all"."""
        return self._stages.ms

    def imu(self, label: str, batch: ImuBatch) -> None:
        self._odometry.imu(label, batch)

    def pose(self, label: str, batch: PoseBatch) -> None:
        """Poses from the glasses or from MPS; ``label`` only tells whose."""
        self._odometry.poses(batch)

    def pair(self, left: ImageFrame, right: ImageFrame, device_ns: int) -> Scene:
        """One stereo pair, captured at ``device_ns``; motion up to then comes before it."""
        self._stages.start()
        quality = self._judged(left, right)
        self._stages.mark("quality")
        self.last_view = self._measured(left, right, device_ns) if quality.usable else None
        self._stages.mark("depth")
        self.last_pose = self._odometry.step(device_ns, self.last_view)
        self._stages.mark("motion")
        if self.last_pose is None:
            self.last_view = None
            scene = Scene(device_ns, UNMOVED, (), None, quality)  # no gravity: nothing can be told from anything
        else:
            scene = self._surroundings.see(self.last_view, self.last_pose, quality, self._stages.mark)
        self._stages.end()
        return scene

    def rest(self) -> None:
        """What the next pair gains from and this one needn't wait for: how the head moved, how the glasses are bent."""
        if self.last_view is not None:
            self._odometry.rest()
            self._stereo.learn()

    def reset(self) -> None:
        """A seam: time or place jumped. How the glasses are bent stays known."""
        self._odometry.reset()
        self._surroundings.reset()
        self._fingerprints.clear()
        self._pairs.reset()

    def _judged(self, left: ImageFrame, right: ImageFrame) -> FrameQuality:
        if left.pixels is None or right.pixels is None:
            return FrameQuality(0.0, 0.0, 0.0, False, "mismatched")
        own = fingerprint(left.pixels, right.pixels)
        quality = judge_frame(left.pixels, right.pixels, self._shape, self._fingerprints, own)
        if quality.reason != "mismatched":
            self._fingerprints.append(own)
        if quality.usable and (reason := self._pairs.judge(left.pixels, right.pixels)) is not None:
            return msgspec.structs.replace(quality, usable=False, reason=reason)
        return quality

    def _measured(self, left: ImageFrame, right: ImageFrame, device_ns: int) -> DepthView:
        assert left.pixels is not None and right.pixels is not None
        return self._stereo.measure(left.pixels, right.pixels, device_ns, self._odometry.attitude(device_ns))


class Stages:
    """A stopwatch with names."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._started_ns = self._last_ns = 0
        self.ms: dict[str, float] = {}

    def start(self) -> None:
        self.ms = {}
        self._started_ns = self._last_ns = self._clock_ns()

    def mark(self, name: str) -> None:
        now = self._clock_ns()
        self.ms[name] = (now - self._last_ns) / 1e6
        self._last_ns = now

    def end(self) -> None:
        self.ms["all"] = (self._clock_ns() - self._started_ns) / 1e6


UNMOVED = Wearer(
    x_m=0.0, y_m=0.0, eye_height_m=None, nose_rad=0.0, travel_rad=None, speed_msec=0.0, speed_sd_msec=9.0,
    position_sd_m=9.0, turn_rate_radsec=0.0, pitch_rad=0.0, motion_from="none",
)  # fmt: skip
