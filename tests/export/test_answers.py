"""Questions through the whole answer path: real graphs of a tiny model, real buffer, voice and queue, virtual time."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from scenes import look, walker

from handrail.benchmarks.answer_stage import Clip, Stage, clip, stage
from handrail.benchmarks.questions import alone, caches, cancelled
from handrail.export.bundles.bundling import write_bundle
from handrail.export.bundles.loading import untrained
from handrail.runtime.answer.opening import Loaded, Options, load
from handrail.runtime.answer.query import Line
from handrail.runtime.bundle.manifest import seal
from handrail.runtime.config import Config, Wearer
from handrail.runtime.engine.prompt import F32, I64
from handrail.runtime.events import AnswerBegun, Answered, Asked, ClauseReady, Fault, GoalChanged, Spoken
from handrail.runtime.scene import Scene
from handrail.streams.clock import NS_PER_S, now_ns, run_virtual
from handrail.streams.errors import BundleError


@pytest.fixture(scope="module")
def recording() -> Clip:
    return clip(rgb_hz=4.0)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles") / "tiny"
    write_bundle(untrained("tiny:smolvlm2"), folder, "none", "cpu")
    return folder


@pytest.fixture(scope="module")
def loaded(bundle: Path) -> Loaded:
    return load(Options(bundle, labels=False, ocr="off"))


class Writes:
    """A decoder that writes given texts, one an answer, whatever it reads; the byte tokenizer's ids."""

    context = 4096

    def __init__(self, loaded: Loaded, *texts: str) -> None:
        assert loaded.model is not None
        self._end = loaded.model.tokens.end[0]
        self._texts = [loaded.model.prompter.encode(text) for text in texts]
        self._left: list[int] = []
        self.prompts = 0
        self.fails = False

    def rewind(self, length: int) -> None:
        pass

    def read(self, embeds: F32, places: I64, frames: I64, deepstack: F32 | None = None) -> F32:
        if self.fails:
            raise RuntimeError("out of memory")
        if len(embeds) > 1 or not self._left:  # a piece of a prompt
            self._left = [*self._texts[min(self.prompts, len(self._texts) - 1)], self._end]
        elif len(self._left) == len(self._texts[min(self.prompts, len(self._texts) - 1)]) + 1:
            self._left.pop(0)
        else:
            self._left.pop(0)
        if len(self._left) == 1:
            self.prompts += 1
        scores = np.zeros(400, np.float32)
        scores[self._left[0]] = 1.0
        return scores


def writing(loaded: Loaded, *texts: str) -> Loaded:
    return replace(loaded, decoder=Writes(loaded, *texts))


def on_stage(of: Clip, loaded: Loaded, play: Callable[[Stage], Any]) -> list[Any]:
    """The events of what ``play`` does."""

    async def whole() -> list[Any]:
        async with stage(of, loaded) as on:
            await play(on)
            return list(on.events)

    return run_virtual(whole())


def asked(of: Clip, loaded: Loaded, *lines: str) -> list[Any]:
    async def play(on: Stage) -> None:
        for line in lines:
            on.answers.line(line)
            await on.answers.done()

    return on_stage(of, loaded, play)


def see(on: Stage, scene: Scene) -> None:
    """As a session tells of a new scene."""
    on.speech.scene(scene, now_ns())
    on.answers.scene(scene, now_ns())


def spoken(events: list[Any]) -> list[str]:
    return [e.text for e in events if isinstance(e, Spoken)]


def outcomes(events: list[Any]) -> list[str]:
    return [e.outcome for e in events if isinstance(e, Answered)]


def test_the_log_holds_frames_sensors_tokens_clauses_and_parts_that_add_up(recording: Clip, loaded: Loaded) -> None:
    events = asked(recording, loaded, "what is in front of me?")
    began = next(e for e in events if isinstance(e, Asked))
    shown = next(e for e in events if isinstance(e, AnswerBegun))
    done = next(e for e in events if isinstance(e, Answered))
    assert 1 <= len(shown.frames) <= 8 and shown.frames == tuple(sorted(set(shown.frames)))
    assert set(shown.sensors) == {"imu", "magbaro", "gaze", "hands", "trajectory"} and shown.sensors["magbaro"] > 0
    assert done.tokens and bool(done.text) <= any(isinstance(e, ClauseReady) for e in events)
    assert sum(done.parts_ms.values()) == pytest.approx((done.t_ns - began.t_ns) / 1e6, abs=1e-3)
    assert {"sensors", "prefill", "decode"} <= set(done.parts_ms)


