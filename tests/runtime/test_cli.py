"""The command line: one line for people, the right exit code, never a traceback."""

import argparse
import asyncio
import io
import json
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from handrail.runtime import cli
from handrail.runtime.events import Ended
from handrail.runtime.log import read_log
from handrail.runtime.terminal import one_line, print_table, write_json
from handrail.streams.errors import HandrailError, MissingDependencyError, OutputError, SourceError

Body = Callable[[argparse.Namespace], int]


class Probe:
    name = "probe"
    help = "does what the test asks for"
    examples = ("handrail probe --speed fast",)
    body: Body = staticmethod(lambda args: 0)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--speed", choices=["fast", "real"], default="fast")
        nested = parser.add_subparsers(dest="bench")
        nested.add_parser("latency", help="nested").add_argument("--seconds", type=float)

    def run(self, args: argparse.Namespace) -> int:
        return self.body(args)


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Probe]:
    """A command of the test's own, found as all are: by entry point."""
    module = types.ModuleType("handrail_probe_command")
    command = Probe()
    module.command = command  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    found = [
        EntryPoint("probe", "handrail_probe_command:command", cli.GROUP),
        EntryPoint("gone", "handrail.runtime.no_such_module:command", cli.GROUP),
    ]
    monkeypatch.setattr(cli, "entry_points", lambda group: found if group == cli.GROUP else [])
    yield command


def failing(error: BaseException) -> Body:
    def body(args: argparse.Namespace) -> int:
        raise error

    return body


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(words)
    out, err = capsys.readouterr()
    return code, out, err


def test_a_command_gets_its_arguments_and_its_exit_code_is_returned(
    probe: Probe, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def body(args: argparse.Namespace) -> int:
        write_json(args.json, {"speed": args.speed, "debug": args.debug})
        return 1

    probe.body = body
    target = tmp_path / "figures.json"
    code, _, err = run(capsys, "probe", "--speed", "real", "--json", str(target))
    assert (code, err) == (1, "")
    assert json.loads(target.read_text()) == {"speed": "real", "debug": False}


@pytest.mark.parametrize("words", [["--json", "a.json", "latency"], ["latency", "--json", "a.json"]])
def test_json_is_known_before_and_after_a_nested_command(
    probe: Probe, capsys: pytest.CaptureFixture[str], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[Path | None] = []

    def body(args: argparse.Namespace) -> int:
        seen.append(args.json)
        return 0

    probe.body = body
    code, _, _ = run(capsys, "probe", *words)
    assert code == 0 and seen == [Path("a.json")]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["prob"], "unknown command 'prob' (did you mean probe?)"),
        (["--speed"], "expected a command first"),
        (["probe", "--sped", "fast"], "unknown option --sped (did you mean --speed?)"),
        (["probe", "--sped=fast"], "unknown option --sped (did you mean --speed?)"),
        (["probe", "latency", "--second", "3"], "unknown option --second (did you mean --seconds?)"),
        (["probe", "latency", "3"], "unexpected argument '3'"),
        (["probe", "--speed", "fastt"], "'fastt' is not one of fast, real (did you mean fast?)"),
        (["probe", "laten"], "'laten' is not one of latency (did you mean latency?)"),
        (["probe", "--speed"], "argument --speed: expected one argument"),
        (["probe", "--json", f"{__file__}/x.json"], "got a file"),
        (["probe", "--json", str(Path(__file__).parent)], "expected a file name, got a folder"),
        (["probe", "latency", "--seconds", "x"], "invalid float value: 'x'"),
    ],
)
def test_a_wrong_command_line_is_one_line_with_a_hint_and_exit_code_2(
    probe: Probe, capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    code, out, err = run(capsys, *words)
    assert code == 2 and out == ""
    assert err.startswith("handrail: ") and err.count("\n") == 1
    assert expected in err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (SourceError("no.vrs: expected a recording, got nothing"), 2, "no.vrs: expected a recording, got nothing"),
        (MissingDependencyError("run pip install x"), 3, "run pip install x"),
        (HandrailError("fell short"), 1, "fell short"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ExceptionGroup("tasks", [ValueError("late"), ExceptionGroup("t", [OutputError("full")])]), 2, "full"),
        (BaseExceptionGroup("tasks", [SourceError("a"), KeyboardInterrupt()]), 130, "interrupted"),
        (ModuleNotFoundError("No module named 'zzz'", name="zzz"), 3, "zzz is not installed; `handrail doctor`"),
        (SourceError("two\nlines \x1b[31mred\x07"), 2, "two lines [31mred"),
    ],
)
def test_an_error_is_one_line_and_its_exit_code(
    probe: Probe, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, line: str
) -> None:
    probe.body = failing(error)
    got, out, err = run(capsys, "probe")
    assert got == code and out == ""
    assert err.startswith(f"handrail: {line}") and err.count("\n") == 1 and "Traceback" not in err


