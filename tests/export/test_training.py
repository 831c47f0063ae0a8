"""A training learns, weighs examples alike, and goes on from any checkpoint as if it had never stopped."""

from __future__ import annotations

import math
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

torch = pytest.importorskip("torch", reason="training needs torch (extra export)")

import stand_in  # noqa: E402 - after torch is known to be there
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from stand_in import EXAMPLES, SMALL, differing, feed, identity, nll, trained, trainer, weights  # noqa: E402

from handrail.export.training import curve  # noqa: E402
from handrail.export.training.batches import answer_ids, dropped  # noqa: E402
from handrail.export.training.checkpoint import (  # noqa: E402
    newest_checkpoint,
    read_checkpoint,
)
from handrail.export.training.curve import StepDone, StepLog, draw_curve, read_steps  # noqa: E402
from handrail.export.training.resume import start_from  # noqa: E402
from handrail.export.training.trainer import IGNORED, Place, answer_nll, cosine, places, step_batches  # noqa: E402
from handrail.runtime.grid import STREAMS  # noqa: E402
from handrail.streams.errors import HandrailError, InputError  # noqa: E402

# ---- it learns -------------------------------------------------------------------------------------------------------


def test_a_small_set_is_learnt_by_heart_also_what_only_frames_and_sensors_tell_apart() -> None:
    examples = [e for e in EXAMPLES if len(e.references) == 1]
    running = trainer(msgspec.structs.replace(SMALL, steps=55, batch=4, at_once=4, drop=0.0, lr_lora=3e-2))
    batches = step_batches(running.settings, feed(running, examples), 0)  # all of them in one
    losses = [running.train_step(batches).loss for _ in range(running.settings.steps)]
    assert losses[0] > 3.0
    assert max(losses[-3:]) < 0.1


def test_only_adapters_and_fusion_are_trained() -> None:
    running = trainer()
    before = {n: p.detach().clone() for n, p in running.model.named_parameters()}
    running.train_step(step_batches(SMALL, feed(running), 0))
    running.train_step(step_batches(SMALL, feed(running), 1))
    after = dict(running.model.named_parameters())
    changed = {n for n in before if not torch.equal(before[n], after[n])}
    assert changed and all("lora_" in n or n.startswith("fusion.") for n in changed)
    assert {n for n in changed if "lora_" in n} == set(running.lora)


# ---- the loss --------------------------------------------------------------------------------------------------------


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_the_loss_of_an_example_is_the_mean_over_its_answer(lengths: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    width, vocabulary = 3 + max(lengths), 7
    logits = torch.randn(len(lengths), width, vocabulary, generator=generator)
    labels = torch.full((len(lengths), width), IGNORED)
    for b, n in enumerate(lengths):
        labels[b, 2 : 2 + n] = torch.randint(vocabulary, (n,), generator=generator)
    expected = []
    for b, n in enumerate(lengths):
        probabilities = logits[b].double().softmax(-1)
        expected.append(-sum(math.log(probabilities[1 + k, labels[b, 2 + k]]) for k in range(n)) / n)
    assert answer_nll(logits, labels).tolist() == pytest.approx(expected, rel=1e-4)


def test_a_long_answer_weighs_as_much_as_a_short_one() -> None:
    """Right in all its tokens or in none: what the other example's length is doesn't matter."""
    def loss(long: int) -> float:
        logits, labels = torch.zeros(2, long + 2, 4), torch.full((2, long + 2), IGNORED)
        labels[0, 1], labels[1, 1 : 1 + long] = 1, 1
        logits[1, :, 1] = 50.0
        return float(answer_nll(logits, labels).mean())

    assert loss(1) == pytest.approx(math.log(4) / 2) == loss(200)


def test_gradients_of_parts_add_up_to_those_of_the_whole_batch() -> None:
    norms = []
    for at_once in (1, 4):
        running = trainer(msgspec.structs.replace(SMALL, batch=4, at_once=at_once))
        done = running.train_step(step_batches(running.settings, feed(running), 0))
        norms.append((done.loss, done.grad_norm, done.tokens))
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)


