"""The report: drawings where things are, a page that is whole, honest and opens without network."""

from __future__ import annotations

import base64
import hashlib
import html
import html.parser
import json
import re
import shutil
import subprocess
import wave
from dataclasses import replace
from pathlib import Path

import cv2
import msgspec
import numpy as np
import pytest
import walk_run
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import look as scene_of
from scenes import thing, walker
from synthetic_depth import EYE_IN_DEVICE_M, Eye, Stereo, pose_of

from handrail.runtime.events import (
    Alerted,
    AnswerBegun,
    Answered,
    AnyEvent,
    Asked,
    ClauseReady,
    Ended,
    Fault,
    Priority,
    Queued,
    SceneChanged,
    Started,
    StreamCount,
    Unsaid,
)
from handrail.runtime.log import Timing
from handrail.runtime.redacted import Redacted
from handrail.runtime.reflex.depth import DepthView
from handrail.runtime.reflex.runner import Seen
from handrail.runtime.report import ReportBuilder, page, write_report
from handrail.runtime.report.answers import MOST_DRAWN, Card, cards, text_rows
from handrail.runtime.report.builder import MOST_FRAMES, Frame, Picture, Spread
from handrail.runtime.report.charts import distribution, stage_rows, timeline, utterance_rows
from handrail.runtime.report.draw import UNKNOWN_GREY, depth_picture, outline, project, reduced
from handrail.runtime.report.lanes import goal_rows
from handrail.runtime.report.scenes import describe, frame_data
from handrail.runtime.report.shown import MOST_OF_ONE, MOST_RECENT, SMALL_PX, ShownPictures
from handrail.runtime.report.spoken import spoken_clauses
from handrail.runtime.scene import Scene
from handrail.runtime.summary import gather, latency_of
from handrail.streams.cameras import Rig
from handrail.streams.errors import OutputError
from handrail.streams.samples import ImageFrame, Kind, Sample, Stream
from handrail.streams.source import SourceInfo

Walk = tuple[list[AnyEvent], ReportBuilder]
CPF = walk_run.info().rig.T_device_cpf


@pytest.fixture(scope="module")
def walked() -> Walk:
    return walk_run.walk()


@pytest.fixture(scope="module")
def written(walked: Walk, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    walk_run.write_tones(folder / "guidance.wav")
    return write(folder, *walked, wav=folder / "guidance.wav")


def write(folder: Path, events: list[AnyEvent], builder: ReportBuilder, wav: Path | None = None) -> Path:
    run = gather(events)
    path = folder / "report.html"
    write_report(
        path, run=run, summary=run.summary(events_sha256="00ff", realtime_factor=2.0), frames=builder.frames(),
        pictures=builder.shown.kept, info=builder.info, wav=wav,
        timings=[Timing("reflex.stereo", ms=20.0), Timing("reader.started", pid=1)],
    )  # fmt: skip
    return path


class Page(html.parser.HTMLParser):
    """Elements in order, text by element, and whether every element that was opened was closed in turn."""

    VOID = frozenset({"meta", "img", "input", "br", "link"})

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]

    def text(self) -> str:
        return " ".join(" ".join(t.split()) for tag, t in self.texts if tag not in ("script", "style") and t.strip())

    def data(self) -> dict[str, list[dict[str, object]]]:
        found = [t for tag, t in self.texts if tag == "script"]
        parsed: dict[str, list[dict[str, object]]] = json.loads(found[0])
        return parsed


# -- the page -----------------------------------------------------------------------------------------------------


def test_the_page_holds_every_view_under_its_heading(written: Path) -> None:
    page = Page(written)
    headings = [t for tag, t in page.texts if tag in ("h1", "h2") and t.strip()]
    assert [h.strip() for h in headings] == [
        "Handrail", "Overview", "What the wearer heard", "What the glasses saw", "How long it took", "Utterances",
        "Streams", "Alerts", "Faults and seams",
    ]
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids)) and {"sound", "line", "slider", "image", "depth", "birdseye", "data"} <= set(ids)
    for attribute in ("aria-labelledby", "for"):
        assert all(a[attribute] in ids for _, a in page.elements if attribute in a)


def test_everything_lies_inside_the_file(written: Path) -> None:
    page = Page(written)
    for tag, attrs in page.elements:
        for name in ("src", "href", "data"):
            assert (attrs.get(name) or "data:").startswith("data:"), (tag, name)
    style = next(t for tag, t in page.texts if tag == "style")
    assert "url(" not in style and "@import" not in style
    assert "http:" not in written.read_text().replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert "https:" not in written.read_text()


def test_only_the_pages_own_script_may_run(written: Path) -> None:
    page = Page(written)
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and "default-src 'none'" in policy
    (script,) = [t for tag, t in page.texts if tag == "script" and "use strict" in t]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert len(page.all("script")) == 2 and not any(k.startswith("on") for _, a in page.elements for k in a)


def test_it_can_be_used_without_eyes_and_without_a_mouse(written: Path) -> None:
    page = Page(written)
    assert page.all("html")[0]["lang"] == "en"
    assert all("alt" in a for a in page.all("img"))
    assert all(a.get("aria-label") for a in page.all("input") + page.all("audio"))
    buttons = page.all("button")
    assert len(buttons) == 2 + 4  # frame by frame, and one for each utterance that was heard
    assert all(a.get("aria-label") for a in buttons)
    assert any("priority now: Stop. Step down." in (a["aria-label"] or "") for a in buttons)
    says = [str(f["says"]) for f in page.data()["frames"]]
    assert any("knee height" in s and "left" in s for s in says) and any("can't be judged: covered" in s for s in says)


