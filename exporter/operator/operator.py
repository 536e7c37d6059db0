"""The operator as a role. One task waits for the lease and then works. A look shows its state."""

import asyncio
import secrets
import socket
from collections.abc import Callable, Coroutine, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from typing import Any

from exporter import log
from exporter.config.operator_settings import OperatorConfig, OperatorSettings
from exporter.errors import SourceError
from exporter.operator.api.event_writer import Events
from exporter.operator.api.leader import Leader
from exporter.operator.api.reader import Reader, Watching, served
from exporter.operator.api.writer import Writer
from exporter.operator.controllers import AutoscalerController, ExporterController
from exporter.operator.exporter_health import ExporterHealth
from exporter.operator.objects.kinds import Kind
from exporter.operator.outputs import OUTPUTS, OperatorLook, OperatorMetrics, OperatorView
from exporter.operator.pod_events import PodEvents
from exporter.operator.reconcile import Reconciler
from exporter.operator.work_queue import EVERYTHING, MOST_KEYS, WorkQueue
from exporter.outputs.output import LOOK_AT_NODE, Need, Output
from exporter.pulse import end_tasks
from exporter.role import RoleKind, about
from exporter.sources.pause import Pause
from exporter.telemetry import Telemetry

# The pulse only keeps the task running: if the task ended by a fault, the pulse starts a new one.
PULSE_SECONDS = 5.0
PAUSE = Pause(0.5, 30.0)
# All lists within this time lead to a single look at everything.
TOGETHER_SECONDS = 1.0