def test_a_loss_that_is_no_number_ends_it_and_leaves_the_weights_as_they_were() -> None:
    running = trainer()
    before = weights(running)
    fed = step_batches(SMALL, feed(running), 0)
    fed[0].values["gaze"][:] = float("nan")
    fed[0].streams_valid["gaze"][:] = True
    with pytest.raises(HandrailError, match="step 1: expected a finite loss and gradient"):
        running.train_step(fed)
    assert differing(before, weights(running)) == set() and running.step == 0


# ---- what is fed -----------------------------------------------------------------------------------------------------


@given(examples=st.integers(1, 30), batch=st.integers(1, 9), seed=st.integers(0, 5))
def test_every_epoch_shows_every_example_once_however_turns_are_put_into_batches(
    examples: int, batch: int, seed: int
) -> None:
    turns = [p for k in range(0, 3 * examples, batch) for p in places(examples, k, batch, seed)]
    assert turns[: 3 * examples] == places(examples, 0, 3 * examples, seed)
    for epoch in range(3):
        shown = [p.index for p in turns[epoch * examples : (epoch + 1) * examples]]
        assert sorted(shown) == list(range(examples))


def test_each_stream_is_dropped_at_its_rate_and_independently_of_the_others() -> None:
    turns, p = 20_000, 0.15
    drawn = [dropped(Place(k, 0, 3), p) for k in range(turns)]
    sd = math.sqrt(p * (1 - p) / turns)
    for stream in STREAMS:
        assert abs(sum(stream in d for d in drawn) / turns - p) < 4 * sd
    pairs = Counter((a, b) for d in drawn for a in d for b in d if a < b)
    both = p * p
    assert len(pairs) == 10
    assert all(abs(n / turns - both) < 4 * math.sqrt(both * (1 - both) / turns) for n in pairs.values())
    assert dropped(Place(0, 0, 3), 0.0) == frozenset()


def test_a_dropped_stream_is_masked_and_nothing_of_it_reaches_the_loss() -> None:
    running = trainer(msgspec.structs.replace(SMALL, batch=4, at_once=4, drop=0.5))
    (batch,) = step_batches(running.settings, feed(running), 0)
    gone = {(s, b) for s in STREAMS for b in range(4) if not batch.streams_valid[s][b].any()}
    assert gone == {(s, b) for b, p in enumerate(places(len(EXAMPLES), 0, 4, 0)) for s in dropped(p, 0.5)} != set()
    losses = nll(running, batch)
    for stream, b in gone:
        batch.values[stream][b] = 99.0
    assert torch.equal(nll(running, batch), losses)


def test_the_answer_alone_is_scored_and_every_reference_gets_its_turn() -> None:
    running = trainer()
    fed, answers = feed(running), Counter[str]()
    for position in range(40):
        (place,) = places(len(EXAMPLES), position, 1, 0)
        batch = fed([place])
        scored = batch.ids[0][batch.labels[0] != IGNORED].tolist()
        assert scored[-1] == stand_in.END and batch.labels[0, -1] == stand_in.END
        answers[bytes(scored[:-1]).decode()] += 1
    assert set(answers) == {r for e in EXAMPLES for r in e.references}


def test_an_answer_can_not_end_early_or_hold_a_place_of_a_frame() -> None:
    backbone = stand_in.StandIn()
    backbone.prompter.encode = lambda text: [stand_in.SENSOR, 7, stand_in.END, 8, stand_in.IMAGE]
    assert answer_ids(backbone, "x") == [7, 8, stand_in.END]  # type: ignore[arg-type]