def test_figures_and_reasons_are_on_the_page(written: Path) -> None:
    text = Page(written).text()
    for expected in (
        "world:7", "frames: source=world", "no gaze in this walk", "ended: end of recording", "unsaid: invalid",
        "Obstacle, ten o'clock, two metres.", "slam-front-left", "4000", "1 stale", "drop_off", "<b>lost</b> & found",
        "reflex.stereo", "00ff", "capture to tone heard, repeats included", "2 first alerts",
    ):  # fmt: skip
        assert expected in text, expected
    assert "reader.started" not in text  # nothing was timed there


def test_states_tones_and_utterances_lie_where_they_were_heard(written: Path) -> None:
    page = Page(written)
    duration = float(next(a["data-duration"] or "" for _, a in page.elements if "data-duration" in a))

    def left(attrs: dict[str, str | None]) -> float:
        return float(re.search(r"left:([0-9.]+)%", attrs["style"] or "")[1]) * duration / 100  # type: ignore[index]

    bands = {a["title"]: left(a) for a in page.all("li") if a.get("title")}
    assert bands["blind from 2.1 s: covered"] == pytest.approx(2.061, abs=1e-3)
    starts = {a["title"]: left(a) for a in page.all("button") if a.get("title")}
    assert starts["Head height, ahead."] == pytest.approx(0.541, abs=1e-3)
    assert starts["I can't see."] == pytest.approx(2.501, abs=1e-3)
    tones = {a["class"]: a["d"] for a in page.all("path") if (a.get("class") or "").startswith("tone-")}
    assert tones == {"tone-obstacle": "M481 0V1", "tone-blind": "M2481 0V1", "tone-drop_off": "M3681 0V1"}


@pytest.mark.parametrize("evil", ["</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "]]>{{7*7}}"])
def test_text_from_the_run_is_never_markup(walked: Walk, tmp_path: Path, evil: str) -> None:
    _, builder = walked
    events: list[AnyEvent] = [
        Started(0, f"vrs:{evil}", 2, 0, (evil,), (evil,), "0"),
        Queued(5, 1, evil, Priority.NOW, evil, None, 9),
        Fault(6, evil, evil),
        Ended(9, {evil: StreamCount(1, 0, 0)}, evil),
    ]
    scene = scene_of(0.0, walker(), thing(2.0, label=evil))
    builder = ReportBuilder()
    builder.on_seen(Seen(scene, None, None, {}))
    page = Page(write(tmp_path, events, builder))
    assert len(page.all("script")) == 2 and len(page.all("img")) == 2
    assert page.text().count(evil) >= 6
    assert page.data()["frames"][0]["obstacles"][0]["what"] == evil  # type: ignore[index]


def test_a_run_that_saw_and_said_nothing_still_has_a_page(tmp_path: Path) -> None:
    page = Page(write(tmp_path, [], ReportBuilder()))
    text = page.text()
    assert "No frame became a scene" in text and "broken off" in text and "no pictures" in text
    assert "was not kept" in text and page.all("audio") == []


def test_the_same_run_gives_the_same_page(walked: Walk, written: Path, tmp_path: Path) -> None:
    again = write(tmp_path, *walked, wav=written.parent / "guidance.wav")
    assert again.read_bytes() == written.read_bytes()


def test_a_page_that_cant_be_written_is_an_output_error(walked: Walk, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="can't be written"):
        write(tmp_path / "missing", *walked)


# -- pictures -----------------------------------------------------------------------------------------------------


def test_frames_of_a_recording_are_flagged_as_from_file(tmp_path: Path) -> None:
    events, builder = walk_run.walk("vrs:walk.vrs", seconds=0.4)
    assert "frames: source=file" in Page(write(tmp_path, events, builder)).text()


def test_a_live_session_leaves_no_picture(tmp_path: Path) -> None:
    events, builder = walk_run.walk("aria://gen2", seconds=0.6, recorded=False)
    path = write(tmp_path, events, builder)
    assert all(frame.picture is None for frame in builder.frames())
    assert "data:image" not in path.read_text() and len(Page(path).data()["frames"]) > 0


def test_a_run_whose_depth_stayed_in_another_process_says_why_it_has_no_pictures(tmp_path: Path) -> None:
    builder = ReportBuilder()
    builder.on_open(walk_run.info())
    builder.on_seen(Seen(walk_run.scene_at(0.0), None, None, {}))
    text = Page(write(tmp_path, [], builder)).text()
    assert "no pictures: in real time" in text and "--speed virtual" in text


def test_what_lies_ahead_is_described_before_what_is_nearer_behind() -> None:
    behind, beside, ahead = thing(-0.8, 0.1, id=1), thing(0.1, 1.0, id=2), thing(2.0, id=3)
    said = describe(scene_of(0.0, walker(), behind, beside, ahead))
    assert said.index("2.0 m, ahead") < said.index("1.0 m, 84° left") < said.index("0.8 m, 173° left")


def test_only_redacted_images_are_written(walked: Walk) -> None:
    frame = next(f for f in walked[1].frames() if f.picture is not None)
    assert frame.picture is not None and isinstance(frame.picture.image, Redacted)
    raw = replace(frame, picture=Picture(frame.picture.image.pixels, frame.picture.depth, {}))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a Redacted image"):
        frame_data(raw, gather(walked[0]))


