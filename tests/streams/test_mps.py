"""MPS output is read as Aria's own readers read it, whatever the version of its columns; a bad file names its fault."""

from __future__ import annotations

import csv
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.streams.clock import run_virtual
from handrail.streams.errors import SourceError
from handrail.streams.mps import batches, find_mps, read_gaze, read_hands, read_mps, read_poses
from handrail.streams.samples import Gaze, Hands, PoseBatch, Sample
from handrail.streams.source import DecodePlan, SourceInfo, open_source

ARIA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "aria"
MPS1, MPS2 = ARIA / "mps_gen1", ARIA / "mps_gen2"
GEN1 = ARIA / "gen1" / "bedroom_profile9.vrs"

needs_recordings = pytest.mark.skipif(not MPS1.is_dir(), reason="real MPS output is not beside the repository")

POSE_COLUMNS = [
    "tracking_timestamp_us", *(f"t{a}_odometry_device" for a in "xyz"), *(f"q{a}_odometry_device" for a in "xyzw"),
    *(f"device_linear_velocity_{a}_odometry" for a in "xyz"), *(f"angular_velocity_{a}_device" for a in "xyz"),
    *(f"gravity_{a}_odometry" for a in "xyz"), "quality_score",
]  # fmt: skip
STILL = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, -9.81, 1]