def test_a_batch_is_padded_on_the_right_and_padding_does_not_matter() -> None:
    running = trainer()
    fed = feed(running)
    one, two = places(len(EXAMPLES), 0, 2, 0)
    alone = [nll(running, b) for b in (fed([one]), fed([two]))]
    both = fed([one, two])
    assert not both.valid.all()
    assert torch.allclose(nll(running, both), torch.cat(alone), rtol=1e-4)


# ---- schedule and stages ---------------------------------------------------------------------------------------------


def test_the_rate_falls_along_a_cosine_for_both_groups() -> None:
    running = trainer(msgspec.structs.replace(SMALL, steps=4))
    rates = []
    for step in range(4):
        done = running.train_step(step_batches(running.settings, feed(running), step))
        rates.append(running.optimizer.param_groups[0]["lr"] / SMALL.lr_lora)
        assert done.lr / SMALL.lr_fusion == pytest.approx(rates[-1])
    assert rates == pytest.approx([0.5 * (1 + math.cos(math.pi * k / 4)) for k in range(4)])
    assert cosine(0, 10) == 1.0 and cosine(9, 10) > 0


def test_in_the_warm_up_of_stage_2_only_the_sensor_side_learns(tmp_path: Path) -> None:
    running = trainer(msgspec.structs.replace(SMALL, stage=2, steps=6, warmup=3))
    before = weights(running)
    for step in range(3):
        running.train_step(step_batches(running.settings, feed(running), step))
    changed = differing(before, weights(running))
    assert changed and not changed & set(running.lora)
    assert all(running.optimizer.state.get(p) is None for p in running.lora.values())
    for step in range(3, 6):
        running.train_step(step_batches(running.settings, feed(running), step))
    assert set(running.lora) <= differing(before, weights(running))


def test_stage_2_starts_from_all_of_stage_1_with_new_readouts(tmp_path: Path) -> None:
    first = trained(tmp_path)
    second = trainer(msgspec.structs.replace(SMALL, stage=2), seed=0)
    new = weights(second)
    start_from(second, read_checkpoint(newest_checkpoint(tmp_path)), identity(), tmp_path)
    now = weights(second)
    assert differing({n: t for n, t in now.items() if n in first.trained}, weights(first)) == set()
    fresh = {n for n in now if n not in first.trained}
    assert fresh and all(n.startswith("fusion.readout.") for n in fresh)
    assert not differing({n: now[n] for n in fresh}, new) and second.step == 0
    batch = step_batches(second.settings, feed(second), 0)[0]
    assert ((batch.ids == stand_in.SENSOR).sum(1) == 28).all()
    second.train_step([batch])


# ---- log and curve ---------------------------------------------------------------------------------------------------


def row(step: int) -> StepDone:
    return StepDone(step, 1.0 / step, 1e-4, 0.5, 100, 0.25)


def test_the_log_goes_on_after_a_step_and_drops_what_came_later(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    for after, steps in [(0, range(1, 6)), (3, range(4, 8))]:
        with StepLog(path, after) as log:
            for step in steps:
                log.append(row(step))
    assert read_steps(path) == [row(step) for step in range(1, 8)]
    path.write_text(path.read_text() + "8,0.1,")  # torn: the writer died
    assert len(read_steps(path)) == 7
    path.write_text("step\nnonsense\n")
    with pytest.raises(InputError, match="line 2: expected step, loss, lr, grad_norm, tokens, seconds"):
        read_steps(path)


def test_the_curve_is_a_picture_where_matplotlib_is_and_left_out_where_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert draw_curve([row(1), row(2)], tmp_path / "loss.png", "x") is False
    monkeypatch.undo()
    pytest.importorskip("matplotlib", reason="the curve needs matplotlib (extra bench)")
    assert draw_curve([row(1), row(2)], tmp_path / "loss.png", "x") is True
    assert (tmp_path / "loss.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert curve.smoothed([4.0, 2.0, 0.0], over=2) == [4.0, 3.0, 1.0]