def test_pictures_on_the_page_are_those_of_the_frames(walked: Walk, written: Path) -> None:
    frames = walked[1].frames()
    shown = Page(written).data()["frames"]
    assert [f["t"] for f in shown] == sorted(round(f.t_ns / 1e9, 3) for f in frames)
    for kept, on_page in zip(frames, shown, strict=True):
        assert kept.picture is not None
        encoded = base64.b64decode(str(on_page["image"]).partition(",")[2])
        decoded = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_GRAYSCALE)
        assert decoded is not None and decoded.shape == kept.picture.image.pixels.shape
        assert np.abs(decoded.astype(int) - kept.picture.image.pixels).mean() < 4


def test_the_frame_shown_first_is_one_that_decided_an_alert(walked: Walk) -> None:
    frames = walked[1].frames()
    assert frames[page.start_frame(frames)].alert
    assert page.start_frame([]) == 0


def test_a_frame_with_a_picture_is_shown_before_one_without_that_knows_of_more(walked: Walk) -> None:
    frame = next(f for f in walked[1].frames() if f.alert and f.picture is not None)
    crowded = msgspec.structs.replace(frame.scene, obstacles=tuple(thing(i, id=i) for i in range(1, 30)))
    assert page.start_frame([replace(frame, scene=crowded, picture=None), frame]) == 1


@settings(deadline=None)
@given(st.integers(2, 12), st.integers(0, 400))
def test_what_is_kept_is_bounded_and_evenly_spaced(limit: int, count: int) -> None:
    spread: Spread[int] = Spread(limit)
    made = []
    for i in range(count):
        spread.offer(lambda i=i: made.append(i) or i)  # type: ignore[misc,func-returns-value]
    assert len(spread.items) <= limit and spread.offered == count
    gaps = set(np.diff(spread.items))
    assert spread.items[:1] == [0][:count] and len(gaps) <= 1
    if count > limit:
        assert len(spread.items) > limit // 2 and count - 1 - spread.items[-1] < max(gaps)
        assert len(made) <= limit * (1 + np.log2(count / limit + 1))  # pictures are not made to be thrown away


def test_a_long_run_keeps_a_bounded_number_of_frames_and_the_alerts_and_the_last(walked: Walk) -> None:
    builder = ReportBuilder()
    view, pose = walk_run.look(0.0), pose_of(walk_run.eye_at(0.0))
    builder.on_open(walk_run.info())
    alerts = [17, 501, 998]
    for i in range(1000):
        scene = replace_time(walk_run.scene_at(0.0), i)
        builder.on_event(SceneChanged(i, scene, 1.0))
        builder.on_seen(Seen(scene, view, pose, {}))
        if i in alerts:
            for obstacle in (1, 2):
                builder.on_event(Alerted(i, obstacle, Priority.NOW, "contact", i, i, 1.0, 0.0, None))
    frames = builder.frames()
    times = [f.t_ns for f in frames]
    assert len(frames) <= 2 * MOST_FRAMES + 1 and times == sorted(set(times))
    assert [f.t_ns for f in frames if f.alert] == alerts
    assert times[0] == 0 and times[-1] == 999


def replace_time(scene: Scene, device_ns: int) -> Scene:
    return Scene(device_ns, scene.wearer, scene.obstacles, scene.coverage, scene.quality)


# -- questions and goals ------------------------------------------------------------------------------------------

MS = 1_000_000
Q1, Q2 = "What is ahead?", "And now?"


def colour(device_ns: int, shape: tuple[int, ...] = (90, 120, 3), kind: Kind = Kind.RGB) -> Sample:
    frame = ImageFrame(np.full(shape, 60, np.uint8), shape[1], shape[0], 1e-3, 1.0, 0)
    return Sample(Stream("camera-rgb", kind), device_ns, 1, frame)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log, builder = walk_run.walk()
    for device_ns in walk_run.FRAMES[1:]:
        builder.on_sample(colour(device_ns))
    events = walk_run.with_questions(log)
    for event in events:
        builder.shown.on_event(event)
    return write(tmp_path_factory.mktemp("asked"), events, builder)


def test_a_run_without_questions_has_no_section_and_no_lane_for_them(written: Path) -> None:
    page = Page(written)
    assert not any(a.get("id") == "asked" or "asked" in (a.get("class") or "") for _, a in page.elements)
    assert "Questions and goals" not in page.text() and "Texts that were read" not in page.text()
    assert "questions and steps" not in page.text() and page.all("details") == []


def test_questions_goals_and_texts_are_on_the_page(asked: Path) -> None:
    page = Page(asked)
    headings = [t.strip() for tag, t in page.texts if tag == "h2"]
    assert headings[2] == "Questions and goals" and "Texts that were read" in headings
    text = page.text()
    for expected in (
        "Walk on: find the exit. heard, 1.20–1.90", "find the exit withheld: a promise: find the exit",
        "The model wrote: Walk on", "read 60 ms", "encode 150 ms", "decode 680 ms", "together 1100 ms",
        "first token after 420 ms", "first word heard after 900 ms", "Prompt: 800 tokens, 620 of them reused",
        "Written: 20. Frames: 8, 1 of them encoded for it", "magnetometer, barometer 50 %", "trajectory 97 %",
        "given up", "The run ended before it was answered.", "no picture kept", "12° left",
    ):  # fmt: skip
        assert expected in text, expected
    assert "EXlT" not in text  # it was read better later
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids)) and {"query-1", "query-2", "query-3"} <= set(ids)


