"""Sounds that say something before words can. Synthesised, deterministic, placed by bearing.

What each is like, so that none is taken for another:
    obstacle    2 or 4 short pulses, faster when nearer; higher for head height, where the cane doesn't reach
    drop_off    three fast falling sweeps: the only sound that falls through more than an octave
    blind       two long tones, the second lower, no bearing: the only slow one
    degraded    one trembling tone
    again       three quick rising tones: it sees again
    hush_ack    two soft ticks
    asked       one soft rising chirp: a question was taken, an answer will come
    heartbeat   two very soft thumps: alive, nothing to say

Everything lies above 200 Hz, since the speakers of glasses give little below. Bearings in degrees, clockwise from
ahead. Two ears: constant-power panning, full at 60 degrees (wider than nature, since most of what matters lies within
20), and the delay between the ears of a rigid sphere (Woodworth 1938). One ear (``mono``): pairs of pulses fall for
left, rise for right, stay level ahead, by a wider interval the further to the side.
Knows nothing of scenes, rules or when to sound. Times in seconds, levels as peak amplitude.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from handrail.device.sound import F32, RATE_HZ, Sound

_F64 = NDArray[np.float64]

AHEAD_DEG = 10.0  # within this, one ear hears "ahead"
_FULL_PAN_DEG = 60.0
_HEAD_RADIUS_M, _SOUND_MSEC = 0.0875, 343.0
_FAR_M, _NEAR_M = 4.0, 1.0  # distances between which urgency grows; obstacles are looked for to 4 m
_CALM_S, _LATE_S = 3.0, 1.0  # the same for time to contact

_LOUDEST = 0.36  # with speech at its loudest this adds up to 1 (``spoken.SPEECH_GAIN``)
_BRIGHT = (1.0, 0.5, 0.33, 0.25)  # amplitudes of the harmonics: overtones help to tell left from right
_HOLLOW = (1.0, 0.0, 0.5, 0.0, 0.3)
_SOFT = (1.0, 0.2)


@dataclass(frozen=True, slots=True)
class _Note:
    start_s: float
    length_s: float
    from_hz: float
    to_hz: float


def obstacle(
    distance_m: float, bearing_deg: float, contact_s: float | None = None, *, head: bool = False, mono: bool = False
) -> Sound:
    """[N, 2], at most 0.3 s: it comes first and the words follow. ``contact_s``: time to contact, None if none."""
    urgency = _urgency(distance_m, contact_s)
    pulses, spacing_s = (4, 0.095 - 0.025 * urgency) if urgency >= 0.5 else (2, 0.15 - 0.04 * urgency)
    pitch_hz = 1320.0 if head else 660.0
    pitches = _pair(pitch_hz, bearing_deg) if mono else (pitch_hz, pitch_hz)
    notes = [_Note(i * spacing_s, 0.05, pitches[i % 2], pitches[i % 2]) for i in range(pulses)]
    return _placed("obstacle", notes, _LOUDEST, _BRIGHT, 0.0 if mono else bearing_deg)


def drop_off(
    distance_m: float, bearing_deg: float, contact_s: float | None = None, *, mono: bool = False
) -> Sound:
    """[N, 2], at most 0.35 s. The ground goes down or is missing."""
    spacing_s = 0.12 - 0.02 * _urgency(distance_m, contact_s)
    low, high = _pair(1.0, bearing_deg) if mono else (1.0, 1.0)
    notes = [_Note(i * spacing_s, 0.09, 2100.0 * f, 600.0 * f) for i, f in enumerate((low, high, high))]
    return _placed("drop_off", notes, _LOUDEST, _BRIGHT, 0.0 if mono else bearing_deg)


def blind() -> Sound:
    """Nothing is seen: whatever silence follows means nothing."""
    return _placed("blind", [_Note(0.0, 0.35, 330.0, 330.0), _Note(0.40, 0.45, 233.0, 233.0)], _LOUDEST, _HOLLOW)


def degraded() -> Sound:
    """Sees, but not enough to judge ahead."""
    sound = _placed("degraded", [_Note(0.0, 0.40, 440.0, 440.0)], 0.25, _HOLLOW)
    t = np.arange(len(sound.samples), dtype=np.float64) / RATE_HZ
    tremble = (0.65 + 0.35 * np.cos(2 * math.pi * 14.0 * t)).astype(np.float32)
    return Sound(sound.samples * tremble[:, None], sound.name)


def again() -> Sound:
    """Sees again."""
    return _placed("again", [_Note(0.08 * i, 0.07, f, f) for i, f in enumerate((523.0, 659.0, 784.0))], 0.22, _SOFT)


def hush_ack() -> Sound:
    """Heard the wearer's hush."""
    return _placed("hush_ack", [_Note(0.0, 0.03, 988.0, 988.0), _Note(0.07, 0.03, 740.0, 740.0)], 0.15, _SOFT)


