"""The whole path on virtual time, through real parts: world or recording, reflex, espeak-ng, WAV."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from handrail.device.fakes import PacedPlayback, PacedSpeaker
from handrail.device.sound import F32, Sound
from handrail.device.wav_file import WavFile
from handrail.runtime import cli
from handrail.runtime.declared import Declared
from handrail.runtime.events import (
    Alerted,
    AnyEvent,
    Ended,
    Fault,
    FrameSkipped,
    SceneChanged,
    Seam,
    Spoken,
    State,
    StateChanged,
)
from handrail.runtime.health import Watch
from handrail.runtime.log import EventLog, read_log
from handrail.runtime.reflex.runner import InlineRunner, Look, ReflexRunner, Seen
from handrail.runtime.replay import Hooks, replay
from handrail.runtime.scene import Scene
from handrail.runtime.session import Session
from handrail.streams.buffer import RollingBuffer
from handrail.streams.child import ChildDied
from handrail.streams.clock import NS_PER_S
from handrail.streams.damage import shifted
from handrail.streams.errors import SourceError
from handrail.streams.faults import Fault as Injected
from handrail.streams.faults import FaultySource, What
from handrail.streams.samples import ImageFrame, ImuBatch, Kind, Sample
from handrail.streams.source import DecodePlan, Source, SourceInfo, open_source
from handrail.streams.tape import write_tape

ARIA = Path(__file__).parents[3] / "shared" / "data" / "aria"
REAL = [ARIA / name for name in ("gen1/bedroom_profile9.vrs", "gen2/corridor_profile8.vrs", "gen1/kitchen_adt.vrs")]
needs_recordings = pytest.mark.skipif(not ARIA.exists(), reason="the real recordings are not beside the repository")


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six seconds of a walk with things in the way, rendered once."""
    return tape("world:7?kind=textured&seconds=6", tmp_path_factory.mktemp("tapes") / "walk.tape")


