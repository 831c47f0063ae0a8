"""The summary: what was heard and when, worked out from events alone."""

import json
from pathlib import Path

import msgspec
import pytest

from handrail.runtime.events import (
    Alerted,
    AnswerBegun,
    Answered,
    AnyEvent,
    Asked,
    ClauseReady,
    Ended,
    Priority,
    SceneChanged,
    SoundEnded,
    SoundStarted,
    Spoken,
    Started,
    State,
    StateChanged,
    StreamCount,
    TextSeen,
)
from handrail.runtime.log import EventLog, read_log
from handrail.runtime.scene import Band, FrameQuality, Obstacle, Scene, Thing, Wearer
from handrail.runtime.summary import Summary, gather, in_one_line, latency_of, print_summary, side_of, summarise

FIRST = 5_000_000_000  # device clock at the session's start
MS = 1_000_000


def obstacle(x_m: float, y_m: float, *, confirmed: bool = True, thing: Thing = Thing.OBSTACLE) -> Obstacle:
    return Obstacle(1, thing, Band.KNEE, x_m, y_m, 0.1, 1.0, 0.4, 0.6, 0.0, 0.0, 0.0, False, 4, confirmed, FIRST, FIRST)


def scene(device_ns: int, *obstacles: Obstacle) -> Scene:
    wearer = Wearer(0.0, 0.0, 1.6, 0.0, None, 0.0, 0.1, 0.0, 0.0, 0.0, "imu")
    return Scene(device_ns, wearer, obstacles, None, FrameQuality(100.0, 40.0, 1.0, True, None))


def spoken(uid: int, text: str, kind: str = "hazard", source: int | None = None) -> Spoken:
    return Spoken(0, uid, text, Priority.NOW, kind, source, None)


def speech(uid: int, audible_ms: int, duration_s: float) -> SoundStarted:
    return SoundStarted(0, "speech", audible_ms * MS, duration_s, uid, None, None)


def summary(*events: AnyEvent) -> Summary:
    start = Started(0, "world:1", 2, FIRST, ("imu-left",), (), "0")
    return summarise([start, *events], events_sha256="00")


def test_its_keys_are_what_others_build_on() -> None:
    keys = json.loads(msgspec.json.encode(summary(
        Ended(0, {"imu-left": StreamCount(10, 1, 2)}, "end of recording"),
        spoken(1, "Obstacle."), speech(1, 100, 1.0), StateChanged(0, State.SEEING, "frames"),
        SceneChanged(0, scene(FIRST, obstacle(2, 0)), 0.0),
    )))
    assert list(keys) == ["streams", "utterances", "latency_ms", "states", "scene_final", "answers",
                          "events_sha256", "realtime_factor"]
    assert keys["streams"] == {"imu-left": {"received": 10, "dropped": 1, "late": 2}}
    assert list(keys["utterances"][0]) == ["start_s", "end_s", "text", "priority", "kind", "source_device_ns"]
    assert set(keys["latency_ms"]) == {"frame_to_scene", "frame_to_earcon", "frame_to_phrase"}
    assert list(keys["latency_ms"]["frame_to_scene"]) == ["n", "p50", "p95", "p99"]
    assert keys["states"] == [{"t_s": 0.0, "state": "seeing"}]
    assert list(keys["scene_final"]["obstacles"][0]) == ["bearing_deg", "distance_m", "height_band", "label"]


def test_an_utterance_lasts_from_when_it_is_heard_to_where_it_was_cut() -> None:
    heard = summary(
        spoken(1, "Obstacle, two metres."), speech(1, 500, 2.0), SoundEnded(0, "speech", 1, 0.75, False),
        spoken(2, "Stop. Step down."), speech(2, 1300, 1.5), SoundEnded(0, "speech", 2, 1.5, True),
    ).utterances
    assert [(u.start_s, u.end_s, u.text, u.priority) for u in heard] == [
        (0.5, 1.25, "Obstacle, two metres.", "now"), (1.3, 2.8, "Stop. Step down.", "now"),
    ]


@pytest.mark.parametrize("words_first", [True, False])
def test_a_resumed_utterance_is_listed_twice_each_with_its_own_words(words_first: bool) -> None:
    first: list[AnyEvent] = [spoken(1, "two metres"), speech(1, 100, 2.0)]
    second: list[AnyEvent] = [spoken(1, "one metre"), speech(1, 900, 2.0)]
    if not words_first:
        first.reverse()
        second.reverse()
    heard = summary(*first, SoundEnded(0, "speech", 1, 0.3, False), *second).utterances
    assert [(u.start_s, u.end_s, u.text) for u in heard] == [(0.1, 0.4, "two metres"), (0.9, 2.9, "one metre")]