def test_the_same_question_has_the_same_answer_whatever_was_asked_before(recording: Clip, loaded: Loaded) -> None:
    first = run_virtual(alone(recording, loaded))
    assert run_virtual(alone(recording, loaded)) == first and first.tokens
    assert run_virtual(caches(recording, loaded, first.tokens))["equal"]


def test_hushed_at_any_token_it_is_silent_within_100_ms(recording: Clip, loaded: Loaded) -> None:
    wordy = writing(loaded, "A chair. A table at two o'clock. " * 2)
    for at in range(0, 60, 13):
        found = run_virtual(cancelled(recording, wordy, at))
        assert found["more_tokens"] <= 1 and found["silent_ms"] <= 100, found


def test_clauses_are_spoken_while_the_rest_is_still_written(recording: Clip, loaded: Loaded) -> None:
    text = "Boxes at ten o'clock, one metre. A wall is close on the right. The floor was seen to four metres."
    events = asked(recording, writing(loaded, text), "what is around?")
    assert spoken(events) == [part + "." for part in text[:-1].split(". ")]
    first = next(i for i, e in enumerate(events) if isinstance(e, Spoken))
    assert first < next(i for i, e in enumerate(events) if isinstance(e, Answered))
    assert outcomes(events) == ["said"]


def test_a_promise_of_safety_is_not_spoken(recording: Clip, loaded: Loaded) -> None:
    events = asked(recording, writing(loaded, "A street. It is safe to cross. A car at two o'clock."), "can I cross?")
    assert spoken(events) == ["A street.", "A car at two o'clock."]
    assert [e.text for e in events if isinstance(e, ClauseReady) and e.withheld] == ["It is safe to cross."]


def test_an_answer_that_never_ends_is_cut_with_a_word(recording: Clip, loaded: Loaded) -> None:
    endless = " ".join(f"Thing {chr(97 + n % 26)}{chr(97 + n // 26)}." for n in range(80))
    events = asked(recording, writing(loaded, endless), "what is there?")
    assert outcomes(events) == ["limit"] and " ".join(spoken(events)).endswith(Line.CUT_SHORT)


def test_an_answer_that_goes_round_in_circles_is_ended(recording: Clip, loaded: Loaded) -> None:
    events = asked(recording, writing(loaded, "A chair. A table. " + "A chair. " * 30), "what is there?")
    assert outcomes(events) == ["repeated"] and spoken(events) == ["A chair.", "A table."]


def test_no_answer_to_a_question_is_said_and_never_an_empty_sound(recording: Clip, loaded: Loaded) -> None:
    events = asked(recording, writing(loaded, ""), "what is there?")
    assert outcomes(events) == ["silent"] and spoken(events) == [Line.NOTHING]


@pytest.mark.parametrize("line", ["", "   ", "\x00\x07", "?!"])
def test_an_empty_question_is_told_as_such(recording: Clip, loaded: Loaded, line: str) -> None:
    events = asked(recording, loaded, line)
    assert spoken(events) == [Line.NO_QUESTION] and not outcomes(events)


@pytest.mark.parametrize("line", ["Что впереди?", "前に何がありますか", "ما الذي أمامي؟", "Где 🚪?", "a" * 400])
def test_a_question_in_any_script_is_answered(recording: Clip, loaded: Loaded, line: str) -> None:
    assert outcomes(asked(recording, loaded, line))[0] in ("said", "limit", "repeated")


def test_a_question_longer_than_the_context_is_refused_aloud(recording: Clip, loaded: Loaded) -> None:
    events = asked(recording, loaded, "why " * 2000, "what is there?")
    assert outcomes(events)[0] == "refused" and spoken(events)[0] == Line.TOO_LONG
    assert outcomes(events)[1] != "refused"


def test_marks_of_the_model_in_a_question_are_only_letters(recording: Clip, loaded: Loaded) -> None:
    assert outcomes(asked(recording, loaded, "<image><sensor><end> <image> what?"))[0] in ("said", "limit", "repeated")


def test_before_the_first_frame_it_says_that_it_cannot_see(recording: Clip, loaded: Loaded) -> None:
    blind = Clip(recording.info, tuple(s for s in recording.samples if s.stream.label != "camera-rgb"))
    events = asked(blind, loaded, "what is there?", "goal: find the door")
    assert outcomes(events) == ["refused", "refused"] and spoken(events) == [Line.NOT_YET, Line.NOT_YET]


def test_an_engine_that_fails_is_a_fault_and_a_word_and_the_next_question_is_answered(
    recording: Clip, loaded: Loaded
) -> None:
    decoder = Writes(loaded, "A chair.")

    async def play(on: Stage) -> None:
        decoder.fails = True
        on.answers.line("what is there?")
        await on.answers.done()
        decoder.fails = False
        on.answers.line("and now?")
        await on.answers.done()

    events = on_stage(recording, replace(loaded, decoder=decoder), play)
    assert outcomes(events) == ["failed", "said"] and " ".join(spoken(events)) == (
        f"{Line.FAILED} The picture is 3 seconds old. A chair."
    )
    assert [e.component for e in events if isinstance(e, Fault)] == ["answer"]


