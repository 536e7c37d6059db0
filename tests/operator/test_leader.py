"""The lease: one of several works, whatever the API server does, and however late it answers. Time is virtual here."""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any

import pytest

from exporter.errors import Unavailable, Unsupported
from exporter.operator.api.leader import Leader
from exporter.operator.api.writer import Refused, Writer
from exporter.operator.objects.kinds import LEASE
from tests.operator.made import Object
from tests.support.virtual_time import run

SECONDS = 15
RENEW, RETRY = 10, 2


class Stored(Writer):
    """The one lease, as an API server keeps it. It does what it is asked for at once, and then may answer late.

    `slow` is how late by verb; with `reads_late` a read is slow before it is done. `fails` is for every request.
    """

    def __init__(self, spec: Object | None = None) -> None:
        self.lease: Object | None = None
        self.slow: dict[str, float] = {}
        self.reads_late = False
        self.fails: Exception | None = None
        self.written_at: list[tuple[float, str]] = []
        if spec is not None:
            self._store({"metadata": {}, "spec": spec})

    def _store(self, item: Object) -> Object:
        version = int(self.lease["metadata"]["resourceVersion"]) + 1 if self.lease else 1
        self.lease = {**item, "metadata": {**item["metadata"], "resourceVersion": str(version)}}
        return dict(self.lease)

    def renew(self) -> None:
        """As the holder does it."""
        assert self.lease is not None
        now = asyncio.get_running_loop().time()
        self._store({**self.lease, "spec": {**self.lease["spec"], "renewTime": str(now)}})

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""

    async def get(self, path: str) -> Mapping[str, Any]:
        assert path == LEASE.path("default", "operator")
        if self.reads_late:
            await asyncio.sleep(self.slow.get("get", 0))
        if self.fails:
            raise self.fails
        found = self.lease
        if not self.reads_late:
            await asyncio.sleep(self.slow.get("get", 0))
        if found is None:
            raise Unsupported("there is none", remedy="")
        return found

    async def create(self, item: Object, *, tries: int = 5) -> Object:  # noqa: ARG002 - as a Writer has it
        return await self._written(item, self.lease is None)

    async def replace(self, item: Object) -> Object:
        is_newest = self.lease is not None and item["metadata"] == self.lease["metadata"]
        return await self._written(item, is_newest)

    async def _written(self, item: Object, is_taken: bool) -> Object:
        if self.fails:
            raise self.fails
        if not is_taken:
            raise Refused("/lease", 409, "the object has been modified", "Conflict")
        answer = self._store(item)
        self.written_at.append((asyncio.get_running_loop().time(), self.holder))
        await asyncio.sleep(self.slow.get("update", 0))
        return answer


class Worker:
    """What a leader does: when it began, and when it was to stop, and did so `stops_late`."""

    def __init__(self, stops_late: float = 0) -> None:
        self.began: list[float] = []
        self.stopped: list[float] = []
        self._stops_late = stops_late

    async def __call__(self) -> None:
        clock = asyncio.get_running_loop().time
        self.began.append(clock())
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(self._stops_late)
            self.stopped.append(clock())


def leader(stored: Stored, identity: str = "one") -> Leader:
    return Leader(writer=stored, namespace="default", name="operator", identity=identity, lease_seconds=SECONDS)


def leads(one: Leader) -> bool:
    return one.is_leader


async def lead_for(seconds: float, *leading: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.create_task(each) for each in leading]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_who_cannot_renew_stops_before_the_lease_is_over() -> None:
    async def scenario() -> None:
        stored, work = Stored(), Worker()
        one = leader(stored)
        leading = asyncio.create_task(one.lead(work))
        await asyncio.sleep(5)
        assert leads(one)
        stored.fails = Unavailable("unreachable", "nobody", remedy="")
        await asyncio.sleep(SECONDS)
        (last, _), (stopped,) = stored.written_at[-1], work.stopped
        assert RENEW <= stopped - last < SECONDS
        assert not leads(one)
        stored.fails = None
        await asyncio.sleep(2 * RETRY)
        assert len(work.began) == 2
        leading.cancel()
        with suppress(asyncio.CancelledError):
            await leading
        assert stored.holder == ""

    run(scenario())


