"""A source that is read again after a while."""

import asyncio

from exporter.errors import Trouble, Unavailable
from exporter.model.snapshot import Health
from exporter.sources.polled import Outcome, Polled
from exporter.sources.source import absent, is_absent
from tests.support.clock import Clock
from tests.support.waiting import until

ABSENT = absent("there is none", "mount it")
ODD = Trouble("oversize", "too many", "read less")


class Looked(Polled):
    """A source whose looks end when they are told to, with what they are told."""

    def __init__(self, *, is_awaited: bool = False, looks_by_itself: bool = False, again_seconds: float = 10.0) -> None:
        self.clock = Clock()
        super().__init__(
            "it",
            lambda _, health: self.healths.append(health),
            again_seconds=again_seconds,
            is_awaited=is_awaited,
            looks_by_itself=looks_by_itself,
            placeholder=ABSENT,
            clock=self.clock,
        )
        self.healths: list[Health] = []
        self.looks = 0
        self.ends = asyncio.Event()
        self.outcome: Outcome | Unavailable = None

    async def _look(self) -> Outcome:
        self.looks += 1
        await self.ends.wait()
        if isinstance(self.outcome, Unavailable):
            raise self.outcome
        return self.outcome

    async def ended(self) -> None:
        self.ends.set()
        assert self.task is not None
        await self.task
        self.ends.clear()


async def test_one_that_looks_by_itself_is_begun_once_and_ends_when_closed() -> None:
    it = Looked(looks_by_itself=True, again_seconds=0.0)
    it.ends.set()
    first = it.begin()
    assert first is not None
    await until(lambda: it.looks > 3)
    assert it.begin() is None, "no later look is waited for"
    await it.close()
    looks = it.looks
    await asyncio.sleep(0.05)
    assert it.looks == looks


async def test_one_look_at_a_time_and_only_the_first_is_awaited() -> None:
    it = Looked()
    first = it.begin()
    assert first is not None
    assert it.begin() is first
    await it.ended()
    assert (it.looks, it.begin()) == (1, None)
    it.clock.ahead = 10.0
    assert it.begin() is None, "it looks, and nobody waits"
    assert it.begin() is None
    await it.ended()
    assert it.looks == 2
    await it.close()


async def test_every_look_is_awaited_where_that_is_asked_for() -> None:
    it = Looked(is_awaited=True)
    it.begin()
    await it.ended()
    assert it.begin() is None
    it.clock.ahead = 10.0
    later = it.begin()
    assert later is not None
    assert it.begin() is later
    await it.close()
    assert later.cancelled()


async def test_a_look_that_began_before_a_wanted_moment_does_not_count() -> None:
    it = Looked()
    it.begin()
    await asyncio.sleep(0)
    it.clock.ahead = 1.0
    it.look_after(it.clock())
    await it.ended()
    it.begin()
    await it.ended()
    assert it.looks == 2
    it.begin()
    assert it.task is not None
    assert it.task.done()


async def test_a_look_again_ends_with_a_look_that_began_since() -> None:
    it = Looked()
    it.begin()
    await until(lambda: it.looks)
    it.clock.ahead += 1.0
    again = it.look_again()
    await it.ended()
    await until(lambda: it.looks == 2)
    assert not again.done(), "the first one may have looked before what it is to see was there"
    await it.ended()
    await until(again.done)
    # without one that runs
    it.clock.ahead += 1.0
    again = it.look_again()
    await until(lambda: it.looks == 3)
    await it.ended()
    await until(again.done)
    it.look_again()
    await it.close()
    assert it.looks == 3


async def test_its_health_is_that_of_the_last_look_or_of_an_absent_source() -> None:
    it = Looked()
    assert is_absent(it.health)
    gone = Unavailable("missing", "gone", remedy="look")
    outcomes: list[tuple[Outcome | Unavailable, bool | None]] = [
        (ABSENT, None),
        (ODD, True),
        (gone, False),
        (None, True),
    ]
    for number, (outcome, up) in enumerate(outcomes):
        it.outcome = outcome
        it.clock.ahead = 10.0 * number
        it.begin()
        await it.ended()
        assert it.health.up is up
    assert [health.up for health in it.healths] == [True, False, True], "an absent source is not noted"
    assert [health.reason for health in it.healths[:2]] == ["oversize", "missing"]
