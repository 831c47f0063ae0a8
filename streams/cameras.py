"""Aria's camera models in numpy, and the rig that holds every calibration of one pair of glasses.

Formulas: Kannala-Brandt K3 and Fisheye624 as published with projectaria_tools. Knows no frames over time.
Pixel coordinates have integer values at pixel centres. All arrays are float64 unless said.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from handrail.streams.errors import SourceError

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fisheye:
    """Radial (theta polynomial), tangential and thin-prism distortion; K3 is the case with zeros for the last two."""

    focal_px: tuple[float, float]
    centre_px: tuple[float, float]
    radial: tuple[float, ...]  # coefficients of theta^3, theta^5, ...
    tangential: tuple[float, float] = (0.0, 0.0)
    thin_prism: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)

    @classmethod
    def from_params(cls, model: str, params: list[float]) -> Fisheye:
        """From a projection parameter vector: ``FISHEYE624`` (15 values) or ``KANNALA_BRANDT_K3`` (8 values)."""
        p = [float(v) for v in params]
        if model == "FISHEYE624" and len(p) == 15:
            return cls((p[0], p[0]), (p[1], p[2]), tuple(p[3:9]), (p[9], p[10]), (p[11], p[12], p[13], p[14]))
        if model == "KANNALA_BRANDT_K3" and len(p) == 8:
            return cls((p[0], p[1]), (p[2], p[3]), tuple(p[4:8]))
        raise SourceError(f"camera model: expected FISHEYE624 (15) or KANNALA_BRANDT_K3 (8), got {model} ({len(p)})")

    def project(self, rays: F64) -> F64:
        """Rays [..., 3] in the camera frame (any length, also beyond 90 degrees) -> pixels [..., 2]."""
        x, y, z = rays[..., 0], rays[..., 1], rays[..., 2]
        r = np.hypot(x, y)
        theta = np.arctan2(r, z)
        scale = self._distorted(theta) / np.maximum(r, 1e-12)
        u, v = x * scale, y * scale
        p0, p1 = self.tangential
        s0, s1, s2, s3 = self.thin_prism
        r2 = u * u + v * v
        dot = 2.0 * (p0 * u + p1 * v)
        du = u + dot * u + p0 * r2 + (s0 + s1 * r2) * r2
        dv = v + dot * v + p1 * r2 + (s2 + s3 * r2) * r2
        return np.stack(
            [du * self.focal_px[0] + self.centre_px[0], dv * self.focal_px[1] + self.centre_px[1]], axis=-1
        )

    def unproject(self, pixels: F64) -> F64:
        """Pixels [..., 2] -> unit rays [..., 3]; the inverse of ``project`` to about 1e-9 inside the valid radius."""
        m = (np.asarray(pixels, dtype=np.float64) - self.centre_px) / self.focal_px
        uv = m.copy()
        p0, p1 = self.tangential
        s0, s1, s2, s3 = self.thin_prism
        for _ in range(12):  # fixed point: tangential and prism terms are below 1 %
            u, v = uv[..., 0], uv[..., 1]
            r2 = u * u + v * v
            dot = 2.0 * (p0 * u + p1 * v)
            extra = np.stack(
                [dot * u + p0 * r2 + (s0 + s1 * r2) * r2, dot * v + p1 * r2 + (s2 + s3 * r2) * r2], axis=-1
            )
            uv = m - extra
        rd = np.hypot(uv[..., 0], uv[..., 1])
        theta = np.minimum(rd, 1.8)
        for _ in range(12):  # Newton on the radial polynomial
            theta = theta - (self._distorted(theta) - rd) / self._slope(theta)
            theta = np.clip(theta, 0.0, 2.2)
        scale = np.sin(theta) / np.maximum(rd, 1e-12)
        return np.stack([uv[..., 0] * scale, uv[..., 1] * scale, np.cos(theta)], axis=-1)

    def _distorted(self, theta: F64) -> F64:
        t2 = theta * theta
        poly = np.zeros_like(theta)
        for k in reversed(self.radial):
            poly = (poly + k) * t2
        return theta * (1.0 + poly)

    def _slope(self, theta: F64) -> F64:
        t2 = theta * theta
        poly = np.zeros_like(theta)
        for i in range(len(self.radial) - 1, -1, -1):
            poly = (poly + (2 * i + 3) * self.radial[i]) * t2
        return np.maximum(1.0 + poly, 0.05)


@dataclass(frozen=True, slots=True)
class Camera:
    label: str
    model: Fisheye
    width: int  # px, native
    height: int  # px, native
    T_device_camera: F64  # [4, 4]
    valid_radius_px: float | None  # lens circle around the principal point; None: the whole frame

    def project(self, points_device: F64) -> tuple[F64, NDArray[np.bool_]]:
        """Device-frame points [..., 3] -> pixels [..., 2] and whether each falls inside the frame and lens circle."""
        rays = (points_device - self.T_device_camera[:3, 3]) @ self.T_device_camera[:3, :3]
        px = self.model.project(rays)
        return px, self.sees(px)

    def sees(self, px: F64) -> NDArray[np.bool_]:
        u, v = px[..., 0], px[..., 1]
        inside = (u >= 0) & (u <= self.width - 1) & (v >= 0) & (v <= self.height - 1)
        if self.valid_radius_px is not None:
            off = px - np.asarray(self.model.centre_px)
            inside &= np.hypot(off[..., 0], off[..., 1]) <= self.valid_radius_px
        return np.asarray(inside)

    def scaled(self, width: int, height: int) -> Camera:
        """The same camera read out at another size (e.g. calibration at 2880, frames at 1408).

        Raises SourceError when the aspect ratio differs: that would be a crop, not a scale.
        """
        if (width, height) == (self.width, self.height):
            return self
        k = width / self.width
        if abs(height / self.height - k) > 1e-3 * k:
            raise SourceError(
                f"{self.label}: calibration is for {self.width}x{self.height}, frames are {width}x{height}: "
                "not a scale of it"
            )
        m = self.model
        model = Fisheye(
            (m.focal_px[0] * k, m.focal_px[1] * k),
            ((m.centre_px[0] + 0.5) * k - 0.5, (m.centre_px[1] + 0.5) * k - 0.5),
            m.radial, m.tangential, m.thin_prism,
        )
        radius = None if self.valid_radius_px is None else self.valid_radius_px * k
        return Camera(self.label, model, width, height, self.T_device_camera, radius)


@dataclass(frozen=True, slots=True)
class ImuCalibration:
    """true = rectification @ (raw - bias), in the IMU's frame."""

    label: str
    T_device_imu: F64  # [4, 4]
    accel_bias: F64  # [3] m/s^2
    accel_rectification: F64  # [3, 3]
    gyro_bias: F64  # [3] rad/s
    gyro_rectification: F64  # [3, 3]

    def to_device(self, accel: F64, gyro: F64) -> tuple[F64, F64]:
        """Raw [N, 3] -> specific force (m/s^2) and angular rate (rad/s), both [N, 3] in device axes."""
        R = self.T_device_imu[:3, :3]
        a = (accel - self.accel_bias) @ self.accel_rectification.T @ R.T
        g = (gyro - self.gyro_bias) @ self.gyro_rectification.T @ R.T
        return a, g