@pytest.fixture(scope="module")
def turning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A straight walk during which the head turns by up to 60 degrees to each side."""
    return tape("world:5?kind=head-turn&seconds=8", tmp_path_factory.mktemp("tapes") / "turning.tape")


@pytest.fixture(scope="module")
def walked(walk: Path) -> list[AnyEvent]:
    return events_of(f"tape:{walk}")


def tape(uri: str, path: Path) -> Path:
    async def render() -> None:
        async with open_source(uri, DecodePlan()) as source:
            await write_tape(path, source.info, DecodePlan(), source.captured())  # type: ignore[attr-defined]

    asyncio.run(render())
    return path


def events_of(uri: str, wrap: Callable[[Source], Source] = lambda source: source) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    replay(uri, hooks=Hooks(on_event=events.append, wrap=wrap))
    return events


def digest(events: list[AnyEvent]) -> str:
    return hashlib.sha256(msgspec.json.encode(events)).hexdigest()


def rounded(events: list[AnyEvent]) -> list[AnyEvent]:
    """As the log keeps them."""
    with tempfile.TemporaryDirectory() as folder, EventLog(Path(folder) / "log") as log:
        for event in events:
            log.append(event)
        return list(read_log(log.path))


class Changed:
    """A source whose samples from a device time on are others."""

    def __init__(self, source: Source, from_ns: int) -> None:
        self._source, self._from_ns = source, from_ns

    @property
    def info(self) -> SourceInfo:
        return self._source.info

    async def samples(self) -> AsyncIterator[Sample]:
        noise = np.random.default_rng(1)
        async for sample in self._source.samples():
            payload = sample.payload
            if sample.device_ns >= self._from_ns:
                match payload:
                    case ImageFrame(pixels) if pixels is not None:
                        payload = replace(payload, pixels=noise.integers(0, 255, pixels.shape, dtype=np.uint8))
                    case ImuBatch():
                        payload = replace(payload, gyro_radsec=payload.gyro_radsec + 0.5)
                    case _:
                        pass
            yield replace(sample, payload=payload)


class SetAnew:
    """A source whose device clock is set anew by ``by_s`` once ``after_s`` have passed."""

    def __init__(self, source: Source, after_s: float, by_s: float) -> None:
        self._source, self._by_ns = source, round(by_s * NS_PER_S)
        self._from_ns = source.info.first_device_ns + round(after_s * NS_PER_S)

    @property
    def info(self) -> SourceInfo:
        return self._source.info

    async def samples(self) -> AsyncIterator[Sample]:
        async for sample in self._source.samples():
            yield shifted(sample, self._by_ns if sample.device_ns >= self._from_ns else 0)


@needs_recordings
@pytest.mark.parametrize("path", REAL, ids=lambda p: p.stem)
def test_every_stream_of_a_recording_is_counted(path: Path) -> None:
    events = events_of(f"vrs:{path}")
    ended = events[-1]
    assert isinstance(ended, Ended)
    script = (
        "import json, sys\n"
        "from projectaria_tools.core import data_provider\n"
        "p = data_provider.create_vrs_data_provider(sys.argv[1])\n"
        "counts = {p.get_label_from_stream_id(s): p.get_num_data(s) for s in p.get_all_streams()}\n"
        "open(sys.argv[2], 'w').write(json.dumps(counts))\n"
    )
    out = Path(os.environ.get("TMPDIR", "/tmp")) / f"counts-{os.getpid()}.json"
    subprocess.run([sys.executable, "-c", script, str(path), str(out)], check=True, capture_output=True)
    assert {label: count.received for label, count in ended.streams.items()} == json.loads(out.read_text())
    out.unlink()
    assert any(isinstance(e, SceneChanged) for e in events)


def test_a_walk_with_things_in_the_way_is_warned_of_them(walked: list[AnyEvent]) -> None:
    assert any(isinstance(e, Spoken) and e.kind == "hazard" for e in walked)
    assert not any(isinstance(e, Fault) for e in walked)
    assert [e.state for e in walked if isinstance(e, StateChanged)] == [State.SEEING]


def test_the_same_walk_gives_the_same_log_and_sound_bit_for_bit_under_any_hash_seed(
    walk: Path, walked: list[AnyEvent], tmp_path: Path
) -> None:
    for hash_seed in ("0", "77"):
        subprocess.run(
            [sys.executable, "-m", "handrail.runtime.cli", "replay", f"tape:{walk}", "--no-report", "--out",
             str(tmp_path / hash_seed)],
            check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )  # fmt: skip
    for name in ("events.jsonl", "guidance.wav"):
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "77" / name).read_bytes()
    assert digest(list(read_log(tmp_path / "0" / "events.jsonl"))) == digest(rounded(walked))


def test_samples_after_a_time_change_no_event_before_it(walk: Path, walked: list[AnyEvent]) -> None:
    plain = walked
    first = plain[0].first_device_ns  # type: ignore[union-attr]
    at_ns = 3 * NS_PER_S
    other = events_of(f"tape:{walk}", lambda source: Changed(source, first + at_ns))
    before = [e for e in plain if e.t_ns < at_ns]
    assert msgspec.json.encode(before) == msgspec.json.encode([e for e in other if e.t_ns < at_ns])
    assert digest(plain) != digest(other)
    assert len(before) > 25


def test_frames_delayed_by_three_seconds_come_out_stale(walk: Path) -> None:
    late = Injected(Kind.SLAM, What.DELAYED, 0.0, 60.0, amount_s=3.0)
    events = events_of(f"tape:{walk}", lambda source: FaultySource(source, [late]))
    assert {e.reason for e in events if isinstance(e, FrameSkipped)} <= {"stale", "superseded"}
    assert sum(isinstance(e, FrameSkipped) and e.reason == "stale" for e in events) > 30
    assert not any(isinstance(e, SceneChanged) for e in events)
    assert any(isinstance(e, StateChanged) and e.state is State.BLIND for e in events)
    assert not any(isinstance(e, Spoken) and e.kind == "hazard" for e in events)


def test_turning_the_head_while_walking_straight_moves_nothing_to_another_side(turning: Path) -> None:
    scenes = [e.scene for e in events_of(f"tape:{turning}") if isinstance(e, SceneChanged)]
    walking = [s for s in scenes if s.wearer.travel_rad is not None]
    assert len(walking) > 30
    turned = max(abs(s.wearer.nose_rad - s.wearer.reference_rad) for s in walking)
    assert turned > np.radians(35)
    bearings: dict[int, list[float]] = {}
    for s in walking:
        for o in s.obstacles:
            distance_m, bearing_deg = o.seen_from(s.wearer)
            if o.confirmed and 1.0 < distance_m < 4.0 and abs(bearing_deg) < 150:
                bearings.setdefault(o.id, []).append(bearing_deg)
    assert bearings
    for told in bearings.values():
        sides = {np.sign(b) for b in told if abs(b) > 15}
        assert len(sides) <= 1, told


def test_the_travel_heading_stays_while_the_head_turns(turning: Path) -> None:
    scenes = [e.scene for e in events_of(f"tape:{turning}") if isinstance(e, SceneChanged)]
    headings = [s.wearer.travel_rad for s in scenes if s.wearer.travel_rad is not None]
    assert np.degrees(np.ptp(headings[10:])) < 15


@needs_recordings
def test_a_loop_is_a_seam_and_the_scene_starts_anew() -> None:
    events = events_of(f"vrs:{REAL[1]}?loop=3")
    seams = [e for e in events if isinstance(e, Seam)]
    assert len(seams) == 2
    for seam in seams:
        after = next(e for e in events if isinstance(e, SceneChanged) and e.t_ns > seam.t_ns)
        assert all(o.looks == 1 for o in after.scene.obstacles)


def test_times_never_run_backwards_in_the_log(walked: list[AnyEvent]) -> None:
    assert all(a.t_ns <= b.t_ns for a, b in itertools.pairwise(walked))


def test_a_source_that_is_none_is_one_clear_error() -> None:
    for uri in ("nonsense", "vrs:", "world:x", "tape:nowhere.tape", "aria://gen3"):
        with pytest.raises(SourceError):
            events_of(uri)


@pytest.mark.parametrize("by_s", [-5.0, -0.4, 3.0, 1000.0])
def test_a_device_clock_that_is_set_anew_costs_half_a_second_of_sight_and_no_more(walk: Path, by_s: float) -> None:
    events = events_of(f"tape:{walk}", lambda source: SetAnew(source, 2.0, by_s))
    assert [e.t_ns / NS_PER_S for e in events if isinstance(e, Seam)] == [pytest.approx(2.31, abs=0.05)]
    judged = [e.t_ns / NS_PER_S for e in events if isinstance(e, SceneChanged) and e.scene.coverage is not None]
    assert max(later - earlier for earlier, later in itertools.pairwise(judged)) < 0.75
    assert judged[-1] > 5.5
    assert not any(isinstance(e, Fault) for e in events)


def test_a_reflex_that_is_lost_at_a_seam_is_a_fault_and_guidance_goes_on(
    walk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LostAtSeams(InlineRunner):
        async def reset(self) -> None:
            await super().reset()
            raise ChildDied("worker: died between looks")

    async def runner(source: Source, speed: str, declared: Declared) -> ReflexRunner:
        return LostAtSeams(source.info.rig, declared.reflex_ms)

    monkeypatch.setattr("handrail.runtime.replay._runner", runner)
    events = events_of(f"tape:{walk}", lambda source: SetAnew(source, 2.0, 1000.0))
    assert [e.component for e in events if isinstance(e, Fault)] == ["reflex"]
    assert "Detector restarted." in [e.text for e in events if isinstance(e, Spoken)]
    judged = [e.t_ns / NS_PER_S for e in events if isinstance(e, SceneChanged) and e.scene.coverage is not None]
    assert judged[-1] > 5.5


class Ears(PacedSpeaker):
    """A speaker that remembers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def play(self, sound: Sound) -> PacedPlayback:
        self.heard.append(sound.name)
        return super().play(sound)