def test_questions_can_be_used_without_eyes_without_a_mouse_and_without_script(asked: Path) -> None:
    page = Page(asked)
    assert all("alt" in a for a in page.all("img")) and all(a.get("aria-label") for a in page.all("button"))
    pressed = [a["aria-label"] or "" for a in page.all("button") if "seconds, " in (a["aria-label"] or "")]
    assert "0.3 seconds, goal: find the exit (said, first word after 0.9 s)" in pressed
    assert "4.0 seconds, question: find the exit (open, nothing heard)" in pressed
    folded = page.all("details")
    assert ["open" in a for a in folded] == [True, False, True]  # a step that nobody asked for is folded
    assert len(page.all("summary")) == len(folded) and len(page.all("script")) == 2
    lists = {a.get("aria-label") for a in page.all("ul") + page.all("ol")}
    assert {"Clauses, and what became of each", "Where the time went, from asking", "Goals"} <= lists


def test_the_frames_of_a_question_are_shown_small_and_only_those_that_were_kept(asked: Path) -> None:
    page = Page(asked)
    shown = [a for a in page.all("img") if (a["alt"] or "").startswith("Colour camera")]
    assert [a["alt"] for a in shown] == [f"Colour camera at {k * 0.25:.2f} s" for k in range(1, 8)]
    assert all((a["src"] or "").startswith("data:image/jpeg;base64,") for a in shown)
    for tag, attrs in page.elements:
        assert all((attrs.get(name) or "data:").startswith("data:") for name in ("src", "href")), (tag, attrs)


@pytest.mark.parametrize("evil", ["</script><script>alert(1)</script>", "\"><img src=x onerror='alert(1)'>", "{{7*7}}"])
def test_text_of_questions_answers_and_signs_is_never_markup(walked: Walk, tmp_path: Path, evil: str) -> None:
    events = walk_run.with_questions(walked[0], evil)
    page = Page(write(tmp_path, events, ReportBuilder()))
    assert len(page.all("script")) == 1 and page.all("img") == []
    assert not any(k.startswith("on") for _, a in page.elements for k in a)
    assert page.text().count(evil) >= 8 and any(evil in (a.get("title") or "") for a in page.all("button"))


def test_characters_that_turn_or_hide_text_do_not_reach_the_page(walked: Walk, tmp_path: Path) -> None:
    text = write(tmp_path, walk_run.with_questions(walked[0], "a\u202eb\x17c\nd"), ReportBuilder()).read_text()
    assert "a·b·c d" in text


def test_the_parts_of_an_answer_fill_its_bar_end_to_end(walked: Walk) -> None:
    card = cards_of(walk_run.with_questions(walked[0]))[0]
    assert card.total_ms == sum(card.given.parts_ms.values()) == 1100.0 == card.axis_ms
    ends = [p.left_pc + p.width_pc for p in card.parts]
    assert card.parts[0].left_pc == 0 and ends[-1] == pytest.approx(100)
    assert [p.left_pc for p in card.parts[1:]] == pytest.approx(ends[:-1])
    assert [m.look for m in card.marks] == ["token", "word"]
    assert [m.left_pc for m in card.marks] == pytest.approx([100 * 420 / 1100, 100 * 900 / 1100], abs=1e-2)


def cards_of(events: list[AnyEvent]) -> list[Card]:
    return cards(gather(events), {})


def test_what_is_heard_after_the_last_token_stays_within_the_bar() -> None:
    (card,) = cards_of([
        Asked(0, 1, "question", Q1), ClauseReady(100 * MS, 1, "A door.", 3),
        Answered(100 * MS, 1, "said", "", (1, 2), "A door.", 50.0, {"prefill": 50.0, "decode": 50.0}),
        *walk_run.said(1, "A door.", 350, 0.7),
    ])  # fmt: skip
    assert card.axis_ms == 400 and [p.width_pc for p in card.parts] == [12.5, 12.5]
    assert [m.left_pc for m in card.marks] == [12.5, 100.0]


def test_a_query_of_which_nothing_is_known_but_the_question_has_a_card() -> None:
    (card,) = cards_of([Asked(5, 1, "question", Q1)])
    assert (card.parts, card.marks, card.shown, card.sensors, card.clauses) == ([], [], [], [], [])
    assert card.given.outcome == "open" and card.why


def test_clauses_are_told_with_what_became_of_them() -> None:
    clause = [f"Clause {i}." for i in range(6)]
    run = gather([
        Asked(0, 1, "question", Q1), *(ClauseReady(i + 1, 1, text, i) for i, text in enumerate(clause)),
        ClauseReady(9, 1, "All is well.", 9, "promise"),
        *walk_run.said(1, clause[0], 100, 0.7),
        *walk_run.said(2, clause[1], 900, 0.3, whole=False), Unsaid(1200 * MS, 2, "cut", 0.3),
        *walk_run.said(3, clause[1], 1200, 0.7),  # it goes on under a new number
        *walk_run.said(4, clause[2], 2000, 0.2, whole=False), Unsaid(2200 * MS, 4, "cut", 0.2),
        Queued(2300 * MS, 5, clause[3], Priority.NORMAL, "answer", None, 0), Unsaid(2400 * MS, 5, "expired", 0.0),
        Queued(2500 * MS, 6, clause[4], Priority.NORMAL, "answer", None, 0),
    ])  # fmt: skip
    assert [(c.text, c.became, len(c.heard)) for c in spoken_clauses(run)[1]] == [
        ("Clause 0.", "heard", 1), ("Clause 1.", "heard", 2), ("Clause 2.", "heard in part, then cut", 1),
        ("Clause 3.", "not heard: expired", 0), ("Clause 4.", "not heard: the run ended first", 0),
        ("Clause 5.", "not heard: given up before its turn", 0), ("All is well.", "withheld: promise", 0),
    ]


