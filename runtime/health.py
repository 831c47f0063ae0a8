"""Seeing, degraded or blind: the wearer always knows which.

``Health`` is a state machine without a clock: told what arrives and asked at ``next_deadline_ns``, it returns what to
do. ``Watch`` binds it to the loop's timers, the speech and the event log. Times are the loop's, in ns.

    seeing     usable frames come; a soft heartbeat now and then
    degraded   frames come, but depth is missing in the walking corridor for 1 s while moving, or nothing is judged for
               want of gravity, or the motion sensor is
    blind      no usable frame for 0.5 s: none came, or older than 1 s on arrival, or dark, blurred,
               covered, frozen, mismatched, swapped

Going blind is told by earcon at once and by words; the earcon repeats every 5 s. Seeing is told when frames have been
usable for 0.3 s; after flapping (blind again within 1.2 s) only when they have been for 1 s, so that it is announced
once. Guidance itself doesn't wait for that: it follows the frames. Doesn't know why frames are missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from handrail.runtime.events import AnyEvent, State, StateChanged
from handrail.runtime.scene import Scene
from handrail.runtime.speech.phrases import Notice
from handrail.runtime.speech.speech import Speech, Tone
from handrail.streams.clock import NS_PER_S, now_ns

BLIND_AFTER_S = 0.51  # since the last usable frame was judged; one that comes after half a second is in time
STALE_S = 1.0  # a frame older than this is no use, and sight ends when the last one gets so old
WORDS_WITHIN_S = 1.4  # "I can't see." begins this long after the capture of the last usable frame; 1.5 is promised
FIRST_FRAME_S = 2.0  # cameras may take so long to start
BLIND_EARCON_S = 5.0
SEES_AFTER_S = 0.3
FLAPPING_S = 1.2  # blind again so soon after seeing again was told
STEADY_S = 1.0  # then it sees again only after this
HEARTBEAT_S = 12.0
NO_DEPTH_S = 1.0
DEPTH_BACK_S = 1.0
KNOWN_SHARE = 0.2  # of the walking corridor; less than this known is depth missing
SAY_DEGRADED_S = 60.0  # between spoken "Can't judge ahead."; in between its tone alone
NO_IMU_S = 1.0
FIRST_IMU_S = 2.0


def _ns(seconds: float) -> int:
    return int(seconds * NS_PER_S)


@dataclass(frozen=True, slots=True)
class Changed:
    state: State
    reason: str


@dataclass(frozen=True, slots=True)
class Tell:
    """A tone, words after it, or both."""

    tone: Tone | None
    notice: Notice | None
    by_ns: int | None = None  # the words begin by then, though the tone still sounds


Act = Changed | Tell


class Health:
    """The state machine. Every method returns what to do now, in order."""

    def __init__(self, start_ns: int) -> None:
        self.state = State.STARTING
        self._blind_at_ns = start_ns + _ns(FIRST_FRAME_S)  # unless a usable frame comes
        self._why = "no frames"  # what is wrong with the newest frame
        self._captured_ns: int | None = None  # of the last usable frame
        self._usable_since_ns: int | None = None
        self._told_seeing_ns: int | None = None
        self._hold_s = SEES_AFTER_S
        self._tone_at_ns = 0  # next blind earcon or heartbeat
        self._no_depth_since_ns: int | None = None
        self._depth_since_ns: int | None = None
        self._depth_missing = False
        self._degraded_tone_ns: int | None = None
        self._degraded_words_ns: int | None = None
        self._imu_lost_at_ns = start_ns + _ns(FIRST_IMU_S)
        self._imu_lost = False

    @property
    def next_deadline_ns(self) -> int:
        """When ``due`` has something to do, if nothing arrives before."""
        deadlines = []
        if self.state is not State.BLIND:
            deadlines.append(self._blind_at_ns)
        if self.state is not State.STARTING:
            deadlines.append(self._tone_at_ns)
        if not self._imu_lost:
            deadlines.append(self._imu_lost_at_ns)
        return min(deadlines)

    def due(self, now: int) -> list[Act]:
        """What time alone brings about."""
        acts: list[Act] = []
        if self.state is not State.BLIND and now >= self._blind_at_ns:
            acts += self._go_blind(now)
        if not self._imu_lost and now >= self._imu_lost_at_ns:
            self._imu_lost = True
            acts += [Tell(None, Notice.NO_MOTION), *self._settle(now)]
        if self.state is not State.STARTING and now >= self._tone_at_ns:
            acts.append(self._sign_of_life(now))
        return acts

    def imu(self, now: int) -> list[Act]:
        """Motion samples came."""
        self._imu_lost_at_ns = now + _ns(NO_IMU_S)
        if not self._imu_lost:
            return []
        self._imu_lost = False
        return self._settle(now)

    def frame(self, now: int, captured_ns: int, unusable: str | None, known: float, moving: bool) -> list[Act]:
        """A frame was judged. ``unusable``: why it can't be; ``known``: share of the corridor where depth is known."""
        if unusable is None and now - captured_ns > _ns(STALE_S):
            unusable = "stale"
        if unusable is not None:
            self._why = unusable
            return self.due(now)
        acts = self.due(now)  # a timer that comes late must not make an outage vanish
        if self._usable_since_ns is None or now >= self._blind_at_ns:
            self._usable_since_ns = now
        self._why, self._captured_ns = "no frames", captured_ns
        self._blind_at_ns = min(now + _ns(BLIND_AFTER_S), captured_ns + _ns(STALE_S))
        acts += self._depth(now, known >= KNOWN_SHARE, moving)
        if self.state is State.STARTING:
            acts += self._settle(now)
        elif self.state is State.BLIND and now - self._usable_since_ns >= _ns(self._hold_s):
            self._told_seeing_ns = now
            acts += [*self._sees(now), Tell(Tone.AGAIN, Notice.SEE_AGAIN)]
        return acts

    def _go_blind(self, now: int) -> list[Act]:
        flapping = self._told_seeing_ns is not None and now - self._told_seeing_ns < _ns(FLAPPING_S)
        self._hold_s = STEADY_S if flapping else SEES_AFTER_S
        self._usable_since_ns = None
        self._no_depth_since_ns = self._depth_since_ns = None
        self._depth_missing = False
        by_ns = None if self._captured_ns is None else self._captured_ns + _ns(WORDS_WITHIN_S)
        return [*self._become(now, State.BLIND, self._why), Tell(Tone.BLIND, Notice.CANT_SEE, by_ns)]

    def _depth(self, now: int, known: bool, moving: bool) -> list[Act]:
        """Missing for 1 s while moving; back when known for 1 s."""
        if known:
            self._no_depth_since_ns = None
            self._depth_since_ns = now if self._depth_since_ns is None else self._depth_since_ns
        else:
            self._depth_since_ns = None
            if not moving:
                self._no_depth_since_ns = None
            elif self._no_depth_since_ns is None:
                self._no_depth_since_ns = now
        if not self._depth_missing and _lasted(self._no_depth_since_ns, now, NO_DEPTH_S):
            self._depth_missing = True
            return self._degrade_aloud(now)
        if self._depth_missing and _lasted(self._depth_since_ns, now, DEPTH_BACK_S):
            self._depth_missing = False
            return self._settle(now)
        return []

    def _degrade_aloud(self, now: int) -> list[Act]:
        """Words once a minute, the tone no oftener than any sign of life."""
        acts = self._settle(now)
        if self.state is not State.DEGRADED or not _past(self._degraded_tone_ns, now, HEARTBEAT_S):
            return acts
        self._degraded_tone_ns = now
        words = _past(self._degraded_words_ns, now, SAY_DEGRADED_S)
        if words:
            self._degraded_words_ns = now
        return [*acts, Tell(Tone.DEGRADED, Notice.CANT_JUDGE if words else None)]

    def _settle(self, now: int) -> list[Act]:
        """Seeing or degraded; blindness ends in ``frame`` alone."""
        if self.state is State.BLIND or self._usable_since_ns is None:
            return []
        return self._sees(now)

    def _sees(self, now: int) -> list[Act]:
        reasons = ["depth"] * self._depth_missing + ["imu"] * self._imu_lost
        return self._become(now, State.DEGRADED if reasons else State.SEEING, " and ".join(reasons) or "frames")

    def _become(self, now: int, state: State, reason: str) -> list[Act]:
        if state is self.state:
            return []
        if State.BLIND in (state, self.state) or self.state is State.STARTING:
            self._tone_at_ns = now + _ns(BLIND_EARCON_S if state is State.BLIND else HEARTBEAT_S)
        self.state = state
        return [Changed(state, reason)]

    def _sign_of_life(self, now: int) -> Tell:
        """Never the heartbeat when blind."""
        self._tone_at_ns = now + _ns(BLIND_EARCON_S if self.state is State.BLIND else HEARTBEAT_S)
        if self.state is State.DEGRADED:
            self._degraded_tone_ns = now
        return Tell({State.BLIND: Tone.BLIND, State.DEGRADED: Tone.DEGRADED}.get(self.state, Tone.HEARTBEAT), None)


