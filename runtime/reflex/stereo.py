"""Two frames in, depth out: semi-global matching on the rectified pair, and a check that leaves plain places unknown.

Semi-global matching fills plain walls from their edges; that phantom depth must not be spoken of. So each match has to
show that the two cameras saw the *same texture*: normalised cross-correlation of the left patch with the matched right
patch. Sensor noise is independent in the two cameras, so it can't correlate, in bright light or at dusk. Plain bars at
head height are the exception: ``bars`` measures them by their ends.

Matching goes by every second row, the check by all of them. Knows no motion, no floor and no earlier frame. Costs
about 25 ms a pair on one thread, 20 ms on two; see ``benchmarks``.
"""

from __future__ import annotations

import functools
import math

import cv2
import numpy as np
from numpy.typing import NDArray

from handrail.runtime.reflex.alignment import Alignment
from handrail.runtime.reflex.attitude import Attitude
from handrail.runtime.reflex.bars import fill_bars
from handrail.runtime.reflex.depth import DepthView
from handrail.runtime.reflex.rectify import DISPARITIES, HIGHEST_LEVEL_RAD, ROWS_PER_RAD, RectifiedPair, Rectifier
from handrail.streams.cameras import Rig

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]

# Below zero: far places stay matchable while the alignment of the cameras is a little off.
LOWEST_DISPARITY = -3
BLOCK_PX = 5
PATCH_PX = 15  # of the correlation check
DETAIL_PX = 13  # what is smoother than this is shading
LEAST_ENERGY = 1.0  # grey levels^4; below it is quantisation
LEAST_CORRELATION = 0.45  # at a wrong disparity or of noise alone 0.3 at most; of texture 0.7 and more
LEAST_DISPARITY_PX = 0.4  # everything beyond 80 m is said to be at 80 m: far, not unknown
BORDER_PX = 4  # of the lens circle: vignetting makes false edges there
LEAST_CORRELATION_DARK = 0.65  # smoothed noise correlates with itself
# One sigma where textured, measured on the simulated world (0.27 without the tails; 0.75 at dusk): tests/runtime.
DISPARITY_SD_PX = 0.35
DISPARITY_SD_DARK_PX = 0.8
HEAD_ROWS = round((HIGHEST_LEVEL_RAD + math.radians(15.0)) * ROWS_PER_RAD)  # head height from 0.5 m ahead on
MOST_THREADS = 2  # matching alone gains by a second one, and by no third
FIRST_ROUNDS = 2
LEARN_EVERY = 5  # frames: half a second
LEAST_BEND_RAD = 0.0002  # a twentieth of a pixel: not worth new maps


class StereoDepth:
    """Native frames to depth for one rig: rectify, match, and learn how the glasses are bent.

        depth = StereoDepth(rig)
        view = depth.measure(left, right, device_ns, attitude)
        ...                                                     # hand on what follows from the view
        depth.learn()                                           # then, outside the path to the wearer
    """

    def __init__(self, rig: Rig, threads: int = MOST_THREADS) -> None:
        cv2.setNumThreads(threads)  # of the whole process; the strips it works in are the same however many there are
        self.rectifier = Rectifier(rig)
        self.alignment = Alignment(self.rectifier)
        self._matcher = StereoMatcher(self.rectifier)
        self._newest: tuple[RectifiedPair, DepthView, Attitude | None] | None = None
        self._frames = 0

    def measure(self, left: U8, right: U8, device_ns: int, attitude: Attitude | None) -> DepthView:
        """Depth from grey frames [H, W] of the two cameras; raises SourceError when they don't fit the calibration.

        Without an attitude the view is aimed as if the head were level. The first call takes three times as long: it
        looks, learns and looks again, as glasses fresh from the case are bent most.
        """
        first = self._frames == 0
        self._frames += 1
        view = self._look(left, right, device_ns, attitude)
        for _ in range(FIRST_ROUNDS if first else 0):
            self._learn()
            view = self._look(left, right, device_ns, attitude)
        return view

    def learn(self) -> None:
        """Learn the bend from the newest pair: from each in the first second, then from every fifth. Takes 15 ms."""
        if self._frames <= 10 or self._frames % LEARN_EVERY == 0:
            self._learn()

    def _look(self, left: U8, right: U8, device_ns: int, attitude: Attitude | None) -> DepthView:
        rows = self.rectifier.aim(None if attitude is None else attitude.R_level_device)
        pair = self.rectifier.rectify(left, right, rows)
        view = self._matcher.match(pair, device_ns, self.rectifier.focal_px * float(self.alignment.bend.sd_rad[1]))
        self._newest = pair, view, attitude
        return view

    def _learn(self) -> None:
        if self._newest is None:
            return
        pair, view, attitude = self._newest
        self._newest = None
        self.alignment.observe(pair, view, attitude)
        angles = self.alignment.bend.angles_rad
        if np.abs(angles - self.rectifier.bend_rad).max() > LEAST_BEND_RAD:
            self.rectifier.bend(angles)


