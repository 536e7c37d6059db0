"""The parts of a look, in their order, each made of the sources that it asks.

Tests: tests/node/test_sources.py.
"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from exporter import __version__
from exporter.config.named_files import NodeFiles
from exporter.config.node_settings import Config
from exporter.node.allocators import AllocatorPods
from exporter.node.build_sources import make_api, may_ask, no_pods_for_allocators
from exporter.node.claims import ClaimLookUp
from exporter.node.handover import NodeHandover, WantedStreams
from exporter.node.node_evidence import KeptEvidence, NodeEvidence
from exporter.node.part import Shows
from exporter.node.shared_sources import Sources
from exporter.node.small_parts import (
    BegunPart,
    HostPart,
    KernelLogPart,
    PageGenerationsPart,
    PodsPart,
    ProbePart,
    VerdictsPart,
    WorkloadsPart,
)
from exporter.ownership.current import CurrentOwners
from exporter.ownership.device_health import HealthWatch
from exporter.ownership.verdicts import Verdicts
from exporter.sources.host.host_source import HostSource
from exporter.sources.kubelet.device_checkpoint import DeviceCheckpoint, device_checkpoint_beside
from exporter.sources.kubernetes.workloads import Workloads
from exporter.sources.source import OnHealth, SourceCache

if TYPE_CHECKING:
    from exporter.node.environments import EnvironmentsOfContainers
    from exporter.node.pushing import Pusher


def make_parts(
    config: Config, files: NodeFiles, sources: Sources, owners: CurrentOwners, handover: NodeHandover, *, may_push: bool
) -> tuple[list[Shows], list[object]]:
    """The parts that read the machine itself, and all others."""
    machine: list[Shows] = [sources.inventory]
    if sources.nvml not in sources.inventory.parts:
        machine.append(BegunPart(sources.nvml))
    if sources.measuring is not None:
        machine.append(sources.measuring)
    if config.probe.is_on:
        machine.append(_probe(config, sources, handover))
    wanted = handover.the(WantedStreams)
    missed = no_pods_for_allocators(config.pods.kubelet_socket)
    checkpoint = _checkpoint(config, sources)
    others: list[object] = [
        PodsPart(sources, wanted, kubelet_socket=_pods_socket(config)),
        AllocatorPods(config.allocators, sources, owners, wanted, missed, checkpoint),
        ClaimLookUp(sources, owners, wanted),
        HostPart(sources.cache.get(HostSource, root=config.root)),
        PageGenerationsPart(),
        WorkloadsPart(_workloads(config, sources.cache), sources, owners),
        VerdictsPart(handover.the(HealthWatch), handover.the(Verdicts), sources, owners),
    ]
    if may_push and config.otlp.url is not None:
        others.append(_pusher(config, config.otlp.url, files, sources.cache, handover))
    if sources.kernel_log is not None:
        others.append(KernelLogPart(sources.kernel_log, sources, owners))
    return machine, others


def _pods_socket(config: Config) -> Path | None:
    """The socket of the kubelet's Pods API; None if the user wants pods of the Kubernetes API only."""
    return None if config.pods.source == "api" else Path(config.pods.kubelet_socket)


def _checkpoint(config: Config, sources: Sources) -> DeviceCheckpoint:
    """The kubelet's checkpoint, which lies beside its socket.

    Two parts ask for it: one reads what plugins gave, the other misses no pods where it is there.
    """
    return sources.cache.get(DeviceCheckpoint, path=device_checkpoint_beside(config.kubelet.socket))


def make_evidence(config: Config, handover: NodeHandover, sources: Sources, owners: CurrentOwners) -> NodeEvidence:
    """The part, with what the previous one remembers."""
    kept = handover.the(KeptEvidence)
    return NodeEvidence(
        sources=sources,
        owners=owners,
        rules=owners.knowledge.rules,
        kept=kept,
        checkpoint=_checkpoint(config, sources),
        environments=_environments(config.root, sources, kept) if config.allocators.reads_environ else None,
    )


def _environments(root: str, sources: Sources, kept: KeptEvidence) -> "EnvironmentsOfContainers":
    # only this setting needs these modules
    from exporter.node.environments import EnvironmentsOfContainers  # noqa: PLC0415
    from exporter.sources.container_logs import ContainerLogs  # noqa: PLC0415
    from exporter.sources.process_environ import Environs  # noqa: PLC0415

    return EnvironmentsOfContainers(
        logs=sources.cache.get(ContainerLogs, root=root),
        environs=sources.cache.get(Environs, root=root),
        turnover=kept.turnover,
    )


def _pusher(config: Config, url: str, files: NodeFiles, cache: SourceCache, handover: NodeHandover) -> "Pusher":
    from exporter.node.pushing import Pusher  # noqa: PLC0415 - nobody else pays for it

    return cache.get(
        Pusher,
        url=url,
        interval_seconds=config.otlp.interval_seconds,
        headers=config.otlp.headers,
        http=files.otlp_http,
        resource=config.otlp.resource,
        version=__version__,
        telemetry=handover.telemetry,
    )


def _workloads(config: Config, cache: SourceCache) -> Workloads:
    api = asdict(config.kubernetes) if may_ask(config.kubernetes) else {}
    return cache.get(_make_workloads, labels=config.workloads.labels, **api)


def _probe(config: Config, sources: Sources, handover: NodeHandover) -> ProbePart:
    """The CUDA probe with its totals, which outlive a reload."""
    # nobody else pays for these
    from exporter.probe.cuda_ledger import CudaTotals  # noqa: PLC0415
    from exporter.probe.probe_source import CudaProbe  # noqa: PLC0415
    from exporter.probe.probing import Probing  # noqa: PLC0415

    settings, root, cache = config.probe, config.root, sources.cache
    probe = cache.get(
        CudaProbe,
        proc=f"{root.rstrip('/')}/proc",
        interval_seconds=settings.interval_seconds,
        max_programs=settings.max_programs,
        any_kernel=settings.any_kernel,
    )
    totals, keep_seconds = handover.the(CudaTotals), config.accounting.keep_seconds
    probing = cache.get(Probing, probe=probe, totals=totals, root=root, keep_seconds=keep_seconds)
    return ProbePart(probing, sources)


def _make_workloads(*, labels: tuple[str, ...], on_health: OnHealth, **api: str) -> Workloads:  # noqa: ARG001 - the log says what it lacks
    """Without a Kubernetes API, those that pods themselves tell."""
    return Workloads(api=make_api(**api) if api else None, labels=labels)