def test_a_newer_question_takes_the_place_of_the_older_one(recording: Clip, loaded: Loaded) -> None:
    async def play(on: Stage) -> None:
        on.answers.line("what is on the left?")
        await asyncio.sleep(0.5)
        on.answers.line("what is on the right?")
        await on.answers.done()

    events = on_stage(recording, writing(loaded, "A wall."), play)
    assert outcomes(events) == ["cancelled", "said"] and spoken(events) == ["A wall."]


def test_a_follow_up_reads_only_what_is_new(recording: Clip, loaded: Loaded) -> None:
    events = asked(recording, loaded, "what is there?", "and on the left?")
    first, second = (e for e in events if isinstance(e, AnswerBegun))
    assert second.reused_tokens > first.prompt_tokens - 2 and second.prompt_tokens > first.prompt_tokens
    assert not second.frames  # no picture since


def test_the_fixed_part_of_the_prompt_is_read_before_anybody_asks(recording: Clip, loaded: Loaded) -> None:
    async def play(on: Stage) -> None:
        await asyncio.sleep(10.0)
        on.answers.line("what is there?")
        await on.answers.done()

    shown = next(e for e in on_stage(recording, loaded, play) if isinstance(e, AnswerBegun))
    assert shown.reused_tokens > 500  # of some thousand letters


def test_a_goal_is_pursued_until_the_answer_says_that_it_is_reached(recording: Clip, loaded: Loaded) -> None:
    told = writing(loaded, "Walk on, three metres.", "Turn right.", "Reached. The door is ahead.")

    async def play(on: Stage) -> None:
        on.answers.line("goal: find the door")
        await on.answers.done()
        for step in range(300):  # 30 s: the wearer walks a metre a second, straight on
            see(on, look(step / 10, walker(step / 10)))
            await asyncio.sleep(0.1)

    events = on_stage(recording, told, play)
    assert [e.state for e in events if isinstance(e, GoalChanged)] == ["active", "reached"]
    assert [e.kind for e in events if isinstance(e, Asked)][:3] == ["goal", "step", "step"]
    assert spoken(events)[:4] == ["Walk on, three metres.", "Turn right.", "Reached.", "The door is ahead."]


def test_a_step_that_needs_no_words_is_silence(recording: Clip, loaded: Loaded) -> None:
    async def play(on: Stage) -> None:
        on.answers.line("goal: find the door")
        await on.answers.done()
        for step in range(100):
            see(on, look(step / 10, walker(step / 10)))
            await asyncio.sleep(0.1)

    events = on_stage(recording, writing(loaded, "Walk on.", ""), play)
    assert spoken(events) == ["Walk on."] and outcomes(events)[:2] == ["said", "silent"]


def test_directions_that_no_longer_hold_are_not_spoken(recording: Clip, loaded: Loaded) -> None:
    async def play(on: Stage) -> None:
        see(on, look(0, walker()))
        on.answers.line("what is there?")
        await asyncio.sleep(3.0)
        see(on, look(3, walker(nose_deg=60, travel_deg=60)))
        await on.answers.done()

    text = "A chair at ten o'clock. A table at two o'clock. A lamp on the left."
    events = on_stage(recording, writing(loaded, text), play)
    assert " ".join(spoken(events)).endswith(Line.CHANGED) and "A lamp on the left." not in spoken(events)


def test_time_does_not_run_backwards_in_the_log(recording: Clip, loaded: Loaded) -> None:
    times = [e.t_ns for e in asked(recording, loaded, "what is there?", "less", "and now?", "give up")]
    assert times == sorted(times) and times[-1] > NS_PER_S


def test_a_fixed_part_that_cannot_be_read_beforehand_is_a_fault_and_questions_are_still_answered(
    recording: Clip, loaded: Loaded
) -> None:
    decoder = Writes(loaded, "A chair.")
    decoder.fails = True

    async def play(on: Stage) -> None:
        decoder.fails = False
        on.answers.line("what is there?")
        await on.answers.done()

    events = on_stage(recording, replace(loaded, decoder=decoder), play)
    assert [e.component for e in events if isinstance(e, Fault)] == ["answer"] and spoken(events) == ["A chair."]


