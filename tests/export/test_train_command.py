"""``handrail train`` itself: options, what is said, exit codes, and the whole way on a tiny backbone."""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from handrail.export.train_command import command
from handrail.runtime.cli import CommandParser
from handrail.streams.errors import CheckpointError, ConfigError, DataError, HandrailError, MissingDependencyError

LINE = {
    "clip": "walk-3", "category": "TC04", "form": "question", "text": "What is ahead?", "references": ["A corridor."],
    "recording": "world:3?gen=1&kind=free&seconds=2", "time_s": [0.0, 1.9], "split": "train",
}  # fmt: skip


def arguments(*words: object) -> argparse.Namespace:
    parser = CommandParser(prog="handrail train", description=command.help, examples=command.examples)
    command.add_arguments(parser)
    return parser.parse_args(list(map(str, words)), argparse.Namespace(json=None, debug=False))


def run(folder: Path, *words: object) -> int:
    base = ["--backbone", "tiny:smolvlm2", "--data", folder / "data.jsonl", "--out", folder / "out", "--device", "cpu"]
    return command.run(arguments(*base, "--cache", folder / "cache", "--stage", 1, *words))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data.jsonl").write_text(json.dumps(LINE) + "\n")
    return tmp_path


def test_importing_the_command_and_its_help_need_no_torch() -> None:
    code = "import sys, handrail.export.train_command; assert not {'torch', 'transformers'} & set(sys.modules)"
    path = ":".join(sys.path)
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, check=False).returncode == 0
    parser = CommandParser(prog="handrail train", description=command.help, examples=command.examples)
    command.add_arguments(parser)
    shown = parser.format_help()
    assert all(example in shown for example in command.examples) and "--resume" in shown


def test_every_example_of_the_help_can_be_parsed() -> None:
    for example in command.examples:
        assert arguments(*example.split()[2:]).stage in (1, 2)


def test_without_torch_the_line_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "handrail.export.training.fitting", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match="training needs torch, which isn't installed: run `make") as e:
        run(folder)
    assert e.value.exit_code == 3


def refused(folder: Path, kind: type[HandrailError], said: str, *words: object) -> None:
    pytest.importorskip("torch", reason="training needs torch (extra export)")
    pytest.importorskip("peft", reason="training needs peft (extra export)")
    with pytest.raises(kind, match=said) as e:
        run(folder, *words)
    assert e.value.exit_code == 2 and "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--steps", 0], "--steps: expected"),
        (["--window", -1], "--window: expected"),
        (["--at-once", 0], "--at-once: expected"),
        (["--window", "inf"], "--window: expected"),
        (["--cache-gib", "nan"], "--cache-gib: expected a number above 0, got nan"),
        (["--lr-lora", "nan"], "--lr-lora: expected"),
        (["--stage", 2, "--from", "x", "--steps", 20], "--warmup 200: expected fewer than the 20 steps"),
        (["--side", 224], "tiny:smolvlm2 has neither"),
        (["--keep", 0], "--keep: expected a number above 0, got 0"),
        (["--stage", 2], "--stage 2: starts from a checkpoint of stage 1; name it with --from"),
        (["--from", "runs/stage1"], "--from: only a new stage 2"),
        (["--backbone", "tiny:gpt"], "expected one of tiny:qwen3-vl"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(folder: Path, words: list[object], said: str) -> None:
    refused(folder, ConfigError, said, *words)


def test_bad_lines_are_told_before_anything_is_trained(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [LINE, {**LINE, "category": "TC99"}, {**LINE, "time_s": 50}]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, lines)))
    refused(folder, DataError, "2 lines are wrong, see above; nothing was trained")
    said = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[0].rsplit(", ", 1)[1] for line in said] == ["line 2", "line 3"]


def test_a_data_set_without_training_examples_is_refused(folder: Path) -> None:
    (folder / "data.jsonl").write_text(json.dumps({**LINE, "split": "test"}))
    refused(folder, DataError, 'expected examples whose split is "train", found none')


