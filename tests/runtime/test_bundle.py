"""A bundle is opened only when every byte is what was exported, and is written whole or not at all."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.benchmarks.bundle_damage import DAMAGE
from handrail.benchmarks.bundles import judge, small_bundle
from handrail.runtime.bundle import About, BundleError, BundleWriter, FileEntry, Source, manifest, open_bundle, writing
from handrail.streams.errors import OutputError

ABOUT = About(
    name="fused", family="qwen3-vl", source=Source("Qwen/Qwen3-VL-2B-Instruct", "abc"), licence="Apache-2.0",
    stage=1, quantisation="int8", provider="CPUExecutionProvider", decoder={"layers": [1, {"heads": 2}]},
)  # fmt: skip


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def write(destination: Path, content: bytes = b"graph", *, replace: bool = False) -> Path:
    with BundleWriter(destination, replace=replace) as bundle:
        bundle.write("decoder.onnx", content)
        bundle.write("embeddings.npy", npy(np.arange(12, dtype=np.float32).reshape(3, 4)))
        bundle.describe(ABOUT)
    return destination


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle(tmp_path_factory.mktemp("bundles") / "small")


# Reading


def test_what_was_written_is_what_is_read(tmp_path: Path) -> None:
    bundle = open_bundle(write(tmp_path / "a" / "fused", b"\x00" * 3_000_000))
    assert bundle.manifest.source == Source("Qwen/Qwen3-VL-2B-Instruct", "abc")
    assert bundle.manifest.decoder == {"layers": [1, {"heads": 2}]} and bundle.manifest.vision == {}
    assert bundle.manifest.files["decoder.onnx"].bytes == 3_000_000
    assert bundle.read("decoder.onnx") == bundle.path("decoder.onnx").read_bytes() == b"\x00" * 3_000_000
    rows = bundle.embeddings()
    assert isinstance(rows, np.memmap) and not rows.flags.writeable
    assert rows[1].tolist() == [4, 5, 6, 7]
    assert names(tmp_path / "a") == ["fused"]


def test_a_bundle_stays_open_when_the_process_goes_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "fused")
    monkeypatch.chdir(tmp_path)
    bundle = open_bundle(Path("fused"))
    monkeypatch.chdir("/")
    assert bundle.read("decoder.onnx") == bundle.path("decoder.onnx").read_bytes() == b"graph"


def test_progress_ends_at_all_bytes_and_goes_on_in_pieces(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    bundle = open_bundle(write(tmp_path / "b", bytes(5 << 20)), lambda done, total: told.append((done, total)))
    total = sum(entry.bytes for entry in bundle.manifest.files.values())
    assert told[-1] == (total, total) and len(told) == 6
    assert all(b - a <= 1 << 20 for (a, _), (b, _) in itertools.pairwise(told))


@pytest.mark.parametrize("index", range(50))
def test_a_damaged_bundle_is_refused_in_one_line_that_says_what_to_do(small: Path, index: int) -> None:
    verdict = judge(small, index)
    assert verdict.refused, verdict


def test_every_kind_of_damage_is_tried_by_the_fifty_above() -> None:
    assert len(DAMAGE) <= 50 // 2


@given(seed=st.integers(0, 1 << 32), index=st.integers(0, len(DAMAGE) - 1))
@settings(max_examples=50, deadline=None)
def test_any_damage_is_refused(small: Path, seed: int, index: int) -> None:
    verdict = judge(small, index, seed)
    assert verdict.refused, verdict


@given(at=st.integers(0, 1 << 20), bit=st.integers(0, 7))
@settings(max_examples=100, deadline=None)
def test_no_bit_of_the_manifest_can_be_flipped(small: Path, at: int, bit: int) -> None:
    """Not even one in a licence line, which nothing else would notice."""
    content = bytearray((small / "manifest.json").read_bytes())
    content[at % len(content)] ^= 1 << bit
    with pytest.raises(ValueError, match=r"does not begin|not as it was written"):
        manifest.parse(bytes(content))


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_bytes_under_a_fitting_seal_are_a_manifest_or_a_value_error(rest: bytes) -> None:
    with pytest.raises(ValueError):
        manifest.parse(manifest.seal(b"\n" + rest))


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("decoder.onnx", None), ("decoder.onnx.data", None), ("chat_template.jinja", None),
        ("weights.pkl", "kinds"), ("pytorch_model.bin", "kinds"), ("engine.plan", "kinds"), ("custom.so", "kinds"),
        ("onnx", "kinds"), ("../x.onnx", "plain"), ("/x.onnx", "plain"), ("a/x.onnx", "plain"), (".x.onnx", "plain"),
        ("", "plain"), ("x\n.onnx", "plain"), ("x.onnx\n", "plain"), ("manifest.json", "itself"), ("ä.json", "plain"),
    ],
)  # fmt: skip
def test_which_names_a_bundle_may_hold(name: str, fault: str | None) -> None:
    found = manifest.name_fault(name)
    assert (found is None) if fault is None else fault in (found or "")


def change_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: shutil.rmtree(f), "found nothing"),
        (lambda f: (shutil.rmtree(f), f.write_text("x")), "found a file; name its folder"),
        (lambda f: (f.rename(f.with_name("r")), f.symlink_to("r")), "found a link; name the folder"),
        (lambda f: (f / "manifest.json").unlink(), "manifest.json: is missing"),
        (lambda f: (f / "decoder.onnx").unlink(), "decoder.onnx: is missing; copy the bundle again"),
        (lambda f: (f / "weights.pkl").touch(), "weights.pkl: is not in the manifest; remove it"),
        (lambda f: (f / "empty").mkdir(), "empty: is a folder"),
        (lambda f: os.mkfifo(f / "pipe.onnx"), "pipe.onnx: is a pipe"),
        (lambda f: (f / "l.onnx").symlink_to("decoder.onnx"), "l.onnx: is a link"),
        (lambda f: change_bit(f / "decoder.onnx"), "decoder.onnx: is damaged: its SHA-256 is not the manifest's; copy"),
        (lambda f: os.truncate(f / "decoder.onnx", 2), "decoder.onnx: has 2 bytes, the manifest says 5"),
        (lambda f: change_bit(f / "manifest.json"), "manifest.json: it does not begin as manifests do; copy"),
    ],
)  # fmt: skip
def test_the_message_names_the_file_and_the_way_out(
    tmp_path: Path, spoil: Callable[[Path], Any], message: str
) -> None:
    folder = write(tmp_path / "fused")
    spoil(folder)
    with pytest.raises(BundleError) as caught:
        open_bundle(folder)
    assert message in str(caught.value) and str(caught.value).startswith(str(folder))
    assert caught.value.exit_code == 2


def test_a_file_with_no_way_in_is_an_error_and_not_a_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "fused")
    original = os.open

    def refused(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if path == "decoder.onnx":
            raise PermissionError(13, "Permission denied")
        return original(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(BundleError, match=r"decoder.onnx: can't be opened \(Permission denied\); check who"):
        open_bundle(folder)


def test_an_unknown_key_of_the_manifest_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "fused")
    content = (folder / "manifest.json").read_bytes()
    rest = content[content.index(b",") + 1 :].replace(b'"family"', b'"run_this": 1, "family"')
    (folder / "manifest.json").write_bytes(manifest.seal(rest))
    with pytest.raises(BundleError, match="unknown field `run_this`"):
        open_bundle(folder)


def test_a_file_that_changed_after_it_was_verified_is_not_handed_out(tmp_path: Path) -> None:
    folder = write(tmp_path / "fused")
    bundle = open_bundle(folder)
    change_bit(folder / "decoder.onnx")
    for use in (bundle.path, bundle.read):
        with pytest.raises(BundleError, match="was changed since the bundle was opened; start again"):
            use("decoder.onnx")
    assert bundle.embeddings().shape == (3, 4)
    (folder / "embeddings.npy").unlink()
    with pytest.raises(BundleError, match="is gone"):
        bundle.path("embeddings.npy")
    with pytest.raises(BundleError, match=r"embeddings.npy: can't be opened"):
        bundle.embeddings()
    with pytest.raises(BundleError, match=r"is not in this bundle; its files: decoder.onnx, embeddings.npy"):
        bundle.path("vision.onnx")


def test_a_file_put_in_the_place_of_a_verified_one_is_noticed_though_its_content_is_the_same(tmp_path: Path) -> None:
    folder = write(tmp_path / "fused")
    bundle = open_bundle(folder)
    (folder / "decoder.onnx").rename(tmp_path / "moved")
    (folder / "decoder.onnx").symlink_to(tmp_path / "moved")
    with pytest.raises(BundleError, match="was changed"):
        bundle.path("decoder.onnx")
    with pytest.raises(BundleError, match="can't be opened"):
        bundle.read("decoder.onnx")


@pytest.mark.parametrize("dtype", ["<f4", "<f2", "|i1", "|u1", "<i8", "|b1"])
def test_numbers_of_any_size_can_be_mapped(tmp_path: Path, dtype: str) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    with BundleWriter(tmp_path / "b") as bundle:
        bundle.write("embeddings.npy", npy(array))
        bundle.write("flat.npy", npy(array.ravel()))
        bundle.describe(ABOUT)
    opened = open_bundle(tmp_path / "b")
    assert np.array_equal(opened.embeddings(), array) and np.array_equal(opened.embeddings("flat.npy"), array.ravel())


# Writing


def test_an_existing_destination_is_left_alone_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    folder = write(tmp_path / "fused", b"old")
    with pytest.raises(OutputError, match="is there already"):
        write(folder, b"new")
    assert open_bundle(folder).read("decoder.onnx") == b"old"
    write(folder, b"new", replace=True)
    assert open_bundle(folder).read("decoder.onnx") == b"new" and names(tmp_path) == ["fused"]


@pytest.mark.parametrize("make", [
    lambda p: (p.mkdir(), (p / "thesis.txt").write_text("x")), lambda p: p.write_text("x"),
    lambda p: (p.mkdir(), (p / "manifest.json").write_text("{}")), lambda p: p.symlink_to("."),
])  # fmt: skip
def test_only_a_bundle_can_be_replaced(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    target = tmp_path / "precious"
    make(target)
    before = sorted(map(str, tmp_path.rglob("*")))
    with pytest.raises(OutputError, match="expected a bundle to replace"):
        write(target, replace=True)
    assert sorted(map(str, tmp_path.rglob("*"))) == before


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("error", [ValueError("export failed"), KeyboardInterrupt()])
def test_an_error_in_the_middle_leaves_nothing_new(tmp_path: Path, error: BaseException, replace: bool) -> None:
    if replace:
        write(tmp_path / "fused", b"old")
    before = names(tmp_path)
    with pytest.raises(type(error)), BundleWriter(tmp_path / "fused", replace=replace) as bundle:
        bundle.write("decoder.onnx", b"half")
        raise error
    assert names(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("weights.pkl", b"x", "'weights.pkl' in .*expected a file of the kinds"),
        ("embeddings.npy", b"\x80\x04K\x01.", "embeddings.npy: expected an array of numbers"),
        ("embeddings.npy", npy(np.zeros((4, 4)))[:-1], "embeddings.npy: has 255 bytes, its header asks for 256"),
    ],
)
def test_a_bundle_that_could_not_be_opened_is_not_put_in_place(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    with pytest.raises(BundleError, match=message), BundleWriter(tmp_path / "fused") as bundle:
        (bundle.folder / name).write_bytes(content)
        bundle.describe(ABOUT)
    assert names(tmp_path) == []


def test_a_bundle_that_nobody_described_is_not_put_in_place(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"call describe\(\)"), BundleWriter(tmp_path / "fused"):
        pass
    assert names(tmp_path) == []


def test_two_writers_of_one_name_do_not_meet(tmp_path: Path) -> None:
    with BundleWriter(tmp_path / "fused") as bundle:
        bundle.describe(ABOUT)
        with pytest.raises(OutputError, match="another export is writing there"):
            write(tmp_path / "fused")
        write(tmp_path / "other")
    assert names(tmp_path) == ["fused", "other"]


class Calls:
    """Counts the system calls of a writer and fails one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failing: int | None) -> None:
        self.count = 0
        for where, name in ((os, "fsync"), (os, "rename"), (writing, "_exchange"), (os, "mkdir")):
            self._wrap(monkeypatch, where, name, failing)

    def _wrap(self, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, failing: int | None) -> None:
        original = getattr(where, name)

        def called(*args: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == failing:
                raise OSError(28, "No space left on device")
            return original(*args, **options)

        monkeypatch.setattr(where, name, called)


@pytest.mark.parametrize("replace", [False, True])
def test_whichever_call_fails_the_destination_holds_a_whole_bundle_or_none(tmp_path: Path, replace: bool) -> None:
    def attempt(folder: Path, failing: int | None) -> int:
        if replace:
            write(folder / "fused", b"old")
        with pytest.MonkeyPatch.context() as patch:
            calls = Calls(patch, failing)
            if failing is None:
                write(folder / "fused", b"new", replace=replace)
            else:
                with pytest.raises(OutputError, match="No space left on device"):
                    write(folder / "fused", b"new", replace=replace)
        return calls.count

    (tmp_path / "counted").mkdir()
    total = attempt(tmp_path / "counted", None)
    assert total >= 7
    for failing in range(2, total + 1):  # the first only makes sure of the parent, which is there
        folder = tmp_path / str(failing)
        folder.mkdir()
        attempt(folder, failing)
        if (folder / "fused").exists():
            content = open_bundle(folder / "fused").read("decoder.onnx")
            # The last call only puts the folder's new name on disk: by then it has it.
            assert content == (b"new" if failing == total else b"old")
            assert replace or failing == total
        assert names(folder) in ([], ["fused"])


def test_a_file_system_that_cannot_swap_says_so_and_keeps_the_old_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "fused", b"old")
    monkeypatch.setattr(writing, "_RENAME_EXCHANGE", 1 << 30)  # a flag that no kernel knows
    with pytest.raises(OutputError, match="can't exchange folders in one step; delete it first"):
        write(tmp_path / "fused", b"new", replace=True)
    assert open_bundle(tmp_path / "fused").read("decoder.onnx") == b"old" and names(tmp_path) == ["fused"]