# a real API server that was stopped for 45 s
def test_a_lease_that_is_let_go_of_too_late_says_why(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        stored, work = Stored(), Worker()
        leading = asyncio.create_task(leader(stored).lead(work))
        await asyncio.sleep(1)
        stored.slow, stored.reads_late = {"get": 100}, True
        leading.cancel()
        with suppress(asyncio.CancelledError):
            await leading

    run(scenario())
    (record,) = (each for each in caplog.records if "released" in each.getMessage())
    assert vars(record)["fields"] == {"error": "the Kubernetes API does not answer in time"}


def test_a_lease_goes_from_hand_to_hand() -> None:
    async def scenario() -> None:
        stored, first, second = Stored(), Worker(), Worker()
        one, two = leader(stored), leader(stored, "two")
        leading = asyncio.create_task(one.lead(first))
        await asyncio.sleep(1)
        other = asyncio.create_task(two.lead(second))
        await asyncio.sleep(4 * SECONDS)
        assert (len(first.began), second.began, two.holder) == (1, [], "one")
        leading.cancel()
        await asyncio.sleep(2 * RETRY)
        assert len(second.began) == 1
        assert stored.lease is not None
        assert (stored.holder, stored.lease["spec"]["leaseTransitions"]) == ("two", 1)
        other.cancel()
        await asyncio.gather(leading, other, return_exceptions=True)

    run(scenario())


@pytest.mark.parametrize("odd", [{"leaseDurationSeconds": "long"}, {"renewTime": 7}, {"leaseTransitions": "x"}])
def test_an_odd_lease_is_somebodys_for_as_long_as_leases_last(odd: Object) -> None:
    async def scenario() -> None:
        work, stored = Worker(), Stored({"holderIdentity": "somebody", **odd})
        await lead_for(2 * SECONDS, leader(stored).lead(work))
        assert SECONDS <= work.began[0] <= SECONDS + 2 * RETRY

    run(scenario())


def test_a_lease_that_was_read_late_lasts_from_then_on() -> None:
    """Its holder may have renewed it right before it was read."""

    async def scenario() -> None:
        stored, work = Stored({"holderIdentity": "other", "leaseDurationSeconds": SECONDS}), Worker()
        stored.slow, stored.reads_late = {"get": 8.0}, True
        task = asyncio.create_task(leader(stored).lead(work))
        await asyncio.sleep(7.9)
        stored.renew()
        await asyncio.sleep(0.2)
        stored.slow = {}
        await asyncio.sleep(2 * SECONDS)
        assert work.began[0] >= 7.9 + SECONDS
        task.cancel()
        await asyncio.wait({task})

    run(scenario())


@pytest.mark.parametrize("late", [0, 5, RENEW - 1, RENEW + 1, SECONDS])
def test_a_lease_that_was_written_counts_from_when_that_was_asked_for(late: float) -> None:
    """Others have seen it since it was written, however late the answer comes: then nobody works twice."""

    async def scenario() -> None:
        stored, work = Stored(), Worker()
        stored.slow = {"update": late}
        task = asyncio.create_task(leader(stored).lead(work))
        await asyncio.sleep(late + 0.1)
        written, _ = stored.written_at[0]
        stored.fails = Unavailable("unreachable", "nobody", remedy="")
        await asyncio.sleep(3 * SECONDS)
        assert all(stopped - written < SECONDS for stopped in work.stopped)
        assert len(work.stopped) == len(work.began) == (1 if late < RENEW else 0)
        task.cancel()
        await asyncio.wait({task})

    run(scenario())


def test_the_lease_is_kept_while_the_work_takes_long_to_stop() -> None:
    async def scenario() -> None:
        stored, slow, second = Stored(), Worker(stops_late=8), Worker()
        leading = asyncio.create_task(leader(stored).lead(slow))
        await asyncio.sleep(1)
        other = asyncio.create_task(leader(stored, "two").lead(second))
        await asyncio.sleep(1)
        leading.cancel()
        await asyncio.sleep(2 * SECONDS)
        assert second.began[0] >= slow.stopped[0]
        other.cancel()
        await asyncio.gather(leading, other, return_exceptions=True)

    run(scenario())
