"""Everything that happens in a session, as a tagged union of frozen structs: the trace, the golden file, the input of
evaluation. One JSON object a line; ``match`` on the types to consume it.

``t_ns`` is the loop's time since the session started. Nothing measured (durations, process ids, paths, wall times) is
in here: that goes to ``timings.jsonl``, so that the same input gives the same log, bit for bit.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

import msgspec

from handrail.runtime.scene import Scene


class Priority(IntEnum):
    NOW = 0  # cuts in
    NEXT = 1  # after the current clause
    NORMAL = 2  # waits


class State(StrEnum):
    STARTING = "starting"
    SEEING = "seeing"
    DEGRADED = "degraded"
    BLIND = "blind"


class Event(msgspec.Struct, frozen=True, tag_field="event"):
    t_ns: int


class Started(Event, frozen=True, tag="started"):
    uri: str
    generation: int
    first_device_ns: int
    streams: tuple[str, ...]
    notes: tuple[str, ...]
    version: str


class SceneChanged(Event, frozen=True, tag="scene"):
    """The reflex finished a frame."""

    scene: Scene
    age_ms: float  # capture to now


class FrameSkipped(Event, frozen=True, tag="frame_skipped"):
    """A frame that the reflex did not use: superseded in the mailbox, stale, undecodable."""

    device_ns: int
    reason: str


class Alerted(Event, frozen=True, tag="alert"):
    """The warning rule holds for an obstacle, and it is due to be told."""

    obstacle_id: int
    priority: Priority
    rule: str  # "drop_off", "contact", "head", "approaching"
    device_ns: int  # capture of the frame that decided it
    first_rule_device_ns: int  # capture of the first frame in which the rule held
    distance_m: float
    bearing_deg: float
    contact_s: float | None


class SoundStarted(Event, frozen=True, tag="sound_started"):
    sound: str  # "speech", "earcon.obstacle", ...
    audible_ns: int  # since the session started
    duration_s: float
    utterance_id: int | None
    bearing_deg: float | None
    source_device_ns: int | None  # capture of the frame behind it


class SoundEnded(Event, frozen=True, tag="sound_ended"):
    sound: str
    utterance_id: int | None
    heard_s: float
    whole: bool


class Queued(Event, frozen=True, tag="queued"):
    utterance_id: int
    text: str
    priority: Priority
    kind: str  # "hazard", "health", "status", "answer"
    source_device_ns: int | None
    expires_ns: int


class Spoken(Event, frozen=True, tag="spoken"):
    """An utterance left the queue and begins to sound; the text as worked out now."""

    utterance_id: int
    text: str
    priority: Priority
    kind: str
    source_device_ns: int | None
    age_ms: float | None  # of the frame behind it, at the first audible sample


class Unsaid(Event, frozen=True, tag="unsaid"):
    """An utterance that was dropped or cut; an interrupted message counts as unsaid."""

    utterance_id: int
    reason: str  # "expired", "invalid", "superseded", "cut", "repeated", "device"
    heard_s: float


class StateChanged(Event, frozen=True, tag="state"):
    state: State
    reason: str


class Seam(Event, frozen=True, tag="seam"):
    """Time or place jumped (a loop point, a restarted reader): scene and motion start anew."""

    detail: str


class Fault(Event, frozen=True, tag="fault"):
    component: str  # "source", "reflex", "voice", "speaker", "task", ...
    detail: str


class Asked(Event, frozen=True, tag="asked"):
    """Something is to be answered. Questions that nobody asked come from a goal's next step or a change of scene."""

    query_id: int
    kind: str  # "question", "scene", "goal", "step", "read", "change"
    text: str


class AnswerBegun(Event, frozen=True, tag="answer_begun"):
    """The prompt stands: what the model is about to be shown."""

    query_id: int
    frames: tuple[int, ...]  # captures (device_ns) of the frames, oldest first
    encoded: int  # of them, how many had to be encoded now
    sensors: dict[str, float]  # stream -> share of its 64 bins that are valid
    texts: tuple[str, ...]  # recognised in the frames and quoted
    prompt_tokens: int
    reused_tokens: int  # of them, how many were in the cache already


class ClauseReady(Event, frozen=True, tag="clause"):
    """A clause of an answer is whole, and on its way to the speech queue if it isn't ``withheld``."""

    query_id: int
    text: str
    tokens: int  # written so far
    withheld: str | None = None  # why it isn't said


class Answered(Event, frozen=True, tag="answered"):
    """``parts_ms`` add up to the time from ``asked`` to here: on virtual time they are the declared ones."""

    query_id: int
    outcome: str  # "said", "silent", "refused", "cancelled", "limit", "repeated", "failed"
    detail: str
    tokens: tuple[int, ...]
    text: str
    first_token_ms: float | None  # from ``asked``
    parts_ms: dict[str, float]


class GoalChanged(Event, frozen=True, tag="goal"):
    goal_id: int
    state: str  # "active", "reached", "given_up", "replaced"
    text: str


class Labelled(Event, frozen=True, tag="labelled"):
    """A detector's word for an obstacle held in enough looks to be spoken; None: it no longer does."""

    obstacle_id: int
    label: str | None
    device_ns: int  # capture of the frame that decided it


class TextSeen(Event, frozen=True, tag="text_seen"):
    """Text was recognised in a frame; a place that was read before has the same id."""

    device_ns: int
    text_id: int
    text: str
    confidence: float
    bearing_deg: float | None  # clockwise from the nose


class StreamCount(msgspec.Struct, frozen=True):
    received: int
    dropped: int
    late: int


class Ended(Event, frozen=True, tag="ended"):
    streams: dict[str, StreamCount]
    reason: str  # "end of recording", "stopped", ...


AnyEvent = (
    Started | SceneChanged | FrameSkipped | Alerted | SoundStarted | SoundEnded | Queued | Spoken | Unsaid
    | StateChanged | Seam | Fault | Ended
    | Asked | AnswerBegun | ClauseReady | Answered | GoalChanged | Labelled | TextSeen
)