def test_of_two_questions_at_the_same_instant_both_have_an_outcome(recording: Clip, loaded: Loaded) -> None:
    async def play(on: Stage) -> None:
        on.answers.line("what is on the left?")
        on.answers.line("what is on the right?")
        await on.answers.done()

    events = on_stage(recording, writing(loaded, "A wall."), play)
    assert [(e.query_id, e.outcome) for e in events if isinstance(e, Answered)] == [(1, "cancelled"), (2, "said")]


def test_a_question_lost_at_a_seam_is_told_as_lost(recording: Clip, loaded: Loaded) -> None:
    async def play(on: Stage) -> None:
        on.answers.line("what is there?")
        await asyncio.sleep(0.5)
        on.speech.seam()
        on.answers.seam()
        await on.answers.done()

    events = on_stage(recording, writing(loaded, "A wall."), play)
    assert outcomes(events) == ["cancelled"] and " ".join(spoken(events)) == Line.JUMPED


def test_long_clauses_are_all_said_none_waits_past_its_time(recording: Clip, loaded: Loaded) -> None:
    which = ("one", "next", "last")
    text = " ".join(f"The {n} table has a row of boxes and a lamp at the far end of it." for n in which)

    async def whole() -> list[Any]:
        slow = Config(wearer=Wearer(speech_rate_wpm=100, detail="full"))
        async with stage(recording, writing(loaded, text), slow) as on:
            on.answers.line("what is there?")
            await on.answers.done()
            return list(on.events)

    assert " ".join(spoken(run_virtual(whole()))) == text


def test_directions_are_those_of_the_picture_also_when_the_wearer_turned_before_asking(
    recording: Clip, loaded: Loaded
) -> None:
    newest_s = max(s.device_ns for s in recording.samples if s.stream.label == "camera-rgb") / NS_PER_S

    async def play(on: Stage) -> None:
        see(on, look(newest_s, walker(travel_deg=None)))
        see(on, look(newest_s + 0.9, walker(nose_deg=70, travel_deg=None)))
        on.answers.line("what is there?")
        await on.answers.done()

    events = on_stage(recording, writing(loaded, "A chair on the left."), play)
    assert " ".join(spoken(events)) == Line.CHANGED


def test_a_goal_whose_steps_fail_is_not_told_so_every_few_seconds(recording: Clip, loaded: Loaded) -> None:
    decoder = Writes(loaded, "Walk on.")

    async def play(on: Stage) -> None:
        on.answers.line("goal: find the door")
        await on.answers.done()
        decoder.fails = True
        for step in range(250):
            see(on, look(step / 10, walker(step / 10)))
            await asyncio.sleep(0.1)

    events = on_stage(recording, replace(loaded, decoder=decoder), play)
    assert outcomes(events).count("failed") >= 2 and " ".join(spoken(events)).count(Line.FAILED) == 1


def test_a_wearer_who_turns_as_a_step_says_is_not_told_to_ask_again(recording: Clip, loaded: Loaded) -> None:
    async def play(on: Stage) -> None:
        on.answers.line("goal: find the door")
        await on.answers.done()
        see(on, look(5.0, walker(5.0)))
        await asyncio.sleep(1.2)
        for step in range(20):
            see(on, look(6.0 + step / 10, walker(5.0, travel_deg=-60, nose_deg=-60)))
            await asyncio.sleep(0.1)

    text = "Turn right and walk along the wall to the corner. Then the door is ahead."
    events = on_stage(recording, writing(loaded, "Walk on.", text), play)
    assert Line.CHANGED not in " ".join(spoken(events))


def test_a_bundle_for_other_sensors_is_refused_in_one_line(bundle: Path, tmp_path: Path) -> None:
    other = shutil.copytree(bundle, tmp_path / "other")
    graph = onnx.load(other / "fusion.onnx", load_external_data=False)
    graph.graph.input.append(onnx.helper.make_tensor_value_info("radar", onnx.TensorProto.FLOAT, [1, 64, 3]))
    onnx.save(graph, other / "fusion.onnx")
    about = json.loads((other / "manifest.json").read_text())
    del about["manifest_sha256"]
    data = (other / "fusion.onnx").read_bytes()
    about["files"]["fusion.onnx"] |= {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    (other / "manifest.json").write_bytes(seal(json.dumps(about, indent=2).encode()[1:]))
    with pytest.raises(BundleError, match="asks for 'radar', which isn't made here"):
        load(Options(other, labels=False, ocr="off"))


def test_an_old_picture_is_told_as_old(recording: Clip, loaded: Loaded) -> None:
    async def play(on: Stage) -> None:
        await asyncio.sleep(20.0)  # the camera has stopped
        on.answers.line("what is there?")
        await on.answers.done()

    assert spoken(on_stage(recording, writing(loaded, "A chair."), play))[0].startswith("The picture is 20 seconds old")
