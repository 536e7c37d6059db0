"""One read for everyone who asks: sharing, giving up, limits, and an end that comes early."""

import asyncio
import sys

import pytest

from exporter.sources.single_flight import SingleFlight
from tests.support.clock import Clock
from tests.support.waiting import PATIENCE_SECONDS


class Reads:
    """A read that ends when told, and counts itself."""

    def __init__(self) -> None:
        self.begun = 0
        self.release = asyncio.Event()

    async def read(self) -> int:
        self.begun += 1
        number = self.begun
        await self.release.wait()
        return number


async def test_all_who_come_meanwhile_share_a_read_and_the_next_gets_another() -> None:
    reads = Reads()
    flight = SingleFlight(reads.read)
    tasks = [flight.begin() for _ in range(50)]
    waiting = [asyncio.create_task(flight.wait(None)) for _ in range(50)]
    await asyncio.sleep(0.01)
    reads.release.set()
    await asyncio.gather(*waiting)
    assert {task.result() for task in tasks} == {1}
    assert await flight.begin() == 2


async def test_giving_up_does_not_end_the_read() -> None:
    reads = Reads()
    flight = SingleFlight(reads.read)
    task = flight.begin()
    await asyncio.wait_for(flight.wait(0.01), PATIENCE_SECONDS)
    assert not task.done()
    waiting = asyncio.create_task(flight.wait(5))
    waiting.cancel()
    await asyncio.sleep(0)
    reads.release.set()
    assert await task == 1


async def test_waiting_for_nothing_is_over_at_once() -> None:
    flight = SingleFlight(Reads().read)
    await asyncio.wait_for(flight.wait(None), PATIENCE_SECONDS)


async def test_a_failure_wakes_those_who_wait() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError

    flight = SingleFlight(fail)
    task = flight.begin()
    await asyncio.wait_for(flight.wait(None), PATIENCE_SECONDS)
    assert isinstance(task.exception(), ValueError)


async def test_a_read_that_is_ended_before_its_first_step_wakes_those_who_wait() -> None:
    reads = Reads()
    flight = SingleFlight(reads.read)

    async def scrape() -> asyncio.Task[int]:
        task = flight.begin()
        task.cancel()
        await flight.wait(None)
        return task

    task = await asyncio.wait_for(scrape(), PATIENCE_SECONDS)
    assert (task.cancelled(), reads.begun) == (True, int(sys.version_info >= (3, 12)))  # there it begins at once


@pytest.mark.parametrize("earlier", [0, 3])
async def test_each_read_has_the_whole_limit(earlier: int, loop_clock: Clock) -> None:
    """One timer serves all reads: it was set for an earlier one, and looks again when that one's time is over."""
    reads = Reads()
    flight = SingleFlight(reads.read, timeout_seconds=10)
    reads.release.set()
    for _ in range(earlier):
        await flight.begin()
    loop_clock.ahead += 6
    reads.release.clear()
    task = flight.begin()
    loop_clock.ahead += 6
    await asyncio.sleep(0.01)
    assert not task.done()
    loop_clock.ahead += 6
    await asyncio.wait_for(flight.wait(None), PATIENCE_SECONDS)
    assert task.cancelled()
    timed_out = [flight.timed_out]
    reads.release.set()
    assert await flight.begin() == earlier + 2
    assert [*timed_out, flight.timed_out] == [True, False]
    await flight.close()


@pytest.fixture
async def loop_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The event loop's clock, which can be set ahead."""
    loop = asyncio.get_running_loop()
    clock = Clock(loop.time)
    monkeypatch.setattr(loop, "time", clock)
    return clock