class StereoMatcher:
    """Matches pairs from one ``Rectifier``. Holds no state between frames."""

    def __init__(self, rectifier: Rectifier) -> None:
        self._rectifier = rectifier
        area = BLOCK_PX * BLOCK_PX
        self._sgm = cv2.StereoSGBM.create(
            minDisparity=LOWEST_DISPARITY, numDisparities=DISPARITIES, blockSize=BLOCK_PX, P1=8 * area, P2=32 * area,
            disp12MaxDiff=1, preFilterCap=31, uniquenessRatio=8, speckleWindowSize=60, speckleRange=1,
            mode=cv2.STEREO_SGBM_MODE_SGBM_3WAY,
        )
        kernel = np.ones((2 * BORDER_PX + 1, 2 * BORDER_PX + 1), np.uint8)
        # [H, D + C], of 0 and 255 where cv2 reads it; it treats what is outside the canvas as inside the lens
        self._left_inside = _eroded(rectifier.left_sees, kernel) > 0
        self._right_inside = _eroded(rectifier.right_sees, kernel)

    def match(self, pair: RectifiedPair, device_ns: int, shift_sd_px: float = 0.0) -> DepthView:
        """Depth of the left view; NaN where the two images don't show the same texture (or a bar's two ends)."""
        r, rows = self._rectifier, pair.rows
        left, right = pair.bright_left, pair.bright_right
        # Matched at half the rows: they cost time and carry no disparity.
        sixteenths = self._sgm.compute(_half_the_rows(left), _half_the_rows(right))
        disparity = np.repeat(sixteenths.astype(np.float32) * np.float32(1 / 16), 2, axis=0)[: len(left)]
        known = self._correlation(left, right, disparity, self._right_inside[rows]) >= (
            LEAST_CORRELATION_DARK if pair.dark else LEAST_CORRELATION
        )
        known &= self._left_inside[rows]
        known &= disparity >= LOWEST_DISPARITY
        if pair.dark:
            by_ends = np.zeros(known.shape, bool)
        else:
            by_ends = fill_bars(left, right, disparity, known, HEAD_ROWS, r.baseline_m)
        rho = np.maximum(disparity[:, DISPARITIES:], np.float32(LEAST_DISPARITY_PX))
        np.divide(np.float32(r.focal_px * r.baseline_m), rho, out=rho)
        np.copyto(rho, np.float32(np.nan), where=~known[:, DISPARITIES:])
        return DepthView(
            device_ns=device_ns,
            image=pair.left[:, DISPARITIES:],
            rho_m=rho,
            visible=r.visible[rows],
            by_ends=by_ends[:, DISPARITIES:],
            phi_rad=r.phi_rad[rows],
            tan_x=r.tan_x,
            focal_px=r.focal_px,
            baseline_m=r.baseline_m,
            disparity_sd_px=DISPARITY_SD_DARK_PX if pair.dark else DISPARITY_SD_PX,
            T_device_rect=r.T_device_rect,
            shift_sd_px=shift_sd_px,
        )

    def _correlation(self, left: U8, right: U8, disparity: F32, right_inside: U8) -> F32:
        """Normalised cross-correlation [-1, 1] of each left patch with the right patch it was matched to.

        Of detail only: shading without detail correlates with itself at every disparity, and was taken for a far wall.
        -2 where the match lies outside the right lens.
        """
        column = np.arange(disparity.shape[1], dtype=np.float32)[None, :] - disparity
        row = _rows(*disparity.shape)
        a = _detail(left)
        b = np.asarray(cv2.remap(_detail(right), column, row, cv2.INTER_LINEAR), dtype=np.float32)
        inside = cv2.remap(right_inside, column, row, cv2.INTER_NEAREST)  # 0 outside the canvas
        energy = _mean(a * a, PATCH_PX)
        energy *= _mean(b * b, PATCH_PX)
        np.sqrt(np.maximum(energy, np.float32(LEAST_ENERGY), out=energy), out=energy)
        correlation = _mean(a * b, PATCH_PX)
        correlation /= energy
        np.copyto(correlation, np.float32(-2.0), where=inside == 0)
        return correlation


def _eroded(sees: NDArray[np.bool_], kernel: U8) -> U8:
    return np.asarray(cv2.erode(np.where(sees, np.uint8(255), np.uint8(0)), kernel), dtype=np.uint8)


@functools.lru_cache(maxsize=4)
def _rows(height: int, width: int) -> F32:
    """[height, width] each pixel's row."""
    return np.repeat(np.arange(height, dtype=np.float32)[:, None], width, axis=1)


def _half_the_rows(image: U8) -> U8:
    """Every second row, from the first on, with half of each neighbour's."""
    return np.ascontiguousarray(cv2.GaussianBlur(image, (1, 3), 0)[::2])


def _mean(x: F32, size_px: int) -> F32:
    return np.asarray(cv2.boxFilter(x, -1, (size_px, size_px)), dtype=np.float32)


def _detail(image: U8) -> F32:
    x = image.astype(np.float32)
    return np.asarray(x - _mean(x, DETAIL_PX))
