"""The role: what it does while it works, with parts that do nothing, in virtual time."""

import asyncio
from collections.abc import Set as AbstractSet

import pytest

from exporter.errors import Unavailable
from exporter.operator.api.writer import Writer
from exporter.operator.objects.kinds import GPU_EXPORTER, SCALED_OBJECT, Kind
from exporter.operator.operator import Operator, OperatorHandover
from exporter.operator.outputs import READY, OperatorLook, OperatorMetrics, OperatorView
from exporter.operator.reconcile import Reconciler
from exporter.operator.work_queue import EVERYTHING, WorkQueue
from exporter.pulse import end_tasks
from tests.operator.made import Object
from tests.support.answers import answer_of
from tests.support.virtual_time import run

EXPORTERS, WITH_KEDA = frozenset({GPU_EXPORTER}), frozenset({GPU_EXPORTER, SCALED_OBJECT})


class Api(Writer):
    """Says which kinds it serves, or nothing."""

    def __init__(self) -> None:
        self.serves: AbstractSet[Kind] | None = EXPORTERS

    async def get(self, path: str) -> Object:
        if self.serves is None:
            raise Unavailable("unreachable", "nobody", remedy="")
        return {"resources": [{"name": kind.plural} for kind in self.serves if kind.root == path]}

    async def close(self) -> None:
        pass


class Worker(Reconciler):
    """Waits."""

    def __init__(self) -> None:
        self.served: AbstractSet[Kind] = frozenset()

    async def run(self) -> None:
        await asyncio.Event().wait()


class Watcher:
    """What it was to watch."""

    def __init__(self) -> None:
        self.begun: list[AbstractSet[Kind]] = []
        self.running = 0

    async def run(self, served: AbstractSet[Kind]) -> None:
        self.begun.append(served)
        self.running += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.running -= 1


class Made:
    """An operator without a lease, and its parts."""

    def __init__(self) -> None:
        self.api, self.worker, self.watcher, self.work = Api(), Worker(), Watcher(), WorkQueue()
        self.handover = OperatorHandover()
        self.operator = Operator(
            writer=self.api,
            beside=[asyncio.Event().wait],
            work=self.work,
            watch=self.watcher.run,
            reconciler=self.worker,
            leader=None,
            interval_seconds=5.0,
            handover=self.handover,
        )


def test_kinds_that_come_and_go_are_watched_and_looked_at() -> None:
    async def scenario() -> None:
        made = Made()
        await made.operator.pulse()
        for serves, expected in (
            (EXPORTERS, EXPORTERS),
            (WITH_KEDA, WITH_KEDA),
            (None, WITH_KEDA),
            (EXPORTERS, EXPORTERS),
        ):
            made.api.serves = serves
            await asyncio.sleep(20)
            assert (made.watcher.begun[-1], made.worker.served, made.watcher.running) == (expected, expected, 1)
        assert len(made.watcher.begun) == 3
        assert await made.work.get() == EVERYTHING
        await made.operator.close()
        assert made.watcher.running == 0

    run(scenario())


def test_it_can_be_ended_at_any_moment() -> None:
    """Also while it ends a watch: the end that is asked for is not taken for the watch's."""

    async def ended_after(steps: int, *, change: bool) -> None:
        made = Made()
        await made.operator.pulse()
        await asyncio.sleep(1)
        if change:
            made.api.serves = WITH_KEDA
        await asyncio.sleep(4)
        for _ in range(steps):
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await made.operator.close()
        assert made.watcher.running == 0

    for steps in range(40):
        for change in (True, False):
            run(ended_after(steps, change=change))


def test_who_ends_a_task_can_be_ended_meanwhile() -> None:
    async def scenario() -> None:
        freed = asyncio.Event()

        async def slow_to_end() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await freed.wait()

        slow = asyncio.create_task(slow_to_end())
        await asyncio.sleep(0)
        ending = asyncio.create_task(end_tasks(slow))
        await asyncio.sleep(0)
        ending.cancel()
        freed.set()
        await asyncio.wait({ending})
        assert ending.cancelled()

    run(scenario())


@pytest.mark.parametrize(
    ("is_leader", "holder", "expected"),
    [
        (True, "me", "ready; this replica works"),
        (False, "other", "ready; another replica works"),
        (False, "", "ready; no replica is known to work"),
    ],
)
def test_who_works_is_told_by_whether_the_lease_is_known(is_leader: bool, holder: str, expected: str) -> None:
    seen = OperatorView(is_leader=is_leader, holder=holder, queued=0, served=EXPORTERS)
    answer = answer_of(READY, OperatorLook(seen=seen, metrics=OperatorMetrics()))
    assert b"".join(answer.pieces).decode() == f"{expected}\n"