@pytest.fixture
def ears(monkeypatch: pytest.MonkeyPatch) -> Ears:
    listening = Ears()
    monkeypatch.setattr("handrail.runtime.replay.open_speaker", lambda *_: listening)
    return listening


def full_disk() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("lines", [0, 60], ids=["at the first line", "in the middle"])
def test_a_log_that_finds_no_room_ends_the_session_aloud(walk: Path, ears: Ears, lines: int) -> None:
    offered: list[AnyEvent] = []

    def sink(event: AnyEvent) -> None:
        offered.append(event)
        if len(offered) > lines:
            raise full_disk()

    with pytest.raises(ExceptionGroup) as raised:
        replay(f"tape:{walk}", hooks=Hooks(on_event=sink))
    assert raised.group_contains(OSError, match="No space left")
    assert ears.heard[-2:] == ["earcon.blind", "speech"]
    assert isinstance(offered[-1], Ended) and offered[-1].reason == "fault"


def test_a_line_that_fails_once_leaves_the_rest_of_the_log_whole(walk: Path, ears: Ears) -> None:
    logged: list[AnyEvent] = []

    def sink(event: AnyEvent) -> None:
        if isinstance(event, SceneChanged) and sum(isinstance(e, SceneChanged) for e in logged) == 20:
            raise full_disk()
        logged.append(event)

    with pytest.raises(ExceptionGroup):
        replay(f"tape:{walk}", hooks=Hooks(on_event=sink))
    assert [e.component for e in logged if isinstance(e, Fault)] == ["session"]
    assert [e.text for e in logged if isinstance(e, Spoken)][-1] == "Guidance stopped."
    assert isinstance(logged[-1], Ended) and logged[-1].reason == "fault"


