"""Finding dcgm-exporter: its pods on this node, by their labels, and a source for each.

Pods come from the source of pods, which is told what changes; nothing is asked for here.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from exporter.model import PodInfo
from exporter.parsers import Address, Selector
from exporter.sources.dcgm import DcgmSource

# As many pages are read at a time; there is one dcgm-exporter on most nodes.
AT_ONCE = 15
MOST_FOUND = 64
RUNNING = "Running"

Make = Callable[[str, str, asyncio.Semaphore], DcgmSource]


class Discovery:
    """The dcgm-exporters of the moment."""

    def __init__(self, *, selectors: Sequence[Selector], port: int, path: str, make: Make) -> None:
        """A pod that one of the `selectors` matches is asked at its address.

        `make` is given a name, a URL, and what limits how many are read at a time.
        """
        self._selectors = tuple(selectors)
        self._port = port
        self._path = path
        self._make = make
        self._places = asyncio.Semaphore(AT_ONCE)
        self._sources: dict[str, DcgmSource] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """End what is in flight."""
        await asyncio.gather(*(source.close() for source in self._sources.values()), *self._leaving)

    def update(self, pods: Mapping[tuple[str, str], PodInfo]) -> tuple[DcgmSource, ...]:
        """The sources for these pods, in stable order. One whose pod has gone is closed."""
        addresses = sorted({pod.ip for pod in pods.values() if self._is_meant(pod)})[:MOST_FOUND]
        found = {ip: self._sources.get(ip) or self._source(ip) for ip in addresses}
        self._let_go(source for ip, source in self._sources.items() if ip not in found)
        self._sources = found
        return tuple(found.values())

    def __str__(self) -> str:
        """What it looks for, in words."""
        return " or ".join(",".join(f"{name}={value}" for name, value in selector) for selector in self._selectors)

    def _is_meant(self, pod: PodInfo) -> bool:
        # a pod without an address is not there yet
        return (
            pod.phase == RUNNING
            and bool(pod.ip)
            and any(all(pod.labels.get(name) == value for name, value in selector) for selector in self._selectors)
        )

    def _source(self, ip: str) -> DcgmSource:
        address = Address(host=ip, port=self._port)
        return self._make(f"dcgm:{address}", f"http://{address}{self._path}", self._places)

    def _let_go(self, sources: Iterable[DcgmSource]) -> None:
        for source in sources:
            task = asyncio.create_task(source.close())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
