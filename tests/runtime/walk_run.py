"""A short walk down a corridor with all that a run can hold, for tests of the report: exact depth, events by hand.

A box at knee height on the left, a pole on the right, a bar at head height ahead and a step down beyond; for two
seconds the camera is covered.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from synthetic_depth import EYE_IN_DEVICE_M, Box, Eye, Stereo, floor_to, pose_of

from handrail.device.wav_file import WavFile
from handrail.runtime.events import (
    Alerted,
    AnswerBegun,
    Answered,
    AnyEvent,
    Asked,
    ClauseReady,
    Ended,
    Fault,
    FrameSkipped,
    GoalChanged,
    Priority,
    Queued,
    SceneChanged,
    SoundEnded,
    SoundStarted,
    Spoken,
    Started,
    State,
    StateChanged,
    StreamCount,
    TextSeen,
    Unsaid,
)
from handrail.runtime.reflex.depth import DepthView
from handrail.runtime.reflex.runner import Seen
from handrail.runtime.report import ReportBuilder
from handrail.runtime.scene import Band, Coverage, FrameQuality, Obstacle, Scene, Thing, Wearer
from handrail.streams.cameras import Rig
from handrail.streams.source import SourceInfo

FIRST = 7_000_000_000  # device clock at the session's start
MS, S = 1_000_000, 1_000_000_000
BOX = Box((3.0, 0.5, 0.0), (3.4, 1.1, 0.6))  # x forward, y left, z up from the floor
POLE = Box((3.6, -0.9, 0.0), (3.7, -0.8, 2.0))
BAR = Box((4.6, -0.6, 1.5), (4.7, 0.6, 1.7))
FRAME_S = 0.2  # between frames: half the usual rate, since casting them takes longest
WALLS = (Box((-5, 1.6, 0), (30, 1.8, 2.6)), Box((-5, -1.8, 0), (30, -1.6, 2.6)))


def info(uri: str = "world:7", *, recorded: bool = True) -> SourceInfo:
    cpf = np.eye(4)
    cpf[:3, 3] = EYE_IN_DEVICE_M
    return SourceInfo(uri, Rig(2, {}, {}, cpf), (), FIRST, 6.0, recorded, ("no gaze in this walk",))


def eye_at(t_s: float) -> Eye:
    return Eye(x_m=0.4 * t_s, heading_deg=4 * math.sin(t_s), pitch_deg=-12.0)


def look(t_s: float) -> DepthView:
    """What the pair sees then: exact depth, and a left image with a checked pattern on everything."""
    stereo = Stereo(disparity_sd_px=0.0, holes=0.05, outliers=0.0)
    eye = eye_at(t_s)
    view = stereo.look([floor_to(6.0), BOX, POLE, BAR, *WALLS], eye, t_s)
    points = view.points_rect().astype(np.float64) @ eye.rotation.T + [eye.x_m, eye.y_m, eye.z_m]
    with np.errstate(invalid="ignore"):
        checks = (np.floor(np.nan_to_num(points) * 5).sum(axis=-1) % 2) * 40
        grey = np.clip(210 * np.exp(-np.nan_to_num(view.rho_m, nan=9.0) / 4) + checks, 0, 255)
    return replace(view, image=grey.astype(np.uint8), device_ns=FIRST + round(t_s * S), disparity_sd_px=0.35)


def scene_at(t_s: float) -> Scene:
    eye, now = eye_at(t_s), FIRST + round(t_s * S)
    wearer = Wearer(eye.x_m, 0.0, 1.6, math.radians(eye.heading_deg), 0.0, 0.4, 0.05, 0.02, 0.0, -0.2, "vio")

    def thing(id: int, what: Thing, band: Band, x_m: float, y_m: float, width_m: float, bottom_m: float, top_m: float,
              confirmed: bool = True, seen: bool = True) -> Obstacle:  # fmt: skip
        sd = 0.02 * (x_m - eye.x_m) ** 2
        return Obstacle(id, what, band, x_m, y_m, sd, 1.0, width_m, top_m, bottom_m, 0.0, 0.0, False, 5, confirmed,
                        FIRST, now if seen else now - S)  # fmt: skip

    obstacles = (
        thing(1, Thing.OBSTACLE, Band.KNEE, 3.0, 0.8, 0.6, 0.0, 0.6),
        thing(2, Thing.OBSTACLE, Band.GROUND, 3.6, -0.85, 0.1, 0.0, 2.0, seen=False),
        thing(3, Thing.OBSTACLE, Band.HEAD, 4.6, 0.0, 1.2, 1.5, 1.7),
        thing(4, Thing.DROP_OFF, Band.GROUND, 6.0, 0.0, 1.5, 0.0, 0.0, confirmed=t_s > 3),
    )
    blind = 2.0 <= t_s < 3.0
    return Scene(now, wearer, obstacles, None if blind else Coverage(-42.0, 42.0, -60.0, 20.0, 0.9, True, 4.2),
                 FrameQuality(90.0, 30.0, 1.0, not blind, "covered" if blind else None))  # fmt: skip


def events(t_s: float) -> list[AnyEvent]:
    """What happens besides the scenes at this time of a frame."""
    now, capture = round(t_s * S) + 61 * MS, FIRST + round(t_s * S)
    happens: dict[float, list[AnyEvent]] = {
        0.0: [StateChanged(now, State.SEEING, "frames")],
        0.4: [
            Alerted(now, 3, Priority.NOW, "head", capture, capture, 4.4, 0.0, 3.2),
            SoundStarted(now, "earcon.obstacle", now + 20 * MS, 0.25, None, 0.0, capture),
            Queued(now, 1, "Head height, ahead.", Priority.NOW, "hazard", capture, now + 2 * S),
            Spoken(now + MS, 1, "Head height, ahead.", Priority.NOW, "hazard", capture, 140.0),
            SoundStarted(now + MS, "speech", now + 80 * MS, 1.1, 1, None, capture),
            SoundEnded(now + 2 * MS, "speech", 1, 1.1, True),
        ],
        1.2: [
            Queued(now, 2, "Obstacle, ten o'clock, two metres.", Priority.NEXT, "hazard", capture, now + S),
            Unsaid(now + S, 2, "invalid", 0.0),
        ],
        2.0: [StateChanged(now, State.BLIND, "covered")],
        2.4: [
            SoundStarted(now, "earcon.blind", now + 20 * MS, 0.5, None, None, None),
            Queued(now, 3, "I can't see.", Priority.NOW, "health", None, now + 2 * S),
            Spoken(now, 3, "I can't see.", Priority.NOW, "health", None, None),
            SoundStarted(now, "speech", now + 40 * MS, 0.9, 3, None, None),
            SoundEnded(now, "speech", 3, 0.9, True),
        ],
        3.0: [StateChanged(now, State.SEEING, "frames again"), Fault(now, "source", "<b>lost</b> & found")],
        3.6: [
            Alerted(now, 4, Priority.NOW, "drop_off", capture, capture, 4.5, 0.0, 3.0),
            SoundStarted(now, "earcon.drop_off", now + 20 * MS, 0.3, None, 0.0, capture),
            Queued(now, 4, "Stop. Step down.", Priority.NOW, "hazard", capture, now + 2 * S),
            Spoken(now, 4, "Stop. Step down.", Priority.NOW, "hazard", capture, 120.0),
            SoundStarted(now, "speech", now + 60 * MS, 1.0, 4, None, capture),
            SoundEnded(now, "speech", 4, 1.0, True),
            Queued(now + MS, 5, "Boxes at ten o'clock.", Priority.NORMAL, "status", capture, now + 9 * S),
            Spoken(now + 1200 * MS, 5, "Boxes at ten o'clock.", Priority.NORMAL, "status", capture, None),
            SoundStarted(now + 1200 * MS, "speech", now + 1210 * MS, 0.8, 5, None, capture),
            SoundEnded(now + 1300 * MS, "speech", 5, 0.8, True),
        ],
    }  # fmt: skip
    return happens.get(round(t_s, 1), [])


def walk(uri: str = "world:7", *, seconds: float = 5.0, recorded: bool = True) -> tuple[list[AnyEvent], ReportBuilder]:
    """The events of the walk, and a builder that saw it."""
    source = info(uri, recorded=recorded)
    builder = ReportBuilder()
    builder.on_open(source)
    log: list[AnyEvent] = [Started(0, uri, 2, FIRST, ("slam-front-left",), source.notes, "0.1.0"),
                           FrameSkipped(5 * MS, FIRST, "stale")]  # fmt: skip
    for i in range(round(seconds / FRAME_S)):
        t_s = i * FRAME_S
        scene = scene_at(t_s)
        latency_ms = 55 + 12 * math.sin(i) ** 2
        now: list[AnyEvent] = [SceneChanged(round(t_s * S + latency_ms * MS), scene, latency_ms)]
        builder.on_event(now[0])
        builder.on_seen(Seen(scene, look(t_s), pose_of(eye_at(t_s), t_s), {}))
        for event in events(t_s):
            builder.on_event(event)
            now.append(event)
        log += now
    counts = {"slam-front-left": StreamCount(25, 2, 0), "imu-left": StreamCount(4000, 0, 3)}
    log.append(Ended(round(seconds * S), counts, "end of recording"))
    return log, builder


FRAMES = tuple(FIRST + k * 250 * MS for k in range(8))  # that the first question is answered from


def said(uid: int, text: str, at_ms: int, heard_s: float, whole: bool = True) -> list[AnyEvent]:
    """A clause of an answer, from queue to sound."""
    at = at_ms * MS
    return [
        Queued(at, uid, text, Priority.NORMAL, "answer", None, at + 9 * S),
        Spoken(at, uid, text, Priority.NORMAL, "answer", None, None),
        SoundStarted(at, "speech", at + 50 * MS, 0.7, uid, None, None),
        SoundEnded(at + round(heard_s * S), "speech", uid, heard_s, whole),
    ]


def questions(words: str = "find the exit") -> list[AnyEvent]:
    """A goal with two steps, given up; a question that the end of the run cuts short; two texts that were read."""
    clause = f"Walk on: {words}."
    sensors = {"imu": 1.0, "magbaro": 0.5, "gaze": 0.0, "hands": 0.25, "trajectory": 0.97}
    parts = {"read": 60.0, "encode": 150.0, "sensors": 40.0, "prompt": 20.0, "prefill": 150.0, "decode": 680.0}
    return [
        GoalChanged(300 * MS, 1, "active", words),
        Asked(300 * MS, 1, "goal", words),
        TextSeen(500 * MS, FIRST + 400 * MS, 1, "EXlT", 0.5, 3.0),
        AnswerBegun(700 * MS, 1, FRAMES, 1, sensors, (words,), 800, 620),
        TextSeen(900 * MS, FIRST + 800 * MS, 1, words, 0.91, -12.0),
        ClauseReady(1100 * MS, 1, clause, 9),
        *said(21, clause, 1150, 0.7),
        ClauseReady(1300 * MS, 1, words, 14, f"a promise: {words}"),
        Answered(1400 * MS, 1, "said", "", tuple(range(20)), f"{clause} {words}", 420.0, parts),
        Asked(2600 * MS, 2, "step", words),
        Answered(2700 * MS, 2, "cancelled", "", (), "", None, {"end": 100.0}),
        GoalChanged(3900 * MS, 1, "given_up", words),
        Asked(4000 * MS, 3, "question", words),
    ]


def with_questions(log: list[AnyEvent], words: str = "find the exit") -> list[AnyEvent]:
    """A walk's events with those of questions among them."""
    return [*sorted([*log[:-1], *questions(words)], key=lambda e: e.t_ns), log[-1]]


def write_tones(path: Path, seconds: float = 5.0) -> None:
    """A sound of the walk's length: two tones, left then right."""
    t = np.arange(round(seconds * 22_050)) / 22_050
    tone = (0.3 * np.sin(2 * np.pi * 660 * t)).astype(np.float32)
    stereo = np.stack([np.where(t < seconds / 2, tone, 0), np.where(t >= seconds / 2, tone, 0)], axis=1)
    wav = WavFile(path)
    wav.append(stereo)
    wav.close()
