"""Samples as they come from a source or out of the rolling buffer -> the five streams on the grid.

Takes only what the buffer would take (fit readings, each later than the one before of its stream), so that a recorded
clip and the same seconds out of a running session give the same grid. Of several streams of a kind the one with the
most readings is used, for two of them (VIO at 10 and at 800 Hz) don't agree to the millimetre.
Knows neither how to encode an IMU's windows nor how to normalise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from handrail.runtime.grid import features
from handrail.runtime.grid.bins import F64, I64, STREAMS, Grid, Rows, bin_means
from handrail.runtime.grid.imu import WINDOW_NS, Encoder, imu_rows
from handrail.streams.cameras import Rig
from handrail.streams.checks import fit, fit_rows
from handrail.streams.rings import Bound, ColumnRing
from handrail.streams.samples import (
    BaroBatch,
    Gaze,
    Hands,
    ImuBatch,
    Kind,
    MagBatch,
    Payload,
    PoseBatch,
    Sample,
    Stream,
)

HISTORY_NS = WINDOW_NS + 1_000_000_000  # before the interval: from here on every reading is of use
IMU_LABELS = {1: ("imu-right", "imu-left"), 2: ("imu-left", "imu-right")}  # by generation: 1202-1, 1202-2
_UNBOUNDED = Bound(1 << 62, 1 << 62)


def grids(
    samples: Iterable[Sample], rig: Rig, start_ns: int, end_ns: int, encode_imu: Encoder | None
) -> dict[str, Grid]:
    """Every stream of STREAMS, over [start, end) of device time; nothing captured at ``end_ns`` or later is looked at.

    ``samples`` of each stream in order of arrival, other kinds among them are passed over. Out of the buffer:

        labels = [s.label for s in source.info.streams]
        samples = [s for label in labels for s in snapshot.window(label, start_ns - HISTORY_NS, end_ns - 1)]

    Samples before ``start_ns`` are optional; without them IMU windows begin five seconds into the interval. Poses are
    taken as they are given: whoever wants causal ones doesn't hand over a closed loop. ``encode_imu`` None: no ``imu``.
    Raises ValueError when the interval is empty.
    """
    held = _held(samples, end_ns)
    rows: dict[str, list[Rows]] = {
        "imu": [] if encode_imu is None else [_imu(held, rig, start_ns, end_ns, encode_imu)],
        "magbaro": [*_magnetometer(held, rig), *_barometer(held, start_ns)],
        "gaze": _gaze(held, rig),
        "hands": _hands(held, rig),
        "trajectory": _trajectory(held, rig, start_ns),
    }
    return {stream: bin_means(*_stacked(rows[stream], width), start_ns, end_ns) for stream, width in STREAMS.items()}


@dataclass(frozen=True, slots=True)
class _Held:
    """The usable readings of one stream."""

    stream: Stream
    t_ns: I64  # [N], N > 0
    payloads: list[Payload]  # one that holds all N, or N of one reading each


def _held(samples: Iterable[Sample], before_ns: int) -> list[_Held]:
    by_stream: dict[Stream, list[Sample]] = {}
    for sample in samples:
        by_stream.setdefault(sample.stream, []).append(sample)
    found = []
    for stream, of_it in by_stream.items():
        match stream.kind:
            case Kind.IMU | Kind.MAG | Kind.BARO | Kind.POSE:
                kept = _packed(stream, of_it, before_ns)
            case Kind.GAZE | Kind.HANDS:
                kept = _whole(stream, of_it, before_ns)
            case _:
                continue
        if len(kept.t_ns):
            found.append(kept)
    return found


def _packed(stream: Stream, samples: list[Sample], before_ns: int) -> _Held:
    ring = ColumnRing(stream, _UNBOUNDED)
    for sample in samples:
        rows = fit_rows(sample)
        if rows is not None:
            times: I64 = getattr(sample.payload, "device_ns")  # noqa: B009 - of any packed payload
            ring.extend(sample, rows & (times < before_ns))
    view = ring.view()
    count = len(view.times)
    return _Held(stream, np.asarray(view.times), [view.span(0, count)[0].payload] if count else [])


def _whole(stream: Stream, samples: list[Sample], before_ns: int) -> _Held:
    times, payloads = [-1], []
    for sample in samples:
        if times[-1] < sample.device_ns < before_ns and fit(sample):
            times.append(sample.device_ns)
            payloads.append(sample.payload)
    return _Held(stream, np.array(times[1:], np.int64), payloads)


def _richest(held: list[_Held], kind: Kind) -> _Held | None:
    of_kind = [h for h in held if h.stream.kind is kind]
    return min(of_kind, key=lambda h: (-len(h.t_ns), h.stream.label), default=None)


def _imu(held: list[_Held], rig: Rig, start_ns: int, end_ns: int, encode: Encoder) -> Rows:
    batches = {h.stream.label: b for h in held for b in h.payloads if isinstance(b, ImuBatch)}
    return imu_rows([batches.get(label) for label in IMU_LABELS[rig.generation]], start_ns, end_ns, encode)


def _magnetometer(held: list[_Held], rig: Rig) -> list[Rows]:
    found = _richest(held, Kind.MAG)
    if found is None:
        return []
    calibration = rig.magnetometer.get(found.stream.label)
    return [features.magnetometer(b, calibration, rig.T_device_cpf) for b in found.payloads if isinstance(b, MagBatch)]


def _barometer(held: list[_Held], start_ns: int) -> list[Rows]:
    found = _richest(held, Kind.BARO)
    batches = [] if found is None else found.payloads
    return [features.barometer(b, start_ns) for b in batches if isinstance(b, BaroBatch)]


def _gaze(held: list[_Held], rig: Rig) -> list[Rows]:
    found = _richest(held, Kind.GAZE)
    if found is None:
        return []
    return [features.gaze(found.t_ns, [g for g in found.payloads if isinstance(g, Gaze)], rig)]


def _hands(held: list[_Held], rig: Rig) -> list[Rows]:
    found = _richest(held, Kind.HANDS)
    if found is None:
        return []
    return [features.hands(found.t_ns, [h for h in found.payloads if isinstance(h, Hands)], rig.T_device_cpf)]


def _trajectory(held: list[_Held], rig: Rig, start_ns: int) -> list[Rows]:
    found = _richest(held, Kind.POSE)
    batches = [] if found is None else found.payloads
    return [features.trajectory(b, rig.T_device_cpf, start_ns) for b in batches if isinstance(b, PoseBatch)]


def _stacked(rows: list[Rows], width: int) -> Rows:
    times: list[I64] = [t for t, _ in rows]
    values: list[F64] = [v for _, v in rows]
    return np.concatenate([np.empty(0, np.int64), *times]), np.concatenate([np.empty((0, width)), *values])
