"""Asks the exporters of every GPUExporter how their sources are: the kubelet, dcgm-exporter and the others.

Each is asked every half minute, few at a time. Of an answer only what fails is kept; one that is all right costs some
milliseconds and leaves nothing. A failure counts once it has been seen twice, some seconds apart: a kubelet or a
dcgm-exporter that starts again is no trouble. Nothing here raises: what keeps the operator from an answer, such as a
NetworkPolicy, is a trouble of that node.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from itertools import count

from exporter.config.http_file import HttpConfig
from exporter.errors import SourceError, Trouble
from exporter.log import log
from exporter.operator.exporters.nodes import EXPORTER, NodeTrouble, node_of, trouble
from exporter.operator.exporters.pods import METRICS_PORT
from exporter.operator.objects.parts import AnyObject, is_going, mapping, steady, text
from exporter.sources.exporters.asking import Asking
from exporter.sources.exporters.healths import HEALTHS, MOST_BYTES, read_health
from exporter.sources.source import Bound

EVERY_SECONDS = 30.0
# After a failure that nobody has seen before.
AGAIN_SECONDS = 5.0
# Who does not answer is asked less and less often, up to this.
SELDOM_SECONDS = 120.0
AT_ONCE = 20
MOST_PODS = 5_000
# An exporter gives the dcgm-exporter beside it 5 s.
ANSWER_SECONDS = 8.0
CONNECT_SECONDS = 2.0
# Changes within this long are told together.
TOGETHER_SECONDS = 1.0
MOST_IN_FLIGHT_BYTES = 8 * 1024 * 1024

Owner = Hashable
_Kind = tuple[str, str]


@dataclass(slots=True, eq=False)
class _Exporter:
    """An exporter that is asked. `troubles` count; `doubts` are failures that were seen once."""

    owner: Owner
    node: str
    url: str
    asks: int = 0
    failures: int = 0
    troubles: Mapping[_Kind, NodeTrouble] = field(default_factory=dict)
    doubts: frozenset[_Kind] = frozenset()
    is_followed: bool = True

    @property
    def is_known(self) -> bool:
        """Whether it has been asked, and once more where it said what nobody believes at once."""
        return self.asks > 1 or (self.asks == 1 and not self.doubts)


class Looks:
    """The exporters of all GPUExporters. `run` asks them until it is cancelled."""

    def __init__(
        self,
        *,
        on_change: Callable[[Owner], None],
        url_of: Callable[[AnyObject], str] | None = None,
        every_seconds: float = EVERY_SECONDS,
        again_seconds: float = AGAIN_SECONDS,
    ) -> None:
        """`on_change` hears of each GPUExporter whose troubles are others now; `url_of` says where a pod answers."""
        self._on_change = on_change
        self._url_of = url_of or url_of_pod
        self._every_seconds, self._again_seconds = every_seconds, again_seconds
        self._followed: dict[Owner, dict[str, _Exporter]] = {}
        self._known: set[Owner] = set()
        self._due: list[tuple[float, int, _Exporter]] = []
        self._numbers = count()
        self._woken = asyncio.Event()
        self._to_tell: dict[Owner, asyncio.TimerHandle] = {}
        self.bounds: Mapping[str, Bound] = {"operator_exporters": Bound(MOST_PODS, self._count)}

    def follow(self, owner: Owner, pods: Iterable[AnyObject]) -> None:
        """These are the pods of a GPUExporter now; those that may answer are asked from now on, the others no more."""
        before = self._followed.get(owner, {})
        others = self._count() - len(before)
        now: dict[str, _Exporter] = {}
        for pod in pods:
            node, url = node_of(pod), "" if is_going(pod) else self._url_of(pod)
            if not node or not url or node in now or others + len(now) >= MOST_PODS:
                continue
            exporter = before.get(node)
            if exporter is None or exporter.url != url:
                exporter = _Exporter(owner, node, url)
                self._ask_in(exporter, 0.0)
            now[node] = exporter
        for exporter in before.values():
            exporter.is_followed = now.get(exporter.node) is exporter
        self._followed[owner] = now
        self._learn(owner)

    def forget(self, owner: Owner) -> None:
        """There is no such GPUExporter any more."""
        for exporter in self._followed.pop(owner, {}).values():
            exporter.is_followed = False
        self._known.discard(owner)
        if told := self._to_tell.pop(owner, None):
            told.cancel()

    def keep_only(self, owners: Container[Owner]) -> None:
        """There are no other GPUExporters than these."""
        for owner in [owner for owner in self._followed if owner not in owners]:
            self.forget(owner)

    def troubles(self, owner: Owner) -> Sequence[NodeTrouble] | None:
        """What its exporters say of sources that fail; None while some of the first have not been asked yet."""
        if owner not in self._known:
            return None
        return [of for exporter in self._followed[owner].values() for of in exporter.troubles.values()]

    async def run(self) -> None:
        """Ask each exporter when it is due, until this is cancelled."""
        asking = Asking(
            timeout_seconds=ANSWER_SECONDS,
            connect_seconds=CONNECT_SECONDS,
            max_bytes=MOST_BYTES,
            most_in_flight_bytes=MOST_IN_FLIGHT_BYTES,
            question=HEALTHS,
            # an exporter does not wait longer for its sources than somebody waits for it
            http=HttpConfig(headers=(("X-Prometheus-Scrape-Timeout-Seconds", f"{ANSWER_SECONDS:g}"),)),
        )
        at_once = asyncio.Semaphore(AT_ONCE)
        # those that were asked when the last run ended are in no queue
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
            for told in self._to_tell.values():
                told.cancel()
            self._to_tell.clear()
            await asking.close()

    async def _next(self) -> _Exporter:
        """The one that is due first, once it is."""
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

    async def _ask(self, asking: Asking, exporter: _Exporter) -> None:
        """Ask one of them, and note what came of it."""
        try:
            body = await asking.ask(exporter.url)
            failing = read_health(body, exporter.node)
        except SourceError as error:
            self._note(exporter, _unheard(exporter.node, error.trouble), answered=False)
        except Exception as error:  # noqa: BLE001 - a fault of this program must not cost the other nodes
            log(logging.ERROR, "an exporter's answer failed by a fault of the operator", error, node=exporter.node)
            why = Trouble("garbage", f"a fault of the operator itself: {error!r}", "please report it, with its log")
            self._note(exporter, _unheard(exporter.node, why), answered=False)
        else:
            self._note(exporter, [trouble(exporter.node, *of) for of in failing], answered=True)

    def _note(self, exporter: _Exporter, found: Iterable[NodeTrouble], *, answered: bool) -> None:
        failing = {(of.source, of.reason): of for of in found}
        before, doubts = exporter.troubles, exporter.doubts
        counts = {
            kind: _steady(before.get(kind), of) for kind, of in failing.items() if kind in before or kind in doubts
        }
        exporter.doubts = frozenset(failing.keys() - counts.keys())
        exporter.failures = 0 if answered else exporter.failures + 1
        # one answer that is lost says nothing of what was said before it
        exporter.troubles = counts if answered or counts else before
        exporter.asks += 1
        if not exporter.is_followed:
            return
        pause = min(self._every_seconds * 2.0 ** max(0, exporter.failures - 2), SELDOM_SECONDS)
        self._ask_in(exporter, self._again_seconds if exporter.doubts else pause)
        self._learn(exporter.owner)
        if exporter.troubles != before:
            self._tell(exporter.owner)

    def _learn(self, owner: Owner) -> None:
        """Whether all exporters that a GPUExporter had at first have been asked."""
        if owner not in self._known and all(exporter.is_known for exporter in self._followed[owner].values()):
            self._known.add(owner)
            self._tell(owner)

    def _tell(self, owner: Owner) -> None:
        if owner not in self._to_tell:
            loop = asyncio.get_running_loop()
            self._to_tell[owner] = loop.call_later(TOGETHER_SECONDS, partial(self._told, owner))

    def _told(self, owner: Owner) -> None:
        self._to_tell.pop(owner, None)
        self._on_change(owner)

    def _count(self) -> int:
        return sum(map(len, self._followed.values()))


def url_of_pod(pod: AnyObject) -> str:
    """Where the exporter of a pod answers; "" where it has no address yet, or runs no more."""
    status = mapping(pod, "status")
    try:
        address = ip_address(text(status, "podIP"))
    except ValueError:
        return ""
    # addresses that no pod has lead to the operator itself, or to the services of a cloud
    is_odd = address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
    if is_odd or text(status, "phase") != "Running":
        return ""
    return f"http://[{address}]:{METRICS_PORT}" if address.version == 6 else f"http://{address}:{METRICS_PORT}"  # noqa: PLR2004


def _unheard(node: str, why: Trouble) -> Iterable[NodeTrouble]:
    said = f"the exporter does not answer the operator: {why}"
    return (trouble(node, EXPORTER, why.reason, said),)


def _steady(before: NodeTrouble | None, now: NodeTrouble) -> NodeTrouble:
    return now._replace(message=steady(before.message, now.message)) if before else now
