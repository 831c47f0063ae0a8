"""What Aria's Machine Perception Services wrote beside a recording: pose, gaze and hands, from their CSV files.

Two versions of the gaze and hand columns are read; columns beyond those needed are ignored. Open-loop poses are causal;
the closed loop was computed from the whole recording and is read only when asked for. Knows no recording but its path.
Files hold microseconds of device time and metres, radians; here times are nanoseconds. -1 in a time is a missing time,
a negative confidence a hand that was not seen.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from handrail.streams.errors import SourceError
from handrail.streams.samples import F64, I64, Gaze, Hand, Hands, PoseBatch

LANDMARKS, WRIST, PALM = 21, 5, 20  # how many; which ones are the wrist and the centre of the palm
BATCH_NS = 10_000_000

GAZE_FILES = (  # personalised first
    "eye_gaze/personalized_eye_gaze.csv", "eye_gaze/general_eye_gaze.csv", "eye_gaze/generalized_eye_gaze.csv",
    "eye_gaze/generalized_gaze.csv", "eye_gaze/eyegaze.csv", "personalized_eye_gaze.csv", "general_eye_gaze.csv",
    "generalized_eye_gaze.csv", "eyegaze.csv",
)  # fmt: skip
HANDS_FILES = ("hand_tracking/hand_tracking_results.csv", "hand_tracking_results.csv")
_POSE_FOLDERS = ("slam/", "trajectory/", "")


@dataclass(frozen=True, slots=True)
class MpsOutput:
    """Each by rising device time; None or empty where there was no file."""

    poses: PoseBatch | None
    gaze: tuple[tuple[int, Gaze], ...]  # (device_ns, gaze)
    hands: tuple[tuple[int, Hands], ...]
    notes: tuple[str, ...]

    def span_ns(self) -> tuple[int, int] | None:
        """First and last device time in it, None when it is empty."""
        times = [] if self.poses is None else self.poses.device_ns[[0, -1]].tolist()
        times += [t for t, _ in (*self.gaze[:1], *self.gaze[-1:], *self.hands[:1], *self.hands[-1:])]
        return (min(times), max(times)) if times else None


def find_mps(recording: Path) -> Path | None:
    """The folder that MPS makes beside ``walk.vrs``: ``mps_walk_vrs``, ``mps_walk`` or ``mps``."""
    names = (f"mps_{recording.stem}_vrs", f"mps_{recording.stem}", "mps")
    return next((f for name in names if (f := recording.parent / name).is_dir()), None)


def read_mps(folder: Path, non_causal: bool = False) -> MpsOutput:
    """Read what there is. Raises SourceError that names the file, and the column and line that are wrong."""
    if not folder.is_dir():
        raise SourceError(f"mps: expected a folder of MPS output, {folder} is none")
    loop = "closed" if non_causal else "open"
    pose_file = _first(folder, [f"{place}{loop}_loop_trajectory.csv" for place in _POSE_FOLDERS])
    gaze_file, hands_file = _first(folder, GAZE_FILES), _first(folder, HANDS_FILES)
    notes = [
        f"{label} is offline: MPS computed it after the recording ({path.name})"
        for label, path in (("mps-pose", pose_file), ("mps-gaze", gaze_file), ("mps-hands", hands_file))
        if path is not None
    ]
    if non_causal:
        if pose_file is None:
            raise SourceError(f"non_causal=1: expected closed_loop_trajectory.csv in {folder}, found none")
        notes.append("mps-pose is the closed loop: it looks into the future, nothing live can have it")
    if gaze_file is not None and gaze_file.name != "personalized_eye_gaze.csv":
        notes.append("no personalised gaze: the general one is used")
    if not (pose_file or gaze_file or hands_file):
        notes.append("the MPS folder holds no trajectory, gaze or hand file")
    return MpsOutput(
        poses=read_poses(pose_file) if pose_file else None,
        gaze=tuple(read_gaze(gaze_file)) if gaze_file else (),
        hands=tuple(read_hands(hands_file)) if hands_file else (),
        notes=tuple(notes),
    )


def read_poses(path: Path) -> PoseBatch:
    """All poses of an ``open_loop_trajectory.csv`` or ``closed_loop_trajectory.csv``, N rows."""
    table = _Table(path)
    frame = "world" if table.has("tx_world_device") else "odometry"
    quaternion = table.columns([f"q{a}_{frame}_device" for a in "xyzw"])
    velocity_frame = "device" if frame == "world" else "odometry"
    velocity = table.columns([f"device_linear_velocity_{a}_{velocity_frame}" for a in "xyz"])
    norms = np.linalg.norm(quaternion, axis=1, keepdims=True)
    if np.any(~(np.abs(norms - 1.0) < 0.01)):
        raise table.wrong(f"qw_{frame}_device", int(np.argmax(~(np.abs(norms - 1.0) < 0.01))), "a unit quaternion")
    quaternion = quaternion / norms
    gravity = table.columns([f"gravity_{a}_{frame}" for a in "xyz"])
    if not len(gravity):
        raise SourceError(f"{path}: expected poses, found none")
    return PoseBatch(
        device_ns=table.times_ns,
        position_m=table.columns([f"t{a}_{frame}_device" for a in "xyz"]),
        quaternion_xyzw=quaternion,
        velocity_msec=_rotated(quaternion, velocity) if frame == "world" else velocity,
        angular_velocity_radsec=table.columns([f"angular_velocity_{a}_device" for a in "xyz"]),
        gravity_msec2=gravity[-1],
        quality=table.columns(["quality_score"])[:, 0],
        causal=frame == "odometry",
    )


def cut(poses: PoseBatch, start: int, end: int) -> PoseBatch:
    """Poses ``start`` to ``end`` (by index) of a batch."""
    part = slice(start, end)
    return PoseBatch(
        poses.device_ns[part], poses.position_m[part], poses.quaternion_xyzw[part], poses.velocity_msec[part],
        poses.angular_velocity_radsec[part], poses.gravity_msec2, poses.quality[part], poses.causal,
    )  # fmt: skip


def batches(poses: PoseBatch) -> Iterator[PoseBatch]:
    """Cut a long batch into ones that span less than 10 ms."""
    start = 0
    while start < len(poses.device_ns):
        end = int(np.searchsorted(poses.device_ns, poses.device_ns[start] + BATCH_NS))
        yield cut(poses, start, end)
        start = end


def read_gaze(path: Path) -> Iterator[tuple[int, Gaze]]:
    """Combined gaze, or two eyes' yaw where the file has only those (combined: the mean of their tangents)."""
    table = _Table(path)
    if table.has("yaw_rads_cpf"):
        yaw = table.columns(["yaw_rads_cpf"])[:, 0]
        bounds = ("yaw_low_rads_cpf", "yaw_high_rads_cpf")
        low, high = (table.columns([c], may_be_empty=True)[:, 0] if table.has(c) else yaw for c in bounds)
    else:
        yaw = _combined(table.columns(["left_yaw_rads_cpf", "right_yaw_rads_cpf"]))
        low, high = (
            _combined(table.columns([f"left_yaw_{e}_rads_cpf", f"right_yaw_{e}_rads_cpf"])) for e in ("low", "high")
        )
    pitch = table.columns(["pitch_rads_cpf"])[:, 0]
    ends = ("pitch_low_rads_cpf", "pitch_high_rads_cpf")
    pitch_low, pitch_high = (table.columns([c], may_be_empty=True)[:, 0] if table.has(c) else pitch for c in ends)
    unknown = np.full(len(yaw), np.nan)
    depth = table.columns(["depth_m"], may_be_empty=True)[:, 0] if table.has("depth_m") else unknown
    rows = np.stack([yaw, pitch, depth, low, high, pitch_low, pitch_high], axis=1).tolist()
    for t, (y, p, d, *around) in zip(table.times_ns.tolist(), rows, strict=True):
        yield t, Gaze(y, p, d if d > 0 else None, *around)


