"""Clips hold what a stretch of a recording holds, cut in time, and nothing that could not be known."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.export.training import sampling
from handrail.export.training.array_cache import ArrayCache, key_of
from handrail.export.training.clip import FRAMES, Clip
from handrail.export.training.data import Example
from handrail.export.training.sampling import Mode, Stretch, read_clip, stretch_of
from handrail.streams.cameras import Rig
from handrail.streams.errors import OutputError, SourceError
from handrail.streams.pacing import paced
from handrail.streams.samples import (
    BaroBatch,
    Gaze,
    Hand,
    Hands,
    ImageFrame,
    ImuBatch,
    Kind,
    MagBatch,
    Notice,
    PoseBatch,
    Sample,
    Stream,
)
from handrail.streams.source import DECLARED_DELAY_MS, DecodePlan, SourceInfo

ARIA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "aria"
GEN1, GEN2 = ARIA / "gen1" / "bedroom_profile9.vrs", ARIA / "gen2" / "corridor_profile8.vrs"
FIRST_NS = 5_000_000_000
RIG = Rig(2, {}, {}, np.eye(4))
S = 1_000_000_000


def at(seconds: float) -> int:
    return FIRST_NS + round(seconds * S)


def frame(seconds: float, number: int) -> Sample:
    """The number is in its pixels."""
    pixels = np.full((4, 6, 3), number, np.uint8)
    return Sample(Stream("camera-rgb", Kind.RGB), at(seconds), 0, ImageFrame(pixels, 6, 4, 0.01, 1.0, number))


def readings(seconds: float) -> list[Sample]:
    """One of everything at a moment."""
    t = np.array([at(seconds)])
    three, one = np.full((1, 3), seconds), np.array([seconds])
    gaze = Gaze(0.1, seconds / 100, None if seconds < 1 else 2.0, 0.0, 0.2, -0.1, 0.1)
    normal = None if seconds < 1 else np.ones(3)
    hand = Hand(0.9, np.full((21, 3), seconds), np.full(3, seconds), np.full(3, 2.0), normal)
    pose = PoseBatch(
        t, three, np.array([[0.0, 0, 0, 1]]), three, three, np.array([0.0, 0, -9.81]), np.array([1.0]), causal=True
    )
    payloads: list[tuple[str, Kind, Any]] = [
        ("imu-left", Kind.IMU, ImuBatch(t, three, three)), ("imu-right", Kind.IMU, ImuBatch(t, three, -three)),
        ("mag0", Kind.MAG, MagBatch(t, three)), ("baro0", Kind.BARO, BaroBatch(t, one, one)),
        ("eyegaze", Kind.GAZE, gaze), ("handtracking", Kind.HANDS, Hands(None, hand)), ("vio", Kind.POSE, pose),
    ]  # fmt: skip
    return [Sample(Stream(label, kind), at(seconds), 0, payload) for label, kind, payload in payloads]


def walk(length_s: float = 12.0) -> list[Sample]:
    """Frames at 10 Hz, everything else at 5 Hz."""
    samples = [frame(k / 10, k) for k in range(round(length_s * 10))]
    for k in range(round(length_s * 5)):
        samples += readings(k / 5)
    samples.sort(key=lambda s: s.device_ns)
    return [*samples, Sample(Stream("source", Kind.NOTICE), samples[-1].device_ns, 0, Notice("end", "over"))]


@dataclass(frozen=True)
class Played:
    """A ``Source`` of given samples."""

    info: SourceInfo
    captured: Sequence[Sample]

    def samples(self) -> AsyncIterator[Sample]:
        async def each() -> AsyncIterator[Sample]:
            for sample in self.captured:
                yield sample

        return paced(each(), FIRST_NS)


def clip_of(
    samples: Sequence[Sample], stretch: Stretch, monkeypatch: pytest.MonkeyPatch | None = None, rig: Rig = RIG
) -> Clip:
    @contextlib.asynccontextmanager
    async def opened(uri: str, plan: DecodePlan) -> AsyncIterator[Played]:
        yield Played(SourceInfo(uri, rig, (), FIRST_NS, None, recorded=True), samples)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "open_source", opened)
        return read_clip(stretch)


def numbers(clip: Clip) -> list[int]:
    return clip.frames[:, 0, 0, 0].tolist()


def times_s(clip: Clip, label: str) -> list[float]:
    times: list[int] = []
    for sample in clip.samples:
        if sample.stream.label == label:
            payload: Any = sample.payload
            times += getattr(payload, "device_ns", np.array([sample.device_ns])).tolist()
    return [round((t - FIRST_NS) / S, 6) for t in times]


def same(a: Clip, b: Clip) -> bool:
    left, right = a.to_arrays(), b.to_arrays()
    return left.keys() == right.keys() and all(
        left[k].dtype == right[k].dtype and np.array_equal(left[k], right[k], equal_nan=left[k].dtype.kind == "f")
        for k in left
    )


# ---- which frames and readings ---------------------------------------------------------------------------------------


def test_paper_mode_takes_frames_evenly_over_the_clip_first_and_last_moment_included() -> None:
    clip = clip_of(walk(), stretch_of("x", 3.0, 10.0, "paper"))
    assert numbers(clip) == [30, 40, 50, 60, 70, 80, 90, 100]
    assert (clip.start_ns, clip.end_ns) == (at(3.0), at(10.0))
    assert clip.frame_ns.tolist() == [at(n / 10) for n in numbers(clip)]


def test_runtime_mode_looks_back_from_the_newest_frame_that_had_arrived() -> None:
    clip = clip_of(walk(), stretch_of("x", 0.0, 10.0, "runtime", window_s=8.0))
    assert numbers(clip) == [28, 38, 48, 58, 68, 78, 88, 98]  # 180 ms from capture to arrival
    assert clip.start_ns == at(2.0)


@pytest.mark.parametrize("mode", ["paper", "runtime"])
def test_no_reading_is_later_than_the_end_and_in_runtime_mode_none_that_had_not_arrived(mode: Mode) -> None:
    clip = clip_of(walk(), stretch_of("x", 8.0, 10.0, mode, window_s=2.0))
    streams = {"imu-left": Kind.IMU, "eyegaze": Kind.GAZE, "handtracking": Kind.HANDS, "vio": Kind.POSE}
    for label, kind in streams.items():
        late_s = DECLARED_DELAY_MS[kind] / 1000 if mode == "runtime" else 0.0
        times = times_s(clip, label)
        assert max(times) == max(k / 5 for k in range(60) if k / 5 + late_s <= 10.0)
        assert min(times) == 2.0  # the history that the grid looks back on
        assert times == sorted(times)




@given(data=st.data(), end_s=st.sampled_from([2.0, 3.3, 5.0]))
@settings(max_examples=6, deadline=None)
def test_in_runtime_mode_the_future_does_not_matter(data: st.DataObject, end_s: float) -> None:
    samples = walk(6.0)
    stretch = stretch_of("x", 0.0, end_s, "runtime", window_s=4.0)
    limit_ns = at(end_s)
    past = [s for s in samples if s.device_ns <= limit_ns]
    future = [s for s in samples if s.device_ns > limit_ns and data.draw(st.booleans())]
    assert same(clip_of(samples, stretch), clip_of([*past, *future], stretch))


def test_readings_that_no_sensor_gives_are_left_out() -> None:
    samples = walk()
    bad = samples.index(next(s for s in samples if s.stream.kind is Kind.IMU and s.device_ns == at(9.0)))
    payload = samples[bad].payload
    assert isinstance(payload, ImuBatch)
    samples[bad] = replace(samples[bad], payload=replace(payload, accel_msec2=np.full((1, 3), np.nan)))
    clip = clip_of(samples, stretch_of("x", 8.0, 10.0, "paper"))
    assert 9.0 not in times_s(clip, samples[bad].stream.label) and 9.2 in times_s(clip, samples[bad].stream.label)


def test_gen_1_frames_are_turned_upright() -> None:
    lying = np.zeros((4, 6, 3), np.uint8)
    lying[0, 0] = 255  # top left of the sensor: top right to the wearer
    samples = [replace(s, payload=replace(s.payload, pixels=lying)) if isinstance(s.payload, ImageFrame) else s
               for s in walk()]  # fmt: skip
    clip = clip_of(samples, stretch_of("x", 0.0, 5.0, "paper"), rig=replace(RIG, generation=1))
    assert clip.frames.shape == (FRAMES, 6, 4, 3) and clip.frames[0, 0, -1, 0] == 255


def test_a_recording_that_ends_early_or_has_no_frame_is_refused() -> None:
    with pytest.raises(SourceError, match=r"expected to read on to 20 s, it ended at 11\.90 s"):
        clip_of(walk(), stretch_of("x", 0.0, 20.0, "paper"))
    with pytest.raises(SourceError, match=r"expected RGB frames by 0\.1 s, could read none"):
        clip_of(walk(), stretch_of("x", 0.0, 0.1, "runtime"))  # the first one takes 180 ms to arrive
    with pytest.raises(SourceError, match="expected RGB frames by 5 s, could read none"):
        clip_of([s for s in walk() if s.stream.kind is not Kind.RGB], stretch_of("x", 0.0, 5.0, "paper"))


# ---- as files --------------------------------------------------------------------------------------------------------


def test_a_clip_comes_out_of_the_cache_as_it_went_in(tmp_path: Path) -> None:
    clip = clip_of(walk(), stretch_of("x", 0.0, 5.0, "paper"))
    cache = ArrayCache(tmp_path)
    cache.put("ab12", clip.to_arrays())
    kept = cache.get("ab12")
    assert kept is not None
    back = Clip.from_arrays(kept)
    assert same(back, clip) and np.array_equal(back.frames, clip.frames)
    assert [(s.stream, s.device_ns) for s in back.samples] == [(s.stream, s.device_ns) for s in clip.samples]
    assert [s.payload for s in back.samples if isinstance(s.payload, Gaze)] == [
        s.payload for s in clip.samples if isinstance(s.payload, Gaze)
    ]
    (poses,) = [s.payload for s in back.samples if isinstance(s.payload, PoseBatch)]
    assert poses.causal is True and poses.gravity_msec2.shape == (3,)


def test_a_damaged_entry_is_made_anew(tmp_path: Path) -> None:
    cache, made = ArrayCache(tmp_path), []

    def make() -> dict[str, Any]:
        made.append(1)
        return {"x": np.arange(1000)}

    key = key_of("a")
    for spoil in (lambda b: b[:100], lambda b: b[:300] + bytes([b[300] ^ 1]) + b[301:], lambda b: b"", lambda b: b):
        cache.made(key, make)
        (path,) = tmp_path.glob("??/*.npz")
        path.write_bytes(spoil(path.read_bytes()))
    assert np.array_equal(cache.made(key, make)["x"], np.arange(1000))
    assert len(made) == 4
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]


def test_the_cache_holds_nothing_that_could_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        ArrayCache(tmp_path).put("ab", {"x": np.array([object()])})
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_the_cache_stays_within_its_bound_and_drops_what_was_used_longest_ago(tmp_path: Path) -> None:
    keys = [key_of(i) for i in range(6)]
    cache = ArrayCache(tmp_path, limit_bytes=5 * 9000)
    for i, key in enumerate(keys[:5]):
        cache.put(key, {"x": np.zeros(1000)})
        os.utime(tmp_path / key[:2] / f"{key}.npz", (i, i))
    assert cache.get(keys[0]) is not None  # used just now
    cache.put(keys[5], {"x": np.zeros(1000)})
    held = [cache.get(key) is not None for key in keys]
    assert held[0] and held[5] and not held[1]
    assert sum(p.stat().st_size for p in tmp_path.rglob("*.npz")) <= 5 * 9000


def test_a_cache_without_room_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="--cache"):
        ArrayCache(tmp_path / "file")


# ---- what a training is fed ------------------------------------------------------------------------------------------

def example(uri: str, end_s: float = 10.0) -> Example:
    return Example("c", "TC01", "question", "Where?", ("There.",), uri, 0.0, end_s, "train", "data.jsonl, line 3")


@dataclass
class Reader:
    """Stands in for ``read_clip`` and counts."""

    stretches: list[Stretch]

    def __call__(self, stretch: Stretch) -> Clip:
        self.stretches.append(stretch)
        return clip_of(walk(), stretch)


def supply(folder: Path, reader: Any, sha256: str | None = None, mode: Mode = "paper") -> Any:
    pytest.importorskip("tokenizers", reason="handrail.runtime.preprocess needs tokenizers")
    from handrail.export.training.material import ImuEncoder, Material
    from handrail.runtime.preprocess import ImagePlan

    plan = ImagePlan(3, 5, "bilinear", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    encoder = None if sha256 is None else ImuEncoder(lambda w: np.ones((len(w), 512), np.float32), sha256)
    return Material(ArrayCache(folder), plan, encoder, mode, 4.0, reader)


def test_a_recording_is_read_once_for_all_that_is_asked_about_the_same_stretch(tmp_path: Path) -> None:
    reader = Reader([])
    for _ in range(2):
        made = supply(tmp_path, reader)
        clip, grids = made.clip(example("world:1")), made.grids(example("world:1"))
    assert len(reader.stretches) == 1
    assert clip.frames.shape == (FRAMES, 3, 5, 3)
    assert list(grids) == ["imu", "magbaro", "gaze", "hands", "trajectory"]
    assert grids["gaze"].valid.any() and not grids["imu"].valid.any()


def test_what_decides_a_clip_or_a_grid_makes_a_new_one(tmp_path: Path) -> None:
    recording = tmp_path / "walk.vrs"
    recording.write_bytes(b"1")
    cache, reader = tmp_path / "cache", Reader([])
    uri = f"vrs:{recording}"
    supply(cache, reader).clip(example(uri))
    supply(cache, reader, mode="runtime").clip(example(uri))
    supply(cache, reader).clip(example(uri, 9.0))
    assert len(reader.stretches) == 3
    recording.write_bytes(b"12")
    supply(cache, reader).clip(example(uri))
    mps = tmp_path / "mps_walk_vrs"
    mps.mkdir()
    (mps / "open_loop_trajectory.csv").touch()
    supply(cache, reader).clip(example(uri))
    assert len(reader.stretches) == 5
    before = len(list(cache.rglob("*.npz")))
    for sha256 in (None, "a", "b", "b"):
        supply(cache, reader, sha256).grids(example(uri))
    assert len(reader.stretches) == 5 and len(list(cache.rglob("*.npz"))) == before + 3


def test_frames_kept_at_the_models_size_give_the_pixels_of_the_whole_ones(tmp_path: Path) -> None:
    made = supply(tmp_path, Reader([]))
    from handrail.runtime.preprocess import pixels

    whole = clip_of(walk(), stretch_of("world:1", 0.0, 10.0, "paper")).frames
    assert np.array_equal(pixels(made.clip(example("world:1")).frames, made.plan), pixels(whole, made.plan))


def test_the_length_of_a_recording_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tokenizers", reason="handrail.runtime.preprocess needs tokenizers")
    from handrail.export.training import material

    asked: list[str] = []
    lengths = {"world:1": 7.25, "world:2": None}
    monkeypatch.setattr(material, "duration_s", lambda uri: asked.append(uri) or lengths[uri])
    for _ in range(2):
        assert {uri: material.kept_duration(ArrayCache(tmp_path), uri) for uri in lengths} == lengths
    assert asked == list(lengths)


def test_an_example_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    def broken(stretch: Stretch) -> Clip:
        raise SourceError("the recording is damaged")

    with pytest.raises(SourceError, match=r"data\.jsonl, line 3: the recording is damaged"):
        supply(tmp_path, broken).grids(example("world:1"))
    with pytest.raises(SourceError, match="can't be read"):
        supply(tmp_path, broken).clip(example(f"vrs:{tmp_path / 'gone.vrs'}"))


# ---- worlds and recordings -------------------------------------------------------------------------------------------


def test_a_simulated_walk_gives_eight_upright_frames_and_its_sensors() -> None:
    pytest.importorskip("embreex", reason="the simulated world needs embreex")
    stretch = stretch_of("world:3?gen=1&kind=free&seconds=2", 0.0, 1.9, "paper")
    clip = read_clip(stretch)
    assert clip.frames.shape == (FRAMES, 352, 352, 3) and clip.frames.dtype == np.uint8
    wanted = np.array(stretch.frames_at_s[1:]) * S + clip.start_ns
    assert np.all((wanted - clip.frame_ns[1:] >= 0) & (wanted - clip.frame_ns[1:] < S / 20))
    assert {s.stream.label for s in clip.samples} == {"imu-left", "imu-right", "mag0", "baro0"}
    assert len(set(clip.frame_ns.tolist())) == FRAMES
    assert sampling.duration_s(stretch.uri) == 2.0


@pytest.mark.skipif(not GEN2.is_file(), reason="real recordings are not beside the repository")
@pytest.mark.parametrize("path", [GEN1, GEN2], ids=["gen1", "gen2"])
def test_frames_of_a_recording_are_the_last_ones_captured_by_their_moments(path: Path) -> None:
    provider_module = pytest.importorskip(
        "projectaria_tools.core.data_provider", reason="recordings need projectaria_tools"
    )
    from projectaria_tools.core.sensor_data import TimeDomain

    length = sampling.duration_s(f"vrs:{path}")
    assert length is not None
    stretch = stretch_of(f"vrs:{path}", 0.0, length, "paper")
    clip = read_clip(stretch)
    provider = provider_module.create_vrs_data_provider(str(path))
    stream = provider.get_stream_id_from_label("camera-rgb")
    times = np.array(provider.get_timestamps_ns(stream, TimeDomain.DEVICE_TIME))
    wanted = clip.start_ns + np.round(np.array(stretch.frames_at_s) * S).astype(np.int64)
    expected = [max(0, int(np.searchsorted(times, t, side="right")) - 1) for t in wanted]
    assert clip.frame_ns.tolist() == times[expected].tolist()
    image = provider.get_image_data_by_index(stream, expected[-1])[0].to_numpy_array()
    assert np.array_equal(clip.frames[-1], np.rot90(image, k=3) if clip.rig.generation == 1 else image)
