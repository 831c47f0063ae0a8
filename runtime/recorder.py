"""What ``handrail replay`` keeps of a run: the two logs while it goes on, the summary and the report after it; and the
bar that shows how far it is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from handrail.runtime.events import AnyEvent, Fault
from handrail.runtime.log import EventLog, Timing, TimingLog
from handrail.runtime.reflex.runner import Seen
from handrail.runtime.replay import Hooks, Replayed
from handrail.runtime.report import ReportBuilder, write_report
from handrail.runtime.summary import Run, Summary, in_one_line
from handrail.streams.clock import NS_PER_S
from handrail.streams.samples import Sample
from handrail.streams.source import SourceInfo


class Recorder:
    """``with Recorder(out) as r: replayed = replay(uri, hooks=r.hooks())``, then ``r.finish(replayed)``."""

    def __init__(self, out: Path, *, report: bool) -> None:
        self._out = out
        self._log = EventLog(out / "events.jsonl")
        self._timings = TimingLog(out / "timings.jsonl")
        self._run = Run()
        self._report = ReportBuilder() if report else None
        self._bar = Bar()
        self._info: SourceInfo | None = None

    def hooks(self) -> Hooks:
        return Hooks(on_open=self._opened, on_event=self._event,
                     on_seen=self._seen, on_sample=self._sample,
                     on_timing=self._timings.append)

    def in_one_line(self, summary: Summary) -> str:
        return in_one_line(self._run, summary)

    @property
    def sound_lost(self) -> str | None:
        """Why the speaker failed, if it did."""
        return next((e.detail for e in self._run.faults if isinstance(e, Fault) and e.component == "speaker"), None)

    def finish(self, replayed: Replayed, wav: Path | None) -> Summary:
        """Write summary and report; after the replay has ended, so that the sound is whole."""
        summary = self._run.summary(
            events_sha256=self._log.sha256, realtime_factor=round(replayed.realtime_factor, 3)
        )
        if self._report is not None:
            from handrail.runtime.log import read_timings

            write_report(
                self._out / "report.html", run=self._run, summary=summary, frames=self._report.frames(),
                pictures=self._report.shown.kept, info=self._info, wav=wav,
                timings=read_timings(self._out / "timings.jsonl"),
            )  # fmt: skip
        return summary

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()
        self._log.close()
        self._timings.close()

    def _opened(self, info: SourceInfo) -> None:
        self._info = info
        self._bar.opened(info)
        if self._report is not None:
            self._report.on_open(info)

    def _event(self, event: AnyEvent) -> None:
        self._log.append(event)
        self._run.add(event)
        if self._report is not None:
            self._report.on_event(event)

    def _sample(self, sample: Sample) -> None:
        self._bar.sample(sample)
        if self._report is not None:
            self._report.on_sample(sample)

    def _seen(self, seen: Seen) -> None:
        for stage, ms in seen.stages_ms.items():
            self._timings.append(Timing(f"reflex.{stage}", ms=round(ms, 4), device_ns=seen.scene.device_ns))
        if self._report is not None:
            self._report.on_seen(seen)


class Bar:
    """Progress through the recording, on a terminal only: a screen reader must not hear a bar redrawn."""

    _REDRAW_NS = NS_PER_S // 5  # of the recording

    def __init__(self, doing: str = "replaying") -> None:
        self._doing = doing
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.1f} of {task.total:.1f} s"),
            TimeRemainingColumn(), console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
        )  # fmt: skip
        self._advance: Callable[[float], None] | None = None
        self._first_ns = self._drawn_ns = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        self._progress.start()

    def stop(self) -> None:
        self._progress.stop()

    def opened(self, info: SourceInfo) -> None:
        task = self._progress.add_task(self._doing, total=info.duration_s)
        self._advance = lambda seconds: self._progress.update(task, completed=seconds)
        self._first_ns = self._drawn_ns = info.first_device_ns

    def sample(self, sample: Sample) -> None:
        if self._advance is not None and sample.device_ns - self._drawn_ns >= self._REDRAW_NS:
            self._drawn_ns = sample.device_ns
            self._advance((sample.device_ns - self._first_ns) / NS_PER_S)