def test_what_never_sounded_was_not_heard() -> None:
    assert summary(spoken(1, "lost")).utterances == []
    assert summary(spoken(1, "lost"), speech(1, 5, 1.0), SoundEnded(0, "speech", 1, 0.0, False)).utterances == []


def test_latency_runs_from_capture_to_the_first_sample_heard() -> None:
    capture = FIRST + 200 * MS
    latency = summary(
        SceneChanged(260 * MS, scene(capture), 60.0),
        SoundStarted(270 * MS, "earcon.obstacle", 290 * MS, 0.2, None, -10.0, capture),
        SoundStarted(270 * MS, "earcon.heartbeat", 9000 * MS, 0.2, None, None, None),  # stands for no frame
        spoken(1, "Obstacle.", source=capture), speech(1, 345, 1.0),
        spoken(2, "I can't see.", kind="health", source=FIRST), speech(2, 5000, 1.0),  # no hazard
    ).latency_ms
    assert {path: (v.n, v.p50) for path, v in latency.items()} == {
        "frame_to_scene": (1, 60.0), "frame_to_earcon": (1, 90.0), "frame_to_phrase": (1, 145.0),
    }


def test_percentiles_are_of_all_values_and_absent_without_any() -> None:
    assert latency_of([]).n == 0 and latency_of([]).p95 is None
    figures = latency_of(float(v) for v in range(101))
    assert (figures.n, figures.p50, figures.p95, figures.p99) == (101, 50.0, 95.0, 99.0)


def test_negative_bearing_is_left_and_unconfirmed_obstacles_are_left_out() -> None:
    found = summary(
        SceneChanged(0, scene(FIRST, obstacle(9, 9)), 0.0),
        SceneChanged(0, scene(FIRST, obstacle(2, 2), obstacle(3, -3, thing=Thing.DROP_OFF),
                              obstacle(1, 0, confirmed=False)), 0.0),
    ).scene_final.obstacles
    assert [(o.bearing_deg, o.distance_m, o.height_band, o.label) for o in found] == [
        (-45.0, 2.828, "knee", None), (45.0, 4.243, "knee", "drop_off"),
    ]
    assert [side_of(b) for b in (-45.0, 0.3, 45.0)] == ["45° left", "ahead", "45° right"]


def test_an_empty_or_broken_off_log_still_has_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    empty = summarise([], events_sha256="00")
    assert empty.streams == {} and empty.utterances == [] and empty.scene_final.obstacles == ()
    print_summary(empty)
    assert "no confirmed obstacle" in capsys.readouterr().out


def test_memory_and_log_give_the_same_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events: list[AnyEvent] = [
        Started(0, "world:1", 2, FIRST, ("imu-left",), (), "0"),
        SceneChanged(61 * MS, scene(FIRST, obstacle(2, 2)), 61.0),
        spoken(1, "Obstacle, left.", source=FIRST), speech(1, 140, 1.25), SoundEnded(0, "speech", 1, 1.25, True),
        Ended(2000 * MS, {"imu-left": StreamCount(10, 0, 0)}, "end of recording"),
    ]
    with EventLog(tmp_path / "e.jsonl") as log:
        for event in events:
            log.append(event)
    read = summarise(read_log(tmp_path / "e.jsonl"), events_sha256="00", realtime_factor=2.0)
    assert read == summarise(events, events_sha256="00", realtime_factor=2.0)
    print_summary(read)
    out = capsys.readouterr().out
    assert "Obstacle, left." in out and "45° left" in out and "imu-left" in out and "140.0" in out


def asked(*, end: bool = True, text: str = "what is ahead?") -> list[AnyEvent]:
    """A question at 0.2 s, answered after 1.5 s with two clauses, of which the second is withheld."""
    parts = {"encode": 600.0, "sensors": 40.0, "prefill": 360.0, "decode": 500.0}
    log: list[AnyEvent] = [
        Asked(200 * MS, 1, "question", text),
        AnswerBegun(1200 * MS, 1, (FIRST, FIRST + 90 * MS), 1, {"imu": 1.0, "gaze": 0.25}, (), 300, 120),
        ClauseReady(1400 * MS, 1, "A chair.", 3), ClauseReady(1700 * MS, 1, "Nothing else.", 8, "a promise"),
        Spoken(1450 * MS, 1, "A chair.", Priority.NORMAL, "answer", None, None), speech(1, 1500, 0.6),
    ]  # fmt: skip
    if end:
        log.append(Answered(1700 * MS, 1, "said", "", (5, 6, 7), "A chair. Nothing else.", 1000.0, parts))
    return log