def write(path: Path, columns: list[str], rows: list[list[Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


# ---- against Aria's own readers --------------------------------------------------------------------------------------


@needs_recordings
@pytest.mark.parametrize("loop", ["open", "closed"])
def test_trajectories_are_those_of_arias_reader(loop: str) -> None:
    from projectaria_tools.core import mps

    path = MPS1 / "trajectory" / f"{loop}_loop_trajectory.csv"
    theirs = getattr(mps, f"read_{loop}_loop_trajectory")(str(path))
    own = read_poses(path)
    assert len(own.device_ns) == len(theirs) > 10_000 and own.causal == (loop == "open")
    for i in range(0, len(theirs), 97):
        pose = theirs[i]
        T = (pose.transform_odometry_device if loop == "open" else pose.transform_world_device).to_matrix()
        assert own.device_ns[i] == pose.tracking_timestamp.total_seconds() * 1e9
        assert np.allclose(own.position_m[i], T[:3, 3], atol=1e-6)
        x, y, z, w = own.quaternion_xyzw[i]
        first_column = [1 - 2 * (y * y + z * z), 2 * (x * y + z * w), 2 * (x * z - y * w)]
        assert np.allclose(first_column, T[:3, 0], atol=1e-5)
        velocity = (
            pose.device_linear_velocity_odometry if loop == "open" else T[:3, :3] @ pose.device_linear_velocity_device
        )
        assert np.allclose(own.velocity_msec[i], np.ravel(velocity), atol=1e-5)
        assert np.allclose(own.angular_velocity_radsec[i], np.ravel(pose.angular_velocity_device), atol=1e-6)
        assert own.quality[i] == pytest.approx(pose.quality_score)


@needs_recordings
def test_velocities_are_the_slope_of_positions_so_they_are_in_the_frame_they_claim() -> None:
    for loop in ("open", "closed"):
        own = read_poses(MPS1 / "trajectory" / f"{loop}_loop_trajectory.csv")
        slope = np.gradient(own.position_m, own.device_ns / 1e9, axis=0)
        assert np.median(np.linalg.norm(slope - own.velocity_msec, axis=1)) < 0.05


@needs_recordings
@pytest.mark.parametrize(
    "path",
    [MPS1 / "eye_gaze/eyegaze.csv", MPS1 / "eye_gaze/generalized_eye_gaze.csv",
     MPS1 / "eye_gaze_vergence/generalized_gaze.csv", MPS2 / "eye_gaze/personalized_eye_gaze.csv",
     MPS2 / "eye_gaze/general_eye_gaze.csv"],
    ids=lambda p: p.stem,
)  # fmt: skip
def test_every_version_of_gaze_is_read_as_aria_reads_it(path: Path) -> None:
    from projectaria_tools.core import mps

    theirs = mps.read_eyegaze(str(path))
    own = list(read_gaze(path))
    assert len(own) == len(theirs) > 3
    for (t, gaze), g in zip(own, theirs, strict=True):
        assert t == round(g.tracking_timestamp.total_seconds() * 1e6) * 1000
        assert gaze.yaw_rad == pytest.approx(g.yaw, abs=1e-6) and gaze.pitch_rad == pytest.approx(g.pitch, abs=1e-6)
        if gaze.depth_m is not None:
            assert gaze.depth_m == pytest.approx(g.depth, abs=1e-5)


@needs_recordings
def test_a_positive_yaw_looks_to_the_left_as_aria_has_it() -> None:
    from projectaria_tools.core import mps

    x, y, z = np.ravel(mps.get_eyegaze_point_at_depth(0.3, 0.2, 1.0))  # the cpf frame: x left, y up, z forward
    assert x > 0 and y > 0 and z > 0


@needs_recordings
@pytest.mark.parametrize("version", [1, 2])
def test_both_versions_of_hands_are_read_as_aria_reads_them(version: int) -> None:
    from projectaria_tools.core.mps import hand_tracking

    path = MPS1 / "hand_tracking" / f"hand_tracking_results_v{version}.csv"
    theirs = hand_tracking.read_hand_tracking_results(str(path))
    own = list(read_hands(path))
    assert len(own) == len(theirs) > 3
    for (t, hands), h in zip(own, theirs, strict=True):
        assert t == round(h.tracking_timestamp.total_seconds() * 1e6) * 1000
        for ours, side in ((hands.left, h.left_hand), (hands.right, h.right_hand)):
            assert (ours is None) == (side is None)
            if ours is None:
                continue
            assert ours.confidence == pytest.approx(side.confidence, abs=1e-6)
            assert np.allclose(ours.landmarks_m, side.landmark_positions_device)
            assert np.allclose(ours.wrist_m, side.get_wrist_position_device())
            assert np.allclose(ours.palm_m, side.get_palm_position_device())
            normals = side.wrist_and_palm_normal_device
            assert (ours.palm_normal is None) == (normals is None) == (version == 1)
            if normals is not None:
                assert np.allclose(ours.palm_normal, normals.palm_normal_device)  # type: ignore[arg-type]


# ---- beside a recording ----------------------------------------------------------------------------------------------


async def _collect(uri: str) -> tuple[SourceInfo, list[Sample]]:
    async with open_source(uri, DecodePlan(stereo_hz=0.0)) as source:
        return source.info, [s async for s in source.samples()]


def _shifted(path: Path, to: Path, shift_us: int) -> None:
    """A real file's rows in the time of another recording."""
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    at = header.index("tracking_timestamp_us")
    write(to, header, [[*r[:at], int(r[at]) + shift_us, *r[at + 1 :]] for r in rows])


@pytest.fixture
def with_mps(tmp_path: Path) -> Path:
    """The Gen 1 recording with real MPS output of another one, moved into its time."""
    recording = tmp_path / "walk.vrs"
    shutil.copy(GEN1, recording)
    start_us = 86_348_000
    for source, to, first in (
        ("trajectory/open_loop_trajectory.csv", "slam/open_loop_trajectory.csv", 149_202_610),
        ("trajectory/closed_loop_trajectory.csv", "slam/closed_loop_trajectory.csv", 149_202_610),
        ("eye_gaze/generalized_eye_gaze.csv", "eye_gaze/general_eye_gaze.csv", 148_502_622),
        ("hand_tracking/hand_tracking_results_v2.csv", "hand_tracking/hand_tracking_results.csv", 1_762_609_162),
    ):
        _shifted(MPS1 / source, tmp_path / "mps_walk_vrs" / to, start_us - first)
    return recording


@needs_recordings
def test_mps_output_beside_a_recording_joins_its_samples_in_order(with_mps: Path) -> None:
    info, samples = run_virtual(_collect(f"vrs:{with_mps}?loop=2"))
    by = {label: [s for s in samples if s.stream.label == label] for label in ("mps-pose", "mps-gaze", "mps-hands")}
    assert {s.label for s in info.streams} >= set(by)
    folder, first_ns, last_ns = with_mps.parent / "mps_walk_vrs", info.first_device_ns, 86_750_047_264
    for label, times in (
        ("mps-pose", read_poses(folder / "slam/open_loop_trajectory.csv").device_ns.tolist()),
        ("mps-gaze", [t for t, _ in read_gaze(folder / "eye_gaze/general_eye_gaze.csv")]),
        ("mps-hands", [t for t, _ in read_hands(folder / "hand_tracking/hand_tracking_results.csv")]),
    ):
        inside = sum(first_ns <= t <= last_ns for t in times)
        assert sum(s.count for s in by[label]) == 2 * inside > 2, label
    for stream in by.values():
        assert np.all(np.diff([s.device_ns for s in stream]) > 0)
    for s in by["mps-pose"]:
        assert isinstance(s.payload, PoseBatch) and s.payload.causal
        assert s.payload.device_ns[-1] == s.device_ns and np.ptp(s.payload.device_ns) < 10_000_000
    assert all(isinstance(s.payload, Gaze) for s in by["mps-gaze"])
    assert all(isinstance(s.payload, Hands) for s in by["mps-hands"])
    assert any("mps-pose is offline" in n for n in info.notes)
    assert any("the general one is used" in n for n in info.notes)
    assert [s.host_ns for s in samples] == sorted(s.host_ns for s in samples)


@needs_recordings
def test_the_closed_loop_is_read_only_when_asked_for_and_marked(with_mps: Path) -> None:
    info, samples = run_virtual(_collect(f"vrs:{with_mps}?non_causal=1"))
    poses = [s.payload for s in samples if s.stream.label == "mps-pose"]
    assert poses and not any(p.causal for p in poses if isinstance(p, PoseBatch))
    assert any("looks into the future" in n for n in info.notes)


@needs_recordings
def test_output_of_another_recording_and_a_missing_closed_loop_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="belongs to another one"):
        run_virtual(_collect(f"vrs:{GEN1}?mps={MPS1}"))
    with pytest.raises(SourceError, match="non_causal=1 needs MPS output"):
        run_virtual(_collect(f"vrs:{GEN1}?non_causal=1"))
    with pytest.raises(SourceError, match="expected a folder of MPS output"):
        run_virtual(_collect(f"vrs:{GEN1}?mps={tmp_path / 'nowhere'}"))


@pytest.mark.parametrize("name", ["mps_walk_vrs", "mps_walk", "mps"])
def test_the_folders_that_mps_makes_are_found(name: str, tmp_path: Path) -> None:
    assert find_mps(tmp_path / "walk.vrs") is None
    (tmp_path / name).mkdir()
    assert find_mps(tmp_path / "walk.vrs") == tmp_path / name


def test_personalised_gaze_comes_before_the_general_one(tmp_path: Path) -> None:
    columns = ["tracking_timestamp_us", "yaw_rads_cpf", "pitch_rads_cpf"]
    write(tmp_path / "eye_gaze" / "general_eye_gaze.csv", columns, [[5, 0.1, 0.2]])
    assert read_mps(tmp_path).gaze[0][1].yaw_rad == 0.1
    write(tmp_path / "eye_gaze" / "personalized_eye_gaze.csv", columns, [[5, 0.3, 0.2]])
    assert read_mps(tmp_path).gaze[0][1].yaw_rad == 0.3


# ---- any file --------------------------------------------------------------------------------------------------------


def test_columns_in_another_order_extra_ones_a_byte_order_mark_and_blank_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "gaze.csv"
    path.write_bytes(
        b"\xef\xbb\xbfextra,pitch_rads_cpf,depth_m,yaw_rads_cpf,tracking_timestamp_us\r\n"
        b"x,0.2,,0.1,2000\r\n\r\ny,0.4,1.5,0.3,1000\r\nz,0,0,0,-1\r\n"
    )
    assert list(read_gaze(path)) == [  # by time; the row without a time is left out
        (1_000_000, Gaze(0.3, 0.4, 1.5, 0.3, 0.3, 0.4, 0.4)),
        (2_000_000, Gaze(0.1, 0.2, None, 0.1, 0.1, 0.2, 0.2)),
    ]


@pytest.mark.parametrize("column", POSE_COLUMNS)
def test_a_missing_column_is_named_with_its_file(column: str, tmp_path: Path) -> None:
    at = POSE_COLUMNS.index(column)
    columns, row = [c for c in POSE_COLUMNS if c != column], [1, *STILL]
    path = write(tmp_path / "open_loop_trajectory.csv", columns, [row[:at] + row[at + 1 :]])
    with pytest.raises(SourceError, match=rf"open_loop_trajectory\.csv: expected a column {column}, found none"):
        read_poses(path)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("tx_odometry_device", "oops", "expected a number, got 'oops'"),
        ("tx_odometry_device", "", "expected a number, got ''"),
        ("quality_score", "nan", "expected a finite number, got 'nan'"),
        ("qw_odometry_device", "0.5", "expected a unit quaternion, got '0.5'"),
        ("tracking_timestamp_us", "1e30", "expected microseconds"),
    ],
)
def test_a_malformed_value_is_named_with_file_line_and_column(
    column: str, value: str, said: str, tmp_path: Path
) -> None:
    good: list[Any] = [1, *STILL]
    bad: list[Any] = [2, *STILL]
    bad[POSE_COLUMNS.index(column)] = value
    path = write(tmp_path / "open_loop_trajectory.csv", POSE_COLUMNS, [good, bad])
    with pytest.raises(SourceError, match=rf"open_loop_trajectory\.csv, line 3, column {column}: {said}"):
        read_poses(path)


