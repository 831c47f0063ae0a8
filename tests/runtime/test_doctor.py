"""The doctor finds what is wrong and says what mends it."""

import argparse
import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from handrail.runtime import doctor
from handrail.runtime.cli import main
from handrail.runtime.doctor import Finding, child, dependencies


def test_here_the_doctor_runs_through_and_its_figures_match_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["doctor", "--json", str(tmp_path / "d.json")])
    figures = json.loads((tmp_path / "d.json").read_text())
    assert code == (0 if figures["ok"] else 3)
    states = {f["name"]: f["state"] for f in figures["findings"]}
    assert states["numpy"] == states["python"] == states["clock"] == states["OpenCV semi-global matching"] == "ok"
    assert states["sound card"] in ("ok", "note")  # a machine without one can replay
    assert all(f["mend"] for f in figures["findings"] if f["state"] == "missing")
    assert "numpy" in capsys.readouterr().out


def test_what_is_missing_gives_exit_code_3_and_the_command_that_mends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking() -> Iterator[Finding]:
        yield Finding("zzz", "missing", "not installed", "pip install zzz")

    monkeypatch.setattr(doctor, "CHECKS", (doctor.clock, lacking))
    assert doctor.Doctor().run(argparse.Namespace(json=None)) == 3
    out = capsys.readouterr().out
    assert "pip install zzz" in out and "1 missing: zzz" in out


def test_the_table_fits_100_columns_and_commands_stay_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mend = "pip install --no-deps 'projectaria-client-sdk==2.5.1' && pip install termcolor"

    def lacking() -> Iterator[Finding]:
        yield Finding("a part with a rather long name [and its extra]", "missing", "it isn't there, " * 9, mend)
        yield Finding("nothing to say", "ok", "")

    monkeypatch.setattr(doctor, "CHECKS", (lacking, doctor.dependencies))
    doctor.Doctor().run(argparse.Namespace(json=None))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[:-1])) <= 100  # the last one names all that is missing
    assert mend in lines and sum("isn't" in line for line in lines) >= 3


def test_wrong_and_absent_versions_are_missing_only_where_a_session_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["numpy<3,>=2.2", "msgspec>=99", "no-such-lib>=1", 'no-such-aria==1.0; extra == "aria"',
              'no-such-plot>=3; extra == "bench"', 'pytest>=99; extra == "dev"']
    monkeypatch.setattr(metadata, "requires", lambda name: wanted)
    found = {f.name: f for f in dependencies()}
    assert {name: f.state for name, f in found.items()} == {
        "numpy": "ok", "msgspec": "missing", "no-such-lib": "missing", "no-such-aria [aria]": "missing",
        "no-such-plot [bench]": "note",
    }
    assert found["msgspec"].mend == "pip install 'msgspec>=99'" and "wanted msgspec>=99" in found["msgspec"].found


@pytest.mark.parametrize(
    ("code", "state", "found"),
    [
        ("print('noise'); print('works')", "ok", "works"),
        ("import os; os.kill(os.getpid(), 11)", "missing", "the process died with SIGSEGV"),
        ("import os; os.abort()", "missing", "the process died with SIGABRT"),
        ("import no_such_module", "missing", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit(5)", "missing", "exit code 5"),
        ("from handrail.streams.errors import DeviceError; raise DeviceError('no voice')", "missing", "no voice"),
        ("import sys; sys.stdin.read(); print('not stuck')", "ok", "not stuck"),
    ],
)
def test_native_code_that_dies_is_a_finding(code: str, state: str, found: str) -> None:
    finding = child("part", "mend it", code)
    assert (finding.state, finding.found) == (state, found)
    assert finding.mend == ("" if state == "ok" else "mend it")


def test_native_code_that_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CHILD_TIMEOUT_S", 0.3)
    assert child("part", "mend it", "import time; time.sleep(60)").found.startswith("no answer")


def test_both_onnx_runtimes_together_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed", lambda name: name.startswith("onnxruntime"))
    (finding,) = doctor.conflicts()
    assert finding.state == "missing" and "CUDA is silently gone" in finding.found


def test_every_requirement_of_the_project_can_be_judged() -> None:
    assert len(list(dependencies())) >= 7
