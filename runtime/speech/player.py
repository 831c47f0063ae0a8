"""Drives voice and speaker: one utterance at a time, earcons at once, every sound and silence an event.

The words of an utterance are chosen at the last moment: it leaves the queue when it can sound, is rendered, judged
again, played, and judged every 50 ms while it plays. So nothing that comes up meanwhile has to undo a choice, and a
hazard waits for nothing but a render under way (some 15 ms) and the earcon before it. Knows nothing of scenes and
warning rules. Times are the running loop's in ns; events hold times since the session started.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from dataclasses import replace

from handrail.device.phrase_cache import PhraseCache
from handrail.device.sound import Playback, Sound, Speaker, Voice
from handrail.runtime.events import AnyEvent, Fault, Priority, Queued, Spoken, Unsaid
from handrail.runtime.speech.phrases import NOTICE_PRIORITY, READY, SHORTEST, Notice
from handrail.runtime.speech.queue import QueueStatistics, SpeechQueue
from handrail.runtime.speech.sounds import Sounds
from handrail.runtime.speech.utterance import Moment, Say, Silence, Unspoken, Utterance, Words, clauses, fixed
from handrail.streams.clock import NS_PER_S, now_ns
from handrail.streams.errors import DeviceError

NOTICE_TTL_S = 5.0
VOICE_AGAIN_S = 5.0  # between trials of a voice that failed
LAST_RENDER_S = 3.0  # for the last words, where they weren't rendered beforehand yet
LEAD_S = 1.0  # words wait for the end of their earcon, but no longer than this


class _Timed:
    """A voice that takes the declared time on top: rendering is instantaneous on a virtual loop."""

    def __init__(self, voice: Voice, render_ms: float) -> None:
        self.name = voice.name
        self._voice = voice
        self._render_s = render_ms / 1e3

    async def render(self, text: str, rate_wpm: int) -> Sound:
        await asyncio.sleep(self._render_s)
        return await self._voice.render(text, rate_wpm)

    async def close(self) -> None:
        await self._voice.close()


class Player:
    """``moment(at_ns)`` gives what is known; ``dropped`` is told of each utterance that is given up for good."""

    def __init__(
        self,
        voice: Voice,
        speaker: Speaker,
        rate_wpm: int,
        render_ms: float,
        emit: Callable[[AnyEvent], None],
        start_ns: int,
        moment: Callable[[int], Moment],
        dropped: Callable[[Utterance, Unspoken], None],
    ) -> None:
        self._engine = _Timed(voice, render_ms)
        self._voice = PhraseCache(self._engine)
        self._sounds = Sounds(speaker, emit, start_ns)
        self._rate_wpm = rate_wpm
        self._emit = emit
        self._start_ns = start_ns
        self._world = moment
        self._dropped = dropped
        self._queue = SpeechQueue(self._give_up)
        self._ids = itertools.count(1)
        self._ready: set[str] = set()  # rendered beforehand; membership only
        self._voice_lost = False
        self._group: asyncio.TaskGroup | None = None
        self._earcons: list[asyncio.Task[None]] = []  # in the order in which they began
        self._lead: tuple[asyncio.Task[None], int] | None = None  # the earcon that words wait for, and until when
        self._speaking: tuple[Utterance, Playback] | None = None
        self._cut: tuple[Unspoken, bool] | None = None  # why the current one was cut, and whether it may resume
        self._taken: Utterance | None = None  # has left the queue and isn't done
        self._void = False  # it was called off while it was being rendered
        self._idle = asyncio.Event()
        self.last: Utterance | None = None  # said to its end

    # What others call: nothing here waits.

    def offer(
        self, words: Words, priority: Priority, kind: str, key: str, expires_ns: int,
        *, severity: int = 0, obstacle_id: int | None = None, fallback: str | None = None,
    ) -> None:  # fmt: skip
        """Into the queue; a NOW cuts what it outranks."""
        id = next(self._ids)
        self._enqueue(
            Utterance(id, priority, severity, kind, key, words, expires_ns, obstacle_id, fallback, place=id)
        )

    def notice(self, notice: Notice) -> None:
        """One of the fixed lines. Those about sight replace each other."""
        sight = notice in (Notice.CANT_SEE, Notice.SEE_AGAIN, Notice.CANT_JUDGE)
        self.offer(
            fixed(notice.value), NOTICE_PRIORITY[notice], "health", "sight" if sight else notice.name,
            now_ns() + int(NOTICE_TTL_S * NS_PER_S), severity=2, fallback=notice.value,
        )  # fmt: skip

    def earcon(
        self, sound: Sound, *, leads: bool, words_by_ns: int | None = None, bearing_deg: float | None = None,
        source_device_ns: int | None = None,
    ) -> None:  # fmt: skip
        """Handed to the speaker before this returns. ``leads``: the next words wait for its end, but no longer than
        until ``words_by_ns``. Needs ``run``."""
        if self._group is None:
            raise RuntimeError("expected run() to be under way before a sound is made")
        following = self._earcon(self._sounds.play(sound), sound, bearing_deg, source_device_ns)
        task = self._group.create_task(following, name="earcon")
        self._earcons.append(task)
        task.add_done_callback(self._earcons.remove)
        if leads:
            until_ns = now_ns() + int(LEAD_S * NS_PER_S)
            self._lead = (task, until_ns if words_by_ns is None else min(until_ns, words_by_ns))

    def cut(self, lesser_than: tuple[int, int], *, resume: bool) -> None:
        """Stop what is being said if its rank is lesser (greater in number) than this."""
        if self._speaking is not None and self._cut is None and lesser_than < self._speaking[0].rank:
            self._stop(Unspoken.CUT, resume)

    def hush(self) -> None:
        """Stop, and forget what waits."""
        self.withdraw(None)

    def withdraw(self, kind: str | None) -> None:
        """Stop, and forget, what is of a kind (None: everything); all else goes on."""
        if self._taken is not None and kind in (None, self._taken.kind):
            if self._speaking is None:
                self._void = True
            elif self._cut is None:
                self._stop(Unspoken.CUT, resume=False)
            else:  # it fades out already, to go on later: not any more
                self._cut = (Unspoken.CUT, False)
        self._queue.drop_all(Unspoken.CUT, kind)

    async def at_most(self, count: int, kind: str) -> None:
        await self._queue.at_most(count, kind)

    def holds(self, key: str) -> bool:
        return self._queue.holds(key)

    @property
    def quiet(self) -> bool:
        """Nothing sounds and nothing waits."""
        return not (self._sounds.playing or self._taken is not None or self._queue.waiting)

    def moment(self) -> Moment:
        """As of the first sample that could be heard now."""
        return self._world(self._sounds.heard_ns())

    def statistics(self) -> QueueStatistics:
        return self._queue.statistics()

    # What runs.

    async def run(self) -> None:
        """Until cancelled. What sounds then is faded out and reported."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await self._render_beforehand()
                while True:
                    await self._next()
            finally:
                self._group = None
                for task in list(self._earcons):  # a TaskGroup cancels in the order of a set: no order for a log
                    task.cancel()

    async def last_words(self, tone: Sound, notice: Notice) -> None:
        """After ``run``, however that ended: without a queue or a task that could fail. Never raises."""
        u = Utterance(
            next(self._ids), NOTICE_PRIORITY[notice], 2, "health", notice.name, fixed(notice.value), now_ns(),
            fallback=notice.value,
        )  # fmt: skip
        with contextlib.suppress(Exception):
            await self._sounds.follow(self._sounds.play(tone), tone)
        with contextlib.suppress(Exception):
            async with asyncio.timeout(LAST_RENDER_S):
                text, sound = await self._rendered(u, Say(notice.value))
            if sound is not None:
                await self._say(u, Say(text), text, sound)

    async def idle(self) -> None:
        """Until nothing sounds and nothing waits."""
        while not self.quiet:
            self._idle.clear()
            await self._idle.wait()

    async def _render_beforehand(self) -> None:
        """Render what must be there when all else fails. A voice that can't is a fault, and the rest goes on."""
        for text in map(str, READY):
            try:
                await self._voice.prerender([text], self._rate_wpm)
                self._ready.add(text)
            except DeviceError as e:
                self._voice_failed(e)
                return

    async def _next(self) -> None:
        """Wait for something to say, and say it."""
        self._note_idle()
        await self._queue.filled()
        first = self._queue.peek(self.moment())
        if first is None:
            return
        if self.led:
            await self._rendered(*first)  # while the earcon plays
            await self._lead_over()
            return  # to whatever is the most urgent now
        taken = self._queue.take(self.moment())
        if taken is not None:
            self._taken, self._void = taken[0], False
            try:
                await self._speak(*taken)
            finally:
                self._taken = None

    @property
    def led(self) -> bool:
        """An earcon sounds that words are to follow."""
        return self._lead is not None and not self._lead[0].done() and now_ns() < self._lead[1]

    async def _lead_over(self) -> None:
        while self._lead is not None and self.led:
            await asyncio.wait({self._lead[0]}, timeout=(self._lead[1] - now_ns()) / NS_PER_S)

    async def _speak(self, u: Utterance, say: Say) -> None:
        """Clause by clause; a message of several gives way between them."""
        while True:
            text, sound = await self._rendered(u, say)
            if self._void:
                self._give_up(u, Unspoken.CUT)
                return
            judged = u.judged(self.moment())
            if isinstance(judged, Silence):
                self._give_up(u, judged.reason)
                return
            if sound is None:
                self._give_up(u, Unspoken.DEVICE)
                return
            if self._queue.outranks(u) or self.led:
                self._resume(u)  # something more urgent came up while it was rendered
                return
            if judged.text != say.text and text != u.fallback:
                say = judged  # the world has moved on meanwhile: other words
                continue
            if not await self._say(u, judged, text, sound):
                return
            u = replace(u, said_clauses=u.said_clauses + 1)
            if u.said_clauses >= len(_parts(u, say)):
                self.last = replace(u, said_clauses=0)
                return

    async def _say(self, u: Utterance, say: Say, text: str, sound: Sound) -> bool:
        """Play one clause; whether it was heard to the end."""

        def audible(audible_ns: int) -> None:
            age_ms = None if say.captured_ns is None else (audible_ns - say.captured_ns) / 1e6
            self._emit(Spoken(self._t_ns(), u.id, text, u.priority, u.kind, say.source_device_ns, age_ms))

        def check() -> None:
            if self._cut is None and self._turned(say):
                self._stop(Unspoken.INVALID, resume=True)

        playback = self._sounds.play(sound)
        self._speaking, self._cut = (u, playback), None
        try:
            whole = await self._sounds.follow(
                playback, sound, utterance_id=u.id, source_device_ns=say.source_device_ns, audible=audible, check=check
            )
        finally:
            self._speaking = None
        if whole:
            return True
        reason, resume = self._cut or (Unspoken.DEVICE, False)
        self._emit(Unsaid(self._t_ns(), u.id, reason, playback.played_s))
        if not resume:
            self._dropped(u, reason)
        elif not self._queue.holds(u.key):
            self._enqueue(replace(u, id=next(self._ids)))
        return False

    async def _earcon(
        self, playback: Playback, sound: Sound, bearing_deg: float | None, source_device_ns: int | None
    ) -> None:
        await self._sounds.follow(playback, sound, bearing_deg=bearing_deg, source_device_ns=source_device_ns)
        self._note_idle()

    async def _rendered(self, u: Utterance, say: Say) -> tuple[str, Sound | None]:
        """The next clause and its sound; the fallback, or no sound, when the voice fails."""
        text = _parts(u, say)[u.said_clauses]
        if not self._voice_lost or text in self._ready:
            try:
                return text, await self._voice.render(text, self._rate_wpm)
            except DeviceError as e:
                self._voice_failed(e)
        if u.fallback is None or u.fallback not in self._ready:
            return text, None
        return u.fallback, await self._voice.render(u.fallback, self._rate_wpm)

    def _enqueue(self, u: Utterance) -> None:
        moment = self.moment()
        judged = u.judged(moment)
        say = judged if isinstance(judged, Say) else Say("")
        expires_ns = u.expires_ns - self._start_ns
        self._emit(Queued(self._t_ns(), u.id, say.text, u.priority, u.kind, say.source_device_ns, expires_ns))
        self._queue.offer(u)
        if self._speaking is not None and self._speaking[0].key == u.key and self._cut is None:
            self._stop(Unspoken.SUPERSEDED, resume=False)  # "I can't see." when it sees again
        if u.priority is Priority.NOW:
            self.cut(u.rank, resume=True)

    def _resume(self, u: Utterance) -> None:
        """Back into the queue, in its old place, unless a newer one about the same waits."""
        if self._queue.holds(u.key):
            self._give_up(u, Unspoken.SUPERSEDED)
        else:
            self._queue.offer(u)

    def _stop(self, reason: Unspoken, resume: bool) -> None:
        assert self._speaking is not None
        self._cut = (reason, resume)
        self._speaking[1].cancel()

    def _turned(self, say: Say) -> bool:
        scene = self.moment().scene
        return say.frame is not None and (scene is None or say.frame.turned(scene.wearer))

    def _give_up(self, u: Utterance, reason: Unspoken) -> None:
        self._emit(Unsaid(self._t_ns(), u.id, reason, 0.0))
        self._dropped(u, reason)

    def _voice_failed(self, e: DeviceError) -> None:
        if self._voice_lost:
            return
        self._voice_lost = True
        self._emit(Fault(self._t_ns(), "voice", str(e)))
        self.notice(Notice.VOICE_LOST)
        if self._group is not None:
            self._group.create_task(self._try_voice_again(), name="voice")

    async def _try_voice_again(self) -> None:
        """Aside, since a hung engine takes its time to say so: meanwhile no words wait for it."""
        while self._voice_lost:
            await asyncio.sleep(VOICE_AGAIN_S)
            with contextlib.suppress(DeviceError):
                await self._engine.render(SHORTEST["contact"], self._rate_wpm)
                self._voice_lost = False
        await self._render_beforehand()

    def _note_idle(self) -> None:
        if self.quiet:
            self._idle.set()

    def _t_ns(self) -> int:
        return now_ns() - self._start_ns


def _parts(u: Utterance, say: Say) -> list[str]:
    """Hazards and notices are of a piece; only what can wait is said clause by clause."""
    return clauses(say.text) if u.priority is Priority.NORMAL else [say.text]
