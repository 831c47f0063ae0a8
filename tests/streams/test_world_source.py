"""The world as a source: what comes, when, and the same every time."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest

from handrail.streams.clock import now_ns, run_virtual
from handrail.streams.errors import SourceError
from handrail.streams.samples import ImageFrame, ImuBatch, Kind, Notice, Sample
from handrail.streams.source import DECLARED_DELAY_MS, DecodePlan, open_source
from handrail.streams.world.scenario import FIRST_DEVICE_NS, load_rig
from handrail.streams.world.source import CAMERAS, IMU_HZ, WorldSource, open_world

COUNT_ONLY = DecodePlan(stereo_hz=0.0)


def _samples(uri: str, plan: DecodePlan, captured: bool = False) -> list[Sample]:
    async def main() -> list[Sample]:
        async with open_source(uri, plan) as source:
            assert isinstance(source, WorldSource)
            stream: AsyncIterator[Sample] = source.captured() if captured else source.samples()
            return [sample async for sample in stream]

    return run_virtual(main())


def _pictures(samples: list[Sample]) -> dict[tuple[str, int], np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
    return {
        (s.stream.label, s.device_ns): s.payload.pixels
        for s in samples
        if isinstance(s.payload, ImageFrame) and s.payload.pixels is not None
    }


@pytest.mark.parametrize("generation", [1, 2])
def test_streams_come_at_the_rates_of_the_glasses(generation: int) -> None:
    samples = _samples(f"world:4?gen={generation}&seconds=6&kind=free", COUNT_ONLY)
    counts = Counter[str]()
    for sample in samples:
        counts[sample.stream.label] += sample.count
    for label, (_, hz, _) in CAMERAS[generation].items():
        assert counts[label] == 6 * hz
    for label, hz in IMU_HZ[generation].items():
        assert counts[label] == 6 * hz
    assert counts["baro0"] == 300
    assert counts["mag0"] == {1: 60, 2: 600}[generation]


def test_labels_are_those_of_the_recordings() -> None:
    root = Path(__file__).parents[2].parent / "shared" / "data" / "aria"
    if not root.is_dir():
        pytest.skip("the real recordings (../shared) are not here")

    async def labels(uri: str) -> set[str]:
        async with open_source(uri, COUNT_ONLY) as source:
            wanted = (Kind.RGB, Kind.SLAM, Kind.EYE, Kind.IMU, Kind.MAG, Kind.BARO)
            return {s.label for s in source.info.streams if s.kind in wanted}

    for generation, name in ((1, "gen1/bedroom_profile9.vrs"), (2, "gen2/corridor_profile8.vrs")):
        assert run_virtual(labels(f"world:1?gen={generation}")) == run_virtual(labels(f"vrs:{root / name}"))


def test_samples_arrive_at_capture_plus_their_delay_and_end_with_the_end() -> None:
    samples = _samples("world:4?seconds=2&kind=free", COUNT_ONLY)
    first_ns = 10_000_000_000
    for sample in samples[:-1]:
        assert sample.host_ns == sample.device_ns - first_ns + int(DECLARED_DELAY_MS[sample.stream.kind] * 1e6)
    assert all(a.host_ns <= b.host_ns for a, b in itertools.pairwise(samples))
    assert isinstance(samples[-1].payload, Notice) and samples[-1].payload.what == "end"
    assert sum(isinstance(s.payload, Notice) for s in samples) == 1


def test_captured_comes_in_order_of_capture_at_no_time_and_is_what_samples_deliver() -> None:
    async def main() -> list[Sample]:
        async with open_world("4", COUNT_ONLY, {"seconds": "2"}) as source:
            captured = [sample async for sample in source.captured()]
            assert now_ns() == 0
            return captured

    captured = run_virtual(main())
    assert all(a.device_ns <= b.device_ns for a, b in itertools.pairwise(captured))
    arrived = _samples("world:4?seconds=2", COUNT_ONLY)
    key: Callable[[Sample], tuple[str, int]] = lambda s: (s.stream.label, s.device_ns)  # noqa: E731
    assert sorted(map(key, captured)) == sorted(map(key, arrived))


def test_imu_batches_are_short_and_join_without_gaps() -> None:
    batches = [s for s in _samples("world:4?seconds=3&gen=1", COUNT_ONLY) if s.stream.label == "imu-right"]
    for sample in batches:
        assert isinstance(sample.payload, ImuBatch)
        assert sample.device_ns == sample.payload.device_ns[-1]
        assert sample.payload.device_ns[-1] - sample.payload.device_ns[0] < 10_000_000
    ns = np.concatenate([s.payload.device_ns for s in batches if isinstance(s.payload, ImuBatch)])
    assert set(np.diff(ns)) == {1_000_000}


def test_frames_are_drawn_as_the_plan_says_and_counted_otherwise() -> None:
    plan = DecodePlan(stereo_hz=2.0, rgb_hz=1.0, other_hz={"slam-side-left": 0.5})
    samples = _samples("world:4?seconds=2&kind=free", plan)
    drawn = Counter(label for label, _ in _pictures(samples))
    assert drawn == {"slam-front-left": 4, "slam-front-right": 4, "camera-rgb": 2, "slam-side-left": 1}
    rig = load_rig(2)
    for sample in samples:
        if isinstance(sample.payload, ImageFrame):
            camera = rig.cameras[sample.stream.label]
            assert (sample.payload.width, sample.payload.height) == (camera.width, camera.height)
            if sample.payload.pixels is not None:
                assert sample.payload.pixels.shape[:2] == (camera.height, camera.width)
                assert sample.payload.pixels.dtype == np.uint8
    # Both halves of a pair are drawn within what a pair may be apart.
    left = [ns for label, ns in _pictures(samples) if label == "slam-front-left"]
    right = [ns for label, ns in _pictures(samples) if label == "slam-front-right"]
    assert all(abs(a - b) < 500_000 for a, b in zip(left, right, strict=True))


def test_single_frames_of_the_rgb_camera_are_those_captured_last_by_their_times() -> None:
    plan = DecodePlan(stereo_hz=0.0, rgb_at_s=(0.0, 0.3, 1.016, 1.999))  # at 10 Hz, the first one at 16 ms
    drawn = sorted(ns - FIRST_DEVICE_NS for label, ns in _pictures(_samples("world:4?seconds=2&kind=free", plan)))
    assert [round(ns / 1e6) for ns in drawn] == [16, 216, 1016, 1916]


def test_a_frame_is_the_same_whatever_else_is_drawn() -> None:
    few = _pictures(_samples("world:5?seconds=2", DecodePlan(stereo_hz=0.5)))
    more = _pictures(_samples("world:5?seconds=2", DecodePlan(stereo_hz=1.0, rgb_hz=1.0)))
    assert len(few) == 2 < len(more)
    for key, pixels in few.items():
        assert np.array_equal(pixels, more[key])


def test_a_seed_gives_the_same_samples_every_time_and_another_seed_others() -> None:
    def digest(uri: str) -> str:
        h = hashlib.sha256()
        for sample in _samples(uri, DecodePlan(stereo_hz=0.5)):
            h.update(f"{sample.stream.label} {sample.device_ns} {sample.host_ns}".encode())
            match sample.payload:
                case ImageFrame(pixels=pixels) if pixels is not None:
                    h.update(pixels.tobytes())
                case ImuBatch(accel_msec2=accel, gyro_radsec=gyro):
                    h.update(accel.tobytes() + gyro.tobytes())
        return h.hexdigest()

    first = digest("world:6?seconds=2")
    assert digest("world:6?seconds=2") == first
    assert digest("world:7?seconds=2") != first


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("world:7?speed=2", "'speed' is unknown: expected gen="),
        ("world:seven", "whole number"),
        ("world:-1", "whole number"),
        ("world:7?gen=3", "gen='3'"),
        ("world:7?gen=1.5", "gen='1.5'"),
        ("world:7?seconds=abc", "seconds='abc'"),
        ("world:7?seconds=nan", "seconds='nan'"),
        ("world:7?seconds=1e9", "2..120"),
        ("world:7?kind=swamp", "expected one of mixed, textured"),
        ("world:7?pitch=0", "pitch='0'"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_valid(uri: str, told: str) -> None:
    with pytest.raises(SourceError, match="world") as caught:
        _samples(uri, COUNT_ONLY)
    assert told in str(caught.value)


def test_the_calibrations_hold_no_serial_numbers() -> None:
    folder = Path(__file__).parents[2] / "streams" / "world"
    for generation in (1, 2):
        text = (folder / f"gen{generation}.json").read_text()
        assert "serial" not in text.lower()
        rig = load_rig(generation)
        assert rig.generation == generation and rig.stereo_pair is not None and len(rig.imus) == 2
