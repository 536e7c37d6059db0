"""Asks the exporters of every GPUExporter about their sources: the kubelet, dcgm-exporter and the others.

Each exporter is asked every half minute, a few at a time, and only failures are kept. A failure counts after it was
seen twice, some seconds apart, so a source that restarts is no trouble. Nothing here raises: if something keeps the
operator from an answer, such as a NetworkPolicy, that is a trouble of the node.
"""

import asyncio
import heapq
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_address
from itertools import count

from exporter import log
from exporter.config.http_file import HttpConfig
from exporter.errors import SourceError, Trouble
from exporter.lenient import AnyObject, mapping, text
from exporter.model.cluster_view import NodeEvent
from exporter.operator.exporters.desired import METRICS_PORT
from exporter.operator.exporters.exporter_pods import EXPORTER, NodeTrouble, node_of, on_node
from exporter.operator.objects.kinds import Key
from exporter.operator.objects.object_fields import is_going, steady
from exporter.sources.exporters.asking import ExporterClient
from exporter.sources.exporters.exporter_events import PATH as EVENTS_PATH
from exporter.sources.exporters.exporter_events import read_events
from exporter.sources.exporters.healths import MOST_BYTES, OPERATED_EXPORTERS, PATH, read_health
from exporter.sources.long_work import in_slices
from exporter.sources.pause import Pause
from exporter.sources.source import Bound, Bounds

EVERY_SECONDS = 30.0
# The time until the next question after a new failure.
AGAIN_SECONDS = 5.0
# An exporter that does not answer is asked less and less often, but at least this often.
SELDOM_SECONDS = 120.0
AT_ONCE = 20
MOST_PODS = 5_000
# Longer than the 5 s that an exporter gives the dcgm-exporter beside it.
ANSWER_SECONDS = 8.0
CONNECT_SECONDS = 2.0
# All changes within this time are told together.
TOGETHER_SECONDS = 1.0
_READS_KERNEL_LOG = b'"kernel-log"'  # the source of an exporter that reads the kernel's log
MOST_IN_FLIGHT_BYTES = 8 * 1024 * 1024

_Kind = tuple[str, str]


@dataclass(slots=True, eq=False)
class _Exporter:
    """An exporter that is asked. `troubles` are its failures that count; `unconfirmed` failures were seen once."""

    owner: Key
    node: str
    url: str
    has_events: bool = False
    asks: int = 0
    failures: int = 0
    troubles: Mapping[_Kind, NodeTrouble] = field(default_factory=dict)
    unconfirmed: frozenset[_Kind] = frozenset()
    is_followed: bool = True

    @property
    def is_known(self) -> bool:
        """Whether the exporter has been asked, and has been asked again if a failure was unconfirmed."""
        return self.asks > 1 or (self.asks == 1 and not self.unconfirmed)


def url_of_pod(pod: AnyObject) -> str:
    """The URL of a pod's exporter; "" if the pod has no address yet, or does not run any more."""
    status = mapping(pod, "status")
    try:
        address = ip_address(text(status, "podIP"))
    except ValueError:
        return ""
    # such addresses, which no pod has, would lead to the operator itself or to a cloud's services
    is_odd = address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
    if is_odd or text(status, "phase") != "Running":
        return ""
    return f"http://[{address}]:{METRICS_PORT}" if address.version == 6 else f"http://{address}:{METRICS_PORT}"  # noqa: PLR2004