def test_a_row_cut_short_and_a_file_that_is_no_text_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "open_loop_trajectory.csv", POSE_COLUMNS, [[1, *STILL], [2, 0, 0]])
    with pytest.raises(SourceError, match="line 3: expected 18 columns, got 3"):
        read_poses(path)
    path.write_bytes(b"\xff\xfe\x00\x01" * 50)
    with pytest.raises(SourceError, match="expected a CSV file"):
        read_poses(path)
    path.write_bytes(b"")
    with pytest.raises(SourceError, match="expected a column"):
        read_poses(path)


@pytest.mark.parametrize("reader", [read_poses, read_gaze, read_hands])
@given(content=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda t: ("tracking_timestamp_us," + t).encode())))  # fmt: skip  # noqa: E501
@settings(max_examples=150, deadline=None)
def test_any_file_is_read_or_refused_in_one_error(
    reader: Callable[[Path], Any], content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(content)
    try:
        result = reader(path)
        if not isinstance(result, PoseBatch):
            list(result)
    except SourceError as e:
        assert "any.csv" in str(e)


@given(steps=st.lists(st.integers(0, 30_000_000), min_size=1, max_size=60))
@settings(max_examples=100, deadline=None)
def test_batches_keep_every_pose_once_and_span_less_than_ten_milliseconds(steps: list[int]) -> None:
    t = np.cumsum(np.array(steps, dtype=np.int64))
    n = len(t)
    three, four = (np.arange(k * n, dtype=np.float64).reshape(n, k) for k in (3, 4))
    whole = PoseBatch(t, three, four, three, three, np.array([0.0, 0.0, -9.81]), np.ones(n), True)
    parts = list(batches(whole))
    assert np.array_equal(np.concatenate([p.device_ns for p in parts]), t)
    assert np.array_equal(np.concatenate([p.position_m for p in parts]), whole.position_m)
    assert all(p.device_ns[-1] - p.device_ns[0] < 10_000_000 for p in parts)


def test_two_eyes_combine_to_the_yaw_between_them(tmp_path: Path) -> None:
    columns = ["tracking_timestamp_us", "pitch_rads_cpf", *(f"{side}_yaw{end}_rads_cpf" for side in ("left", "right")
               for end in ("", "_low", "_high"))]  # fmt: skip
    path = write(tmp_path / "gaze.csv", columns, [[1, 0.0, -0.2, -0.3, -0.1, 0.2, 0.1, 0.3]])
    ((_, gaze),) = read_gaze(path)
    assert gaze.yaw_rad == pytest.approx(0.0, abs=1e-12)
    assert gaze.yaw_low_rad < 0 < gaze.yaw_high_rad and math.isclose(gaze.yaw_low_rad, -gaze.yaw_high_rad)
