"""A thread for calls that may hang."""

import asyncio
import threading
import time

from exporter.sources.single_flight import Worker
from tests.support.clock import Clock


async def result_of(worker: Worker[str], work: object) -> str | Exception:
    ended: asyncio.Future[str | Exception] = asyncio.get_running_loop().create_future()
    assert worker.begin(work, ended.set_result)  # type: ignore[arg-type]
    return await ended


async def test_the_result_or_what_was_raised_comes_back_into_the_event_loop() -> None:
    worker: Worker[str] = Worker("test")

    def fails() -> str:
        raise ValueError("no")

    assert await result_of(worker, lambda: threading.current_thread().name) == "test"
    assert isinstance(await result_of(worker, fails), ValueError)
    assert await result_of(worker, lambda: "again") == "again"
    worker.close(lambda: None)


async def test_a_call_that_hangs_keeps_nobody_waiting_and_nothing_piles_up() -> None:
    clock, free = Clock(), threading.Event()
    ran: list[str] = []

    def another() -> str:
        ran.append("")
        return ""

    worker: Worker[str] = Worker("test", clock)
    ended: list[str | Exception] = []
    assert worker.begin(lambda: str(free.wait(10)), ended.append)
    clock.ahead = 7.0
    assert worker.busy_seconds is not None
    assert worker.busy_seconds >= 7.0
    began = time.monotonic()
    assert not any(worker.begin(another, ended.append) for _ in range(100))
    closed = threading.Event()
    worker.close(closed.set)
    assert time.monotonic() - began < 5
    assert not closed.is_set()
    free.set()
    assert await asyncio.to_thread(closed.wait, 10)
    await asyncio.sleep(0)
    assert ended == ["True"]
    assert not ran
    assert worker.busy_seconds is None


async def test_without_a_call_there_is_no_thread() -> None:
    before = threading.active_count()
    worker: Worker[str] = Worker("test")
    worker.close(lambda: None)
    assert threading.active_count() == before


async def test_the_thread_ends_when_it_is_closed() -> None:
    worker: Worker[str] = Worker("test-ends")
    await result_of(worker, lambda: "")
    worker.close(lambda: None)
    for thread in threading.enumerate():
        if thread.name == "test-ends":
            await asyncio.to_thread(thread.join, 10)
            assert not thread.is_alive()