@dataclass(eq=False)
class OperatorHandover:
    """The state that outlives a reload.

    Attributes:
        telemetry: the counters that every role has.
        metrics: the operator's own counters.
        identity: the name of the process in the lease: the pod's name, and random digits that no other process has.
        not_ready: the reason why the role has not been ready so far. Once it has been, this stays "".
        turn: the lock that the working role holds. The next role begins after the last one has released the lease.
    """

    telemetry: Telemetry = field(default_factory=Telemetry)
    metrics: OperatorMetrics = field(default_factory=OperatorMetrics)
    identity: str = field(default_factory=lambda: f"{socket.gethostname()}_{secrets.token_hex(8)}")
    not_ready: str = "not ready: the Kubernetes API has not been asked yet"
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(eq=False, kw_only=True)
class Operator:
    """The operator role. While it is the leader, it hears of changes, and writes objects that are not as wanted.

    Attributes:
        beside: tasks that run while the operator works.
        watch: watches the served kinds, and names changed custom resources.
        interval_seconds: the time between two questions for the kinds that the API serves.
    """

    writer: Writer
    beside: Sequence[Callable[[], Coroutine[Any, Any, object]]]
    work: WorkQueue
    watch: Callable[[AbstractSet[Kind]], Coroutine[Any, Any, None]]
    reconciler: Reconciler
    leader: Leader | None
    interval_seconds: float
    handover: OperatorHandover
    outputs: Sequence[Output[Any]] = OUTPUTS
    pulse_seconds: float | None = PULSE_SECONDS
    _task: asyncio.Task[None] | None = None
    _works_alone: bool = False
    _is_closed: bool = False

    def __post_init__(self) -> None:
        self.telemetry = self.handover.telemetry
        self.instance = self.handover.identity
        self.telemetry.bound("operator_queue", MOST_KEYS, lambda: len(self.work))

    def looked(self, seen: "OperatorView | None", **rest: Any) -> OperatorLook:  # noqa: ANN401 - the fields of AnyLook
        """A look at the operator."""
        return OperatorLook(seen=seen or self._seen(), metrics=self.handover.metrics, **rest)

    async def look(self, wait_seconds: float | None, needs: AbstractSet[Need] = LOOK_AT_NODE) -> OperatorView:  # noqa: ARG002 - nothing is waited for
        """The operator's state."""
        return self._seen()

    async def pulse(self) -> None:
        """Start the task if it does not run, unless the role is closed."""
        if not self._is_closed and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run())

    async def why_not_ready(self) -> str:
        """The reason; "" for good as soon as the API has answered."""
        return self.handover.not_ready

    async def give_way(self, successor: "Operator") -> None:
        """Stop, and release the lease. The successor takes it at once."""
        await self.close()
        await successor.pulse()

    async def close(self) -> None:
        """Stop, and release the lease."""
        self._is_closed = True
        await end_tasks(self._task)
        await self.writer.close()

    def _seen(self) -> OperatorView:
        leader = self.leader
        return OperatorView(
            is_leader=leader.is_leader if leader else self._works_alone,
            holder=leader.holder if leader else self.handover.identity,
            queued=len(self.work),
            served=self.reconciler.served,
        )

    async def _run(self) -> None:
        async with self.handover.turn:
            try:
                await self._reached()
                if self.leader is None:
                    self._works_alone = True
                    await self._work()
                else:
                    await self.leader.lead(self._work)
            except Exception as error:  # noqa: BLE001 - the pulse begins anew
                log.error("a fault of the operator", error)

    async def _reached(self) -> None:
        """Wait for the first answer of the API. Until then the role is not ready."""
        failures = 0
        reason = ""
        while self.handover.not_ready:
            try:
                await served(self.writer)
                self.handover.not_ready = ""
            except SourceError as error:
                self.handover.not_ready = f"not ready: {error.trouble}"
                if error.reason != reason:
                    log.warning("the Kubernetes API cannot be asked", error=str(error.trouble))
                reason = error.reason
                failures += 1
                await asyncio.sleep(PAUSE.after(failures))

    async def _work(self) -> None:
        """Work as the leader until this is cancelled."""
        parts = (self._watch, self.reconciler.run, *self.beside)
        tasks = [asyncio.create_task(run()) for run in parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await end_tasks(*tasks)

    async def _watch(self) -> None:
        """Watch the kinds that the API serves. If they change, start new watches."""
        kinds: AbstractSet[Kind] = await self._served(frozenset())
        while True:
            self.reconciler.served = before = kinds
            self.work.add(EVERYTHING)
            watching = asyncio.create_task(self.watch(kinds))
            try:
                while kinds == before:
                    done, _ = await asyncio.wait({watching}, timeout=self.interval_seconds)
                    for task in done:
                        task.result()  # it ends only by a fault
                    kinds = await self._served(kinds)
            finally:
                await end_tasks(watching)
            come = _names(kinds - before)
            gone = _names(before - kinds)
            log.info("the API serves other kinds now", come=come, gone=gone)

    async def _served(self, served_before: AbstractSet[Kind]) -> AbstractSet[Kind]:
        """The kinds that the API serves; if it does not answer, the kinds that it served before."""
        try:
            return await served(self.writer)
        except SourceError:
            return served_before


def _names(kinds: AbstractSet[Kind]) -> str:
    return ",".join(sorted(kind.name for kind in kinds))


def make_role(config: OperatorConfig, before: object = None) -> Operator:
    """Make an operator, which goes on with the state of `before` if that was an operator."""
    handover = before.handover if isinstance(before, Operator) else OperatorHandover()
    operator = config.operator
    writer = Writer(**asdict(config.kubernetes), on_answer=handover.metrics.answered)
    reader = Reader(writer)
    work = WorkQueue()
    events = Events(writer, handover.identity)
    pod_events = PodEvents(reader, events, work.add)
    health = ExporterHealth(on_change=work.add, on_events=pod_events.hear)
    handover.telemetry.bound("operator_exporters", *health.bounds["operator_exporters"])
    of_exporters = ExporterController(
        reader,
        health,
        event_troubles=pod_events.troubles,
        namespaces=operator.namespaces,
        image=operator.exporter_image,
        dcgm_image=operator.dcgm_image,
    )
    reconciler = Reconciler(
        writer=writer,
        reader=reader,
        events=events,
        controllers=(of_exporters, AutoscalerController(reader)),
        namespaces=operator.namespaces,
        work=work,
        metrics=handover.metrics,
    )
    return Operator(
        writer=writer,
        beside=(health.run, pod_events.run),
        work=work,
        watch=_watching(writer, operator.namespaces, work, handover).run,
        reconciler=reconciler,
        leader=_leader(writer, operator, handover),
        interval_seconds=operator.interval_seconds,
        handover=handover,
    )


def _watching(writer: Writer, namespaces: Sequence[str], work: WorkQueue, handover: OperatorHandover) -> Watching:
    return Watching(
        api=writer,
        namespaces=namespaces,
        on_key=work.add,
        on_list=lambda: work.add_after(EVERYTHING, TOGETHER_SECONDS),
        on_failure=handover.metrics.watch_ended,
    )


def _leader(writer: Writer, operator: OperatorSettings, handover: OperatorHandover) -> Leader | None:
    """This process as a replica in the election; None if there is only one operator."""
    if operator.leader_election != "on":
        return None
    return Leader(
        writer=writer,
        namespace=operator.lease_namespace or "",
        name=operator.lease_name,
        identity=handover.identity,
        lease_seconds=int(operator.lease_seconds),
    )


def say_what_is_done(config: OperatorConfig) -> None:
    """Log one line that says what the operator looks after."""
    operator = config.operator
    log.info(
        "operating",
        namespaces=",".join(operator.namespaces) or "all",
        lease=f"{operator.lease_namespace}/{operator.lease_name}" if operator.leader_election == "on" else "none",
    )


OPERATOR = RoleKind(make=make_role, about=about, say=say_what_is_done, names=lambda _: {"role": "operator"})