def on_seen_raises(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Seen] = []

    def on_seen(one: Seen) -> None:
        seen.append(one)
        if len(seen) > 10:
            raise ValueError("a consumer of scenes fell over")

    hooks.on_seen = on_seen


def on_sample_raises(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_sample(sample: Sample) -> None:
        if isinstance(sample.payload, ImageFrame):
            raise ValueError("a consumer of samples fell over")

    hooks.on_sample = on_sample


def reflex_raises(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    see = InlineRunner.see

    async def falls_over(self: InlineRunner, look: Look) -> Seen:
        seen = await see(self, look)
        if seen.scene.obstacles:
            raise ZeroDivisionError("the reflex fell over")
        return seen

    monkeypatch.setattr(InlineRunner, "see", falls_over)


def timer_raises(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    def fire(self: Watch) -> None:
        raise ValueError("a timer of health fell over")

    monkeypatch.setattr(Watch, "_fire", fire)


def source_raises(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ending:
        def __init__(self, source: Source) -> None:
            self.info = source.info
            self._source = source

        async def samples(self) -> AsyncIterator[Sample]:
            async for sample in self._source.samples():
                if isinstance(sample.payload, ImageFrame):
                    raise SourceError("the reader fell over")
                yield sample

    hooks.wrap = Ending


@pytest.mark.parametrize("fault", [on_seen_raises, on_sample_raises, reflex_raises, timer_raises, source_raises])
def test_whatever_falls_over_inside_the_session_the_wearer_hears_that_guidance_stopped(
    walk: Path, ears: Ears, monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[Hooks, pytest.MonkeyPatch], None],
) -> None:  # fmt: skip
    events: list[AnyEvent] = []
    hooks = Hooks(on_event=events.append)
    fault(hooks, monkeypatch)
    with pytest.raises(ExceptionGroup) as raised:
        replay(f"tape:{walk}", hooks=hooks)
    assert raised.group_contains(Exception, match="fell over")
    assert ears.heard[-2:] == ["earcon.blind", "speech"]
    assert [e.text for e in events if isinstance(e, Spoken)][-1] == "Guidance stopped."
    assert ["fell over" in e.detail for e in events if isinstance(e, Fault)] == [True]
    assert isinstance(events[-1], Ended) and events[-1].reason == "fault"


def test_a_full_disk_is_one_line_and_a_code(
    walk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, code in (("events.jsonl", 2), ("timings.jsonl", 2)):
        out = tmp_path / name
        out.mkdir()
        (out / name).symlink_to("/dev/full")
        assert cli.main(["replay", f"tape:{walk}", "--no-report", "--out", str(out)]) == code
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and f"{name}: can't be written (No space left on device)" in err


def test_a_sound_file_that_fills_the_disk_on_the_way_is_told_at_the_end(
    walk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    append = WavFile.append

    def full(self: WavFile, block: F32) -> None:
        if self.frames > 22_050:
            raise full_disk()
        append(self, block)

    monkeypatch.setattr(WavFile, "append", full)
    assert cli.main(["replay", f"tape:{walk}", "--no-report", "--out", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "not all of it was heard" in err and "No space left" in err
    assert (tmp_path / "summary.json").exists()


class Spoilt:
    """A source whose samples are changed one by one."""

    def __init__(self, source: Source, change: Callable[[Sample], Sample]) -> None:
        self.info, self._source, self._change = source.info, source, change

    async def samples(self) -> AsyncIterator[Sample]:
        async for sample in self._source.samples():
            yield self._change(sample)


def sides_swapped(sample: Sample) -> Sample:
    sides = ("slam-front-left", "slam-front-right")
    if sample.stream.label not in sides:
        return sample
    other = sides[1 - sides.index(sample.stream.label)]
    return replace(sample, stream=replace(sample.stream, label=other))


def half_covered(sample: Sample) -> Sample:
    payload = sample.payload
    if sample.stream.label != "slam-front-right" or not isinstance(payload, ImageFrame) or payload.pixels is None:
        return sample
    pixels = payload.pixels.copy()
    pixels[:, : pixels.shape[1] // 2] = 3
    return replace(sample, payload=replace(payload, pixels=pixels))


@pytest.mark.parametrize(("change", "reason"), [(sides_swapped, "swapped"), (half_covered, "covered")])
def test_cameras_swapped_or_half_covered_are_blindness_that_is_told_and_no_hazard_is(
    walk: Path, change: Callable[[Sample], Sample], reason: str
) -> None:
    events = events_of(f"tape:{walk}", lambda source: Spoilt(source, change))
    states = [(e.state, e.reason) for e in events if isinstance(e, StateChanged)]
    assert states == [(State.BLIND, reason)], "not even the first pair is seen with"
    assert "I can't see." in [e.text for e in events if isinstance(e, Spoken)]
    assert not any(isinstance(e, Alerted) for e in events)


class Failing:
    """Answers that fail in one way, once there is a scene."""

    def __init__(self, way: str) -> None:
        self._way = way
        self._failed = asyncio.Event()

    def _fail(self, way: str) -> None:
        if way == self._way:
            raise ValueError(f"no {way}")

    def take(self, sample: Sample) -> None:
        self._fail("take")

    def labelled(self, scene: Scene) -> Scene:
        self._fail("labelled")
        return scene

    def scene(self, scene: Scene, captured_ns: int) -> None:
        self._failed.set()
        self._fail("scene")

    def seam(self) -> None:
        self._fail("seam")

    async def run(self, buffer: RollingBuffer) -> None:
        await self._failed.wait()
        self._fail("run")
        await asyncio.get_running_loop().create_future()

    async def done(self) -> None:
        self._fail("done")


@pytest.mark.parametrize("way", ["take", "labelled", "scene", "run", "done"])
def test_answers_that_fail_do_not_end_the_warnings(
    walk: Path, walked: list[AnyEvent], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Session.__init__

    def with_answers(self: Session, *args: Any, **kwargs: Any) -> None:
        whole(self, *args, **{**kwargs, "answers": Failing(way)})

    monkeypatch.setattr(Session, "__init__", with_answers)
    events = events_of(f"tape:{walk}")
    assert [e.component for e in events if isinstance(e, Fault)] == ["answers"]
    assert "I can't answer any more." in [e.text for e in events if isinstance(e, Spoken)]
    assert sum(isinstance(e, SceneChanged) for e in events) == sum(isinstance(e, SceneChanged) for e in walked)
    assert sum(isinstance(e, Alerted) for e in events) == sum(isinstance(e, Alerted) for e in walked)
