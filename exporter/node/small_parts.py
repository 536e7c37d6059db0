"""The small parts of a look: what some sources and rules add to it.

Tests: tests/node/test_sources.py, tests/node/test_kernel_log.py.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.model.pods import PodInfo, PodName, PodsByName
from exporter.model.snapshot import LookFacts, Snapshot
from exporter.node.handover import WantedStreams
from exporter.node.part import Asking, LookFor
from exporter.node.shared_sources import Sources
from exporter.outputs.output import Need
from exporter.ownership.current import CurrentOwners
from exporter.ownership.device_health import HealthWatch
from exporter.ownership.verdicts import Verdicts
from exporter.sources.host.host_source import HostSource
from exporter.sources.kubernetes.workloads import Workloads
from exporter.sources.long_work import in_slices
from exporter.sources.source import Bound, Source

_NVML = "nvml"  # the name of the source

if TYPE_CHECKING:
    from exporter.probe.probing import Probing
    from exporter.sources.kernel_log.kernel_log_source import KernelLog


@dataclass(eq=False)
class PodsPart:
    """The pods, which are read once a setting or an output needs them.

    For the queues of pods alone they are read where the kubelet's own Pods API has them (`kubelet_socket`), and never
    from the API server, which every node's exporter would then watch.
    """

    sources: Sources
    wanted: WantedStreams
    kubelet_socket: Path | None
    _reads_queues: bool = False

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """Those of pods, read or not."""
        return self.sources.pods.bounds

    def ask(self, asking: Asking) -> None:
        """Keep the stream open."""
        self.wanted.workloads |= Need.WORKLOADS in asking.needs
        if Need.VERDICTS in asking.needs and self.kubelet_socket is not None:
            # looks for /gpu/metrics show no queue
            self._reads_queues = self._reads_queues or self.kubelet_socket.is_socket()
        if self.sources.needs_pods or self.wanted.workloads or self._reads_queues:
            asking.begin(self.sources.pods)

    @property
    def shown(self) -> Sequence[Source]:
        """The source of pods, or what stands in its place."""
        return (self.sources.pods.now,)


@dataclass(eq=False)
class HostPart:
    """The machine."""

    adds_for = frozenset({Need.DIAGNOSIS})

    host: HostSource

    def __post_init__(self) -> None:
        self.begun = (self.host,)

    def see(self, _: Snapshot) -> LookFacts:
        """The machine, as far as it is known."""
        return {"host": self.host.host}

    async def add(self, _: Asking, __: Snapshot) -> LookFacts:
        """The driver's device files."""
        return {"device_files": await self.host.device_files()}


@dataclass(eq=False)
class PageGenerationsPart:
    """The generations of DCGM that the pages of a look can be of."""

    adds_for = frozenset({Need.DIAGNOSIS})

    async def add(self, asking: Asking, _: Snapshot) -> LookFacts:
        """Those of each page that came, but for NVML's, which this program writes."""
        from exporter.exposition.generations import generation_of  # noqa: PLC0415 - only doctor asks

        ended = [read for read in asking.reads if read.done() and not read.cancelled() and read.exception() is None]
        pages = [read.result() for read in ended]
        return {
            "page_generations": {
                page.source: await in_slices(generation_of(page.as_it_came or page.body))
                for page in pages
                if page.source != _NVML
            }
        }


@dataclass(eq=False)
class KernelLogPart:
    """The kernel's log: its last errors, with those who held the GPUs then."""

    log: "KernelLog"
    sources: Sources
    owners: CurrentOwners

    def __post_init__(self) -> None:
        self.begun = self.shown = (self.log,)

    def follow(self, look: LookFor) -> None:
        """Have the node looked at when an error comes."""
        self.log.look = look

    def see(self, look: Snapshot) -> LookFacts:
        """The errors, once it is settled whose they are."""
        events = self.log.events
        events.look(
            look.owners,
            look.inventory,
            look.joined.subjects if look.joined else (),
            pods=self.owners.pods_of_owners.pods,
            measured=look.measured,
            asked_at=self.sources.kubelet.asked_at_seconds,
            now=time.monotonic(),
        )
        return {"events": events.newest}