@dataclass(eq=False, kw_only=True)
class ExporterHealth:
    """The exporters of all GPUExporters. `run` asks them until it is cancelled.

    Attributes:
        on_change: is called with each GPUExporter whose troubles have changed.
        on_events: is called with a GPUExporter, a node, and its exporter's answer at /events, if that is asked for.
        url_of: gives the URL of a pod's exporter.
    """

    on_change: Callable[[Key], None]
    on_events: Callable[[Key, str, Sequence[NodeEvent]], None] = lambda *_: None
    url_of: Callable[[AnyObject], str] = url_of_pod
    every_seconds: float = EVERY_SECONDS
    again_seconds: float = AGAIN_SECONDS
    _followed: dict[Key, dict[str, _Exporter]] = field(default_factory=dict)
    _owners: set[Key] = field(default_factory=set)
    _due: list[tuple[float, int, _Exporter]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _to_tell: dict[Key, asyncio.TimerHandle] = field(default_factory=dict)

    @property
    def bounds(self) -> Bounds:
        """The number of exporters that are asked, and its limit."""
        return {"operator_exporters": Bound(MOST_PODS, self._count)}

    def follow(self, owner: Key, pods: Iterable[AnyObject], *, has_events: bool = False) -> None:
        """Note the present pods of a GPUExporter. From now on, ask only the pods among them that may answer.

        `has_events` says whether they are asked for events, too.
        """
        before = self._followed.get(owner, {})
        others = self._count() - len(before)
        now: dict[str, _Exporter] = {}
        for pod in pods:
            node = node_of(pod)
            url = "" if is_going(pod) else self.url_of(pod)
            if not node or not url or node in now or others + len(now) >= MOST_PODS:
                continue
            exporter = before.get(node)
            if exporter is None or exporter.url != url:
                exporter = _Exporter(owner, node, url)
                self._ask_in(exporter, 0.0)
            exporter.has_events = has_events
            now[node] = exporter
        for exporter in before.values():
            exporter.is_followed = now.get(exporter.node) is exporter
        self._followed[owner] = now
        self._learn(owner)

    def forget(self, owner: Key) -> None:
        """Forget a GPUExporter that is gone."""
        for exporter in self._followed.pop(owner, {}).values():
            exporter.is_followed = False
        self._owners.discard(owner)
        waiting = self._to_tell.pop(owner, None)
        if waiting is not None:
            waiting.cancel()

    def keep_only(self, owners: Container[Key]) -> None:
        """Forget all GPUExporters other than these."""
        for owner in [owner for owner in self._followed if owner not in owners]:
            self.forget(owner)

    def troubles(self, owner: Key) -> Sequence[NodeTrouble] | None:
        """The troubles that a GPUExporter's exporters tell; None until all of its first exporters have been asked."""
        if owner not in self._owners:
            return None
        return [trouble for exporter in self._followed[owner].values() for trouble in exporter.troubles.values()]

    async def run(self) -> None:
        """Ask each exporter when it is due, until this is cancelled."""
        asking = ExporterClient(
            timeout_seconds=ANSWER_SECONDS,
            connect_seconds=CONNECT_SECONDS,
            max_bytes=MOST_BYTES,
            most_in_flight_bytes=MOST_IN_FLIGHT_BYTES,
            peer=OPERATED_EXPORTERS,
            path=PATH,
            # an exporter does not wait longer for its sources than its client waits for it
            http=HttpConfig(headers=(("X-Prometheus-Scrape-Timeout-Seconds", f"{ANSWER_SECONDS:g}"),)),
        )
        at_once = asyncio.Semaphore(AT_ONCE)
        # exporters that were being asked when the last run ended are not in the queue
        self._due = []
        for exporters in self._followed.values():
            for exporter in exporters.values():
                self._ask_in(exporter, 0.0)
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await at_once.acquire()
                    asked = group.create_task(self._ask(asking, await self._next()))
                    asked.add_done_callback(lambda _: at_once.release())
        finally:
            for waiting in self._to_tell.values():
                waiting.cancel()
            self._to_tell.clear()
            await asking.close()

    async def _next(self) -> _Exporter:
        """Wait until an exporter is due, and take it from the queue."""
        clock = asyncio.get_running_loop().time
        while True:
            while self._due and not self._due[0][2].is_followed:
                heapq.heappop(self._due)
            wait_seconds = self._due[0][0] - clock() if self._due else None
            if wait_seconds is not None and wait_seconds <= 0:
                return heapq.heappop(self._due)[2]
            self._woken.clear()
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._woken.wait()
            except TimeoutError:
                continue

    def _ask_in(self, exporter: _Exporter, seconds: float) -> None:
        at = asyncio.get_running_loop().time() + seconds
        heapq.heappush(self._due, (at, next(self._numbers), exporter))
        self._woken.set()

    async def _ask(self, asking: ExporterClient, exporter: _Exporter) -> None:
        """Ask an exporter for its sources' health, and its events if it reads the kernel's log. Notes a failure."""
        try:
            body = await asking.ask(exporter.url)
            failing = read_health(body, exporter.node)
            if exporter.has_events and _READS_KERNEL_LOG in body:
                events = await in_slices(read_events(await asking.ask(exporter.url, EVENTS_PATH), exporter.node))
                self.on_events(exporter.owner, exporter.node, events)
        except SourceError as error:
            self._note(exporter, {EXPORTER: _unheard(error.trouble)}, answered=False)
        except Exception as error:  # noqa: BLE001 - a fault of this program must not cost the other nodes
            log.error("a fault of the operator spoiled an exporter's answer", error, node=exporter.node)
            why = Trouble("garbage", f"a fault of the operator itself: {error!r}", "please report it, with its log")
            self._note(exporter, {EXPORTER: _unheard(why)}, answered=False)
        else:
            self._note(exporter, failing, answered=True)

    def _note(self, exporter: _Exporter, troubles: Mapping[str, Trouble], *, answered: bool) -> None:
        """Note an exporter's troubles by source. A new trouble counts from the second ask on, which follows soon."""
        before = exporter.troubles
        counts: dict[_Kind, NodeTrouble] = {}
        seen_once = set()
        for source, why in troubles.items():
            trouble = on_node(exporter.node, source, why)
            kind = (trouble.source, trouble.reason)
            if kind in before:
                counts[kind] = trouble._replace(message=steady(before[kind].message, trouble.message))
            elif kind in exporter.unconfirmed:
                counts[kind] = trouble
            else:
                seen_once.add(kind)
        exporter.unconfirmed = frozenset(seen_once)
        exporter.failures = 0 if answered else exporter.failures + 1
        # after one lost answer, the troubles of the last answer still count
        exporter.troubles = counts if answered or counts else before
        exporter.asks += 1
        if not exporter.is_followed:
            return
        pause = Pause(self.every_seconds, SELDOM_SECONDS).after(exporter.failures - 1)
        self._ask_in(exporter, self.again_seconds if exporter.unconfirmed else pause)
        self._learn(exporter.owner)
        if exporter.troubles != before:
            self._tell(exporter.owner)

    def _learn(self, owner: Key) -> None:
        """Note if all exporters that a GPUExporter had at first have been asked."""
        if owner not in self._owners and all(exporter.is_known for exporter in self._followed[owner].values()):
            self._owners.add(owner)
            self._tell(owner)

    def _tell(self, owner: Key) -> None:
        if owner not in self._to_tell:
            loop = asyncio.get_running_loop()
            self._to_tell[owner] = loop.call_later(TOGETHER_SECONDS, partial(self._note_told, owner))

    def _note_told(self, owner: Key) -> None:
        self._to_tell.pop(owner, None)
        self.on_change(owner)

    def _count(self) -> int:
        return sum(map(len, self._followed.values()))


def _unheard(why: Trouble) -> Trouble:
    return replace(why, message=f"the exporter does not answer the operator: {why.message}")