CHILD = """
import sys
from pathlib import Path
from handrail.runtime.bundle import About, BundleWriter, Source

about = About(name="a", family="f", source=Source("s"), licence="l", stage=0, quantisation="none", provider="p")
for turn in range(1000):
    with BundleWriter(Path(sys.argv[1]), replace=True, progress=lambda done, total: print("hashed", flush=True)) as b:
        print("begun", flush=True)
        b.write("decoder.onnx", bytes([turn % 256]) * 3_000_000)
        b.write("vision.onnx", bytes([turn % 256]) * 1_000_000)
        b.describe(about)
    print("done", flush=True)
"""


def killed_at(destination: Path, lines: int) -> Iterator[str]:
    """What a child said that writes bundle after bundle, until it was killed after so many lines."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(destination)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout:
        for _ in range(lines):
            yield child.stdout.readline().strip()
        child.send_signal(signal.SIGKILL)
        child.wait()


@pytest.mark.parametrize("lines", [1, 2, 4, 6, 7, 9, 13])
def test_a_killed_writer_leaves_a_whole_bundle_or_none_and_the_next_one_cleans_up(tmp_path: Path, lines: int) -> None:
    destination = tmp_path / "fused"
    said = list(killed_at(destination, lines))
    assert said[0] == "begun"
    if destination.exists():
        bundle = open_bundle(destination)
        first = bundle.read("decoder.onnx")[0]
        assert set(bundle.read("decoder.onnx")) == set(bundle.read("vision.onnx")) == {first}
    else:
        assert "done" not in said
    write(destination, b"next", replace=True)
    assert open_bundle(destination).read("decoder.onnx") == b"next" and names(tmp_path) == ["fused"]


def test_the_writer_of_another_name_keeps_its_hands_off(tmp_path: Path) -> None:
    (tmp_path / ".fused2.part-1").mkdir()
    (tmp_path / ".fused.part-1").mkdir()
    (tmp_path / ".fused.part-2").symlink_to(tmp_path / ".fused2.part-1")
    write(tmp_path / "fused")
    assert names(tmp_path) == [".fused.part-2", ".fused2.part-1", "fused"]


def test_what_nobody_may_write_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="can't be written"):
        write(tmp_path / "file" / "fused")
    with pytest.raises(OutputError, match="expected the name of a folder"):
        BundleWriter(Path("/"))


def test_a_manifest_reads_as_plain_json_with_its_seal_first(tmp_path: Path) -> None:
    lines = (write(tmp_path / "fused") / "manifest.json").read_text().splitlines()
    assert lines[0] == "{" and lines[1].startswith('  "manifest_sha256": "') and lines[2] == '  "format": 1,'
    assert lines[3].startswith('  "created_by": "handrail')
    assert manifest.sealed(ABOUT, {"a.onnx": FileEntry("0" * 64, 1)}, "x").endswith(b"\n}\n")
