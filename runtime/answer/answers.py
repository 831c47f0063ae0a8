"""Questions, goals and changes of scene in; clauses in the speech queue out. The session's slow path.

    answers = Answers(...)
    group.create_task(answers.run(buffer))
    answers.line("what is in front of me?")      # typed, spoken or scheduled; never waits

One answer at a time: a newer question takes the place of an older one, and nothing that nobody asked for begins while
somebody waits. Hazards never wait for any of this. An answer that fails is a fault and a spoken line, and the session
goes on. Belongs to the loop's thread. Knows no graphs, no files and no sounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from handrail.runtime import config
from handrail.runtime.answer.answering import Answering, Asking, Conversation, Means, Shown
from handrail.runtime.answer.headings import Headings
from handrail.runtime.answer.labels import Labels
from handrail.runtime.answer.opening import Asked as Scheduled
from handrail.runtime.answer.pictures import Pictures
from handrail.runtime.answer.query import ASKED_ALOUD, Kind, Line, Outcome, Query, Stopwatch
from handrail.runtime.answer.telling import Clause, Handing, Said, Words, directed
from handrail.runtime.answer.texts import Texts, gaze_deg
from handrail.runtime.answer.unasked import Unasked
from handrail.runtime.asking import commands, prompts
from handrail.runtime.events import AnswerBegun, Answered, AnyEvent, Asked, ClauseReady, Fault
from handrail.runtime.preprocess.prompt import Turn
from handrail.runtime.scene import Scene
from handrail.runtime.scenetext.reader import ReaderError
from handrail.runtime.speech.speech import Speech, Tone
from handrail.runtime.speech.utterance import Frame, Unspoken
from handrail.streams.buffer import RollingBuffer
from handrail.streams.clock import NS_PER_S, now_ns, sleep_until_ns
from handrail.streams.errors import InputError
from handrail.streams.samples import Gaze, Sample

MOST_TURNS = 4  # of a conversation: what is older is about where the wearer no longer is
FOLLOW_UP_NS = 30 * NS_PER_S  # after an answer's end: what is asked within keeps the conversation
GAZE_WITHIN_NS = NS_PER_S // 5  # of a picture's capture
LINE_TTL_S = 5.0
OLD_PICTURE_NS = 3 * NS_PER_S  # one that is older is told as old: the camera may have stopped
FAULT_AGAIN_NS = 30 * NS_PER_S  # a step that fails again sooner isn't told
LAST_ANSWER_S = 120.0  # when the source has ended: a long answer may still be written and said


@dataclass(slots=True)
class _Current:
    """The query that is being answered."""

    query: Query
    watch: Stopwatch
    frame: Frame | None  # the heading when the newest picture was taken: "left" is to the left of that
    captured_ns: int | None  # loop time of the scene behind its directions
    newest_ns: int  # device time of the newest capture that had arrived at asking
    begun: bool = False  # its task has had a turn
    words: Words | None = None  # once they are being written; not what writes them, which holds the sensors' past
    told_changed: bool = False


class Answers:
    """``means`` None: no model; then text can be read and labels given, and questions are refused aloud."""

    def __init__(
        self, means: Means | None, pictures: Pictures, labels: Labels | None, texts: Texts, headings: Headings,
        speech: Speech,
        emit: Callable[[AnyEvent], None], start_ns: int, wearer: config.Wearer, gaze_labels: tuple[str, ...] = (),
        scheduled: tuple[Scheduled, ...] = (), listen: Callable[[Callable[[str], None]], None] = lambda heard: None,
    ) -> None:  # fmt: skip
        """``listen`` is given, once questions can be asked, what takes each line that is typed."""
        self._listen = listen
        self._means, self._pictures, self._labels, self._texts = means, pictures, labels, texts
        self._headings = headings
        self._speech, self._emit, self._start_ns, self._wearer = speech, emit, start_ns, wearer
        self._gaze_labels, self._scheduled = gaze_labels, scheduled
        self._all_asked = asyncio.Event()
        self._handing = Handing(speech)
        self._unasked = Unasked(emit, start_ns)
        self._ids = itertools.count(1)
        self._buffer: RollingBuffer | None = None
        self._group: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None
        self._fixed: asyncio.Task[None] | None = None
        self._current: _Current | None = None
        self._newest_ns = 0  # device time of the newest capture that has arrived
        self._scene: Scene | None = None
        self._captured_ns = 0
        self._failed_ns = -FAULT_AGAIN_NS
        self._talk = Conversation()
        self._talk_until_ns = 0
        speech.on_unsaid(self._not_said)

    # What the session calls: nothing here waits.

    def take(self, sample: Sample) -> None:
        self._newest_ns = max(self._newest_ns, sample.device_ns)
        self._pictures.take(sample)

    def labelled(self, scene: Scene) -> Scene:
        return scene if self._labels is None else self._labels.applied(scene)

    def scene(self, scene: Scene, captured_ns: int) -> None:
        self._scene, self._captured_ns = scene, captured_ns
        self._headings.saw(scene)
        if self._current is not None and self._current.frame is None and self._headings.first is not None:
            self._current.frame = Frame.of(self._headings.first)  # asked before the first scene
        if self._means is None or self._group is None or self._pictures.newest is None:
            return
        speaking = self._task is not None or self._handing.busy or not self._speech.quiet
        due = self._unasked.due(scene, self._wearer, speaking)
        if due is not None:
            self._ask(*due)

    def seam(self) -> None:
        current = self._current
        waited_for = current is not None and current.query.kind in ASKED_ALOUD
        lost = waited_for and (self._task is not None or self._handing.busy)
        self._scene = None
        self._headings.seam()
        self._newest_ns = 0
        self._talk = Conversation()
        self._pictures.seam()
        self._texts.seam()
        self._unasked.seam()
        if self._labels is not None:
            self._labels.seam()
        self._cancel()
        if lost:
            self._say(Line.JUMPED)

    def line(self, text: str) -> None:
        """What the wearer typed or said."""
        match commands.parse(text):
            case commands.Question(question):
                self._ask(Kind.QUESTION, question)
            case commands.Describe():
                self._ask(Kind.SCENE, text)
            case commands.Read():
                self._ask(Kind.READ, text)
            case commands.Aim(goal):
                self._unasked.pursue(goal)
                self._ask(Kind.GOAL, goal)
            case commands.GiveUp():
                self._cancel()
                self._say(Line.GOAL_GIVEN_UP if self._unasked.give_up() else Line.NO_GOAL)
            case commands.Hush():
                self.hush()
            case commands.Repeat():
                self._speech.repeat()
            case commands.Detail(more):
                self._change_detail(more)
            case commands.Nothing():
                self._say(Line.NO_QUESTION)

    def hush(self) -> None:
        """Stop writing and speaking; acknowledged by an earcon."""
        self._unasked.hushed()
        self._cancel()
        self._speech.hush()

    async def run(self, buffer: RollingBuffer) -> None:
        """Until cancelled."""
        self._buffer = buffer
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                group.create_task(self._pictures.run(), name="pictures")
                group.create_task(self._handing.run(), name="handing")
                self._fixed = group.create_task(self._read_fixed(), name="fixed part")
                self._listen(self._typed)
                for asked in self._scheduled:
                    await sleep_until_ns(self._start_ns + round(asked.at_s * NS_PER_S))
                    self.line(asked.text)
                self._all_asked.set()
                await asyncio.get_running_loop().create_future()
            finally:
                self._group = self._task = None
                self._all_asked.set()  # nothing more will be

    async def done(self) -> None:
        """Until all that was, or is to be, asked has been answered and said; no longer than ``LAST_ANSWER_S``."""
        await self._all_asked.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_ANSWER_S):
                while self._task is not None:
                    await asyncio.wait({self._task})
                await self._handing.empty()
                await self._speech.idle()

    @property
    def tokens_written(self) -> int:
        """Of the answer that is being written."""
        words = None if self._current is None else self._current.words
        return 0 if words is None else len(words.tokens)

    # Asking

    def _ask(self, kind: Kind, text: str) -> None:
        if self._group is None:
            raise RuntimeError("expected run() to be under way before something is asked")
        self._cancel()
        query = Query(next(self._ids), kind, text, now_ns())
        captured_ns = None if self._scene is None else self._captured_ns
        current = self._current = _Current(query, Stopwatch(), self._heading(), captured_ns, self._newest_ns)
        self._emit(Asked(self._t_ns(), query.id, kind.value, text))
        self._unasked.begun(query, self._scene)
        if kind in ASKED_ALOUD:
            self._speech.tone(Tone.ASKED)
        self._task = self._group.create_task(self._answer(current), name="answer")

    def _cancel(self) -> None:
        """What is being written stops within one job, what of it waits to be said is withdrawn."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            if self._current is not None and not self._current.begun:  # nor will it ever
                self._report(self._current, Outcome.CANCELLED, "")
        if self._fixed is not None:  # what it has read stays
            self._fixed.cancel()
        self._handing.withdraw()

    def _typed(self, text: str) -> None:
        if self._group is not None:
            self.line(text)

    def _heading(self) -> Frame | None:
        """When the newest picture was taken; None where no scene is known."""
        if self._scene is None:
            return None
        picture = self._pictures.newest
        wearer = self._headings.at(self._scene.device_ns if picture is None else picture.device_ns)
        return None if wearer is None else Frame.of(wearer)

    def _change_detail(self, more: bool) -> None:
        levels = ("brief", "normal", "full")
        at = levels.index(self._wearer.detail) + (1 if more else -1)
        self._wearer = msgspec.structs.replace(self._wearer, detail=levels[min(max(at, 0), len(levels) - 1)])
        self._talk = Conversation()  # its fixed part says how much to tell
        self._say(f"Detail: {self._wearer.detail}.")

    # Answering

    async def _read_fixed(self) -> None:
        """The fixed part of the prompt, before anybody asks: it stays in the cache for all that is asked."""
        if self._means is None:
            return
        engine, turn = self._means.engine, Turn("", before=prompts.instructions(self._wearer))
        try:
            await engine.prefill(self._means.model.lay([turn], (), ()))
        except InputError:
            pass  # it doesn't fit in the context: questions will say so
        except Exception as e:  # what only saves time must not end the warnings
            self._emit(Fault(self._t_ns(), "answer", f"{type(e).__name__}: {e}"))

    async def _answer(self, current: _Current) -> None:
        query, current.begun = current.query, True
        outcome, detail = Outcome.CANCELLED, ""
        try:
            with self._pictures.held():
                outcome, detail = await self._outcome(current)
        except InputError as e:
            outcome, detail = Outcome.REFUSED, str(e)
            if query.kind in ASKED_ALOUD:
                self._say(Line.TOO_LONG)
        except Exception as e:  # an answer that fails must not end the warnings
            outcome, detail = Outcome.FAILED, f"{type(e).__name__}: {e}"
            self._emit(Fault(self._t_ns(), "answer", detail))
            if query.kind in ASKED_ALOUD or now_ns() - self._failed_ns >= FAULT_AGAIN_NS:
                self._failed_ns = now_ns()
                self._say(Line.FAILED)
        finally:
            if asyncio.current_task() is self._task:
                self._task = None
            self._report(current, outcome, detail)

    async def _outcome(self, current: _Current) -> tuple[Outcome, str]:
        query = current.query
        if query.kind is Kind.READ:
            return await self._read_that(current)
        refused = Line.NO_MODEL if self._means is None else Line.NOT_YET if self._pictures.newest is None else None
        if refused is not None:
            if query.kind in ASKED_ALOUD:
                self._say(refused)
            return Outcome.REFUSED, refused.value
        if query.kind in ASKED_ALOUD:
            self._tell_age()
        if self._texts.wanted(query.text):
            await self._read_first(current)
        answering, outcome = await self._write(current)
        self._after(current, answering, outcome)
        return outcome, ""

    def _tell_age(self) -> None:
        """Whoever asks can't see that the picture is an old one."""
        assert self._buffer is not None and self._pictures.newest is not None
        age_ns = self._buffer.age_ns(self._pictures.newest.device_ns, now_ns())
        if age_ns > OLD_PICTURE_NS:
            self._say_after(f"The picture is {age_ns // NS_PER_S} seconds old.")

    async def _read_first(self, current: _Current) -> None:
        """A question about written words waits for them; one picture that can't be read doesn't stop it."""
        try:
            await self._texts.read_newest(self._look_deg())
        except ReaderError as e:
            self._emit(Fault(self._t_ns(), "texts", str(e)))
        current.watch.mark("read")

    async def _write(self, current: _Current) -> tuple[Answering, Outcome]:
        """With the conversation so far; where that doesn't fit any more, without it."""
        query = current.query
        follows = query.kind is Kind.QUESTION and now_ns() <= self._talk_until_ns
        past = self._talk if follows and len(self._talk.turns) < MOST_TURNS else Conversation()
        try:
            answering = self._answering(current, past)
            return answering, await answering.run()
        except InputError:
            if not past.turns:
                raise
        answering = self._answering(current, Conversation())
        return answering, await answering.run()

    def _answering(self, current: _Current, past: Conversation) -> Answering:
        assert self._means is not None and self._buffer is not None
        query, texts = current.query, self._texts.quoted(self._newest_ns, self._wearer)
        age_ms = 0.0 if self._scene is None else (now_ns() - self._captured_ns) / 1e6
        facts = prompts.facts(self._scene, age_ms, self._wearer)
        asking = Asking(
            query, prompts.instructions(self._wearer), self._unasked.prompt(query, facts, texts), query.text
        )  # fmt: skip
        answering = Answering(
            self._means, asking, past, self._buffer.snapshot(current.newest_ns), self._wearer, current.watch,
            shown=lambda shown: self._begun(query, shown, texts), said=lambda clause: self._clause(current, clause),
        )  # fmt: skip
        current.words = answering.words
        return answering

    async def _read_that(self, current: _Current) -> tuple[Outcome, str]:
        refused = Line.NO_READER if not self._texts.can_read else (
            Line.NOT_YET if self._pictures.newest is None else None
        )
        if refused is not None:
            self._say(refused)
            return Outcome.REFUSED, refused.value
        look_deg = self._look_deg()
        self._tell_age()
        await self._texts.read_newest(look_deg)
        current.watch.mark("read")
        if self._scene is not None:  # directions are as of now
            nose = Frame(travel=False, heading_rad=self._scene.wearer.nose_rad)  # which text is told by, also walking
            current.frame, current.captured_ns = nose, self._captured_ns
        self._clause(current, Clause(self._texts.aloud(look_deg, self._wearer)))
        return Outcome.SAID, ""

    def _look_deg(self) -> tuple[float, float]:
        """Where the eyes point from the nose, as of the newest picture; straight ahead where no gaze is known."""
        assert self._buffer is not None
        at_ns = self._newest_ns if self._pictures.newest is None else self._pictures.newest.device_ns
        for label in self._gaze_labels:
            gaze = self._buffer.closest(label, at_ns, GAZE_WITHIN_NS)
            if gaze is not None and isinstance(gaze.payload, Gaze):
                return gaze_deg(gaze.payload.yaw_rad, gaze.payload.pitch_rad)
        return 0.0, 0.0

    def _after(self, current: _Current, answering: Answering, outcome: Outcome) -> None:
        """What is added to an answer, and what is remembered of it."""
        kind = current.query.kind
        if outcome is Outcome.LIMIT:
            self._say_after(Line.CUT_SHORT)
        elif not answering.words.said and kind in ASKED_ALOUD:
            self._say_after(Line.NOTHING)
        self._talk = answering.talk
        self._talk_until_ns = now_ns() + FOLLOW_UP_NS
        self._unasked.answered(current.query, answering.words.text)

    # Events and words

    def _begun(self, query: Query, shown: Shown, texts: tuple[str, ...]) -> None:
        self._emit(AnswerBegun(
            self._t_ns(), query.id, tuple(e.device_ns for e in shown.frames), shown.encoded,
            {} if shown.felt is None else shown.felt.valid, texts, shown.prompt_tokens, shown.reused_tokens,
        ))  # fmt: skip

    def _clause(self, current: _Current, clause: Clause) -> None:
        tokens = 0 if current.words is None else len(current.words.tokens)
        self._emit(ClauseReady(self._t_ns(), current.query.id, clause.text, tokens, clause.withheld))
        if clause.withheld is None:
            self._handing.say(Said(clause.text, directed(clause.text, current.frame), current.captured_ns))

    def _report(self, current: _Current, outcome: Outcome, detail: str) -> None:
        current.watch.mark("end")
        words = current.words
        self._emit(Answered(
            self._t_ns(), current.query.id, outcome.value, detail, () if words is None else tuple(words.tokens),
            "" if words is None else words.text, current.watch.first_token_ms,
            {part: ms for part, ms in current.watch.parts_ms.items() if ms > 0},
        ))  # fmt: skip

    def _say(self, line: str) -> None:
        self._speech.say(line, LINE_TTL_S)

    def _say_after(self, line: str) -> None:
        self._handing.say(Said(line, None, None))

    def _not_said(self, kind: str, reason: Unspoken) -> None:
        """Directions that no longer hold: the rest of the answer rests on them too."""
        if kind == "answer" and reason is Unspoken.INVALID and self._current is not None:
            current = self._current
            if not current.told_changed:
                current.told_changed = True
                self._cancel()
                if current.query.kind in ASKED_ALOUD:
                    self._say(Line.CHANGED)
                else:  # nobody asked: who turns as a step said is not told to ask again
                    self._unasked.unheard()

    def _t_ns(self) -> int:
        return now_ns() - self._start_ns
