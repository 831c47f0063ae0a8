"""The mouth of the session: scenes, notices and the wearer's commands in; sounds and events out.

    speech = Speech(config, voice, speaker, emit, start_ns, render_ms)
    group.create_task(speech.run(), name="speech")      # first: no sound before it runs
    speech.scene(scene, captured_ns)                     # each look of the reflex
    speech.notice(Notice.CANT_SEE, Tone.BLIND)           # from health
    await speech.idle()                                  # before the end: until all is said

``scene`` applies the warning rule and hands the earcon of an alert to the speaker before it returns; the phrase follows
when it has been rendered and the earcon has ended. Knows nothing of cameras and of how a state comes about.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from handrail.device import earcons
from handrail.device.sound import Sound, Speaker, Voice
from handrail.runtime.config import Config
from handrail.runtime.events import Alerted, AnyEvent, Priority
from handrail.runtime.scene import Band, Scene, Thing
from handrail.runtime.speech.alerts import Alert, Memory, decide
from handrail.runtime.speech.phrases import SHORTEST, Notice, hazard_words, rules_for
from handrail.runtime.speech.player import Player
from handrail.runtime.speech.queue import QueueStatistics
from handrail.runtime.speech.utterance import MAX_AGE_NS, Frame, Moment, Say, Unspoken, Utterance, fixed
from handrail.streams.clock import NS_PER_S, now_ns

REPEAT_TTL_S = 5.0
FAULT_AGAIN_S = 30.0  # a fault that comes back sooner is not spoken of again


class Tone(StrEnum):
    """Earcons that aren't about a place."""

    BLIND = "blind"
    DEGRADED = "degraded"
    AGAIN = "again"
    HEARTBEAT = "heartbeat"
    ASKED = "asked"


_TONES: dict[Tone, Callable[[], Sound]] = {
    Tone.BLIND: earcons.blind,
    Tone.DEGRADED: earcons.degraded,
    Tone.AGAIN: earcons.again,
    Tone.HEARTBEAT: earcons.heartbeat,
    Tone.ASKED: earcons.asked,
}


