"""A training goes on from any checkpoint as if it had never stopped; a checkpoint that isn't whole or isn't its own is
refused."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch (extra export)")

import stand_in  # noqa: E402 - after torch is known to be there
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from stand_in import (  # noqa: E402
    EXAMPLES,
    SMALL,
    UNIT,
    Made,
    backbone_id,
    differing,
    feed,
    identity,
    trained,
    trainer,
    weights,
)

from handrail.export.training.batches import Batches  # noqa: E402
from handrail.export.training.checkpoint import (  # noqa: E402
    checkpoints,
    newest_checkpoint,
    read_checkpoint,
    remove_leftovers,
    write_checkpoint,
)
from handrail.export.training.curve import StepDone, read_steps  # noqa: E402
from handrail.export.training.loop import train  # noqa: E402
from handrail.export.training.resume import go_on, start_from, taken  # noqa: E402
from handrail.export.training.trainer import step_batches  # noqa: E402
from handrail.runtime.grid import Statistics  # noqa: E402
from handrail.streams.errors import CheckpointError, InputError  # noqa: E402


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Curves are tried elsewhere, and take longer to draw than a run takes here."""
    monkeypatch.setattr("handrail.export.training.loop.draw_curve", lambda *_: False)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---- going on --------------------------------------------------------------------------------------------------------


