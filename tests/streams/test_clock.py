"""The virtual loop: time follows deadlines, stands still for real work outside, and is exact and repeatable."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.streams.clock import NS_PER_S, VirtualLoop, now_ns, run_virtual, sleep_until_ns, standing_still

SLOW_CHILD = "import time, sys; time.sleep(0.05); sys.stdout.write('done')"


def test_hours_pass_without_waiting() -> None:
    async def main() -> int:
        await asyncio.sleep(10 * 3600)
        return now_ns()

    assert run_virtual(main()) == 36_000 * NS_PER_S


def test_a_timeout_follows_virtual_time() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await asyncio.sleep(1.6)
        assert now_ns() == 1_500_000_000
        async with asyncio.timeout(1.5):
            await asyncio.sleep(1.4)
        assert now_ns() == 2_900_000_000

    run_virtual(main())


def test_a_sleep_beyond_the_selectors_longest_wait_is_exact() -> None:
    async def main() -> int:
        await asyncio.sleep(3 * 24 * 3600 + 0.25)
        return now_ns()

    assert run_virtual(main()) == (3 * 24 * 3600) * NS_PER_S + 250_000_000


@given(st.lists(st.integers(0, 200 * 3600 * NS_PER_S), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_every_deadline_is_met_to_the_nanosecond_and_in_order(deadlines_ns: list[int]) -> None:
    woken: list[tuple[int, int]] = []

    async def waiter(index: int, deadline_ns: int) -> None:
        await sleep_until_ns(deadline_ns)
        assert now_ns() == deadline_ns
        woken.append((deadline_ns, index))

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for index, deadline_ns in enumerate(deadlines_ns):
                group.create_task(waiter(index, deadline_ns))

    run_virtual(main())
    assert woken == sorted(woken)


def test_ticks_do_not_drift_over_an_hour() -> None:
    async def main() -> None:
        for tick in range(1, 36_001):  # 10 Hz
            await asyncio.sleep(0.1)
            assert now_ns() == tick * 100_000_000

    run_virtual(main())


def test_a_timer_never_fires_a_nanosecond_early() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        fired: list[tuple[int, int]] = []
        for base_ns in (1, 7, 3_600 * NS_PER_S, 100 * 3_600 * NS_PER_S):
            await sleep_until_ns(base_ns - 1)
            for offset in (1, 0):
                at_ns = base_ns + offset
                loop.call_at(at_ns / NS_PER_S, lambda due: fired.append((due, now_ns())), at_ns)
            await sleep_until_ns(base_ns + 2)
        assert [due for due, _ in fired] == [at for _, at in fired]

    run_virtual(main())


def test_ties_run_in_the_order_they_were_set_whatever_is_due_later() -> None:
    def order_of_ties(later: list[float]) -> list[int]:
        order: list[int] = []

        async def main() -> None:
            loop = asyncio.get_running_loop()
            pending = iter(later)
            for index in range(20):
                loop.call_at(1.0, order.append, index)
                for when in [next(pending, None)]:
                    if when is not None:
                        loop.call_at(when, order.append, 1000)
            await asyncio.sleep(1.0)

        run_virtual(main())
        return order

    generator = random.Random(1)
    for _ in range(20):
        assert order_of_ties([generator.uniform(1.001, 9.0) for _ in range(20)]) == list(range(20))


def test_deadlines_reached_by_different_sums_are_the_same_nanosecond() -> None:
    woken: list[str] = []

    async def in_steps(name: str, steps: list[float]) -> None:
        for step in steps:
            await asyncio.sleep(step)
        assert now_ns() == 600_000_000
        woken.append(name)

    async def main() -> None:
        await asyncio.gather(
            in_steps("a", [0.6]), in_steps("b", [0.1] * 6), in_steps("c", [0.2, 0.4]), in_steps("d", [0.3, 0.3])
        )

    run_virtual(main())
    assert woken == ["a", "c", "d", "b"]  # in the order in which the last deadlines were set, whatever the last bits


def test_a_cancelled_deadline_is_not_jumped_to() -> None:
    async def main() -> None:
        async with asyncio.timeout(5.0):
            await asyncio.sleep(0.5)
        task = asyncio.create_task(asyncio.sleep(2.0))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.sleep(0.2)
        assert now_ns() == 800_000_000

    run_virtual(main())


def test_a_sleep_shorter_than_a_nanosecond_still_ends() -> None:
    async def main() -> int:
        for _ in range(10):
            await asyncio.sleep(1e-12)
        return now_ns()

    assert run_virtual(main()) <= 10


def test_a_real_child_does_not_run_into_a_virtual_timeout() -> None:
    async def main() -> None:
        ticks: list[int] = []

        async def heartbeat() -> None:
            while True:
                ticks.append(now_ns())
                await asyncio.sleep(0.01)

        beating = asyncio.create_task(heartbeat())
        await asyncio.sleep(0.105)
        before_ns, before_ticks = now_ns(), len(ticks)
        async with asyncio.timeout(1.5):
            with standing_still():
                child = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", SLOW_CHILD, stdout=asyncio.subprocess.PIPE
                )
                out, _ = await child.communicate()
        assert out == b"done" and child.returncode == 0
        assert now_ns() == before_ns
        assert len(ticks) == before_ticks
        await asyncio.sleep(0.1)
        assert len(ticks) == before_ticks + 10
        beating.cancel()

    run_virtual(main())


def _watchers() -> list[Callable[[], asyncio.AbstractChildWatcher]]:
    """The child watchers that this Python may choose by itself, by name."""
    names = ["ThreadedChildWatcher"]
    if hasattr(os, "pidfd_open"):
        names.append("PidfdChildWatcher")
    return [getattr(asyncio, name) for name in names]


@pytest.mark.filterwarnings("ignore:.*ChildWatcher.*:DeprecationWarning")  # 3.12 announces the end of choosing one
@pytest.mark.filterwarnings("ignore:.*child_watcher.*:DeprecationWarning")
@pytest.mark.parametrize("make", _watchers(), ids=lambda make: make.__name__)
def test_subprocesses_are_reaped_with_either_child_watcher(make: Callable[[], asyncio.AbstractChildWatcher]) -> None:
    async def main() -> None:
        watcher.attach_loop(asyncio.get_running_loop())  # what 3.11 asks of PidfdChildWatcher; 3.12 ignores it
        for code in (0, 3):
            with standing_still():
                child = await asyncio.create_subprocess_exec(sys.executable, "-c", f"raise SystemExit({code})")
                assert await child.wait() == code
        assert now_ns() == 0

    policy = asyncio.get_event_loop_policy()
    before = policy.get_child_watcher()
    watcher = make()
    policy.set_child_watcher(watcher)
    try:
        run_virtual(main())
    finally:
        policy.set_child_watcher(before)


def test_a_call_in_an_executor_holds_time_by_itself() -> None:
    async def main() -> None:
        async with asyncio.timeout(0.001):
            await asyncio.to_thread(time.sleep, 0.05)
        assert now_ns() == 0
        await asyncio.sleep(0.5)
        assert now_ns() == 500_000_000

    run_virtual(main())  # its end also shuts the executor down, which waits for threads


def test_a_cancelled_executor_call_lets_time_move_again() -> None:
    release = threading.Event()

    async def main() -> None:
        task = asyncio.create_task(asyncio.to_thread(release.wait))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(1.0)
        assert now_ns() == NS_PER_S
        release.set()

    run_virtual(main())


def test_an_executor_call_that_raises_lets_time_move_again() -> None:
    def fail() -> None:
        raise ValueError("from the thread")

    async def main() -> None:
        with pytest.raises(ValueError, match="from the thread"):
            await asyncio.to_thread(fail)
        await asyncio.sleep(1.0)
        assert now_ns() == NS_PER_S

    run_virtual(main())


def test_a_thread_wakes_the_loop_while_time_stands_still() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()

        def work() -> None:
            time.sleep(0.02)
            loop.call_soon_threadsafe(answer.set_result, "woken")

        thread = threading.Thread(target=work)
        with standing_still():
            thread.start()
            async with asyncio.timeout(0.001):
                assert await answer == "woken"
        thread.join()
        assert now_ns() == 0

    run_virtual(main())


def test_time_moves_only_when_the_last_request_is_answered() -> None:
    async def main() -> None:
        async def ask(real_s: float) -> int:
            with standing_still():
                child = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", f"import time; time.sleep({real_s})"
                )
                await child.wait()
            return now_ns()

        async def sleeper() -> int:
            await asyncio.sleep(0.001)
            return now_ns()

        assert list(await asyncio.gather(ask(0.01), ask(0.1), sleeper())) == [0, 0, 1_000_000]

    run_virtual(main())


def test_an_error_inside_standing_still_lets_time_move_again() -> None:
    async def main() -> None:
        with pytest.raises(ValueError), standing_still():
            raise ValueError
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop) and loop.outstanding == 0
        await asyncio.sleep(1)

    run_virtual(main())


def test_a_deadlock_names_who_waits_and_where() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait(), name="speech")
            group.create_task(asyncio.Queue[int]().get(), name="reader")

    with pytest.raises(RuntimeError, match=r"nothing is due.*reader \(queues\.py:\d+\), speech \(locks\.py:\d+\)"):
        run_virtual(main())


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell that starts the tests in the background has interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_stops_a_virtual_loop_that_waits_for_a_child() -> None:
    async def main() -> None:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with standing_still():
            child = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(60)")
            try:
                await child.wait()
            finally:
                child.kill()
                await child.wait()

    with pytest.raises(KeyboardInterrupt):
        run_virtual(main())


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_stops_a_virtual_loop_that_never_waits() -> None:
    async def main() -> None:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        while True:  # noqa: ASYNC110
            await asyncio.sleep(1.0)

    with pytest.raises(KeyboardInterrupt):
        run_virtual(main())


def test_a_signal_handler_runs_on_the_virtual_loop() -> None:
    async def main() -> None:
        got = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, got.set)
        os.kill(os.getpid(), signal.SIGUSR1)
        with standing_still():
            await got.wait()

    run_virtual(main())


def test_a_busy_session_runs_the_same_way_every_time() -> None:
    def trace(seed: int) -> list[tuple[int, int]]:
        events: list[tuple[int, int]] = []

        async def worker(index: int, generator: random.Random, queue: asyncio.Queue[int]) -> None:
            for _ in range(30):
                await asyncio.sleep(generator.choice((0.0, 0.01, 0.01, 0.033, 0.1)))
                queue.put_nowait(index)

        async def main() -> None:
            queue: asyncio.Queue[int] = asyncio.Queue()
            async with asyncio.TaskGroup() as group:
                for index in range(12):
                    group.create_task(worker(index, random.Random(seed + index), queue))
                for _ in range(12 * 30):
                    source = await queue.get()
                    events.append((now_ns(), source))

        run_virtual(main())
        return events

    assert trace(3) == trace(3)
    assert trace(3) != trace(4)


def test_ordinary_loops_keep_real_monotonic_time() -> None:
    async def main() -> None:
        before_ns = time.monotonic_ns()
        inside_ns = now_ns()
        assert before_ns - 1000 <= inside_ns <= time.monotonic_ns() + 1000
        with standing_still():
            await sleep_until_ns(inside_ns + 2_000_000)
        assert now_ns() >= inside_ns + 2_000_000

    asyncio.run(main())


def test_there_is_no_time_outside_a_loop() -> None:
    with pytest.raises(RuntimeError):
        now_ns()