def test_an_unexpected_fault_says_where_and_shows_more_only_when_asked(
    probe: Probe, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def body(args: argparse.Namespace) -> int:
        write_json(tmp_path / "x", object())  # nothing JSON knows: a fault of ours
        return 0

    probe.body = body
    code, _, err = run(capsys, "probe")
    assert code == cli.OWN_FAULT and err.count("\n") == 1
    assert "TypeError" in err and "(runtime/terminal.py:" in err
    code, _, err = run(capsys, "probe", "--debug")
    assert code == cli.OWN_FAULT and "Traceback (most recent call last)" in err


def test_an_error_from_a_task_group_ends_like_any_other(probe: Probe, capsys: pytest.CaptureFixture[str]) -> None:
    async def task() -> None:
        raise SourceError("the reader died")

    async def session() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(task())
            group.create_task(asyncio.sleep(3600))

    def body(args: argparse.Namespace) -> int:
        asyncio.run(session())
        return 0

    probe.body = body
    assert run(capsys, "probe") == (2, "", "handrail: the reader died\n")


def test_a_command_that_is_not_installed_is_exit_code_3_and_does_not_hide_the_others(
    probe: Probe, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "gone")
    assert code == 3 and err.count("\n") == 1
    code, out, err = run(capsys, "--help")
    assert (code, err) == (0, "")
    assert "does what the test asks for" in out and "can't be used" in out and "handrail probe --speed fast" in out


def test_help_of_a_command_shows_its_examples_and_the_common_options(
    probe: Probe, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "probe", "--help")
    assert (code, err) == (0, "")
    assert "handrail probe --speed fast" in out and "--json FILE" in out


def test_the_installed_command_says_its_version_and_starts_without_heavy_modules() -> None:
    script = (
        "import sys; from handrail.runtime import cli; code = cli.main(['--version']);"
        "print(sorted({'numpy', 'cv2', 'rich', 'jinja2', 'asyncio'} & set(sys.modules))); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    version, heavy = done.stdout.splitlines()
    assert version.startswith("handrail ") and heavy == "[]"


def test_output_that_nobody_reads_ends_quietly() -> None:
    command = f"{sys.executable} -u -m handrail.runtime.cli --help | head -c 1 >/dev/null; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == "" and done.returncode in (0, cli.READER_GONE)


def test_a_table_off_a_terminal_is_plain_text_with_every_cell_whole(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 150
    print_table("figures", ("path", "p95"), [("frame [red]to[/red] scene", 41.26), (long, None)])
    out = capsys.readouterr().out
    assert out.isascii() and "frame [red]to[/red] scene" in out and long in out and "41.3" in out


def test_a_table_on_a_terminal_is_drawn_and_takes_no_orders_from_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "xterm")
    print_table("figures", ("path", "p95"), [("[red]frame[/red]", 41.26), ("\x1b[2Jx", None)])
    shown = screen.getvalue()
    assert "[red]frame[/red]" in shown and "41.3" in shown and "─" in shown and "\x1b[2J" not in shown


def test_one_line_keeps_letters_and_drops_control_characters() -> None:
    assert one_line("a\x00b\r\n  \tc\x1b]0;title\x07 é") == "a b c ]0;title é"
    assert len(one_line("y" * 5000)) == 1000


def test_a_json_file_is_whole_or_not_there(tmp_path: Path) -> None:
    target = tmp_path / "new" / "x.json"
    write_json(target, {"a": 1})
    with pytest.raises(TypeError):
        write_json(target, {"a": object()})
    assert json.loads(target.read_text()) == {"a": 1} and list(target.parent.iterdir()) == [target]
    with pytest.raises(OutputError, match="its folder can't be made"):
        write_json(target / "y.json", {})
    full = Path("/dev/full")
    if full.exists():
        with pytest.raises(OutputError, match="No space left"):
            write_json(full, {"a": 1})
        assert full.is_char_device()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["outages", "--count", "0"], "from 1 to 1000000"), (["damage", "--count", "-3"], "from 1 to 1000000"),
        (["buffer", "--minutes", "-1"], "above 0"), (["buffer", "--minutes", "nan"], "above 0"),
        (["world", "--seeds", "5:2"], "A before B"),
    ],
)  # fmt: skip
def test_a_bench_that_would_try_nothing_proves_nothing(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *words]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_replay_that_is_told_to_end_closes_its_log_and_its_children(
    how: signal.Signals, code: int, tmp_path: Path
) -> None:
    replay = subprocess.Popen(
        [sys.executable, "-m", "handrail.runtime.cli", "replay", "world:7?seconds=60", "--out", str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    log = tmp_path / "events.jsonl"
    while '"scene"' not in (log.read_text() if log.exists() else ""):
        assert replay.poll() is None
        time.sleep(0.05)
    children = Path(f"/proc/{replay.pid}/task/{replay.pid}/children").read_text().split()
    assert children
    replay.send_signal(how)
    _, complaints = replay.communicate(timeout=30)
    assert replay.returncode == code and complaints == "handrail: interrupted\n"
    assert [type(e) for e in read_log(log)][-1] is Ended
    for child in children:
        state = Path(f"/proc/{child}/stat")
        assert not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] in "ZX"


@pytest.mark.parametrize(
    ("redirection", "code"),
    [(">&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 0), (">/dev/full", 2)],
)
def test_closed_standard_streams_are_no_fault_and_full_ones_are_told(redirection: str, code: int) -> None:
    command = f"{sys.executable} -m handrail.runtime.cli --version {redirection}"
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert ran.returncode == code
    assert ran.stderr.count("\n") == (1 if code else 0)
