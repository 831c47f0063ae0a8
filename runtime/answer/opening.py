"""What answers are made with, opened before the session begins: the bundle, its graphs warmed up, labels, scene text.

Opening is the place for errors: a bundle that can't be served or a provider that doesn't load stops the run with one
line. What is only helpful (labels, text) is left out with a note.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from handrail.runtime.bundle import open_bundle
from handrail.runtime.declared import Declared
from handrail.runtime.engine.decoder import Decoder
from handrail.runtime.engine.engine import Decodes, Engine
from handrail.runtime.engine.features import DEFAULT, Sampling
from handrail.runtime.engine.model import Model, provider_options
from handrail.runtime.engine.worker import Worker
from handrail.runtime.labels.detector import Detector
from handrail.runtime.labels.opening import open_detector
from handrail.runtime.providers import NAMES, Provider
from handrail.runtime.scenetext.reader import Reader, open_reader
from handrail.streams.errors import BundleError, ConfigError, HandrailError

Ocr = Literal["off", "auto", "on"]


@dataclass(frozen=True, slots=True)
class Asked:
    """Something to be asked so many seconds into the session, as if it were typed then."""

    text: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Options:
    """As the command line gives them."""

    model: Path | None = None  # a bundle; None: labels and text alone
    provider: Provider | None = None  # None: the one that the bundle was made for
    sampling: Sampling = field(default_factory=lambda: Sampling.parse(DEFAULT))
    ocr: Ocr = "auto"
    labels: bool = True
    asked: tuple[Asked, ...] = ()
    typed: bool = False  # lines of standard input are asked as they come


@dataclass(frozen=True, slots=True)
class Loaded:
    """Ready for use."""

    options: Options
    model: Model | None
    decoder: Decodes | None
    detector: Detector | None
    reader: Reader | None
    notes: tuple[str, ...]


def load(
    options: Options, *, hashed: Callable[[int, int], None] | None = None,
    said: Callable[[str], None] = lambda line: None,
) -> Loaded:  # fmt: skip
    """Raises BundleError, ConfigError or MissingDependencyError. ``hashed`` gets the bytes verified and in all."""
    notes: list[str] = []
    if options.model is None and (options.asked or options.typed):
        notes.append("no model: only \"read that\" is answered; add --model BUNDLE for questions and goals")
    model = decoder = detector = reader = None
    if options.model is not None:
        model, decoder = _model(options.model, options.provider, hashed, said)
    if options.labels:
        opened = open_detector()
        detector = opened.detector
        notes += [opened.note] if opened.note else []
    if options.ocr != "off":
        reader, why = open_reader()
        notes += [f"no scene text: {why}"] if why else []
    return Loaded(options, model, decoder, detector, reader, tuple(notes))


def engine(model: Model, decoder: Decodes, worker: Worker, declared: Declared) -> Engine:
    """The engine of a loaded model."""
    return Engine(
        decoder, worker, model.embed, model.tokens.end, declared, axes=model.axes,
        deepstack_layers=model.deepstack_layers, whole_frames=model.both_ways,
    )  # fmt: skip


def _model(
    path: Path, provider: Provider | None, hashed: Callable[[int, int], None] | None, said: Callable[[str], None]
) -> tuple[Model, Decoder]:
    bundle = open_bundle(path, hashed)
    made_for = bundle.manifest.provider
    chosen: Provider = provider or _known(made_for, path)
    if chosen != "cpu" and made_for == "cpu":
        raise ConfigError(f"--provider {chosen}: {path} was made for the CPU; export it with --provider {chosen}")
    said(f"loading {bundle.manifest.name} on {chosen}")
    try:
        model = Model(bundle, chosen)
        decoder = Decoder(bundle, chosen, options=provider_options(bundle, "decoder.onnx", chosen))
        model.warm_up()
        decoder.warm_up()
    except HandrailError:
        raise
    except Exception as e:  # native errors come as several types; a manifest may lack what its graphs need
        why = f"{type(e).__name__}: {e}".splitlines()[0]
        raise BundleError(f"{path}: doesn't run here ({why}); export it again with this version of Handrail") from e
    return model, decoder


def _known(provider: str, path: Path) -> Provider:
    for name in NAMES:
        if name == provider:
            return name
    raise ConfigError(f"{path}: made for {provider!r}, expected one of {', '.join(NAMES)}; give --provider")