def read_hands(path: Path) -> Iterator[tuple[int, Hands]]:
    """Both hands, 21 landmarks each; the palm's normal only in the second version of the file."""
    table = _Table(path)
    left, right = _side(table, "left"), _side(table, "right")
    for t, left_hand, right_hand in zip(table.times_ns.tolist(), left, right, strict=True):
        yield t, Hands(left_hand, right_hand)


def _side(table: _Table, side: str) -> list[Hand | None]:
    confidence = table.columns([f"{side}_tracking_confidence"])[:, 0].tolist()
    names = [f"t{a}_{side}_landmark_{i}_device" for i in range(LANDMARKS) for a in "xyz"]
    landmarks = table.columns(names, may_be_empty=True).reshape(-1, LANDMARKS, 3)
    normal_names = [f"n{a}_{side}_palm_device" for a in "xyz"]
    normals = table.columns(normal_names, may_be_empty=True) if table.has(normal_names[0]) else None
    return [
        Hand(c, landmarks[i], landmarks[i, WRIST], landmarks[i, PALM], None if normals is None else normals[i])
        if c >= 0 and np.all(np.isfinite(landmarks[i]))
        else None
        for i, c in enumerate(confidence)
    ]


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    return next((path for name in names if (path := folder / name).is_file()), None)


