"""The event log: private, hashed, bit for bit the same, readable after a crash."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handrail.runtime.events import Alerted, Fault, Priority, Spoken, State, StateChanged
from handrail.runtime.log import EventLog, Timing, TimingLog, read_log, read_timings
from handrail.streams.errors import InputError, OutputError

EVENTS = [
    StateChanged(0, State.STARTING, "start"),
    Alerted(120_000_000, 3, Priority.NOW, "contact", 5, 4, 2.123456789, -0.0, None),
    Spoken(140_000_000, 1, 'Obstacle, "two" metres \u2028 é', Priority.NEXT, "hazard", None, 0.1 + 0.2),
    Fault(150_000_000, "voice", "died"),
]


def write(path: Path) -> EventLog:
    with EventLog(path) as log:
        for event in EVENTS:
            log.append(event)
    return log


def test_what_was_logged_is_read_back_rounded_once(tmp_path: Path) -> None:
    write(tmp_path / "e.jsonl")
    read = list(read_log(tmp_path / "e.jsonl"))
    assert read[0] == EVENTS[0] and read[3] == EVENTS[3]
    assert isinstance(read[1], Alerted) and read[1].distance_m == 2.123457
    assert isinstance(read[2], Spoken) and read[2].age_ms == 0.3 and read[2].text == EVENTS[2].text  # type: ignore[attr-defined]
    write(tmp_path / "again.jsonl")
    assert (tmp_path / "e.jsonl").read_bytes() == (tmp_path / "again.jsonl").read_bytes()
    assert b"-0.0" not in (tmp_path / "e.jsonl").read_bytes()


def test_the_hash_is_that_of_the_file_at_every_moment(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    with EventLog(path) as log:
        for event in EVENTS:
            log.append(event)
            assert log.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert log.count == len(EVENTS) == path.read_bytes().count(b"\n")


def test_only_the_owner_can_read_it_even_where_a_public_file_was_before(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text("old")
    path.chmod(0o644)
    write(path)
    assert path.stat().st_mode & 0o777 == 0o600 and b"old" not in path.read_bytes()


def test_a_number_that_is_not_finite_becomes_a_fault_and_the_log_stays_readable(tmp_path: Path) -> None:
    with EventLog(tmp_path / "e.jsonl") as log:
        log.append(Alerted(7, 3, Priority.NOW, "contact", 5, 4, float("nan"), 1.0, None))
        log.append(EVENTS[0])
    fault, after = read_log(tmp_path / "e.jsonl")
    assert fault == Fault(7, "log", "Alerted: distance_m is nan, events hold finite numbers or None")
    assert after == EVENTS[0]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_a_log_cut_anywhere_gives_its_whole_lines(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "e.jsonl"
    write(path)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    complete = whole[:cut].count(b"\n")
    read = list(read_log(path))
    assert complete <= len(read) <= complete + 1  # a line that lost only its newline counts
    assert len(read) == len(list(read_log(path)))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=9))
def test_junk_in_a_log_is_named_by_its_line_or_is_a_valid_event(tmp_path: Path, at: int, junk: bytes) -> None:
    path = tmp_path / "e.jsonl"
    write(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: at % len(whole)] + junk + whole[at % len(whole) :])
    try:
        list(read_log(path))
    except InputError as e:
        assert str(e).startswith(f"{path}: line ")


def test_a_line_without_end_and_deep_nesting_are_input_errors(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_bytes(b"x" * (9 << 20))
    with pytest.raises(InputError, match="line 1"):
        list(read_log(path))
    path.write_bytes(b'{"event":"ended","streams":' + b"[" * 100_000 + b"\n")
    with pytest.raises(InputError, match="line 1"):
        list(read_log(path))
    with pytest.raises(InputError, match="can't be read"):
        list(read_log(tmp_path / "missing.jsonl"))


def test_a_folder_that_takes_no_files_and_a_full_disk_are_output_errors(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="can't be written"):
        EventLog(tmp_path / "missing" / "e.jsonl")
    with pytest.raises(OutputError, match="can't be written"):
        EventLog(tmp_path)
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full on this system")
    mode = full.stat().st_mode
    with pytest.raises(OutputError, match="No space left"), EventLog(full) as log:
        log.append(EVENTS[0])
    assert full.stat().st_mode == mode


def test_a_line_that_finds_half_the_room_leaves_nothing_of_itself_and_later_ones_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    script = (
        "import resource; from pathlib import Path\n"
        "from handrail.runtime.events import Fault\nfrom handrail.runtime.log import EventLog\n"
        "from handrail.streams.errors import OutputError\n"
        f"log = EventLog(Path({str(path)!r}))\n"
        "log.append(Fault(1, 'a', 'x'))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))\n"
        "try: log.append(Fault(2, 'b', 'x' * 400))\n"
        "except OutputError: log.append(Fault(3, 'c', 'x'))\n"
        "log.close()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert [e.t_ns for e in read_log(path)] == [1, 3]


def test_a_killed_process_loses_nothing_it_had_logged(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    script = (
        "import sys; from pathlib import Path\n"
        "from handrail.runtime.events import Fault\nfrom handrail.runtime.log import EventLog\n"
        f"log = EventLog(Path({str(path)!r}))\n"
        "for i in range(1000): log.append(Fault(i, 'test', 'x' * 50))\n"
        "print('logged', flush=True); sys.stdin.read()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    with child:
        assert child.stdout.readline() == b"logged\n"
        os.kill(child.pid, signal.SIGKILL)
    assert len(list(read_log(path))) == 1000


def test_timings_hold_only_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "timings.jsonl"
    timings = [Timing("reflex.depth", ms=26.4, device_ns=5), Timing("reader.started", pid=77, detail="/some/where")]
    with TimingLog(path) as log:
        for timing in timings:
            log.append(timing)
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text().splitlines()[0]) == {"what": "reflex.depth", "ms": 26.4, "device_ns": 5}
    assert list(read_timings(path)) == timings


def test_two_runs_do_not_write_into_one_log(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.append(Fault(1, "a", "b"))
        with pytest.raises(OutputError, match="another run"):
            EventLog(path)
        log.append(Fault(2, "a", "b"))
    assert [e.t_ns for e in read_log(path)] == [1, 2]
    EventLog(path).close()
    assert path.read_bytes() == b""