def test_the_same_words_in_two_answers_are_told_apart() -> None:
    run = gather([
        Asked(0, 1, "question", Q1), ClauseReady(1, 1, "Yes.", 1),
        Asked(50 * MS, 2, "question", Q2), ClauseReady(51 * MS, 2, "Yes.", 1), *walk_run.said(1, "Yes.", 60, 0.7),
    ])  # fmt: skip
    assert [[c.became for c in clauses] for clauses in spoken_clauses(run).values()] == [
        ["not heard: given up before its turn"], ["heard"],
    ]


def test_a_refusal_is_told_with_the_line_that_was_said_for_it() -> None:
    line = "I can't see yet."
    (card,) = cards_of([
        Asked(5, 1, "question", Q1), *walk_run.said(1, line, 10, 0.7),
        Answered(20 * MS, 1, "refused", line, (), "", None, {}),
    ])  # fmt: skip
    assert [(c.text, c.became) for c in card.clauses] == [(line, "heard")] and card.detail == ""


def test_a_line_that_stands_in_for_an_answer_is_told_with_it_and_other_lines_are_not() -> None:
    nothing = "I have no answer to that."
    (card,) = cards_of([
        Asked(5, 1, "question", Q1), Answered(20 * MS, 1, "limit", "", (1,), "", 9.0, {}),
        *walk_run.said(1, nothing, 30, 0.2, whole=False), Unsaid(230 * MS, 1, "cut", 0.2),
        *walk_run.said(2, nothing, 230, 0.7), *walk_run.said(3, "Detail: brief.", 1500, 0.7),
    ])  # fmt: skip
    assert [(c.text, c.became, len(c.heard)) for c in card.clauses] == [(nothing, "heard", 2)]


def test_goals_are_told_with_their_states_and_steps(walked: Walk) -> None:
    run = gather(walk_run.with_questions(walked[0]))
    (goal,) = goal_rows(run)
    assert (goal.text, goal.from_s, goal.until_s, goal.state) == ("find the exit", 0.3, 3.9, "given up")
    assert goal.steps == [(0.3, "said"), (2.6, "cancelled")]
    assert [(t.text, t.first_s, t.where) for t in text_rows(run)] == [("find the exit", 0.5, "12° left")]


def test_questions_and_goals_lie_on_the_time_line_where_they_were(asked: Path) -> None:
    page = Page(asked)
    duration = float(next(a["data-duration"] or "" for _, a in page.elements if "data-duration" in a))
    at = [float(a["data-t"] or "") for a in page.all("button") if "step" in (a.get("class") or "")]
    assert at == [2.6]
    (goal,) = [a for a in page.all("li") if (a.get("title") or "").startswith("Goal ")]
    assert goal["title"] == "Goal find the exit: given up, 0.3 to 3.9 s"
    left, width = (float(v) for v in re.findall(r"[\d.]+(?=%)", goal["style"] or ""))
    assert left * duration / 100 == pytest.approx(0.3, abs=1e-3)
    assert width * duration / 100 == pytest.approx(3.6, abs=1e-3)


def recorded(generation: int = 2, *, live: bool = False) -> SourceInfo:
    return SourceInfo("vrs:walk.vrs", Rig(generation, {}, {}, np.eye(4)), (), 0, 1.0, recorded=not live)


def begun(*frames: int) -> AnswerBegun:
    return AnswerBegun(0, 1, frames, 0, {}, (), 10, 0)


def test_only_pictures_that_a_question_used_are_kept_and_they_are_small() -> None:
    shown = ShownPictures()
    shown.on_open(recorded())
    for t in range(40):
        shown.on_sample(colour(t, (300, 400, 3)))
        shown.on_sample(colour(1000 + t, (30, 40), Kind.SLAM))
    shown.on_event(begun(*range(3, 33, 2)))
    assert list(shown.kept) == list(range(3, 33, 2))[-MOST_OF_ONE:]
    assert all(isinstance(p, Redacted) and p.pixels.shape == (120, SMALL_PX, 3) for p in shown.kept.values())


def test_pictures_of_a_sensor_that_lies_on_its_side_stand_upright() -> None:
    shown = ShownPictures()
    shown.on_open(recorded(generation=1))
    shown.on_sample(colour(1, (90, 120, 3)))
    shown.on_event(begun(1))
    assert shown.kept[1].pixels.shape == (120, 90, 3)


def test_no_picture_of_a_live_session_is_held_for_questions() -> None:
    shown = ShownPictures()
    shown.on_open(recorded(live=True))
    shown.on_sample(colour(1))
    shown.on_event(begun(1))
    assert shown.kept == {}


def test_pictures_too_old_for_any_answer_are_let_go() -> None:
    shown = ShownPictures()
    shown.on_open(recorded())
    for t in range(MOST_RECENT + 5):
        shown.on_sample(colour(t, (9, 12, 3)))
    shown.on_event(begun(4, 5))
    assert list(shown.kept) == [5]


def test_a_run_of_many_questions_draws_a_bounded_number_of_pictures() -> None:
    pictures = {t: Redacted.from_recording(np.zeros((9, 12, 3), np.uint8), recorded()) for t in range(8)}
    events: list[AnyEvent] = []
    for i in range(100):
        events += [Asked(i * MS, i, "step", Q1), AnswerBegun(i * MS, i, tuple(range(8)), 0, {}, (), 10, 0)]
    drawn = [shown.picture is not None for card in cards(gather(events), pictures) for shown in card.shown]
    assert len(drawn) == 800 and sum(drawn) == MOST_DRAWN and all(drawn[:MOST_DRAWN])


