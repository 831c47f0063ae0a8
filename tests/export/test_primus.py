"""PRIMUS has the published layers under the published names, and takes no checkpoint that isn't it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch isn't installed (the export room's extra)")

from handrail.export.model.primus import PARAMETERS, Primus, encode, load_primus  # noqa: E402
from handrail.streams.errors import InputError  # noqa: E402

NAMES = {
    "backbone.0.weight", "backbone.0.bias", "backbone.1.net.0.weight", "backbone.2.net.0.weight",
    "backbone.3.net.0.weight", "backbone.4.weight", "backbone.4.bias", "backbone.5.weight_ih_l0",
    "backbone.5.weight_hh_l0", "backbone.5.bias_ih_l0", "backbone.5.bias_hh_l0", "ssl_head.weight", "ssl_head.bias",
    "mmcl_head.weight", "mmcl_head.bias",
}  # fmt: skip


def primus(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return Primus().eval()


def windows(count: int = 3) -> Any:
    return np.random.default_rng(0).normal(0, 3, (count, 6, 250)).astype(np.float32)


def lightning(state: dict[str, Any]) -> dict[str, Any]:
    """As a trainer saves it: the encoder among others, and more than tensors about the run."""
    table = {"text_head.weight": torch.zeros(3, 3), "queue": torch.zeros(2)}
    return {"epoch": 3, "state_dict": table | {f"imu_encoder.{k}": v for k, v in state.items()}, "loops": {"n": 1}}


def saved(path: Path, table: Any) -> Path:
    torch.save(table, path)
    return path


def test_it_has_the_published_names_and_number_of_parameters() -> None:
    assert set(primus().state_dict()) == NAMES
    assert sum(p.numel() for p in primus().parameters()) == PARAMETERS == 1_376_204


def test_its_layers_have_the_published_sizes() -> None:
    x, sizes = torch.from_numpy(windows(2)), []
    for layer in primus().backbone[:4]:
        x = layer(x)
        sizes.append(tuple(x.shape[1:]))
    assert sizes == [(6, 250), (32, 77), (32, 23), (32, 32)]


def test_windows_are_encoded_each_by_itself_into_512_numbers() -> None:
    model, three = primus(), windows()
    together = encode(model, three)
    assert together.shape == (3, 512) and together.dtype == np.float32
    assert np.allclose(together[1:2], encode(model, three[1:2]), atol=1e-6)
    assert not np.allclose(together[0], together[1])


def test_windows_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\[W, 6, 250\], got \[3, 250, 6\]"):
        encode(primus(), windows().transpose(0, 2, 1))


@pytest.mark.parametrize("wrap", [lightning, dict, lambda s: {"state_dict": s}], ids=["lightning", "bare", "table"])
def test_a_checkpoint_is_found_under_whatever_prefix_it_lies(tmp_path: Path, wrap: Callable[[Any], Any]) -> None:
    original = primus(7)
    loaded = load_primus(saved(tmp_path / "best.ckpt", wrap(original.state_dict())))
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), original.parameters(), strict=True))
    assert np.allclose(encode(loaded, windows()), encode(original, windows()), atol=1e-6)
    assert not loaded.training and not any(p.requires_grad for p in loaded.parameters())


def _without(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda state: {k: v for k, v in state.items() if k != name}


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (_without("mmcl_head.bias"), "a tensor mmcl_head.bias, found none"),
        (lambda s: {**s, "extra.weight": torch.zeros(2)}, "no tensor extra.weight, found one"),
        (lambda s: {**s, "backbone.4.bias": torch.zeros(16)}, r"backbone.4.bias \[32\], got \[16\]"),
        (lambda s: {**s, "backbone.4.bias": torch.full((32,), float("nan"))}, "backbone.4.bias of finite numbers"),
        (lambda s: {**s, "backbone.4.bias": torch.zeros(32, dtype=torch.int64)}, "backbone.4.bias of finite numbers"),
        (lambda s: {"something": torch.zeros(2)}, "a tensor named ...backbone.0.weight, found none"),
    ],
)
def test_a_checkpoint_that_is_another_one_is_refused_in_one_line(
    tmp_path: Path, damage: Callable[[Any], Any], expected: str
) -> None:
    path = saved(tmp_path / "other.ckpt", lightning(damage(primus().state_dict())))
    with pytest.raises(InputError, match=rf"other\.ckpt.*1,376,204.*expected {expected}") as caught:
        load_primus(path)
    assert "\n" not in str(caught.value)


class Planted:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("planted"),)


def test_a_checkpoint_that_would_run_code_is_refused_and_runs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = saved(tmp_path / "evil.ckpt", {"state_dict": primus().state_dict(), "callbacks": Planted()})
    with pytest.raises(InputError, match="tensors alone") as caught:
        load_primus(path)
    assert "\n" not in str(caught.value) and not (tmp_path / "planted").exists()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "can't be read"),
        (b"", "expected"),
        (b"not a checkpoint", "expected"),
        (pickle.dumps([1, 2]), "expected"),
        (b"PK\x03\x04" + bytes(40), "expected"),
    ],
    ids=["missing", "empty", "text", "list", "zip"],
)
def test_a_file_that_is_no_checkpoint_is_refused_in_one_line(
    tmp_path: Path, content: bytes | None, expected: str
) -> None:
    path = tmp_path / "x.ckpt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=expected) as caught:
        load_primus(path)
    assert "\n" not in str(caught.value)