def test_an_answer_is_told_with_what_it_rests_on_and_what_was_said() -> None:
    (a,) = summary(*asked()).answers
    assert (a.kind, a.question, a.asked_s, a.outcome) == ("question", "what is ahead?", 0.2, "said")
    assert (a.text, a.said) == ("A chair. Nothing else.", ["A chair."])
    assert (a.frames, a.sensors, a.tokens) == (2, {"imu": 1.0, "gaze": 0.25}, 3)
    assert (a.first_token_ms, a.first_word_ms) == (1000.0, 1300.0)
    assert list(json.loads(msgspec.json.encode(a))) == [
        "kind", "question", "asked_s", "outcome", "text", "said", "frames", "sensors", "tokens", "first_token_ms",
        "first_word_ms", "parts_ms",
    ]  # fmt: skip


def test_the_parts_of_an_answer_add_up_to_its_time() -> None:
    events = asked()
    (a,) = summary(*events).answers
    answered = next(e for e in events if isinstance(e, Answered))
    assert sum(a.parts_ms.values()) == answered.t_ns / MS - 1e3 * a.asked_s
    assert a.first_token_ms == sum(a.parts_ms.values()) - a.parts_ms["decode"]


def test_a_run_without_questions_has_no_answers() -> None:
    assert summary(spoken(1, "Obstacle."), speech(1, 100, 1.0)).answers == []


def test_an_answer_that_the_end_of_the_run_cut_short_is_open(capsys: pytest.CaptureFixture[str]) -> None:
    told = summary(*asked(end=False))
    (a,) = told.answers
    assert (a.outcome, a.text, a.said, a.tokens, a.parts_ms) == ("open", "", ["A chair."], 0, {})
    print_summary(told)
    assert "open, first word after 1.30 s; 2 frames" in capsys.readouterr().out


def test_a_question_that_would_steer_the_terminal_is_printed_plainly(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(summary(*asked(text="red\x1b[31m\nanswers: none")))
    out = capsys.readouterr().out
    assert "\x1b" not in out and "question at 0.20 s: red [31m answers: none" in out


def test_a_text_that_is_read_better_later_keeps_the_time_of_its_first_reading() -> None:
    seen = [TextSeen(t * MS, FIRST, 1, text, 0.5, None) for t, text in ((100, "EXlT"), (300, "EXIT"))]
    assert {k: (t, e.text) for k, (t, e) in gather(seen).texts.items()} == {1: (100 * MS, "EXIT")}


def alerted(obstacle_id: int, at_ms: int, bearing_deg: float) -> Alerted:
    return Alerted(at_ms * MS, obstacle_id, Priority.NOW, "contact", FIRST, FIRST, 2.0, bearing_deg, 1.5)


def tone(audible_ms: int, bearing_deg: float, seen_ms: int) -> SoundStarted:
    return SoundStarted(0, "earcon.obstacle", audible_ms * MS, 0.25, None, bearing_deg, FIRST + seen_ms * MS)


def test_how_quick_a_warning_is_counts_the_first_tone_of_each_thing_alone() -> None:
    run = gather([
        Started(0, "world:1", 2, FIRST, (), (), "0"),
        alerted(1, 80, -5.0), tone(100, -5.0, 0),
        alerted(1, 1080, 10.0), tone(1100, 10.0, 300),  # it repeats about what was last seen 0.8 s ago
        alerted(2, 1480, 20.0), alerted(1, 1500, 12.0), tone(1520, 12.0, 300), tone(1530, 20.0, 1400),
    ])
    assert run.first_tones_ms == [100.0, 130.0]
    assert run.latencies_ms["frame_to_earcon"] == [100.0, 800.0, 1220.0, 130.0]


def test_what_lies_ahead_is_told_before_what_is_nearer_behind(capsys: pytest.CaptureFixture[str]) -> None:
    behind, beside, ahead, far = obstacle(-0.8, 0.1), obstacle(0.1, 1.0), obstacle(2, 0), obstacle(3, 0.5)
    print_summary(summary(SceneChanged(0, scene(FIRST, behind, beside, ahead, far), 0.0)))
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("last scene"))
    assert [part.split(" m ")[0][-3:] for part in line.split(";")] == ["2.0", "3.0", "1.0", "0.8"]


def test_a_run_in_one_line_says_what_was_heard_and_found() -> None:
    start = Started(0, "world:1", 2, FIRST, (), (), "0")
    events: list[AnyEvent] = [start, SceneChanged(400 * MS, scene(FIRST), 60.0)]
    run = gather(events)
    assert in_one_line(run, run.summary(events_sha256="")) == "in 0.4 s: heard nothing; found nothing confirmed"
    events += [SceneChanged(500 * MS, scene(FIRST, obstacle(2, 2)), 60.0), alerted(1, 500, -45.0), tone(600, -45.0, 0),
               spoken(1, "Obstacle."), speech(1, 900, 1.1)]  # fmt: skip
    run = gather(events)
    line = in_one_line(run, run.summary(events_sha256=""))
    assert line == "in 2.0 s: heard 1 phrase and 1 tone; found 1 thing, at the end 2.8 m 45° left"