def test_a_picture_of_a_question_that_is_not_redacted_is_refused(walked: Walk, tmp_path: Path) -> None:
    run = gather(walk_run.with_questions(walked[0]))
    raw = {walk_run.FRAMES[0]: np.zeros((9, 12, 3), np.uint8)}
    with pytest.raises(TypeError, match="expected a Redacted image"):
        write_report(tmp_path / "r.html", run=run, summary=run.summary(events_sha256=""), frames=[], info=None,
                     pictures=raw)  # type: ignore[arg-type]


# -- drawing ------------------------------------------------------------------------------------------------------

HEADINGS = st.floats(-60, 60)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), HEADINGS, st.floats(-30, 10), st.floats(-10, 10), st.floats(-2, 2), st.floats(0.5, 6))
def test_a_point_measured_at_a_pixel_is_drawn_at_that_pixel(
    seed: int, heading: float, pitch: float, roll: float, x: float, rho: float
) -> None:
    view = geometry(pitch)
    eye = Eye(x, -x, 1.6, heading, pitch, roll)
    pose = pose_of(eye)
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(0, len(view.phi_rad), 20), rng.integers(0, len(view.tan_x), 20)
    depth = np.full(view.rho_m.shape, rho, np.float32)
    rect = replace(view, rho_m=depth).points_rect().astype(np.float64)[rows, columns]
    level = rect @ pose.R_level_device.T + pose.device_in_level_m
    assert project(view, pose, level) == pytest.approx(np.stack([columns, rows], axis=-1), abs=1e-3)


def geometry(pitch_deg: float) -> DepthView:
    """A view without anything in it (nothing to cast: quick)."""
    return Stereo(disparity_sd_px=0.0, holes=0.0, outliers=0.0).look([], Eye(pitch_deg=pitch_deg))


def test_points_behind_the_head_are_not_drawn() -> None:
    view = geometry(0.0)
    px = project(view, pose_of(Eye()), np.array([[-2.0, 0.0, 0.0], [2.0, 0.0, 0.0]]))
    assert np.isnan(px[0]).all() and not np.isnan(px[1]).any()
    behind = walk_run.scene_at(0.0).obstacles[0]
    gone = type(behind)(**{name: getattr(behind, name) for name in behind.__struct_fields__} | {"x_m": -3.0})
    assert outline(gone, walk_run.scene_at(0.0).wearer, view, pose_of(Eye()), CPF) is None


@pytest.mark.parametrize("t_s", [0.0, 1.3, 3.7])
def test_outlines_enclose_the_things_and_nothing_else(t_s: float) -> None:
    view, scene, eye = walk_run.look(t_s), walk_run.scene_at(t_s), walk_run.eye_at(t_s)
    points = view.points_rect().astype(np.float64) @ eye.rotation.T + [eye.x_m, eye.y_m, eye.z_m]
    points -= eye.rotation @ EYE_IN_DEVICE_M  # points are from the left camera, eyes in the middle
    for o, box in zip(scene.obstacles, (walk_run.BOX, walk_run.POLE, walk_run.BAR), strict=False):
        line = outline(o, scene.wearer, view, pose_of(eye, t_s), CPF)
        assert line is not None
        inside = np.zeros(view.rho_m.shape, np.uint8)
        cv2.fillPoly(inside, [np.round(np.array(line.points)).astype(np.int32)], 1)
        with np.errstate(invalid="ignore"):
            front = (np.abs(points[..., 0] - box.low[0]) < 0.02) & (points[..., 2] > 0.03)
            front &= (points[..., 1] > box.low[1]) & (points[..., 1] < box.high[1])
            front &= (points[..., 2] > box.low[2]) & (points[..., 2] < box.high[2])
        known = np.isfinite(view.rho_m)
        covered = (inside[front] > 0).mean()
        hits = front[(inside > 0) & known].mean()
        assert front.sum() > 50 and covered > 0.75 and hits > 0.6, (o.id, covered, hits)
        assert inside[round(line.mark[1]), round(line.mark[0])]


def test_what_is_not_known_about_a_thing_is_not_drawn() -> None:
    """A wall is known by its nearest point; which way a remembered thing lies isn't known once the wearer moved."""
    view, scene, eye = walk_run.look(0.0), walk_run.scene_at(0.0), walk_run.eye_at(0.0)
    box, pole, bar = scene.obstacles[:3]
    wall = type(box)(**{name: getattr(box, name) for name in box.__struct_fields__} | {"width_m": 4.0})
    narrow, wide = (outline(o, scene.wearer, view, pose_of(eye), CPF) for o in (box, wall))
    assert narrow is not None and wide is not None
    assert np.ptp([x for x, _ in wide.points]) < np.ptp([x for x, _ in narrow.points]) and wide.mark == narrow.mark
    drawn = frame_data(Frame(0, scene, None, False), gather([]))["obstacles"]
    assert [o["width"] for o in drawn[:3]] == [0.6, None, 1.2] and not pole.last_device_ns == bar.last_device_ns


def test_left_is_drawn_left_and_right_is_drawn_right() -> None:
    view, scene, eye = walk_run.look(0.0), walk_run.scene_at(0.0), walk_run.eye_at(0.0)
    marks = [outline(o, scene.wearer, view, pose_of(eye), CPF) for o in scene.obstacles[:2]]
    left, right = (m.mark[0] for m in marks if m is not None)
    assert left < view.rho_m.shape[1] / 2 < right
    data = frame_data(Frame(0, scene, None, False), gather([]))
    assert data["obstacles"][0]["bearing"] < 0 < data["obstacles"][1]["bearing"]
    assert data["obstacles"][0]["side"].endswith("left") and data["obstacles"][1]["side"].endswith("right")