@dataclass(frozen=True, slots=True)
class Rig:
    """Every calibration of one pair of glasses. Holds no serial numbers."""

    generation: int  # 1 or 2
    cameras: dict[str, Camera]
    imus: dict[str, ImuCalibration]
    T_device_cpf: F64  # [4, 4]
    magnetometer: dict[str, Any] = field(default_factory=dict)

    @property
    def stereo_pair(self) -> tuple[str, str] | None:
        """Labels (left, right) of the forward-looking SLAM pair, None when one of them is missing."""
        for left, right in (("slam-front-left", "slam-front-right"), ("camera-slam-left", "camera-slam-right")):
            if left in self.cameras and right in self.cameras:
                return left, right
        return None

    @property
    def main_imu(self) -> str | None:
        """The IMU that attitude runs on: Aria's own 1202-1 where present, else any."""
        prefer = ("imu-right", "imu-left") if self.generation == 1 else ("imu-left", "imu-right")
        return next((label for label in prefer if label in self.imus), next(iter(self.imus), None))

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers, for files and for crossing process borders."""

        def camera(c: Camera) -> dict[str, Any]:
            m = c.model
            return {
                "focal_px": list(m.focal_px), "centre_px": list(m.centre_px), "radial": list(m.radial),
                "tangential": list(m.tangential), "thin_prism": list(m.thin_prism),
                "width": c.width, "height": c.height, "valid_radius_px": c.valid_radius_px,
                "T_device_camera": c.T_device_camera.tolist(),
            }

        def imu(i: ImuCalibration) -> dict[str, Any]:
            return {
                "T_device_imu": i.T_device_imu.tolist(),
                "accel_bias": i.accel_bias.tolist(), "accel_rectification": i.accel_rectification.tolist(),
                "gyro_bias": i.gyro_bias.tolist(), "gyro_rectification": i.gyro_rectification.tolist(),
            }

        return {
            "generation": self.generation,
            "cameras": {k: camera(c) for k, c in self.cameras.items()},
            "imus": {k: imu(i) for k, i in self.imus.items()},
            "T_device_cpf": self.T_device_cpf.tolist(),
            "magnetometer": self.magnetometer,
        }

    @classmethod
    def from_json(cls, d: dict[str, Any]) -> Rig:
        """Inverse of ``to_json``. Raises SourceError naming the key that is missing or malformed."""
        try:
            cameras = {
                k: Camera(
                    k,
                    Fisheye(
                        tuple(c["focal_px"]), tuple(c["centre_px"]), tuple(c["radial"]),
                        tuple(c["tangential"]), tuple(c["thin_prism"]),
                    ),
                    int(c["width"]), int(c["height"]), np.array(c["T_device_camera"], dtype=np.float64),
                    c["valid_radius_px"],
                )
                for k, c in d["cameras"].items()
            }
            imus = {
                k: ImuCalibration(k, *(
                    np.array(i[name], dtype=np.float64)
                    for name in ("T_device_imu", "accel_bias", "accel_rectification", "gyro_bias", "gyro_rectification")
                ))
                for k, i in d["imus"].items()
            }
            return cls(int(d["generation"]), cameras, imus, np.array(d["T_device_cpf"], dtype=np.float64),
                       d.get("magnetometer", {}))
        except (KeyError, TypeError, ValueError) as e:
            raise SourceError(f"calibration: {type(e).__name__}: {e}") from e
