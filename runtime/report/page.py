"""Writes ``report.html``: one self-contained page that a person looks at rather than reads.

Everything lies inside the file (pictures as JPEG, sound as WAV, style and script inline), so that it opens anywhere
without network; its script is allowed by hash, and all text from the run is escaped. Knows nothing of how things were
seen or said. Times in seconds on the recording's time line.
"""

from __future__ import annotations

import base64
import hashlib
import io
import urllib.parse
import wave
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import jinja2
import numpy as np
from markupsafe import Markup

from handrail.runtime.log import Timing
from handrail.runtime.redacted import Redacted
from handrail.runtime.report.answers import MOST_TEXTS, Card, cards, text_rows
from handrail.runtime.report.builder import Frame
from handrail.runtime.report.charts import distribution, stage_rows, timeline, utterance_rows
from handrail.runtime.report.lanes import goal_rows, lanes
from handrail.runtime.report.scenes import frame_data, jpeg_uri
from handrail.runtime.summary import Run, Summary, latency_of, side_of
from handrail.runtime.terminal import one_line, write_whole
from handrail.streams.source import SourceInfo

MOST_SOUND_BYTES = 12_000_000  # two minutes of stereo; more is mixed down, then linked
PATH_NAMES = {
    "frame_to_scene": "capture to scene", "frame_to_earcon": "capture to tone heard, repeats included",
    "frame_to_phrase": "capture to phrase heard",
}


def write_report(
    path: Path,
    *,
    run: Run,
    summary: Summary,
    frames: Sequence[Frame],
    info: SourceInfo | None,
    pictures: Mapping[int, Redacted] | None = None,
    wav: Path | None = None,
    timings: Iterable[Timing] = (),
) -> None:
    """Write the page. ``wav``: what was heard, on the same time line. ``pictures``: of the frames that questions were
    answered from, by capture (device_ns). Raises OutputError."""
    line, asked = timeline(run), cards(run, pictures or {})
    text = _template().render(
        style=_asset("page.css") + _asset("answers.css"), script=_asset("page.js"),
        script_hash=_hash(_asset("page.js")), title=_title(run), facts=_facts(run, info, frames),
        tiles=_tiles(run, summary, asked), timeline=line, lanes=lanes(run, line.duration_s, asked), cards=asked,
        goals=goal_rows(run), texts=text_rows(run), most_texts=MOST_TEXTS, picture=jpeg_uri,
        sound=sound_source(wav), streams=summary.streams,
        frames=[frame_data(frame, run) for frame in frames], start=start_frame(frames),
        distributions=[
            (PATH_NAMES[name], name, distribution(values, summary.latency_ms[name]))
            for name, values in run.latencies_ms.items()
        ],
        utterances=utterance_rows(run), skipped=run.skipped, stages=stage_rows(timings),
        faults=[(e.t_ns / 1e9, getattr(e, "component", "seam"), e.detail) for e in run.faults],
        alerts=run.alerts, side_of=side_of, summary=summary,
    )
    write_whole(path, text.encode("utf-8"))


def start_frame(frames: Sequence[Frame]) -> int:
    """The frame that is shown first: of those that decided an alert if any, the one that shows most obstacles, in a
    picture if any has one."""

    def drawn(frame: Frame) -> tuple[bool, int]:
        confirmed = [o for o in frame.scene.obstacles if o.confirmed]
        if frame.picture is None:
            return False, len(confirmed)
        seen = [o.id in frame.picture.outlines and o.last_device_ns == frame.scene.device_ns for o in confirmed]
        return True, sum(seen)

    if not frames:
        return 0
    return max(range(len(frames)), key=lambda i: (frames[i].alert, drawn(frames[i]), -i))


def sound_source(wav: Path | None) -> str | None:
    """The audio as a data URI: as it is, mixed down to one channel when long, a relative link when longer still."""
    if wav is None or not wav.is_file():
        return None
    if wav.stat().st_size <= MOST_SOUND_BYTES:
        return _data_uri("audio/wav", wav.read_bytes())
    if (mixed := _mixed_down(wav)) is not None and len(mixed) <= MOST_SOUND_BYTES:
        return _data_uri("audio/wav", mixed)
    return urllib.parse.quote(wav.name)