def asked() -> Sound:
    """Took the wearer's question."""
    return _placed("asked", [_Note(0.0, 0.09, 660.0, 990.0)], 0.15, _SOFT)


def heartbeat() -> Sound:
    """Alive."""
    return _placed("heartbeat", [_Note(0.0, 0.06, 220.0, 210.0), _Note(0.14, 0.06, 220.0, 210.0)], 0.06, _SOFT)


def _urgency(distance_m: float, contact_s: float | None) -> float:
    """0 far off to 1 close, by distance or time, whichever is more."""
    by_distance = (_FAR_M - distance_m) / (_FAR_M - _NEAR_M)
    by_time = 0.0 if contact_s is None else (_CALM_S - contact_s) / (_CALM_S - _LATE_S)
    return min(max(by_distance, by_time, 0.0), 1.0)


def _pair(pitch: float, bearing_deg: float) -> tuple[float, float]:
    """First and second pitch for one ear: left falls, right rises, by 3 to 9 semitones."""
    aside = abs(bearing_deg) - AHEAD_DEG
    if aside <= 0:
        return pitch, pitch
    semitones = 3 + 6 * min(aside / (_FULL_PAN_DEG - AHEAD_DEG), 1.0)
    other = pitch * 2 ** (semitones / 12)
    return (pitch, other) if bearing_deg > 0 else (other, pitch)


def _placed(
    name: str, notes: Sequence[_Note], level: float, harmonics: tuple[float, ...], bearing_deg: float = 0.0
) -> Sound:
    """[N, 2]. Worked out for the right side and swapped for the left: opposite bearings mirror bit for bit."""
    aside_deg = min(abs(bearing_deg), 90.0)
    angle = (1 + min(aside_deg / _FULL_PAN_DEG, 1.0)) * math.pi / 4  # of the pan: 45 degrees ahead, 90 full
    aside_rad = math.radians(aside_deg)
    delay_s = _HEAD_RADIUS_M / _SOUND_MSEC * (math.sin(aside_rad) + aside_rad)
    near = _tones(notes, 0.0, harmonics) * np.float32(level * math.sin(angle))
    far = _tones(notes, delay_s, harmonics) * np.float32(level * math.cos(angle))
    ears = (near, far) if bearing_deg < 0 else (far, near)
    return Sound(np.stack(ears, axis=1), f"earcon.{name}")


def _tones(notes: Sequence[_Note], delay_s: float, harmonics: tuple[float, ...]) -> F32:
    """[N] with peak at most 1; the length leaves room for the longest delay, so that both ears match."""
    length_s = max(n.start_s + n.length_s for n in notes) + 0.001
    t = np.arange(math.ceil(length_s * RATE_HZ), dtype=np.float64) / RATE_HZ - delay_s
    out = np.zeros_like(t)
    for note in notes:
        at = t - note.start_s
        inside = (at >= 0) & (at <= note.length_s)
        s = at[inside]
        phase = 2 * math.pi * (note.from_hz * s + (note.to_hz - note.from_hz) * s**2 / (2 * note.length_s))
        out[inside] += _waveform(phase, harmonics) * _envelope(s, note.length_s) / _peak(harmonics)
    return out.astype(np.float32)


def _waveform(phase: _F64, harmonics: tuple[float, ...]) -> _F64:
    wave = np.zeros_like(phase)
    for k, amplitude in enumerate(harmonics):
        if amplitude:
            wave += amplitude * np.sin((k + 1) * phase)
    return wave


@functools.cache
def _peak(harmonics: tuple[float, ...]) -> float:
    """Of one turn of the waveform."""
    return float(np.abs(_waveform(np.linspace(0, 2 * math.pi, 4096), harmonics)).max())


def _envelope(s: _F64, length_s: float) -> _F64:
    """Up within 4 ms, down over the last third: no clicks, and a clear beginning."""
    rise: _F64 = np.sin(np.minimum(s / 0.004, 1.0) * math.pi / 2) ** 2
    fall: _F64 = np.sin(np.minimum((length_s - s) / (length_s / 3), 1.0) * math.pi / 2) ** 2
    return rise * fall
