"""The sources of a node that more than one part asks.

Tests: tests/node/test_sources.py.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from exporter.node.measuring import Measuring
from exporter.sources.claim_access import Claims
from exporter.sources.kubelet.allocatable import KubeletAllocatable
from exporter.sources.kubelet.assignments import KubeletSource
from exporter.sources.node_inventory import DriverSource, Inventories
from exporter.sources.node_pods import Pods
from exporter.sources.pages.discovery import Discovery
from exporter.sources.pages.url import PageSource
from exporter.sources.resource_slices import Slices
from exporter.sources.source import OptionalSource, SourceCache

if TYPE_CHECKING:
    from exporter.sources.kernel_log.kernel_log_source import KernelLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources; None for one that is not there. `cache` has them and all others.

    `needs_pods`: labels or the discovery need pods.
    """

    kubelet: KubeletSource
    allocatable: KubeletAllocatable
    pages: tuple[PageSource, ...]
    discovery: Discovery
    nvml: DriverSource
    measuring: Measuring | None
    inventory: Inventories
    pods: OptionalSource[Pods]
    needs_pods: bool
    slices: OptionalSource[Slices]
    claims: Claims
    kernel_log: "KernelLog | None"
    cache: SourceCache