def test_a_killed_training_goes_on_and_ends_bit_for_bit_as_one_that_was_not(tmp_path: Path) -> None:
    running = trainer()
    train(running, feed(running), identity(), tmp_path / "whole", save_every=2)
    command = [sys.executable, stand_in.__file__, str(tmp_path / "killed")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert [int(child.stdout.readline()) for _ in range(5)] == [1, 2, 3, 4, 5]
        child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    reached = newest_checkpoint(tmp_path / "killed")
    assert int(reached.name.removeprefix("step-")) in (4, 6)

    again = trainer()
    go_on(again, read_checkpoint(reached), identity(), reached)
    train(again, feed(again), identity(), tmp_path / "killed", save_every=2)
    assert differing(weights(running), weights(again)) == set()
    last = "step-000010"
    assert contents(tmp_path / "killed" / last) == contents(tmp_path / "whole" / last)
    logs = [[replace(r, seconds=0.0) for r in read_steps(tmp_path / d / "log.csv")] for d in ("whole", "killed")]
    assert logs[0] == logs[1] and len(logs[0]) == 10


@pytest.mark.parametrize("stage", [1, 2])
def test_every_checkpoint_is_continued_alike_also_amid_the_warm_up(tmp_path: Path, stage: int) -> None:
    whole = trained(tmp_path, steps=4, stage=stage, warmup=3)
    for _, path in list(checkpoints(tmp_path)):
        torch.manual_seed(99)
        again = trainer(whole.settings)
        go_on(again, read_checkpoint(path), identity(), path)
        assert again.examples_seen == again.step * SMALL.batch
        while again.step < 4:
            again.train_step(step_batches(again.settings, feed(again), again.step))
        assert differing(weights(whole), weights(again)) == set()


def test_random_generators_go_on_where_they_were(tmp_path: Path) -> None:
    running = trainer()
    random.gauss(0, 1), np.random.normal()  # both keep half of what they drew
    path = write_checkpoint(tmp_path, taken(running, identity()), keep=1)
    drawn = [(torch.rand(2).tolist(), random.gauss(0, 1), np.random.normal()) for _ in range(3)]
    go_on(trainer(), read_checkpoint(path), identity(), path)
    assert [(torch.rand(2).tolist(), random.gauss(0, 1), np.random.normal()) for _ in range(3)] == drawn


def test_control_c_ends_the_step_and_writes_a_last_checkpoint(tmp_path: Path) -> None:
    running = trainer()

    def watch(done: StepDone) -> None:
        if done.step == 3:
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    outcome = train(running, feed(running), identity(), tmp_path, watch=watch)
    assert outcome.stopped and outcome.checkpoint.name == "step-000003"
    assert signal.getsignal(signal.SIGINT) is before
    go_on(trainer(), read_checkpoint(outcome.checkpoint), identity(), outcome.checkpoint)


def test_what_can_not_be_read_ends_the_training_with_its_own_error(tmp_path: Path) -> None:
    class Broken(Made):
        def clip(self, example: Any) -> Any:
            if example.clip == "d":
                raise InputError(f"{example.where}: the recording is damaged")
            return super().clip(example)

    running = trainer()
    fed = Batches(EXAMPLES, Broken(), running.model.backbone, UNIT, running.settings)
    with pytest.raises(InputError, match="damaged"):
        train(running, fed, identity(), tmp_path)


# ---- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints of steps 4, 6 and 8 of 8."""
    out = tmp_path_factory.mktemp("run")
    trained(out, steps=8)
    return out


def test_a_checkpoint_is_tensors_and_json_and_the_newest_three_stay(kept: Path) -> None:
    assert [step for step, _ in checkpoints(kept)] == [4, 6, 8]
    assert sorted(p.name for p in newest_checkpoint(kept).iterdir()) == [
        "checkpoint.json", "files.json", "optimizer.safetensors", "random.safetensors", "statistics.json",
        "weights.safetensors",
    ]  # fmt: skip
    others = {p.name for p in kept.iterdir() if not p.name.startswith("step-")}
    assert others - {"loss.png"} == {"log.csv"}


def test_a_checkpoint_holds_what_is_trained_and_names_the_rest(kept: Path) -> None:
    found = read_checkpoint(newest_checkpoint(kept))
    assert set(found.weights) == set(trainer().trained)
    assert found.header.backbone == backbone_id()
    assert (found.header.step, found.header.stage, found.header.examples_seen) == (8, 1, 16)
    assert Statistics.from_json(found.statistics).to_json() == UNIT.to_json()


@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_changed_byte_of_any_file_is_refused_before_it_is_parsed(
    kept: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    copy = tmp_path_factory.mktemp("damaged") / "step-000008"
    shutil.copytree(newest_checkpoint(kept), copy)
    path = copy / data.draw(st.sampled_from(sorted(p.name for p in copy.iterdir())))
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged checkpoint"):
        read_checkpoint(copy)
    shutil.rmtree(copy)


@pytest.mark.parametrize("spoil", ["missing", "extra", "link", "gone", "empty"])
def test_a_checkpoint_with_odd_files_is_refused(kept: Path, tmp_path: Path, spoil: str) -> None:
    copy = tmp_path / "step-000008"
    shutil.copytree(newest_checkpoint(kept), copy)
    match spoil:
        case "missing":
            (copy / "weights.safetensors").unlink()
        case "extra":
            (copy / "weights.pt").write_bytes(b"pickle")
        case "link":
            (copy / "weights.safetensors").rename(tmp_path / "elsewhere")
            (copy / "weights.safetensors").symlink_to(tmp_path / "elsewhere")
        case "gone":
            shutil.rmtree(copy)
        case _:
            shutil.rmtree(copy)
            copy.mkdir()
    with pytest.raises(CheckpointError, match="step-000008"):
        read_checkpoint(copy)


def test_a_checkpoint_of_another_kind_is_refused(kept: Path, tmp_path: Path) -> None:
    found = read_checkpoint(newest_checkpoint(kept))
    newer = replace(found, header=msgspec.structs.replace(found.header, format=2))
    with pytest.raises(CheckpointError, match="expected a checkpoint of format 1, found 2"):
        read_checkpoint(write_checkpoint(tmp_path, newer, keep=1))
    with pytest.raises(CheckpointError, match="found none"):
        newest_checkpoint(tmp_path / "nothing")


OTHER = Statistics({**UNIT.mean, "gaze": np.full(8, 0.5, np.float32)}, UNIT.std)


@pytest.mark.parametrize(
    ("settings_changed", "identity_changed", "said"),
    [
        ({"stage": 2}, {}, "stage: expected 2, found 1"),
        ({"steps": 99}, {}, "settings: steps: expected 99, found 8"),
        ({"seed": 5}, {}, "settings: seed: expected 5, found 0"),
        ({"lora_r": 8}, {}, "settings: lora_r: expected 8, found 4"),
        ({}, {"backbone": backbone_id("gemma3")}, "backbone: expected gemma3 from tiny"),
        ({}, {"backbone": backbone_id(source="big")}, "backbone: expected stand-in from big"),
        ({}, {"backbone": backbone_id(config="1")}, "configuration 111111111111, weights 0+.*, found stand-in"),
        ({}, {"backbone": backbone_id(weights="2")}, r"weights 222222222222\), found stand-in"),
        ({}, {"statistics": OTHER}, r"statistics: mean of gaze\[0\]: expected 0.5, found 0.0"),
        ({}, {"data_sha256": "f" * 64}, "training split: expected ffffffffffff, found"),
        ({}, {"imu_encoder_sha256": "e" * 64}, "IMU encoder: expected e+, found none"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_checkpoint_of_another_training_is_refused_with_both(
    kept: Path, settings_changed: dict[str, Any], identity_changed: dict[str, Any], said: str
) -> None:
    path = newest_checkpoint(kept)
    running = trainer(msgspec.structs.replace(SMALL, **{"steps": 8, **settings_changed}))
    before = weights(running)
    with pytest.raises(CheckpointError, match=said):
        go_on(running, read_checkpoint(path), identity(**identity_changed), path)
    assert differing(before, weights(running)) == set()


def test_the_same_backbone_from_another_folder_is_the_same(kept: Path) -> None:
    path = newest_checkpoint(kept)
    moved = backbone_id(source="elsewhere/tiny/")
    go_on(trainer(msgspec.structs.replace(SMALL, steps=8)), read_checkpoint(path), identity(backbone=moved), path)


def test_stage_2_does_not_start_from_another_stage_2_or_other_statistics(tmp_path: Path) -> None:
    trained(tmp_path, steps=2, stage=2, warmup=1)
    path = newest_checkpoint(tmp_path)
    second = trainer(msgspec.structs.replace(SMALL, stage=2))
    with pytest.raises(CheckpointError, match="stage to start from: expected 1, found 2"):
        start_from(second, read_checkpoint(path), identity(), path)


def test_what_a_kill_left_half_done_is_cleared_and_no_whole_checkpoint_is_lost(kept: Path, tmp_path: Path) -> None:
    shutil.copytree(newest_checkpoint(kept), tmp_path / "step-000002")
    shutil.copytree(newest_checkpoint(kept), tmp_path / ".step-000004.old")  # put aside, not replaced
    shutil.copytree(newest_checkpoint(kept), tmp_path / ".step-000002.old")  # replaced, not removed
    (tmp_path / ".step-000006.part").mkdir()
    (tmp_path / ".step-000006.part" / "weights.safetensors").write_bytes(b"half")
    assert [step for step, _ in checkpoints(tmp_path)] == [2]
    remove_leftovers(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000002", "step-000004"]
    read_checkpoint(tmp_path / "step-000004")


def test_writing_the_same_step_again_replaces_it(kept: Path, tmp_path: Path) -> None:
    found = read_checkpoint(newest_checkpoint(kept))
    for keep in (3, 1):
        path = write_checkpoint(tmp_path, found, keep)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    older = replace(found, header=msgspec.structs.replace(found.header, step=1))
    assert write_checkpoint(tmp_path, older, keep=1).exists()  # gone on from an earlier one: what is written stays


def test_a_run_leaves_one_row_a_step(kept: Path) -> None:
    rows = read_steps(kept / "log.csv")
    assert [r.step for r in rows] == list(range(1, 9))
    assert all(r.loss > 0 and r.tokens > 0 and r.grad_norm > 0 for r in rows)
    assert json.loads((newest_checkpoint(kept) / "checkpoint.json").read_text())["step"] == 8