@dataclass(eq=False)
class ProbePart:
    """The CUDA probe."""

    probing: "Probing"
    sources: Sources

    def __post_init__(self) -> None:
        self.begun = (self.probing,)

    @property
    def shown(self) -> Sequence[Source]:
        """The probe and what it reads."""
        return self.probing.shown

    def follow(self, _: LookFor) -> None:
        """Count the probe's turns from now on."""
        self.probing.follow()

    def see(self, look: Snapshot) -> LookFacts:
        """The calls of containers to CUDA."""
        return {"cuda": self.probing.cuda_for(look.owners, self.sources.pods.now.pods, look.inventory)}


@dataclass(eq=False)
class WorkloadsPart:
    """The workloads of pods that rows may name."""

    adds_for = frozenset({Need.WORKLOADS})

    workloads: Workloads
    sources: Sources
    owners: CurrentOwners

    def ask_further(self, asking: Asking, look: Snapshot) -> None:
        """Ask for the workloads that are not known yet."""
        if Need.WORKLOADS not in asking.needs:
            return
        asking.pods_to_show = pods_to_show(look, self.sources.pods.now.pods, self.owners.pods_of_owners.pods)
        if asking.pods_to_show:
            asking.wait_for(self.workloads, self.workloads.begin(asking.pods_to_show))

    async def add(self, asking: Asking, _: Snapshot) -> LookFacts:
        """The workloads that are known, each with its kind."""
        pairs = ((pod, self.workloads.of(pod)) for pod in asking.pods_to_show)
        return {
            "workloads": {
                (pod.namespace, pod.name): (workload.name, workload.kind) for pod, workload in pairs if workload
            }
        }


@dataclass(eq=False)
class VerdictsPart:
    """The health of held devices by the kubelet's reports, and of all devices by all sources."""

    adds_for = frozenset({Need.VERDICTS})

    health_watch: HealthWatch
    verdicts: Verdicts
    sources: Sources
    owners: CurrentOwners

    def see(self, look: Snapshot) -> LookFacts:
        """The kubelet's reports."""
        pods, offered = self.owners.pods_of_owners.pods, self.sources.allocatable.offered
        return {"healths": self.health_watch.look(look.owners, pods, offered, time.monotonic())}

    def ask_further(self, asking: Asking, _: Snapshot) -> None:
        """Ask for the ids on offer now if one in use was not, and wait as long as for the kubelet's other answer."""
        doubted_at = self.health_watch.doubted_at
        if Need.VERDICTS in asking.needs and doubted_at is not None:
            asking.wait_for(self.sources.kubelet, self.sources.allocatable.ask_after(doubted_at))

    async def add(self, _: Asking, look: Snapshot) -> LookFacts:
        """The verdicts."""
        log = self.sources.kernel_log
        errors = log.events.standing if log is not None and log.health.up is not False else None
        verdicts = await in_slices(self.verdicts.look(look, errors, self.sources.nvml.reading, time.time()))
        return {"verdicts": verdicts, "link_events": self.verdicts.link_events}


class BegunPart:
    """A source that every look begins, and that shows its health and its bounds only."""

    def __init__(self, source: Source) -> None:
        self.begun = self.shown = (source,)
        self.bounds = source.bounds


def pods_to_show(snapshot: Snapshot, pods: PodsByName, of_owners: PodsByName) -> Sequence[PodInfo]:
    """The pods that rows may name, by `of_owners` or by a page."""
    holders = {match.assignment.owner.pod_key for match in snapshot.owners.matches}
    named = set[PodName]()
    for subject in snapshot.joined.subjects if snapshot.joined else ():
        named |= {owner.pod_key for owner in (subject.came_with, subject.exported) if owner}
    return [*of_owners.values(), *(pods[key] for key in named - holders if key in pods)]