def _combined(yaws: F64) -> F64:
    """[N, 2] left and right yaw -> the yaw from between the eyes to where the two lines of sight cross."""
    return np.asarray(np.arctan(np.tan(yaws).mean(axis=1)))


def _rotated(q: F64, v: F64) -> F64:
    """Vectors [N, 3] turned by unit quaternions xyzw [N, 4]."""
    axis, w = q[:, :3], q[:, 3:]
    twice = 2.0 * np.cross(axis, v)
    return np.asarray(v + w * twice + np.cross(axis, twice))


class _Table:
    """A CSV file with a header, its rows sorted by time and those without a time left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                reader = csv.reader(file)
                self._header = [name.strip() for name in next(reader, [])]
                self._rows = [(reader.line_num, row) for row in reader if row]
        except (OSError, UnicodeDecodeError, csv.Error) as e:
            raise SourceError(f"{path}: expected a CSV file, can't read it: {e}") from e
        for line, row in self._rows:
            if len(row) != len(self._header):
                raise SourceError(f"{path}, line {line}: expected {len(self._header)} columns, got {len(row)}")
        times = self.columns(["tracking_timestamp_us"])[:, 0]
        if np.any(np.abs(times) > 2**52):
            raise self.wrong("tracking_timestamp_us", int(np.argmax(np.abs(times) > 2**52)), "microseconds")
        known = [i for i in np.argsort(times, kind="stable").tolist() if times[i] >= 0]
        self._rows = [self._rows[i] for i in known]
        self.times_ns: I64 = np.round(times[known]).astype(np.int64) * 1000

    def has(self, column: str) -> bool:
        return column in self._header

    def columns(self, names: Sequence[str], may_be_empty: bool = False) -> F64:
        """[N, len(names)]; an empty field is NaN where allowed. Raises SourceError naming file, column and line."""
        out = np.empty((len(self._rows), len(names)))
        for k, name in enumerate(names):
            if name not in self._header:
                raise SourceError(f"{self._path}: expected a column {name}, found none")
            at = self._header.index(name)
            for i, (_, row) in enumerate(self._rows):
                try:
                    out[i, k] = float(row[at]) if row[at] or not may_be_empty else math.nan
                except ValueError:
                    raise self.wrong(name, i, "a number") from None
            if not may_be_empty and not np.all(np.isfinite(out[:, k])):
                raise self.wrong(name, int(np.argmax(~np.isfinite(out[:, k]))), "a finite number")
        return out

    def wrong(self, column: str, row: int, expected: str) -> SourceError:
        line, fields = self._rows[row]
        got = fields[self._header.index(column)][:40]
        return SourceError(f"{self._path}, line {line}, column {column}: expected {expected}, got {got!r}")
