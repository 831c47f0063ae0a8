"""``handrail COMMAND ...``: finds the command, reads its options, turns whatever goes wrong into one line and a code.

Commands are entry points in the group ``handrail.commands`` (see pyproject.toml), each the attribute ``command`` of a
module, an object that fits ``Command``. Only the module of the command that is asked for gets imported; heavy imports
belong inside its ``run``, so that ``--help`` and option errors stay quick. Knows no command by name.

Exit codes: 0 done, 1 a check fell short, 2 bad input, 3 something it needs isn't installed; and as shells have it
130 interrupted, 141 the reader of our output went away, 143 terminated, 70 a fault of Handrail's own.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import itertools
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path
from typing import Any, NoReturn, Protocol

from handrail.runtime.terminal import check_writable, one_line, say
from handrail.streams.errors import HandrailError, InputError, MissingDependencyError

GROUP = "handrail.commands"
INTERRUPTED, READER_GONE, TERMINATED, OWN_FAULT = 130, 141, 143, 70


class Command(Protocol):
    """What a room adds to the command line. ``--json FILE`` (``args.json``) and ``--debug`` are there already."""

    name: str
    help: str  # one line: what it does for whom
    examples: tuple[str, ...]  # whole command lines, shown under --help

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int:
        """The exit code. Figures go to ``args.json`` (``terminal.write_json``) when it isn't None."""
        ...


class UsageError(InputError):
    """A command line that can't be understood."""