class Speech:
    """``emit`` takes each event; ``start_ns`` is the loop's time when the session started; ``render_ms`` the declared
    time of rendering (0 in real time). Belongs to the loop's thread."""

    def __init__(
        self,
        config: Config,
        voice: Voice,
        speaker: Speaker,
        emit: Callable[[AnyEvent], None],
        start_ns: int,
        render_ms: float = 0.0,
    ) -> None:
        self._wearer = config.wearer
        self._emit = emit
        self._start_ns = start_ns
        self._memory = Memory()
        self._scene: Scene | None = None
        self._captured_ns = 0
        self._answers = 0
        self._unsaid: Callable[[str, Unspoken], None] = lambda kind, reason: None
        self._faults_told_ns: dict[Notice, int] = {}
        self._player = Player(
            voice, speaker, config.wearer.speech_rate_wpm, render_ms, emit, start_ns, self._moment, self._dropped
        )

    async def run(self) -> None:
        """Until cancelled."""
        await self._player.run()

    async def idle(self) -> None:
        """Until nothing sounds and nothing waits to be said."""
        await self._player.idle()

    def scene(self, scene: Scene, captured_ns: int) -> None:
        """A new look. ``captured_ns``: loop time at which its frame was captured. Too old a scene warns of nothing."""
        self._scene, self._captured_ns = scene, captured_ns
        spare_ns = MAX_AGE_NS - (now_ns() - captured_ns)
        if spare_ns <= 0:
            return
        rules = rules_for(self._wearer.speech_rate_wpm, unseen_s=spare_ns / NS_PER_S)
        alert, self._memory = decide(scene, self._memory, rules)
        if alert is not None:
            self._alert(alert, scene)

    def seam(self) -> None:
        """Time or place jumped: what was seen and told has no place any more."""
        self._scene = None
        self._memory = Memory()

    def notice(self, notice: Notice, tone: Tone | None = None, by_ns: int | None = None) -> None:
        """One of the fixed lines, after a tone; the words begin by ``by_ns`` even if the tone still sounds."""
        if notice in (Notice.SENSOR_FAULT, Notice.DETECTOR_FAULT):
            told_ns = self._faults_told_ns.get(notice)
            if told_ns is not None and now_ns() - told_ns < FAULT_AGAIN_S * NS_PER_S:
                return
            self._faults_told_ns[notice] = now_ns()
        if tone is not None:
            self._player.earcon(_TONES[tone](), leads=True, words_by_ns=by_ns)
        self._player.notice(notice)

    def tone(self, tone: Tone) -> None:
        """The heartbeat gives way to anything that sounds; the others don't. Words wait for the end of ``ASKED``, but
        those that wait for another earcon, a hazard's, wait no longer for it."""
        if tone is not Tone.HEARTBEAT or self._player.quiet:
            self._player.earcon(_TONES[tone](), leads=tone is Tone.ASKED and not self._player.led)

    async def last_words(self, notice: Notice, tone: Tone) -> None:
        """A tone and a fixed line when ``run`` has ended before its time: past everything that may have failed."""
        await self._player.last_words(_TONES[tone](), notice)

    def say(
        self, text: str, ttl_s: float, *, priority: Priority = Priority.NORMAL, kind: str = "answer",
        frame: Frame | None = None, captured_ns: int | None = None,
    ) -> None:  # fmt: skip
        """Any other text: its own time to live, and the frame that its directions were made for."""
        self._answers += 1
        key = f"{kind} {self._answers}"
        self._player.offer(fixed(text, frame, captured_ns), priority, kind, key, now_ns() + int(ttl_s * NS_PER_S))

    def withdraw(self, kind: str = "answer") -> None:
        """Stop, and forget, what is of a kind, without an acknowledgement."""
        self._player.withdraw(kind)

    async def at_most(self, count: int, kind: str = "answer") -> None:
        """Until no more than ``count`` of a kind wait to be said."""
        await self._player.at_most(count, kind)

    def on_unsaid(self, told: Callable[[str, Unspoken], None]) -> None:
        """``told`` hears of every utterance that was given up: its kind and why."""
        self._unsaid = told

    @property
    def quiet(self) -> bool:
        """Nothing sounds and nothing waits to be said."""
        return self._player.quiet

    def hush(self) -> None:
        """Stop speaking and forget what waits; acknowledged by an earcon. Hazards from now on are told as ever."""
        self._player.hush()
        self._player.earcon(earcons.hush_ack(), leads=True)

    def repeat(self) -> None:
        """Say the last message again, with the words that fit now."""
        last = self._player.last
        if last is None or not isinstance(last.words(self._player.moment()), Say):
            self._player.notice(Notice.NOTHING_TO_REPEAT)
            return
        expires_ns = now_ns() + int(REPEAT_TTL_S * NS_PER_S)
        self._player.offer(last.words, Priority.NEXT, last.kind, last.key, expires_ns, fallback=last.fallback)

    def statistics(self) -> QueueStatistics:
        return self._player.statistics()

    def _alert(self, alert: Alert, scene: Scene) -> None:
        o, hazard = alert.obstacle, alert.hazard
        distance_m, bearing_deg = o.seen_from(scene.wearer)
        if o.thing is Thing.DROP_OFF:
            sound = earcons.drop_off(distance_m, bearing_deg, hazard.contact_s, mono=self._wearer.mono)
        else:
            head = o.band is Band.HEAD
            sound = earcons.obstacle(distance_m, bearing_deg, hazard.contact_s, head=head, mono=self._wearer.mono)
        key = f"hazard {o.id}"
        words = alert.words or self._player.holds(key)  # what still waits gets more urgent with the hazard
        self._player.earcon(sound, leads=words, bearing_deg=bearing_deg, source_device_ns=o.last_device_ns)
        self._emit(
            Alerted(
                now_ns() - self._start_ns, o.id, hazard.priority, hazard.rule, scene.device_ns,
                alert.first_rule_device_ns, distance_m, bearing_deg, hazard.contact_s,
            )
        )  # fmt: skip
        if words:
            expires_ns = now_ns() + int(hazard.contact_s * NS_PER_S)
            self._player.offer(
                hazard_words(alert, self._wearer), hazard.priority, "hazard", key, expires_ns,
                severity=hazard.severity, obstacle_id=o.id, fallback=SHORTEST[hazard.rule],
            )  # fmt: skip
        elif hazard.priority is Priority.NOW:
            self._player.cut((Priority.NEXT, 0), resume=True)  # only what isn't about a hazard itself

    def _moment(self, at_ns: int) -> Moment:
        return Moment(at_ns, self._scene, self._captured_ns)

    def _dropped(self, u: Utterance, reason: Unspoken) -> None:
        """Words went unsaid: the warning rule may tell it again, unless the wearer hushed or no voice is there."""
        self._unsaid(u.kind, reason)
        if u.obstacle_id is not None and reason not in (Unspoken.CUT, Unspoken.DEVICE, Unspoken.SUPERSEDED):
            self._memory = self._memory.unsaid(u.obstacle_id)
