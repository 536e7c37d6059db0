"""The operator as a role: one task that waits for the lease and then works; a look shows how that goes."""

import asyncio
import logging
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from exporter.errors import SourceError
from exporter.log import log
from exporter.operator.api.leader import Leader
from exporter.operator.api.served import served
from exporter.operator.api.writer import Writer
from exporter.operator.lasting import Lasting
from exporter.operator.objects.kinds import Kind
from exporter.operator.outputs import OUTPUTS, OperatorLook, Seen
from exporter.operator.reconcile import Reconciler
from exporter.operator.work import EVERYTHING, MOST_KEYS, Work
from exporter.outputs.output import LOOK_AT_NODE, Need, Output

# The pulse only sees to it that the task runs: one that ended by a fault is begun anew.
PULSE_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0


class Runs(Protocol):
    """What goes on for as long as the operator works."""

    async def run(self) -> None:
        """Until this is cancelled."""


class Watcher(Protocol):
    """What names the custom resources that changed."""

    async def run(self, served: AbstractSet[Kind]) -> None:
        """Watch until this is cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the role is made of. `besides` goes on while it works."""

    writer: Writer
    besides: Sequence[Runs]
    work: Work
    watcher: Watcher
    reconciler: Reconciler
    leader: Leader | None


class Operator:
    """Works while it is the leader: is told of changes, and puts right what is not as it is wanted."""

    outputs: Sequence[Output[Any]] = OUTPUTS
    pulse_seconds: float | None = PULSE_SECONDS

    def __init__(self, *, parts: Parts, interval_seconds: float, lasting: Lasting) -> None:
        """`interval_seconds` is how often it is looked which kinds the API serves."""
        self.lasting = lasting
        self.telemetry, self.instance = lasting.telemetry, lasting.identity
        self._parts = parts
        self._interval_seconds = interval_seconds
        self._task: asyncio.Task[None] | None = None
        self._works_alone = False
        self._is_closed = False
        self.telemetry.bound("operator_queue", MOST_KEYS, lambda: len(parts.work))

    def looked(self, seen: "Seen | None", **rest: Any) -> OperatorLook:  # noqa: ANN401 - the fields of AnyLook
        """A look at what the operator does."""
        return OperatorLook(seen=seen or self._seen(), counted=self.lasting.counted, **rest)

    async def look(self, wait_seconds: float | None, needs: AbstractSet[Need] = LOOK_AT_NODE) -> Seen:  # noqa: ARG002 - nothing is waited for
        """How things are."""
        return self._seen()

    async def pulse(self) -> None:
        """See to it that it works, unless it has been told to stop."""
        if not self._is_closed and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run())

    async def why_not_ready(self) -> str:
        """The reason, or "" once the API has answered, and from then on."""
        return self.lasting.not_ready

    async def give_way(self, successor: "Operator") -> None:
        """Stop, and let go of the lease; the successor takes it at once."""
        await self.close()
        await successor.pulse()

    async def close(self) -> None:
        """Stop, and let go of the lease."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._parts.writer.close()

    def _seen(self) -> Seen:
        leader = self._parts.leader
        return Seen(
            is_leader=leader.is_leader if leader else self._works_alone,
            holder=leader.holder if leader else self.lasting.identity,
            queued=len(self._parts.work),
            served=self._parts.reconciler.served,
        )

    async def _run(self) -> None:
        async with self.lasting.turn:
            try:
                await self._reached()
                if self._parts.leader is None:
                    self._works_alone = True
                    await self._work()
                else:
                    await self._parts.leader.lead(self._work)
            except Exception as error:  # noqa: BLE001 - the pulse begins anew
                log(logging.ERROR, "a fault of the operator", error)

    async def _reached(self) -> None:
        """Wait for the first answer of the API: until then nothing is ready."""
        pause, said = FIRST_PAUSE_SECONDS, ""
        while self.lasting.not_ready:
            try:
                await served(self._parts.writer)
                self.lasting.not_ready = ""
            except SourceError as error:
                self.lasting.not_ready = f"not ready: {error.trouble}"
                if error.reason != said:
                    log(logging.WARNING, "the Kubernetes API cannot be asked", error=str(error.trouble))
                said = error.reason
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _work(self) -> None:
        """As the leader: until this is cancelled."""
        runs = (self._parts.reconciler, *self._parts.besides)
        tasks = [asyncio.create_task(self._watch()), *(asyncio.create_task(each.run()) for each in runs)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        """Watch the kinds that are served; begin anew when other ones are."""
        kinds: AbstractSet[Kind] = await self._served(frozenset())
        while True:
            self._parts.reconciler.served = before = kinds
            self._parts.work.add(EVERYTHING)
            watching = asyncio.create_task(self._parts.watcher.run(kinds))
            try:
                while kinds == before:
                    done, _ = await asyncio.wait({watching}, timeout=self._interval_seconds)
                    for task in done:
                        task.result()  # it ends by a fault alone
                    kinds = await self._served(kinds)
            finally:
                await _ended(watching)
            log(logging.INFO, "the kinds that the API serves have changed", **_changes(before, kinds))

    async def _served(self, known: AbstractSet[Kind]) -> AbstractSet[Kind]:
        """What the API serves; what is `known` where it does not answer."""
        try:
            return await served(self._parts.writer)
        except SourceError:
            return known


async def _ended(task: "asyncio.Task[None]") -> None:
    """End a task. The caller can be cancelled while it waits here."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # asyncio warns of errors that nobody has read


def _changes(before: AbstractSet[Kind], after: AbstractSet[Kind]) -> dict[str, str]:
    return {
        "come": ",".join(sorted(kind.name for kind in after - before)),
        "gone": ",".join(sorted(kind.name for kind in before - after)),
    }
