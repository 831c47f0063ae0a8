"""Two frames in, depth out: semi-global matching on the rectified pair, and a check that leaves plain places unknown.

Semi-global matching fills plain walls from their edges; that phantom depth must not be spoken of. So each match has to
show that the two cameras saw the *same texture*: normalised cross-correlation of the left patch with the matched right
patch. Sensor noise is independent in the two cameras, so it can't correlate, in bright light or at dusk.

Knows no motion, no floor and no earlier frame. Costs about 30 ms a pair on one core; see ``benchmarks``.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from handrail.runtime.reflex.depth import DepthView
from handrail.runtime.reflex.rectify import DISPARITIES, RectifiedPair, Rectifier

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]

# Below zero: far places stay matchable while the alignment of the cameras is a little off.
LOWEST_DISPARITY = -3
BLOCK_PX = 5
PATCH_PX = 11  # of the correlation check
LEAST_CORRELATION = 0.5  # pure noise reaches 0.3 at the best disparity, printed or woven texture 0.7 and more
LEAST_DISPARITY_PX = 0.4  # everything beyond 80 m is said to be at 80 m: far, not unknown
BORDER_PX = 4  # of the lens circle: vignetting makes false edges there
DISPARITY_SD_PX = 0.35  # one sigma where textured, measured on the simulated world; see tests/runtime/test_stereo.py
BRIGHT = 200.0  # where the 95th percentile of grey is brought before matching, so that penalties fit dusk too
LARGEST_GAIN = 6.0


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
        # [H, D + C]; cv2 treats what is outside the canvas as inside the lens
        self._left_inside = cv2.erode(rectifier.left_sees.astype(np.uint8), kernel).astype(bool)
        self._right_inside = cv2.erode(rectifier.right_sees.astype(np.uint8), kernel).astype(bool)

    def match(self, pair: RectifiedPair, device_ns: int) -> DepthView:
        """Depth of the left view; NaN where the two images don't show the same texture."""
        r, rows = self._rectifier, pair.rows
        left, right = self._balanced(pair)
        disparity = self._sgm.compute(left, right).astype(np.float32) / 16.0  # [R, D + C]
        agree = self._correlation(left, right, disparity) >= LEAST_CORRELATION
        inside = self._left_inside[rows] & self._right_inside_at(disparity, rows)
        known = (disparity >= LOWEST_DISPARITY) & agree & inside
        rho = r.focal_px * r.baseline_m / np.maximum(disparity, LEAST_DISPARITY_PX)
        rho[~known] = np.nan
        return DepthView(
            device_ns=device_ns,
            image=pair.left[:, DISPARITIES:],
            rho_m=rho[:, DISPARITIES:].astype(np.float32),
            visible=r.visible[rows],
            phi_rad=r.phi_rad[rows],
            tan_x=r.tan_x,
            focal_px=r.focal_px,
            baseline_m=r.baseline_m,
            disparity_sd_px=DISPARITY_SD_PX,
            T_device_rect=r.T_device_rect,
        )

    def _balanced(self, pair: RectifiedPair) -> tuple[U8, U8]:
        """Both images at one brightness: the cameras expose on their own (1.6 against 0.95 ms on a real corridor)."""
        r = self._rectifier
        both = (r.left_sees & r.right_sees)[pair.rows][::4, ::4]
        left, right = pair.left[::4, ::4][both], pair.right[::4, ::4][both]
        gain = float(np.clip(BRIGHT / max(float(np.percentile(left, 95)), 1.0), 1.0, LARGEST_GAIN))
        ratio = float(np.clip(float(np.median(left)) / max(float(np.median(right)), 1.0), 0.3, 3.0))
        bright_left = np.asarray(cv2.convertScaleAbs(pair.left, alpha=gain), dtype=np.uint8)
        return bright_left, np.asarray(cv2.convertScaleAbs(pair.right, alpha=gain * ratio), dtype=np.uint8)

    def _correlation(self, left: U8, right: U8, disparity: F32) -> F32:
        """Normalised cross-correlation [-1, 1] of each left patch with the right patch it was matched to."""
        height, width = disparity.shape
        column = np.arange(width, dtype=np.float32)[None, :] - disparity
        row = np.repeat(np.arange(height, dtype=np.float32)[:, None], width, axis=1)
        a = left.astype(np.float32)
        b = cv2.remap(right, column, row, cv2.INTER_LINEAR).astype(np.float32)

        def mean(x: F32) -> F32:
            return np.asarray(cv2.boxFilter(x, -1, (PATCH_PX, PATCH_PX)), dtype=np.float32)

        mean_a, mean_b = mean(a), mean(b)
        variance = (mean(a * a) - mean_a * mean_a) * (mean(b * b) - mean_b * mean_b)
        # a variance product below 1 grey level^4 is quantisation, not texture
        correlation: F32 = (mean(a * b) - mean_a * mean_b) / np.sqrt(np.maximum(variance, 1.0))
        return correlation

    def _right_inside_at(self, disparity: F32, rows: slice) -> NDArray[np.bool_]:
        width = disparity.shape[1]
        column = np.arange(width, dtype=np.int64)[None, :] - np.rint(disparity).astype(np.int64)
        inside = np.take_along_axis(self._right_inside[rows], np.clip(column, 0, width - 1), axis=1)
        return np.asarray(inside & (column >= 0) & (column < width))