class CommandParser(argparse.ArgumentParser):
    """argparse with the options that every command takes, errors on one line, and a guess at what was meant.

    Nested parsers (``add_subparsers``) are of this class too and inherit all that.
    """

    def __init__(self, *args: Any, examples: Iterable[str] = (), **kwargs: Any) -> None:
        kwargs.setdefault("epilog", _examples(examples))
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)
        # SUPPRESS: a nested parser must not overwrite with its default what was given before it.
        self.add_argument("--json", metavar="FILE", type=Path, default=argparse.SUPPRESS,
                          help="write the figures to FILE as JSON")
        self.add_argument("--debug", action="store_true", default=argparse.SUPPRESS,
                          help="on a fault, show where in the program it happened")

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog.removeprefix('handrail ')}: {self._explain(message)}; see `{self.prog} --help`")

    def check_options(self, words: Sequence[str]) -> None:
        """Raise UsageError for an option that neither this parser nor a nested one has. argparse alone finds out too
        late: it takes the value of a misspelled option for the source or the nested command."""
        known = set(self._options())
        for word in itertools.takewhile(lambda w: w != "--", words):
            if word.startswith("--") and word.split("=")[0] not in known:
                self.error(f"unrecognized arguments: {word}")

    def _explain(self, message: str) -> str:
        if found := re.match(r"unrecognized arguments: (.*)", message):
            words = found[1].split() or [found[1]]
            word = next((w for w in words if w.startswith("-")), words[0])
            if word.startswith("-"):
                option = word.split("=")[0]
                return f"unknown option {option}{_guess(option, set(self._options()))}"
            return f"unexpected argument {word!r}"
        if found := re.match(r"argument (.*): invalid choice: '(.*)' \(choose from (.*)\)", message):
            choices = [c.strip(" '") for c in found[3].split(",")]
            return f"{found[1]}: {found[2]!r} is not one of {', '.join(choices)}{_guess(found[2], choices)}"
        return message

    def _options(self) -> Iterator[str]:
        for action in self._actions:
            yield from action.option_strings
            if isinstance(action, argparse._SubParsersAction):
                for nested in action.choices.values():
                    yield from nested._options()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. Never raises, never shows a traceback unless asked to."""
    words = list(sys.argv[1:] if argv is None else argv)
    _open_standard_streams()
    terminated: list[int] = []
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, lambda *_: _end(terminated))
    try:
        code = _dispatch(words)
        sys.stdout.flush()
        return code
    except BaseException as error:
        if "--debug" in words and not isinstance(error, SystemExit):
            traceback.print_exc()
        code = _report(error)
        return TERMINATED if terminated else code


def _open_standard_streams() -> None:
    """Started by something that closed them (cron, a service): what is said goes nowhere, and no file or pipe of ours
    gets their numbers."""
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))


def _end(terminated: list[int]) -> None:
    """Asked to end (SIGTERM): as with Ctrl-C all that is open is closed, and the log says that it ended."""
    terminated.append(signal.SIGTERM)
    if callable(signal.getsignal(signal.SIGINT)):
        signal.raise_signal(signal.SIGINT)
    else:  # in the background of a shell, which has it ignored
        raise SystemExit(TERMINATED)


def _dispatch(words: list[str]) -> int:
    if words[:1] == ["--debug"]:
        words = words[1:]
    match words:
        case [] | ["-h" | "--help", *_]:
            _overview()
            return 0 if words else UsageError.exit_code
        case ["--version" | "-V", *_]:
            say(f"handrail {version('handrail')}")
            return 0
        case [option, *_] if option.startswith("-"):
            raise UsageError(f"expected a command first, got option {option}; see `handrail --help`")
    found = {e.name: e for e in entry_points(group=GROUP)}
    name = words[0]
    if name not in found:
        raise UsageError(f"unknown command {name!r}{_guess(name, found)}; "
                         f"expected one of {', '.join(sorted(found)) or 'none: reinstall handrail'}")
    command = _load(found[name])
    parser = CommandParser(prog=f"handrail {name}", description=command.help, examples=command.examples)
    command.add_arguments(parser)
    parser.check_options(words[1:])
    args = parser.parse_args(words[1:], argparse.Namespace(json=None, debug=False))
    if args.json is not None:
        check_writable(args.json)
    return command.run(args)


def _load(entry: EntryPoint) -> Command:
    try:
        command: Command = entry.load()
    except (ImportError, AttributeError) as e:
        if isinstance(e, ModuleNotFoundError) and not _ours(e.name):
            raise  # a library: the top turns it into exit code 3
        raise MissingDependencyError(f"{entry.name}: this command is not part of the installation ({one_line(e)}); "
                                     "reinstall with `make`") from e
    return command


def _overview() -> None:
    say("usage: handrail COMMAND [options]")
    say("Streaming assistant for people who are blind or have low vision and wear Project Aria glasses.")
    say("")
    examples: list[str] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        try:
            command = _load(entry)
        except (HandrailError, ImportError) as e:
            sys.stdout.write(f"  {entry.name:<10} (can't be used: {one_line(e)})\n")
            continue
        sys.stdout.write(f"  {entry.name:<10} {one_line(command.help)}\n")
        examples += command.examples[:1]
    sys.stdout.write("\n" + _examples(examples))
    say("")
    say("`handrail COMMAND --help` lists a command's options; --version shows the version.")


def _report(error: BaseException) -> int:
    """Say in one line what happened; return the exit code."""
    error = _first_cause(error)
    match error:
        case SystemExit():
            return error.code if isinstance(error.code, int) else (0 if error.code is None else 2)
        case KeyboardInterrupt():
            line, code = "interrupted", INTERRUPTED
        case BrokenPipeError():
            # Whatever read our output has gone. Python would complain once more when it flushes at exit.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return READER_GONE
        case HandrailError():
            line, code = str(error), error.exit_code
        case ModuleNotFoundError() if not _ours(error.name):
            line = f"{error.name} is not installed; `handrail doctor` says what is missing and how to install it"
            code = MissingDependencyError.exit_code
        case _:
            line = f"fault in handrail: {type(error).__name__}: {error}{_where(error)}; --debug shows more"
            code = OWN_FAULT
    with contextlib.suppress(OSError, ValueError):
        say(f"handrail: {line}", sys.stderr)
    return code


def _first_cause(error: BaseException) -> BaseException:
    """The first error in a task group's bundle that says something: ours before others, an interrupt before all."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [_first_cause(e) for e in error.exceptions]
    for kind in (KeyboardInterrupt, HandrailError):
        for leaf in leaves:
            if isinstance(leaf, kind):
                return leaf
    return leaves[0]


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if Path(__file__).parent.parent in Path(f.filename).parents]
    if not (ours or frames):
        return ""
    last = (ours or frames)[-1]
    return f" ({Path(last.filename).parent.name}/{Path(last.filename).name}:{last.lineno})"


def _ours(module: str | None) -> bool:
    return module is not None and module.split(".")[0] == "handrail"


def _guess(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""


def _examples(lines: Iterable[str]) -> str:
    shown = [f"  {one_line(line)}\n" for line in lines]
    return "examples:\n" + "".join(shown) if shown else ""


if __name__ == "__main__":
    sys.exit(main())