def _mixed_down(wav: Path) -> bytes | None:
    if wav.stat().st_size > 2 * MOST_SOUND_BYTES + 1000:
        return None
    with wave.open(str(wav), "rb") as read:
        if (read.getsampwidth(), read.getnchannels()) != (2, 2):
            return None
        both = np.frombuffer(read.readframes(read.getnframes()), "<i2").reshape(-1, 2)
        rate_hz = read.getframerate()
    out = io.BytesIO()
    with wave.open(out, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(rate_hz)
        written.writeframes((both.astype(np.int32).sum(axis=1) // 2).astype("<i2").tobytes())
    return out.getvalue()


def _title(run: Run) -> str:
    return "nothing" if run.started is None else one_line(run.started.uri)


def _facts(run: Run, info: SourceInfo | None, frames: Sequence[Frame]) -> list[str]:
    """One short line each: what was replayed, where its pictures are from, how it ended."""
    facts = []
    if run.started is not None:
        facts += [f"Aria Gen {run.started.generation}", f"handrail {run.started.version}"]
    sources = sorted({f.picture.image.source for f in frames if f.picture is not None})
    facts += [f"frames: source={source}" for source in sources] or [_no_pictures(frames, info)]
    facts.append("the log has no end: the run was broken off" if run.ended is None else f"ended: {run.ended.reason}")
    facts += list(run.started.notes) if run.started is not None else list(info.notes) if info is not None else []
    return facts


def _no_pictures(frames: Sequence[Frame], info: SourceInfo | None) -> str:
    if info is not None and not info.recorded:
        return "no pictures: those of a live session are not kept"
    if any(frame.elsewhere for frame in frames):
        return "no pictures: in real time depth stays in its worker process; a run with --speed virtual shows them"
    return "no pictures in this run"


def _tiles(run: Run, summary: Summary, asked: Sequence[Card]) -> list[tuple[str, str, str]]:
    """(figure, what it is, note) of what a person wants to know first."""
    scenes = summary.latency_ms["frame_to_scene"]
    tones = latency_of(run.first_tones_ms)
    dropped = sum(c.dropped for c in summary.streams.values())
    received = sum(c.received for c in summary.streams.values())
    speed = summary.realtime_factor
    return [
        (f"{run.end_ns / 1e9:.1f} s", "length", f"{speed:.1f} times real time" if speed is not None else ""),
        (str(len(summary.utterances)), "utterances heard", f"{len(run.unsaid)} unsaid"),
        (str(len(run.alerts)), "alerts", ", ".join(sorted({a.rule for a in run.alerts}))),
        ("–" if scenes.p95 is None else f"{scenes.p95:.0f} ms", "capture to scene, p95", f"{scenes.n} scenes"),
        ("–" if tones.p95 is None else f"{tones.p95:.0f} ms", "capture to tone, p95", f"{tones.n} first alerts"),
        (f"{received}", "samples received", f"{dropped} dropped, {sum(run.skipped.values())} frames skipped"),
        *([_answers_tile(asked)] if asked else []),
    ]


def _answers_tile(asked: Sequence[Card]) -> tuple[str, str, str]:
    words = latency_of(card.given.first_word_ms for card in asked if card.given.first_word_ms is not None)
    heard = "no answer heard"
    if words.p50 is not None:
        heard = f"{words.n} heard, first word after {words.p50 / 1e3:.1f} s (median)"
    return str(len(asked)), "questions and steps", heard


def _template() -> jinja2.Template:
    loader = jinja2.FunctionLoader(_asset)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
                                     lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":"), "allow_nan": False}
    return environment.get_template("page.html")


def _asset(name: str) -> Markup:
    """A part of the page as it lies beside this file; ours, so it isn't escaped."""
    return Markup((files(__package__) / name).read_text(encoding="utf-8"))  # noqa: S704


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
