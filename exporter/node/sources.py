"""The sources of a node of one configuration."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from exporter.node.measuring import Measuring
from exporter.sources.any_inventory import DriverSource
from exporter.sources.any_pods import Pods
from exporter.sources.host.source import HostSource
from exporter.sources.inventories import Inventories
from exporter.sources.kubelet.assignments import KubeletSource
from exporter.sources.kubelet.offers import KubeletOffers
from exporter.sources.kubernetes.slices import Slices
from exporter.sources.kubernetes.workloads import Workloads
from exporter.sources.late import Late
from exporter.sources.made import Made
from exporter.sources.pages.discovery import Discovery
from exporter.sources.pages.source import PageSource
from exporter.sources.source import Source

if TYPE_CHECKING:
    from exporter.node.probing import Probing


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources of a node, each an object, there or not.

    `needs_pods` says that labels or the discovery are made of pods. `made` closes them.
    """

    kubelet: KubeletSource
    offers: KubeletOffers
    pages: tuple[PageSource, ...]
    discovery: Discovery
    nvml: DriverSource
    measuring: Measuring | None
    probing: "Probing | None"
    inventory: Inventories
    host: HostSource
    pods: Late[Pods]
    needs_pods: bool
    slices: Late[Slices]
    workloads: Workloads
    made: Made

    def __iter__(self) -> Iterator[Source]:
        """One by one."""
        yield from (*self.pages, *self.inventory.parts)
        yield from (self.measuring,) if self.measuring else ()
        yield from (self.probing, self.probing.probe) if self.probing else ()
        yield from (
            self.kubelet,
            self.offers,
            self.discovery,
            self.nvml,
            self.host,
            self.pods,
            self.slices,
            self.workloads,
        )

    @property
    def of_machine(self) -> tuple[Source, ...]:
        """Those that speak of the machine itself."""
        joining = (joined.parts for joined in (self.measuring, self.probing) if joined is not None)
        return (*self.inventory.parts, self.nvml, *chain.from_iterable(joining))