def test_a_smaller_picture_keeps_its_geometry() -> None:
    view = walk_run.look(0.5)
    small = reduced(view, 240)
    assert max(small.rho_m.shape) <= 240 and small.image.shape == small.rho_m.shape == small.visible.shape
    point = np.array([[3.0, 0.6, -1.3]])
    pose = pose_of(walk_run.eye_at(0.5))
    step = view.tan_x.shape[0] // small.tan_x.shape[0]
    assert project(small, pose, point) * step + (step - 1) / 2 == pytest.approx(project(view, pose, point), abs=0.05)
    assert reduced(view, 10_000).image is not view.image  # its memory is its own


def test_depth_is_brighter_when_nearer_and_grey_where_unknown() -> None:
    view = geometry(0.0)
    rho = np.full(view.rho_m.shape, np.nan, np.float32)
    distances = [0.3, 0.5, 1.0, 2.0, 4.0, 6.0, 9.0]
    rho[0, : len(distances)] = distances
    visible = np.ones(rho.shape, bool)
    visible[1] = False
    colours = depth_picture(replace(view, rho_m=rho, visible=visible)).astype(int)
    brightness = colours[0, : len(distances)] @ [299, 587, 114]
    assert (np.diff(brightness) <= 0).all() and (np.diff(brightness[1:6]) < 0).all()
    assert (colours[0, len(distances) :] == UNKNOWN_GREY).all() and (colours[1] < UNKNOWN_GREY).all()


# -- figures ------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.floats(-5, 5000), max_size=300))
def test_a_distribution_stays_in_its_box_and_loses_nothing(values: list[float]) -> None:
    d = distribution(values, latency_of(values))
    assert d.n == len(values)
    points = [tuple(map(float, p.split(","))) for p in d.cumulative.split()]
    assert all(0 <= x <= 100.001 and -0.001 <= y <= 100 for x, y in points)
    assert points == sorted(points, key=lambda p: (p[0], -p[1]))
    assert all(0 <= x < 100 and 0 < height <= 100 for x, _, height in d.bars)
    assert all(0 <= x <= 100 for _, x, _ in d.marks) and len(d.marks) == (3 if values else 0)


def test_utterances_are_told_with_what_became_of_them(walked: Walk) -> None:
    rows = utterance_rows(gather(walked[0]))
    assert [(r.text, r.outcome, r.heard) for r in rows[:2]] == [
        ("Head height, ahead.", "heard", "0.54–1.64 s"),
        ("Obstacle, ten o'clock, two metres.", "unsaid: invalid", ""),
    ]
    assert [r.priority for r in rows] == ["now", "next", "now", "now", "normal"]


@pytest.mark.parametrize("seconds", [0.01, 0.3, 5, 61, 3600, 40_000])
def test_time_lines_of_any_length_have_ticks_that_can_be_read(seconds: float) -> None:
    line = timeline(gather([Ended(round(seconds * 1e9), {}, "end")]))
    gaps_px = np.diff([left for left, _ in line.ticks]) * line.width_px / 100
    assert line.ticks and (gaps_px > 40).all() and len({label for _, label in line.ticks}) == len(line.ticks)


def test_measured_stages_are_summed_up_by_name() -> None:
    rows = stage_rows([Timing("b", ms=1.0), Timing("a", ms=2.0), Timing("b", ms=3.0), Timing("c", pid=4)])
    assert [(what, v.n, v.p50, longest) for what, v, longest in rows] == [("a", 1, 2.0, 2.0), ("b", 2, 2.0, 3.0)]


# -- sound --------------------------------------------------------------------------------------------------------


def test_short_sound_lies_in_the_page_as_it_is(tmp_path: Path) -> None:
    walk_run.write_tones(tmp_path / "g.wav", 1.0)
    source = page.sound_source(tmp_path / "g.wav")
    assert source is not None and base64.b64decode(source.partition(",")[2]) == (tmp_path / "g.wav").read_bytes()
    assert page.sound_source(tmp_path / "missing.wav") is None and page.sound_source(None) is None


def test_long_sound_is_mixed_down_and_longer_sound_is_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "g w.wav"
    walk_run.write_tones(path, 1.0)
    monkeypatch.setattr(page, "MOST_SOUND_BYTES", path.stat().st_size * 2 // 3)
    source = page.sound_source(path)
    assert source is not None
    (tmp_path / "mono.wav").write_bytes(base64.b64decode(source.partition(",")[2]))
    with wave.open(str(tmp_path / "mono.wav")) as mono:
        assert (mono.getnchannels(), mono.getnframes()) == (1, 22_050)
        samples = np.frombuffer(mono.readframes(22_050), "<i2")
    assert abs(int(np.abs(samples).max()) - 0.15 * 32767) < 40  # left and right took turns: half of 0.3
    monkeypatch.setattr(page, "MOST_SOUND_BYTES", 1000)
    assert page.sound_source(path) == "g%20w.wav"


# -- in a browser -------------------------------------------------------------------------------------------------

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTH, HEIGHT = 1400, 1800
FRAME_LEFT = 20 + 1 + 16  # page.css: main's padding, section's border and padding
FRAME_WIDTH = (WIDTH - 2 * FRAME_LEFT - 2 * 14) / 3  # three views and the gaps between them
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: the page can't be opened")


def browse(path: Path, profile: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    return subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
         f"--user-data-dir={profile}", f"--window-size={WIDTH},{HEIGHT}", "--virtual-time-budget=3000",
         "--enable-logging=stderr", *flags, path.as_uri()],
        capture_output=True, text=True, errors="replace", timeout=100, check=True,
    )  # fmt: skip


