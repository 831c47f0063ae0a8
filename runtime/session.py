"""One session: samples in, spoken guidance out. The main path of Handrail, from top to bottom.

    source -> buffer -> pair of frames -> one-slot mailbox -> reflex -> scene -> alerts, health -> speech
                   -> colour pictures, sensors -> answers (when asked, or when it is due) ------------^

Four tasks: this one takes samples in and never waits for another; ``_look`` turns pairs into scenes; ``Speech`` says
what is due; ``Answers``, where there are any, writes what was asked for. ``Watch`` sits on the loop's timers and
notices when frames stop. Live, recorded and simulated sources run through the same lines.

Whatever goes wrong in here, or in what is hung on (a log on a full disk), ends the session aloud: the blind earcon and
"Guidance stopped.", since silence would be taken for a way with nothing in it.
Knows nothing of how depth is measured, of phrases, or of files.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from handrail.runtime.events import AnyEvent, Ended, Fault, FrameSkipped, SceneChanged, Seam, Started, StreamCount
from handrail.runtime.guard import Guard
from handrail.runtime.health import Watch
from handrail.runtime.mailbox import Mailbox
from handrail.runtime.reflex.runner import Look, ReflexRunner, Seen
from handrail.runtime.scene import Scene
from handrail.runtime.speech.phrases import Notice as Line
from handrail.runtime.speech.speech import Speech, Tone
from handrail.streams.buffer import RollingBuffer
from handrail.streams.child import ChildDied
from handrail.streams.clock import NS_PER_S, now_ns
from handrail.streams.samples import ImageFrame, ImuBatch, Notice, PoseBatch, Sample, joined
from handrail.streams.source import Source

STALE_NS = NS_PER_S  # no guidance from a frame older than this
PAIR_TOLERANCE_NS = 2_000_000  # the two cameras are triggered together
MOTION_BATCHES = 4_000  # 10 ms each and two IMUs: 20 s without a frame, then the oldest go
_EVER = -(1 << 63)
LAST_WORDS_S = 5.0  # after the source has ended, what is being said may finish

NO_ANSWERS, NO_ANSWERS_TTL_S = "I can't answer any more.", 30.0  # somebody may wait for an answer

FAULT_NOTICES = {"source": Line.SENSOR_FAULT, "reflex": Line.DETECTOR_FAULT}

Emit = Callable[[AnyEvent], None]
T = TypeVar("T")


class Answers(Protocol):
    """What answers questions: hears of everything, waits for nothing. ``answer.answers.Answers`` is one."""

    def take(self, sample: Sample) -> None:
        """Every sample that may be used."""
        ...

    def labelled(self, scene: Scene) -> Scene:
        """The scene with the words that are known for its things."""
        ...

    def scene(self, scene: Scene, captured_ns: int) -> None: ...

    def seam(self) -> None: ...

    async def run(self, buffer: RollingBuffer) -> None:
        """Until cancelled."""
        ...

    async def done(self) -> None:
        """Until all that was asked, or will be, has been answered and handed to speech."""
        ...


class Session:
    """``await Session(...).run()`` until the source ends or the task is cancelled.

    ``emit`` must not raise (``guard.around``); what has failed in it comes out of ``run``.
    """

    def __init__(
        self,
        source: Source,
        runner: ReflexRunner,
        speech: Speech,
        watch: Watch,
        emit: Emit,
        start_ns: int,
        guard: Guard,
        *,
        version: str,
        on_seen: Callable[[Seen], None] = lambda seen: None,
        on_sample: Callable[[Sample], None] = lambda sample: None,
        answers: Answers | None = None,
    ) -> None:
        self._answers = answers
        self._answering: asyncio.Task[None] | None = None
        self._source, self._runner, self._speech, self._watch = source, runner, speech, watch
        self._emit, self._start_ns, self._version = emit, start_ns, version
        self._guard = guard
        self._on_seen, self._on_sample = guard.around(on_seen), guard.around(on_sample)
        self.buffer = RollingBuffer()
        self._pair = source.info.rig.stereo_pair
        self._halves: dict[str, Sample] = {}
        self._imu: deque[tuple[str, ImuBatch]] = deque(maxlen=MOTION_BATCHES)
        self._poses: deque[tuple[str, PoseBatch]] = deque(maxlen=MOTION_BATCHES)
        self._looks: Mailbox[Look] = Mailbox()
        self._caught_up = asyncio.Event()  # no pair waits and none is being looked at
        self._caught_up.set()
        self._here_since_ns = _EVER  # capture time of the last seam: what was seen before lies elsewhere
        self._seams = 0

    async def run(self) -> None:
        info = self._source.info
        labels = tuple(s.label for s in info.streams)
        self._emit(
            Started(self._t(), info.uri, info.rig.generation, info.first_device_ns, labels, info.notes, self._version)
        )
        reason = "stopped"
        loop = asyncio.get_running_loop()
        handler = loop.get_exception_handler()
        loop.set_exception_handler(self._guard.callback_failed)
        try:
            async with asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(self._watched("reflex", self._look()), name="reflex"),
                    tasks.create_task(self._watched("speech", self._speech.run()), name="speech"),
                    tasks.create_task(self._watched("session", self._guard.broken()), name="guard"),
                ]
                if self._answers is not None:
                    self._answering = tasks.create_task(self._answer(self._answers), name="answers")
                    background.append(self._answering)
                reason = await self._watched("source", self._take_in())
                await self._finish()
                for task in background:
                    task.cancel()
            self._guard.check()
        except Exception:
            reason = "fault"
            self._watch.close()
            await self._speech.last_words(Line.STOPPED, Tone.BLIND)
            raise
        finally:
            self._watch.close()
            self._emit(Ended(self._t(), self._counts(), reason))
            loop.set_exception_handler(handler)
        self._guard.check()  # the last line, too, must have found room

    def _counts(self) -> dict[str, StreamCount]:
        """Of every stream the source has, also those that never brought a sample."""
        counts = {stream.label: StreamCount(0, 0, 0) for stream in self._source.info.streams}
        counts |= {label: StreamCount(s.received, s.dropped, s.late) for label, s in self.buffer.statistics().items()}
        return dict(sorted(counts.items()))

    # -- samples in ------------------------------------------------------------------------------------------------

    async def _take_in(self) -> str:
        async for sample in self._source.samples():
            self._on_sample(sample)
            match sample.payload:
                case Notice("end", detail):
                    return detail or "end of recording"
                case Notice("seam", detail):
                    self.buffer.add(sample)
                    await self._start_anew(sample.device_ns, detail)
                case Notice("fault", detail):
                    self._fault("source", detail)
                case _:
                    restarts = self.buffer.restarts
                    usable = self.buffer.add(sample)
                    if self.buffer.restarts != restarts:  # what goes by old times would wait for them to come again
                        await self._start_anew(_EVER, "the device clock was set anew")
                    # Cameras take longer to arrive: what was captured before the seam still follows it.
                    if usable is not None and usable.device_ns >= self._here_since_ns:
                        self._use(usable)
        return "source ended"

    def _use(self, sample: Sample) -> None:
        label = sample.stream.label
        self._tell(lambda answers: answers.take(sample))
        match sample.payload:
            case ImuBatch() as batch:
                self._imu.append((label, batch))
                self._watch.imu()
            case PoseBatch() as poses:
                self._poses.append((label, poses))
            case ImageFrame(pixels) if pixels is not None and self._pair is not None and label in self._pair:
                self._pair_up(sample)

    def _pair_up(self, sample: Sample) -> None:
        assert self._pair is not None
        self._halves[sample.stream.label] = sample
        left, right = (self._halves.get(label) for label in self._pair)
        if left is None or right is None or abs(left.device_ns - right.device_ns) > PAIR_TOLERANCE_NS:
            return
        self._halves.clear()
        assert isinstance(left.payload, ImageFrame) and isinstance(right.payload, ImageFrame)
        look = Look(left.device_ns, left.payload, right.payload, (), ())
        self._caught_up.clear()
        if (missed := self._looks.put(look)) is not None:
            self._emit(FrameSkipped(self._t(), missed.device_ns, "superseded"))

    async def _start_anew(self, device_ns: int, detail: str) -> None:
        self._here_since_ns = device_ns
        self._seams += 1
        self._halves.clear()
        self._imu.clear()
        self._poses.clear()
        self._looks.discard()
        self._caught_up.set()
        try:
            await self._runner.reset()
        except ChildDied as e:
            self._fault("reflex", str(e))
        self._speech.seam()
        self._tell(lambda answers: answers.seam())
        self._emit(Seam(self._t(), detail))

    async def _finish(self) -> None:
        """The source has ended: the last frame may still become a scene, and what is due may still be said.

        Of what was asked everything is answered and said.
        """
        self._watch.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._caught_up.wait()
        if self._answers is not None:
            try:
                await self._answers.done()
            except Exception as e:
                self._lose_answers(e)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._speech.idle()

    # -- frames to scenes ------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        while True:
            await self._see(await self._looks.take())
            if self._looks.empty:
                self._caught_up.set()

    async def _see(self, look: Look) -> None:
        captured_ns = now_ns() - self.buffer.age_ns(look.device_ns, now_ns())
        if now_ns() - captured_ns > STALE_NS:
            self._emit(FrameSkipped(self._t(), look.device_ns, "stale"))
            self._watch.stale(captured_ns)
            return
        seams = self._seams
        try:
            seen = await self._runner.see(self._with_motion(look))
        except ChildDied as e:
            self._fault("reflex", str(e))
            self._speech.seam()  # the next worker numbers things from 1 again, in a level frame of its own
            return
        if self._seams != seams:
            self._emit(FrameSkipped(self._t(), look.device_ns, "seam"))
            return
        age_ms = (now_ns() - captured_ns) / 1e6
        if (labelled := self._tell(lambda answers: answers.labelled(seen.scene))) is not None:
            seen = replace(seen, scene=labelled)
        self._emit(SceneChanged(self._t(), seen.scene, age_ms))
        self._on_seen(seen)
        self._watch.scene(seen.scene, captured_ns)
        self._speech.scene(seen.scene, captured_ns)
        self._tell(lambda answers: answers.scene(seen.scene, captured_ns))

    def _with_motion(self, look: Look) -> Look:
        imu, poses = self._joined_imu(), tuple(self._poses)
        self._imu.clear()
        self._poses.clear()
        return Look(look.device_ns, look.left, look.right, imu, poses)

    def _joined_imu(self) -> tuple[tuple[str, ImuBatch], ...]:
        """One batch an IMU, the main one first: whether it is alive decides what the other one is good for."""
        main = self._source.info.rig.main_imu
        labels = sorted({label for label, _ in self._imu}, key=lambda label: (label != main, label))
        return tuple((label, joined([batch for name, batch in self._imu if name == label])) for label in labels)

    # -- answers: they may fail, and the warnings go on ------------------------------------------------------------

    async def _answer(self, answers: Answers) -> None:
        try:
            await answers.run(self.buffer)
        except Exception as e:
            self._lose_answers(e)

    def _tell(self, tell: Callable[[Answers], T]) -> T | None:
        if self._answers is None:
            return None
        try:
            return tell(self._answers)
        except Exception as e:
            self._lose_answers(e)
            return None

    def _lose_answers(self, e: Exception) -> None:
        """From now on there are none, which is said."""
        if self._answers is None:
            return
        self._answers = None
        if self._answering is not None and self._answering is not asyncio.current_task():
            self._answering.cancel()
        self._emit(Fault(self._t(), "answers", f"{type(e).__name__}: {e}"))
        self._speech.withdraw()
        self._speech.say(NO_ANSWERS, NO_ANSWERS_TTL_S)

    # -- faults ----------------------------------------------------------------------------------------------------

    async def _watched(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """A task that dies is a fault in the log before it takes the session down."""
        try:
            return await work
        except Exception as e:
            self._emit(Fault(self._t(), name, f"{type(e).__name__}: {e}"))
            raise

    def _fault(self, component: str, detail: str) -> None:
        self._emit(Fault(self._t(), component, detail))
        if component in FAULT_NOTICES:
            self._speech.notice(FAULT_NOTICES[component])

    def _t(self) -> int:
        return now_ns() - self._start_ns