def _past(since_ns: int | None, now: int, seconds: float) -> bool:
    return since_ns is None or now - since_ns >= _ns(seconds)


def _lasted(since_ns: int | None, now: int, seconds: float) -> bool:
    return since_ns is not None and now - since_ns >= _ns(seconds)


class Watch:
    """``Health`` on the running loop's timers, from when it is made until closed: its decisions are told and logged."""

    def __init__(self, speech: Speech, emit: Callable[[AnyEvent], None], start_ns: int) -> None:
        self._health = Health(start_ns)
        self._speech = speech
        self._emit = emit
        self._start_ns = start_ns
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._set_timer()

    @property
    def state(self) -> State:
        return self._health.state

    def scene(self, scene: Scene, captured_ns: int) -> None:
        """The reflex judged a frame, usable or not."""
        why = None if scene.quality.usable else (scene.quality.reason or "unusable")
        known = 0.0 if scene.coverage is None else scene.coverage.corridor_known
        # Without gravity nothing is judged, and no walk is noticed either: standing still is no excuse then.
        moving = scene.wearer.travel_rad is not None or scene.coverage is None
        self._do(self._health.frame(now_ns(), captured_ns, why, known, moving))

    def stale(self, captured_ns: int) -> None:
        """A frame came that is too old to be judged."""
        self._do(self._health.frame(now_ns(), captured_ns, "stale", 0.0, False))

    def imu(self) -> None:
        """Motion samples came."""
        self._do(self._health.imu(now_ns()))

    def close(self) -> None:
        """No more tones and words: the session ends."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        """At the next deadline; one that was put off is noticed when it comes, so that most samples set no timer."""
        deadline_s = self._health.next_deadline_ns / NS_PER_S
        if self._timer is not None:
            if self._timer.when() <= deadline_s:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(deadline_s, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._do(self._health.due(now_ns()))

    def _do(self, acts: list[Act]) -> None:
        if self._closed:
            return
        for act in acts:
            match act:
                case Changed(state, reason):
                    self._emit(StateChanged(now_ns() - self._start_ns, state, reason))
                case Tell(tone, None) if tone is not None:
                    self._speech.tone(tone)
                case Tell(tone, notice, by_ns) if notice is not None:
                    self._speech.notice(notice, tone, by_ns)
        self._set_timer()