def test_a_second_training_in_the_same_folder_is_refused_and_harms_nothing(folder: Path) -> None:
    part = folder / "out" / ".step-000001.part"
    part.mkdir(parents=True)
    with (folder / "out" / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another training runs there"):
            run(folder)
    assert part.is_dir()


def test_resuming_where_nothing_is_is_refused(folder: Path) -> None:
    refused(folder, CheckpointError, "expected a checkpoint or a folder of them", "--resume")


def test_both_stages_on_a_tiny_backbone_stopped_and_gone_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One example, one frame's world, a fusion network of width 16: what is tried here is the way, not the learning."""
    pytest.importorskip("torch", reason="training needs torch (extra export)")
    pytest.importorskip("peft", reason="training needs peft (extra export)")
    pytest.importorskip("embreex", reason="the simulated world needs embreex")
    import functools

    from handrail.export.training import fitting

    monkeypatch.setattr(fitting, "Fusion", functools.partial(fitting.Fusion, width=16))
    monkeypatch.setattr("handrail.export.training.sampling.upright", _small)
    figures = folder / "figures.json"
    few = ["--batch", 2, "--at-once", 2, "--save-every", 2, "--json", figures]

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_at(patch, 1)
        run(folder, *few, "--steps", 3)
    assert "the same command with --resume" in capsys.readouterr().err
    assert json.loads(figures.read_text())["checkpoint"] == "step-000001"
    refused(folder, ConfigError, r"holds checkpoints \(step-000001\); add --resume", *few, "--steps", 3)
    refused(folder, CheckpointError, "settings: steps: expected 4, found 3", *few, "--steps", 4, "--resume")

    assert run(folder, *few, "--steps", 3, "--resume") == 0
    one = json.loads(figures.read_text())
    assert (one["steps"], one["finished"], one["stage"], one["examples"]) == (3, True, 1, 1)
    assert one["backbone"]["family"] == "smolvlm2" and one["trained_parameters"] > 0
    line = capsys.readouterr().out.strip()
    assert line.startswith("stage 1: 3 of 3 steps on 1 examples, loss") and line.endswith("step-000003")

    weights = (folder / "out" / "step-000003" / "weights.safetensors").read_bytes()
    assert run(folder, *few, "--steps", 3, "--resume", folder / "out" / "step-000001") == 0
    assert capsys.readouterr().err.count("removed, since the training goes on from step 1") == 2
    assert (folder / "out" / "step-000003" / "weights.safetensors").read_bytes() == weights

    second = ["--stage", 2, "--from", folder / "out", "--out", folder / "two", "--warmup", 1, "--steps", 2]
    assert run(folder, *few, *second) == 0
    assert json.loads(figures.read_text())["stage"] == 2
    assert (folder / "two" / "step-000002" / "weights.safetensors").exists()


def test_mixed_precision_keeps_what_is_trained_in_float32_and_learns_alike() -> None:
    """What runs on CUDA, on a CPU: accelerate, bfloat16, activations computed again."""
    torch = pytest.importorskip("torch", reason="training needs torch (extra export)")
    pytest.importorskip("peft", reason="training needs peft (extra export)")
    from stand_in import EXAMPLES, SMALL, UNIT, Made

    from handrail.export.backbones import tiny
    from handrail.export.model.fused import FusedModel
    from handrail.export.model.fusion import Fusion
    from handrail.export.training.batches import Batches
    from handrail.export.training.resume import seed_generators
    from handrail.export.training.trainer import AcceleratedEngine, PlainEngine, Trainer, step_batches

    losses = []
    for engine in (PlainEngine(), AcceleratedEngine()):
        seed_generators(0)
        backbone = tiny.build("smolvlm2")
        backbone.lora(SMALL.lora_r, SMALL.lora_alpha)
        running = Trainer(FusedModel(backbone, Fusion(backbone.d_model, 1, 16)), SMALL, engine)
        batches = step_batches(SMALL, Batches(EXAMPLES, Made(), backbone, UNIT, SMALL), 0)
        losses.append([running.train_step(batches).loss for _ in range(3)])
    assert {p.dtype for p in running.trained.values()} == {torch.float32}
    assert {p.dtype for p in running.model.parameters() if not p.requires_grad} == {torch.bfloat16}
    assert losses[1] == pytest.approx(losses[0], rel=0.02) and losses[1][2] < losses[1][0]


def stop_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Ctrl-C in that step."""
    import signal

    from handrail.export.training.trainer import Trainer

    real = Trainer.train_step

    def train_step(self: Trainer, batches: Any) -> Any:
        done = real(self, batches)
        if done.step == step:
            signal.raise_signal(signal.SIGINT)
        return done

    monkeypatch.setattr(Trainer, "train_step", train_step)


def _small(pixels: Any, generation: int) -> Any:
    """A corner of the picture: resizing eight whole ones takes seconds."""
    return pixels[:64, :64]
