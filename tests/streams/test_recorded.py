"""Real recordings come out whole, in order, with the pixels and calibrations that Aria's own reader gives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from handrail.streams import recorded
from handrail.streams.clock import run_virtual
from handrail.streams.errors import MissingDependencyError, SourceError
from handrail.streams.reader import process
from handrail.streams.samples import AudioBlock, Gaze, Hands, ImageFrame, ImuBatch, Kind, Notice, PoseBatch, Sample
from handrail.streams.source import DecodePlan, SourceInfo, open_source

ARIA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "aria"
GEN2 = ARIA / "gen2" / "corridor_profile8.vrs"
GEN1 = ARIA / "gen1" / "bedroom_profile9.vrs"
ALL = [GEN1, ARIA / "gen1" / "kitchen_adt.vrs", GEN2]

needs_recordings = pytest.mark.skipif(not GEN2.is_file(), reason="real recordings are not beside the repository")


async def _collect(uri: str, plan: DecodePlan, on_sample: Callable[[int], None]) -> tuple[SourceInfo, list[Sample]]:
    samples = []
    async with open_source(uri, plan) as source:
        async for sample in source.samples():
            samples.append(sample)
            on_sample(len(samples))
        return source.info, samples


def read(
    uri: str, plan: DecodePlan | None = None, on_sample: Callable[[int], None] = lambda n: None
) -> tuple[SourceInfo, list[Sample]]:
    return run_virtual(_collect(uri, plan or DecodePlan(), on_sample))


def notices(samples: list[Sample], what: str) -> list[str]:
    return [s.payload.detail for s in samples if isinstance(s.payload, Notice) and s.payload.what == what]


def counts(samples: list[Sample]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for s in samples:
        total[s.stream.label] += s.count
    return {label: n for label, n in total.items() if n}


def decoded(samples: list[Sample], label: str) -> list[tuple[int, ImageFrame]]:
    return [
        (s.device_ns, s.payload)
        for s in samples
        if s.stream.label == label and isinstance(s.payload, ImageFrame) and s.payload.pixels is not None
    ]


def provider(path: Path) -> Any:
    from projectaria_tools.core import data_provider

    return data_provider.create_vrs_data_provider(str(path))


# ---- whole and in order ----------------------------------------------------------------------------------------------


@needs_recordings
@pytest.mark.parametrize("path", ALL, ids=lambda p: p.stem)
def test_every_stream_is_counted_as_the_recording_has_it(path: Path) -> None:
    info, samples = read(f"vrs:{path}")
    p = provider(path)
    truth = {p.get_label_from_stream_id(s): p.get_num_data(s) for s in p.get_all_streams()}
    assert {s.label for s in info.streams} == set(truth)
    assert counts(samples) == {label: n for label, n in truth.items() if n}
    assert notices(samples, "fault") == []
    assert isinstance(samples[-1].payload, Notice) and samples[-1].payload.what == "end"


@needs_recordings
def test_samples_arrive_in_order_and_each_stream_in_order_of_capture() -> None:
    _, samples = read(f"vrs:{GEN2}?loop=3")
    arrivals = [s.host_ns for s in samples]
    assert arrivals == sorted(arrivals)
    newest: dict[str, int] = {}
    for s in samples:
        if s.stream.kind is not Kind.NOTICE:
            assert s.device_ns > newest.get(s.stream.label, -1) or s.stream.label == "bluetooth"
            newest[s.stream.label] = s.device_ns


@needs_recordings
def test_packed_batches_span_at_most_ten_milliseconds_and_end_at_their_sample_time() -> None:
    _, samples = read(f"vrs:{GEN2}")
    batches = [s for s in samples if isinstance(s.payload, ImuBatch | PoseBatch)]
    assert len(batches) > 60
    for s in batches:
        assert isinstance(s.payload, ImuBatch | PoseBatch)
        times = s.payload.device_ns
        assert times[-1] - times[0] < 10_000_000 and times[-1] == s.device_ns and np.all(np.diff(times) > 0)


@needs_recordings
def test_two_readings_are_the_same_to_the_bit() -> None:
    def trace() -> list[tuple[Any, ...]]:
        _, samples = read(f"vrs:{GEN2}?loop=2")
        return [(s.stream.label, s.device_ns, s.host_ns, repr(s.payload)) for s in samples]

    assert trace() == trace()


@needs_recordings
def test_nothing_of_native_chatter_reaches_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    read(f"vrs:{GEN2}")
    assert capfd.readouterr() == ("", "")


# ---- what is in the samples ------------------------------------------------------------------------------------------


@needs_recordings
@pytest.mark.parametrize(("path", "rgb_hz"), [(GEN1, 10.0), (GEN2, 10.0)], ids=["gen1", "gen2"])
def test_pixels_of_planned_frames_are_those_of_arias_reader_though_frames_between_are_skipped(
    path: Path, rgb_hz: float
) -> None:
    _, samples = read(f"vrs:{path}", DecodePlan(stereo_hz=10.0, rgb_hz=rgb_hz))
    p = provider(path)
    for label in ("camera-rgb", "slam-front-left", "camera-slam-right"):
        for _, frame in decoded(samples, label):
            image, record = p.get_image_data_by_index(p.get_stream_id_from_label(label), frame.frame_number)
            assert frame.pixels is not None and np.array_equal(frame.pixels, image.to_numpy_array())
            assert frame.exposure_s == record.exposure_duration and frame.gain == record.gain
    assert len(decoded(samples, "camera-rgb")) >= 3


@needs_recordings
def test_both_cameras_of_the_pair_are_decoded_in_step_and_nothing_else_is() -> None:
    info, samples = read(f"vrs:{GEN2}?loop=4", DecodePlan(stereo_hz=10.0))
    assert info.rig.stereo_pair == ("slam-front-left", "slam-front-right")
    left, right = (decoded(samples, label) for label in info.rig.stereo_pair)
    assert len(left) == len(right) == 12
    assert all(abs(a - b) < 2_000_000 for (a, _), (b, _) in zip(left, right, strict=True))
    others = {s.label for s in info.streams} - set(info.rig.stereo_pair)
    assert not any(decoded(samples, label) for label in others)


@needs_recordings
def test_rates_of_the_plan_hold_across_the_laps_of_a_short_recording() -> None:
    _, samples = read(f"vrs:{GEN2}?loop=7", DecodePlan(stereo_hz=0.0, rgb_hz=1.0, other_hz={"slam-side-left": 5.0}))
    rgb = [t for t, _ in decoded(samples, "camera-rgb")]
    side = [t for t, _ in decoded(samples, "slam-side-left")]
    assert len(rgb) == 3 and min(np.diff(rgb)) > 0.95e9
    assert 9 <= len(side) <= 11 and min(np.diff(side)) > 0.18e9
    assert decoded(samples, "slam-front-left") == []


@needs_recordings
def test_imu_values_are_arias_and_rectify_as_arias_calibration_does() -> None:
    info, samples = read(f"vrs:{GEN1}")
    p, label = provider(GEN1), "imu-left"
    stream, calibration = p.get_stream_id_from_label(label), p.get_device_calibration().get_imu_calib(label)
    batches = [s.payload for s in samples if s.stream.label == label and isinstance(s.payload, ImuBatch)]
    accel, gyro = (np.concatenate([getattr(b, k) for b in batches]) for k in ("accel_msec2", "gyro_radsec"))
    own = info.rig.imus[label]
    R = own.T_device_imu[:3, :3]
    assert np.allclose(own.T_device_imu, calibration.get_transform_device_imu().to_matrix())
    got_accel, got_gyro = own.to_device(accel, gyro)
    for i in range(0, len(accel), 40):
        raw = p.get_imu_data_by_index(stream, i)
        assert accel[i].tolist() == list(raw.accel_msec2) and gyro[i].tolist() == list(raw.gyro_radsec)
        assert np.allclose(got_accel[i], R @ calibration.raw_to_rectified_accel(accel[i]), atol=1e-9)
        assert np.allclose(got_gyro[i], R @ calibration.raw_to_rectified_gyro(gyro[i]), atol=1e-9)


@needs_recordings
def test_the_magnetometer_is_calibrated_as_arias_is_and_by_the_same_keys_as_the_worlds() -> None:
    info, _ = read(f"vrs:{GEN2}", DecodePlan(stereo_hz=0.0))
    calibration = provider(GEN2).get_device_calibration()
    own, raw = info.rig.magnetometer["mag0"], np.array([2e-5, -4e-5, 1e-5])
    true = np.array(own["rectification"]) @ (raw - own["bias"])
    assert np.allclose(true, calibration.get_magnetometer_calib("mag0").raw_to_rectified(raw), atol=1e-12)
    assert np.allclose(own["T_device_mag"], calibration.get_transform_device_sensor("mag0", True).to_matrix())
    world = json.loads((Path(recorded.__file__).parent / "world" / "gen2.json").read_text())
    assert set(own) == set(world["magnetometer"]["mag0"])


@needs_recordings
@pytest.mark.parametrize("path", ALL, ids=lambda p: p.stem)
def test_cameras_project_as_arias_do_and_the_rig_bears_no_serial_number(path: Path) -> None:
    info, _ = read(f"vrs:{path}", DecodePlan(stereo_hz=0.0))
    p = provider(path)
    calibration = p.get_device_calibration()
    text = json.dumps(info.rig.to_json())
    assert np.allclose(info.rig.T_device_cpf, calibration.get_transform_device_cpf().to_matrix())
    for label, camera in info.rig.cameras.items():
        theirs = calibration.get_camera_calib(label)
        assert not theirs.get_serial_number() or theirs.get_serial_number() not in text
        for ray in ([0.1, -0.2, 1.0], [0.4, 0.3, 1.0], [-0.5, 0.1, 1.0]):
            pixel = theirs.project_no_checks(np.array(ray))
            assert np.allclose(camera.model.project(np.array(ray)), pixel, atol=1e-6)
    serial = p.get_metadata().device_serial
    assert not serial or serial not in text
    sizes = {s.label: p.get_image_configuration(p.get_stream_id_from_label(s.label)) for s in info.streams
             if s.label in info.rig.cameras}  # fmt: skip
    for label, c in sizes.items():
        assert (info.rig.cameras[label].width, info.rig.cameras[label].height) == (c.image_width, c.image_height)


@needs_recordings
def test_slow_vio_agrees_with_the_high_rate_one_so_both_are_poses_of_the_device() -> None:
    _, samples = read(f"vrs:{GEN2}")
    slow, fast = (
        [s.payload for s in samples if s.stream.label == label and isinstance(s.payload, PoseBatch)]
        for label in ("vio", "vio_high_frequency")
    )
    times = np.concatenate([b.device_ns for b in fast])

    def column(name: str) -> Any:
        return np.concatenate([getattr(b, name) for b in fast])

    assert len(slow) == 3
    for b in slow:
        i = int(np.argmin(np.abs(times - b.device_ns[0])))
        assert np.linalg.norm(b.position_m[0] - column("position_m")[i]) < 0.01
        assert abs(b.quaternion_xyzw[0] @ column("quaternion_xyzw")[i]) > math.cos(math.radians(0.5))
        assert np.linalg.norm(b.velocity_msec[0] - column("velocity_msec")[i]) < 0.1
        assert np.linalg.norm(b.angular_velocity_radsec[0] - column("angular_velocity_radsec")[i]) < 0.3
        assert b.quality[0] == 1.0 and b.causal and b.gravity_msec2[2] < -9.0


@needs_recordings
def test_gaze_hands_and_audio_are_arias() -> None:
    _, samples = read(f"vrs:{GEN2}")
    p = provider(GEN2)
    gaze = [s.payload for s in samples if isinstance(s.payload, Gaze)]
    hands = [s.payload for s in samples if isinstance(s.payload, Hands)]
    audio = [s for s in samples if isinstance(s.payload, AudioBlock)]
    for i, g in enumerate(gaze):
        theirs = p.get_eye_gaze_data_by_index(p.get_stream_id_from_label("eyegaze"), i)
        assert (g.yaw_rad, g.pitch_rad, g.depth_m) == (theirs.yaw, theirs.pitch, theirs.depth)
    for i, h in enumerate(hands):
        side = p.get_hand_pose_data_by_index(p.get_stream_id_from_label("handtracking"), i).left_hand
        assert (h.left is None) == (side is None)
        if h.left is not None:
            assert np.allclose(h.left.landmarks_m, side.landmark_positions_device)
            assert np.allclose(h.left.wrist_m, side.get_wrist_position_device())
            assert np.allclose(h.left.palm_m, side.get_palm_position_device())
    block = audio[0].payload
    data, record = p.get_audio_data_by_index(p.get_stream_id_from_label("mic"), 0)
    assert isinstance(block, AudioBlock) and block.rate_hz == 16_000 and block.pcm.shape == (320, 8)
    assert np.array_equal(block.pcm.reshape(-1) >> 16, data.data)  # Gen 2 records 16 bit; ours are full scale
    times = record.capture_timestamps_ns
    assert (block.first_device_ns, audio[0].device_ns) == (times[0], times[-1])
    assert len(gaze) == len(hands) == 9 and sum(h.left is not None for h in hands) > 3


# ---- looping ---------------------------------------------------------------------------------------------------------


@needs_recordings
def test_laps_go_on_in_time_and_frame_number_and_each_seam_is_told() -> None:
    info, samples = read(f"vrs:{GEN2}?loop=3")
    _, once = read(f"vrs:{GEN2}")
    assert counts(samples) == {label: 3 * n for label, n in counts(once).items()}
    seams = [s.device_ns for s in samples if isinstance(s.payload, Notice) and s.payload.what == "seam"]
    assert len(seams) == 2
    frames = [s for s in samples if s.stream.label == "slam-front-left"]
    assert [s.payload.frame_number for s in frames if isinstance(s.payload, ImageFrame)] == list(range(27))
    spacing = np.diff([s.device_ns for s in frames])
    assert spacing.max() < 1.5 * np.median(spacing)
    imu = np.concatenate([s.payload.device_ns for s in samples
                          if s.stream.label == "imu-left" and isinstance(s.payload, ImuBatch)])  # fmt: skip
    assert np.diff(imu).min() > 0 and np.diff(imu).max() < 20_000_000
    captured = sorted(s.device_ns for s in samples if s.stream.kind is not Kind.NOTICE)
    for seam in seams:
        assert 0 <= next(t for t in captured if t >= seam) - seam < 60_000_000
    assert info.duration_s == pytest.approx((samples[-1].device_ns - info.first_device_ns) / 1e9)


# ---- damage, death and bad input -------------------------------------------------------------------------------------


def _children() -> list[int]:
    found = []
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it may end at any moment
            if b"handrail.streams.reader" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
    return found


@needs_recordings
@pytest.mark.parametrize("every", [1, 37])
def test_a_reader_killed_again_and_again_loses_nothing_and_every_death_is_told(every: int) -> None:
    killed: list[int] = []

    def kill(n: int) -> None:
        if n % every == 0 and len(killed) < 6:
            for pid in set(_children()) - set(killed):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    _, once = read(f"vrs:{GEN2}?loop=5")
    _, samples = read(f"vrs:{GEN2}?loop=5", on_sample=kill)
    assert len(killed) >= 3
    assert counts(samples) == counts(once)
    assert len(notices(samples, "fault")) >= 2 and all("started again" in line for line in notices(samples, "fault"))
    assert len(decoded(samples, "slam-front-left")) == len(decoded(once, "slam-front-left"))


@needs_recordings
def test_a_stopped_reader_is_killed_after_its_limit_and_reading_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "ANSWER_LIMIT_S", 3.0)
    stopped: list[int] = []

    def stop(n: int) -> None:
        if n == 5:
            stopped.extend(_children())
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)

    _, samples = read(f"vrs:{GEN2}?loop=2", on_sample=stop)
    assert stopped and counts(samples)["imu-left"] == 2 * 239
    assert any("no answer in 3 s" in line for line in notices(samples, "fault"))


@needs_recordings
def test_no_child_and_no_descriptor_is_left_behind_when_reading_stops_early() -> None:
    async def first_samples() -> None:
        async with open_source(f"vrs:{GEN2}?loop=100", DecodePlan()) as source:
            stream = source.samples()
            for _ in range(50):
                await anext(stream)
            await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(first_samples())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        asyncio.run(first_samples())
    assert len(os.listdir("/proc/self/fd")) <= before
    assert _children() == []


def _without(content: bytes, stream_types: tuple[int, ...]) -> bytes:
    """The recording without the data records of those stream types, and without its index (the reader rebuilds it)."""
    header = list(struct.unpack_from("<IIQIIqqqQQQII", content))
    out, at = bytearray(80), header[6]
    size = struct.unpack_from("<I", content, at)[0]
    out += content[at : at + size]
    first, before, at = len(out), size, header[7]
    while at + 32 <= len(content):
        size, _, kind = struct.unpack_from("<IIi", content, at)
        record = bytearray(content[at : at + size])
        if not (kind in stream_types and record[26] == 3):
            struct.pack_into("<I", record, 4, before)
            out += record
            before = size
        at += size
    header[5], header[6], header[7] = 0, 80, first
    struct.pack_into("<IIQIIqqqQQQII", out, 0, *header)
    return bytes(out)


@needs_recordings
@pytest.mark.parametrize(
    ("path", "without", "said"),
    [(GEN1, (1201,), "no forward SLAM pair"), (GEN2, (1201,), "no forward SLAM pair"), (GEN2, (1202,), "no IMU")],
    ids=["gen1-no-slam", "gen2-no-slam", "gen2-no-imu"],
)  # fmt: skip
def test_a_recording_without_the_pair_or_the_imu_opens_and_says_so(
    path: Path, without: tuple[int, ...], said: str, tmp_path: Path
) -> None:
    (tmp_path / "cut.vrs").write_bytes(_without(path.read_bytes(), without))
    info, samples = read(f"vrs:{tmp_path / 'cut.vrs'}")
    _, whole = read(f"vrs:{path}")
    assert any(said in note for note in info.notes)
    assert (info.rig.stereo_pair is None) == (1201 in without) and (info.rig.main_imu is None) == (1202 in without)
    gone = {1201: Kind.SLAM, 1202: Kind.IMU}[without[0]]
    kept = {s.stream.label for s in whole if s.stream.kind not in (gone, Kind.NOTICE)}
    assert counts(samples) == {label: n for label, n in counts(whole).items() if label in kept}
    assert not any(str(tmp_path) in line for line in notices(samples, "fault"))  # logs hold no folders


@needs_recordings
def test_a_broken_frame_is_a_fault_and_not_a_picture(tmp_path: Path) -> None:
    content = bytearray(GEN1.read_bytes())
    at = 814141 + 20_000  # inside the first compressed frame of the left SLAM camera
    content[at : at + 600] = bytes(600)
    (tmp_path / "broken.vrs").write_bytes(content)
    _, samples = read(f"vrs:{tmp_path / 'broken.vrs'}")
    assert any("camera-slam-left: 1 unreadable record" in line for line in notices(samples, "fault"))
    assert counts(samples)["camera-slam-left"] == 3 and counts(samples)["camera-slam-right"] == 4


@needs_recordings
def test_a_recording_cut_short_says_so_and_what_is_left_is_read(tmp_path: Path) -> None:
    content = GEN2.read_bytes()
    (tmp_path / "cut.vrs").write_bytes(content[: len(content) // 2])
    _, samples = read(f"vrs:{tmp_path / 'cut.vrs'}")
    assert any("beyond the end of the file" in line for line in notices(samples, "fault"))
    assert 0 < counts(samples)["imu-left"] < 239


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no such recording"),
        (b"", "the file is empty"),
        (b"RIFF....WAVEfmt ", "does not begin like one"),
        (b"VisionRe", "can't be read|damaged|can't open"),
        (b"VisionRe" + bytes(5000), "can't be read|damaged|can't open"),
    ],
    ids=["missing", "empty", "not-vrs", "magic-only", "zeros"],
)
def test_what_is_no_recording_is_refused_in_one_line(content: bytes | None, said: str, tmp_path: Path) -> None:
    pytest.importorskip("projectaria_tools")
    path = tmp_path / "walk.vrs"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SourceError, match=said) as caught:
        read(f"vrs:{path}")
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_pipe_is_no_recording_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.vrs")
    with pytest.raises(SourceError, match="it is a pipe"):
        read(f"vrs:{tmp_path / 'pipe.vrs'}")


def test_a_folder_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="it is a folder"):
        read(f"vrs:{tmp_path}")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("lop=3", "unknown option 'lop'; expected one of loop, mps, non_causal"),
        ("loop=0", "from 1 to"), ("loop=many", "from 1 to"), ("loop=", "from 1 to"), ("loop=٣", "from 1 to"),
        ("non_causal=yes", "expected 0 or 1"), ("mps=", "expected a folder"),
    ],
)  # fmt: skip
def test_options_are_checked_before_anything_is_read(query: str, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        read(f"vrs:/nowhere.vrs?{query}")


def test_without_projectaria_tools_the_command_that_mends_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "walk.vrs").write_bytes(b"VisionRe....")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"pip install --no-deps projectaria-tools==2\.3\.0"):
        read(f"vrs:{tmp_path / 'walk.vrs'}")


def test_a_path_without_its_scheme_is_answered_with_the_uri_that_was_meant() -> None:
    with pytest.raises(SourceError, match=r"did you mean vrs:walk\.vrs\?"):
        open_source("walk.vrs", DecodePlan())
