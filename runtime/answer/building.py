"""``Answers`` put together for one session, from what was loaded and the source that was opened."""

from __future__ import annotations

from collections.abc import Callable

from handrail.runtime import config
from handrail.runtime.answer.answering import FELT, Means
from handrail.runtime.answer.answers import Answers
from handrail.runtime.answer.headings import Headings
from handrail.runtime.answer.labels import Labels
from handrail.runtime.answer.opening import Loaded, Options, engine
from handrail.runtime.answer.pictures import Pictures
from handrail.runtime.answer.texts import Texts
from handrail.runtime.answer.typed import listen
from handrail.runtime.declared import Declared
from handrail.runtime.engine.worker import Worker
from handrail.runtime.events import AnyEvent, Fault
from handrail.runtime.labels.labeller import Labeller
from handrail.runtime.speech.speech import Speech
from handrail.streams.clock import now_ns
from handrail.streams.errors import ConfigError
from handrail.streams.samples import Kind
from handrail.streams.source import SourceInfo

LATEST_S = 10.0  # after the recording's end that something may still be asked


def check_times(options: Options, info: SourceInfo) -> None:
    """Raises ConfigError for a question that would be asked long after the recording."""
    if info.duration_s is None:
        return
    for asked in options.asked:
        if asked.at_s > info.duration_s + LATEST_S:
            raise ConfigError(
                f"{asked.text[:40]!r} is asked at {asked.at_s:g} s: {info.uri} ends at {info.duration_s:.1f} s"
            )


def build(
    loaded: Loaded, info: SourceInfo, worker: Worker, declared: Declared, speech: Speech,
    emit: Callable[[AnyEvent], None], start_ns: int, wearer: config.Wearer,
    took: Callable[[str, float], None],
) -> Answers:  # fmt: skip
    """``took`` is told of measured times."""
    model, options = loaded.model, loaded.options
    pictures = Pictures(
        info.rig.generation, worker, None if model is None else model.see, declared.encode_ms,
        lambda what, e: emit(Fault(now_ns() - start_ns, what, f"{type(e).__name__}: {e}")),
    )  # fmt: skip
    labels = None
    if loaded.detector is not None:
        labels = Labels(Labeller(info.rig), loaded.detector, worker, declared.detect_ms, emit, start_ns)
        pictures.look_with(labels.looker)
    headings = Headings()
    texts = Texts(loaded.reader, options.ocr, pictures, headings, info.rig, worker, declared.read_ms, emit, start_ns)
    means = None
    if model is not None and loaded.decoder is not None:
        means = Means(
            model, engine(model, loaded.decoder, worker, declared), pictures, worker, declared, info.rig,
            tuple(s.label for s in info.streams if s.kind in FELT), took, options.sampling,
        )  # fmt: skip
    gaze = tuple(s.label for s in info.streams if s.kind is Kind.GAZE)
    typed = {"listen": listen} if options.typed else {}
    return Answers(
        means, pictures, labels, texts, headings, speech, emit, start_ns, wearer, gaze, options.asked, **typed
    )