@in_browser
def test_the_page_runs_without_errors_and_shows_obstacles_where_they_are(
    walked: Walk, written: Path, tmp_path: Path
) -> None:
    shot = tmp_path / "shot.png"
    done = browse(written, tmp_path / "profile", f"--screenshot={shot}")
    assert "CONSOLE" not in done.stderr
    screen = cv2.imread(str(shot), cv2.IMREAD_COLOR)
    assert screen is not None
    frames = walked[1].frames()
    frame = frames[page.start_frame(frames)]
    assert frame.picture is not None
    scale = FRAME_WIDTH / frame.picture.image.pixels.shape[1]
    expected = cv2.resize(frame.picture.image.pixels, None, fx=scale, fy=scale)
    match = cv2.matchTemplate(
        cv2.cvtColor(screen, cv2.COLOR_BGR2GRAY), np.asarray(expected, np.uint8), cv2.TM_CCOEFF_NORMED
    )
    _, score, _, (x, y) = cv2.minMaxLoc(match)
    assert score > 0.7 and abs(x - FRAME_LEFT) <= 2, "the frame is not where the page puts it"
    region = screen[y : y + expected.shape[0], x : x + expected.shape[1]].astype(int)
    colours = {1: (255, 154, 61), 3: (255, 107, 133), 4: (238, 140, 255)}  # page.css: obstacle, head, drop-off
    for id, rgb in colours.items():
        drawn = np.abs(region - rgb[::-1]).max(axis=2) < 40
        near = cv2.dilate(drawn.astype(np.uint8), np.ones((7, 7)))
        points = np.round(np.array(frame.picture.outlines[id].points) * scale).astype(int)
        within = points[(points >= 4).all(axis=1) & (points < np.array(drawn.shape[::-1]) - 4).all(axis=1)]
        assert len(within) > 8 and near[within[:, 1], within[:, 0]].mean() > 0.8, f"obstacle {id} is not drawn there"
    right = slice(x + round(2 * (FRAME_WIDTH + 14)), x + round(3 * FRAME_WIDTH + 28))
    assert len(np.unique(screen[y : y + 300, right].reshape(-1, 3), axis=0)) > 20, "the scene from above is blank"


@in_browser
def test_every_view_is_filled_in(written: Path, tmp_path: Path) -> None:
    dom = browse(written, tmp_path / "a", "--dump-dom").stdout
    overlay = dom[dom.index('<svg id="overlay"') :]
    assert overlay[: overlay.index("</svg>")].count("<polygon") >= 4
    things = dom[dom.index('<g id="things"') :]
    assert things[: things.index("</g>")].count("<ellipse") == 4
    rows = dom[dom.index('<table id="obstacles"') :]
    assert rows[: rows.index("</table>")].count("<tr>") == 1 + 4


@in_browser
def test_frame_sound_and_time_line_move_together(walked: Walk, written: Path, tmp_path: Path) -> None:
    acts = """setTimeout(() => {
      const at = (id) => document.getElementById(id), seen = [];
      const note = () => seen.push([at("when").textContent, at("sound").currentTime, at("cursor").style.left]);
      at("next").click(); note();
      document.querySelector(".lane.normal button").click(); note();
      at("slider").value = 2; at("slider").dispatchEvent(new Event("input")); note();
      document.title = JSON.stringify(seen);
    }, 300);"""
    acted = tmp_path / "acted.html"
    text = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", written.read_text())
    acted.write_text(text.replace("</body>", f"<script>{acts}</script></body>"))
    dom = browse(acted, tmp_path / "profile", "--dump-dom").stdout
    stepped, pressed, slid = json.loads(html.unescape(dom.partition("<title>")[2].partition("</title>")[0]))
    times = [f.t_ns / 1e9 for f in walked[1].frames()]
    start = page.start_frame(walked[1].frames())
    end_s = gather(walked[0]).end_ns / 1e9
    for (words, sound_s, left), index, time_s in (
        (stepped, start + 1, times[start + 1]), (pressed, int(np.searchsorted(times, 4.871)) - 1, 4.871),
        (slid, 2, times[2]),
    ):  # fmt: skip
        assert words.startswith(f"{index + 1} of {len(times)} ")
        assert sound_s == pytest.approx(time_s, abs=2e-3)
        assert float(left.rstrip("%")) == pytest.approx(100 * time_s / end_s, abs=0.1)


@in_browser
def test_questions_go_with_the_page_and_labels_stand_in_both_views(walked: Walk, tmp_path: Path) -> None:
    log, builder = walked
    (frame,) = [f for f in builder.frames() if f.alert][:1]
    labelled = tuple(msgspec.structs.replace(o, label="traffic <b>light" if o.id == 1 else None)
                     for o in frame.scene.obstacles)  # fmt: skip
    run = gather(walk_run.with_questions(log))
    path = tmp_path / "labels.html"
    write_report(
        path, run=run, summary=run.summary(events_sha256=""), info=None,
        frames=[replace(frame, scene=msgspec.structs.replace(frame.scene, obstacles=labelled))],
    )  # fmt: skip
    done = browse(path, tmp_path / "profile", "--dump-dom")
    assert "CONSOLE" not in done.stderr
    for view in ('<svg id="overlay"', '<g id="things"'):
        drawn = done.stdout[done.stdout.index(view) :]
        drawn = drawn[: drawn.index("</svg>")]
        assert re.search(r"<text[^>]*>\d\.\d m traffic &lt;b&gt;light</text>", drawn), view


@in_browser
def test_a_script_error_would_have_been_seen(written: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    text = written.read_text()
    broken.write_text(text.replace('id="overlay"', 'id="elsewhere"'))
    assert "CONSOLE" in browse(broken, tmp_path / "b", "--dump-dom").stderr
