"""The runtime's decoder gives what torch gives, however its text is cut, forgotten and read again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the export room needs torch")
pytest.importorskip("transformers", reason="the export room needs transformers")

from handrail.export.backbones import tiny  # noqa: E402
from handrail.export.backbones.base import Backbone  # noqa: E402
from handrail.export.backbones.families import FAMILIES  # noqa: E402
from handrail.export.bundles.bundling import decoder_section, write_decoder  # noqa: E402
from handrail.export.graphs.decoder import decoder_graph  # noqa: E402
from handrail.export.graphs.onnx_file import save  # noqa: E402
from handrail.runtime.engine.decoder import Decoder  # noqa: E402
from handrail.runtime.preprocess import positions  # noqa: E402
from handrail.runtime.preprocess.positions import frame_of  # noqa: E402
from handrail.runtime.providers import LONGEST  # noqa: E402
from handrail.streams.errors import InputError  # noqa: E402

SLOW = pytest.mark.timeout(900)  # torch's exporter, on a busy machine
KINDS = [("qwen3-vl", "shared"), ("internvl3", "shared"), ("smolvlm2", "shared"), ("gemma3", "grown"),
         ("qwen3-vl", "grown"), ("smolvlm2", "grown")]  # fmt: skip
WITHIN = 2e-4


@dataclass
class Text:
    """A prompt with two frames: what the decoder is given, and what torch makes of it after every token [S, V]."""

    embeds: Any
    places: Any
    frames: Any
    deepstack: Any
    expected: Any

    def piece(self, first: int, end: int) -> tuple[Any, ...]:
        deep = None if self.deepstack is None else self.deepstack[:, first:end]
        return self.embeds[first:end], self.places[:, first:end], self.frames[first:end], deep


@dataclass
class Case:
    decoder: Decoder
    text: Text
    other: Text
    both_ways: bool

    def cuts(self, wanted: list[int]) -> list[int]:
        """Ends of pieces: those that are wanted, but never amid a frame that is taken whole."""
        frames, n = self.text.frames, len(self.text.frames)
        whole = {i for i in range(1, n) if self.both_ways and frames[i] >= 0 and frames[i] == frames[i - 1]}
        return [*sorted({1 + w % (n - 1) for w in wanted} - whole), n]


@torch.no_grad()
def text_of(backbone: Backbone, question: str, seed: int) -> Text:
    ids = np.array(backbone.prompt(question, 2, 0))
    place = positions(ids, backbone.image_id, backbone.frame_grid)
    torch.manual_seed(seed)
    batch = torch.tensor(ids)[None]
    embeds = backbone.embed(batch)
    embeds = torch.where((batch == backbone.image_id)[..., None], torch.randn_like(embeds), embeds)
    deep = None
    if k := backbone.deepstack_layers:
        deep = torch.randn(k, *embeds.shape) * (batch == backbone.image_id)[..., None]
    asked = backbone.asked(batch, torch.ones_like(batch, dtype=torch.bool))
    scores = backbone.logits(backbone.hidden(embeds, asked, deep))[0]
    frames = frame_of(ids, backbone.image_id)
    return Text(embeds[0].numpy(), place.axes, frames, None if deep is None else deep[:, 0].numpy(), scores.numpy())


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    family, cache = request.param
    backbone = tiny.build(family)
    graph: Path = tmp_path_factory.mktemp("decoder") / "decoder.onnx"
    if family == "gemma3" or cache == "shared":
        write_decoder(backbone, graph, "none", "cpu")
    else:
        save(decoder_graph(backbone), graph)
    section = decoder_section(backbone)
    assert section["cache"] == ("grown" if family == "gemma3" else "shared")
    decoder = Decoder.of_graph(graph, {**section, "cache": cache})
    decoder.warm_up()
    texts = (text_of(backbone, q, seed) for seed, q in enumerate(("What is in front of me?", "Is it safe?")))
    return Case(decoder, *texts, backbone.both_ways)


def read(case: Case, text: Text, ends: list[int], first: int = 0) -> None:
    """In pieces; the scores after each are torch's."""
    for end in ends:
        scores = case.decoder.read(*text.piece(first, end))
        assert np.abs(scores - text.expected[end - 1]).max() < WITHIN, (first, end)
        first = end
        assert case.decoder.length == end


QUICK = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SLOW
@QUICK
@given(wanted=st.lists(st.integers(0, 10_000), max_size=6))
def test_scores_are_those_of_torch_however_the_text_is_cut(case: Case, wanted: list[int]) -> None:
    case.decoder.rewind(0)
    read(case, case.text, case.cuts(wanted))


@SLOW
def test_scores_are_those_of_torch_a_token_at_a_time(case: Case) -> None:
    case.decoder.rewind(0)
    read(case, case.text, case.cuts(list(range(len(case.text.embeds)))))


@SLOW
@QUICK
@given(wanted=st.lists(st.integers(0, 10_000), min_size=1, max_size=4), back=st.integers(0, 10_000))
def test_what_was_forgotten_leaves_no_trace(case: Case, wanted: list[int], back: int) -> None:
    case.decoder.rewind(0)
    read(case, case.other, [len(case.other.embeds)])
    case.decoder.rewind(0)
    ends = case.cuts(wanted)
    read(case, case.text, ends)
    kept = ends[back % len(ends)]
    case.decoder.rewind(kept)
    assert case.decoder.length == kept
    read(case, case.text, [len(case.text.embeds)] if kept < len(case.text.embeds) else [], kept)


@SLOW
def test_more_than_the_context_holds_is_refused_and_changes_nothing(case: Case) -> None:
    decoder, text = case.decoder, case.text
    decoder.rewind(0)
    assert decoder.context == LONGEST
    n = len(text.embeds)
    read(case, text, [n])
    d, axes = text.embeds.shape[1], len(text.places)
    too_many = LONGEST - n + 1
    with pytest.raises(InputError, match="the context holds 4096"):
        decoder.read(np.zeros((too_many, d), np.float32), np.zeros((axes, too_many), np.int64), np.full(too_many, -1))
    with pytest.raises(InputError, match="expected 1 to"):
        decoder.read(np.zeros((0, d), np.float32), np.zeros((axes, 0), np.int64), np.zeros(0, np.int64))
    with pytest.raises(InputError, match="rewind to"):
        decoder.rewind(n + 1)
    assert decoder.length == n
    decoder.rewind(n - 1)
    read(case, text, [n], n - 1)


@SLOW
def test_frames_whose_tokens_see_each_other_are_never_cut(case: Case) -> None:
    decoder, text = case.decoder, case.text
    amid = int(np.flatnonzero(text.frames == 0)[3])
    decoder.rewind(0)
    decoder.read(*text.piece(0, amid))
    if case.both_ways:
        with pytest.raises(InputError, match="amid a frame"):
            decoder.read(*text.piece(amid, len(text.embeds)))
        decoder.rewind(0)
        read(case, text, [len(text.embeds)])
        with pytest.raises(InputError, match="takes frames whole"):
            decoder.rewind(amid)
    else:
        read(case, text, [len(text.embeds)], amid)


def test_every_family_has_a_case() -> None:
    assert {family for family, _ in KINDS} == set(FAMILIES)
