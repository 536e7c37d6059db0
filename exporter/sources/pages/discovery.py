"""The discovery of dcgm-exporter: its pods on this node, by their namespaces and labels, and a source for each.

Whoever makes a pod writes its labels, so labels prove nothing. A pod is trusted because somebody let it be made in its
namespace; of several pods the oldest comes first.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from exporter.config.parsers import Address, Selector
from exporter.model.pods import PodInfo, PodsByName
from exporter.model.snapshot import Health
from exporter.sources.pages.url import DcgmSource
from exporter.sources.source import NO_BOUNDS, Attempt, OnHealth, absent, missing

# The most pages that are read at a time. Most nodes have one dcgm-exporter.
AT_ONCE = 15
# The first page waits this long for the first list of pods.
PODS_PATIENCE_SECONDS = 5.0
MOST_FOUND = 64
RUNNING = "Running"

Make = Callable[[str, str, asyncio.Semaphore], DcgmSource]


@dataclass(kw_only=True, eq=False)
class Discovery:
    """The present dcgm-exporters: pods in one of the `namespaces` that one of the `selectors` matches.

    Attributes:
        selectors: labels of dcgm-exporter's pods; empty: discovery is off.
        namespaces: the namespaces whose pods count.
        port: the port of a pod's page.
        path: the path of a pod's page.
        make: makes a source of a name, a URL, and a semaphore that limits how many sources read at a time.
        scheme: http or https.
        node: the node's name, for errors.
        on_health: called with the health if no pod is there.
        health: why there is no pod.
    """

    name = "dcgm:discovery"
    patience_seconds = PODS_PATIENCE_SECONDS
    bounds = NO_BOUNDS

    selectors: Sequence[Selector]
    namespaces: Sequence[str]
    port: int
    path: str
    make: Make
    scheme: str = "http"
    node: str = ""
    on_health: OnHealth = lambda *_: None
    health: Health = field(default_factory=Health, init=False)
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE), init=False)
    _sources: dict[str, DcgmSource] = field(default_factory=dict, init=False)
    _leaving: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        if not self.selectors:
            self.health = absent("no --dcgm.selector is given", "give one, or name the pages")

    def begin(self) -> Attempt | None:
        """Begin nothing: `update` gets the pods from their own source."""

    async def close(self) -> None:
        """Close the sources, and wait for those that are closing."""
        await asyncio.gather(*(source.close() for source in self._sources.values()), *self._leaving)

    def update(self, pods: PodsByName) -> tuple[DcgmSource, ...]:
        """The sources of these pods, the oldest pod's first. A source whose pod has gone is closed."""
        meant = [pod for pod in pods.values() if pod.namespace in self.namespaces and self._is_labelled(pod)]
        # a pod of unknown age comes last
        meant.sort(key=lambda pod: (pod.created_at_seconds or math.inf, pod.namespace, pod.name))
        addresses = tuple(dict.fromkeys(pod.ip for pod in meant))[:MOST_FOUND]
        sources = {ip: self._sources.get(ip) or self._source(ip) for ip in addresses}
        self._let_go(source for ip, source in self._sources.items() if ip not in sources)
        self._sources = sources
        return tuple(sources.values())

    def __str__(self) -> str:
        selectors = [",".join(f"{name}={value}" for name, value in selector) for selector in self.selectors]
        return f"{' or '.join(selectors)} in the namespaces {', '.join(self.namespaces)}"

    def note_nothing(self, pods: PodsByName, of_pods: Health) -> None:
        """Note that no pod can be asked, and why. `of_pods` is the health of the source of `pods`."""
        looked_for = f"no running pod of node {self.node} with an address has {self} (--dcgm.selector)"
        message = looked_for
        remedy = "is dcgm-exporter running on this node, and with these labels?"
        elsewhere = self.elsewhere(pods)
        if of_pods.up is False:
            message = f"{looked_for}: {of_pods.message}"
            remedy = of_pods.remedy
        elif elsewhere:
            message = f"{looked_for}; pods with these labels are in {', '.join(elsewhere)}"
            flags = " ".join(f"--dcgm.selector-namespace {name}" for name in elsewhere)
            remedy = f"where only those who may write GPU samples make pods, name it: {flags}"
        self.health = missing(message, remedy)
        self.on_health(self.name, self.health)

    def elsewhere(self, pods: PodsByName) -> tuple[str, ...]:
        """The namespaces of pods that have the labels, but are not asked because of their namespace."""
        namespaces = {pod.namespace for pod in pods.values() if self._is_labelled(pod)}
        return tuple(sorted(namespaces - set(self.namespaces)))

    def _is_labelled(self, pod: PodInfo) -> bool:
        # a pod without an address cannot be asked yet
        if pod.phase != RUNNING or not pod.ip:
            return False
        return any(_has_labels(pod, selector) for selector in self.selectors)

    def _source(self, ip: str) -> DcgmSource:
        address = Address(host=ip, port=self.port)
        return self.make(f"dcgm:{address}", f"{self.scheme}://{address}{self.path}", self._places)

    def _let_go(self, sources: Iterable[DcgmSource]) -> None:
        for source in sources:
            task = asyncio.create_task(source.close())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)


def _has_labels(pod: PodInfo, selector: Selector) -> bool:
    return all(pod.labels.get(name) == value for name, value in selector)
