"""The sources that several parts of a node ask, made of its `Config`, or kept from the node before.

Tests: tests/node/test_sources.py.
"""

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter import __version__
from exporter.config.common import KubernetesSettings
from exporter.config.http_file import HttpConfig
from exporter.config.named_files import NodeFiles
from exporter.config.node_settings import Config, DeviceSettings
from exporter.config.page_settings import USUAL_DCGM_FILE, source_names
from exporter.config.tls import ClientTls
from exporter.exposition.vendor_pages import Vendor
from exporter.model.snapshot import Health
from exporter.node.handover import NodeHandover, WantedStreams
from exporter.node.measuring import Measuring
from exporter.node.policies import gpu_families_from
from exporter.node.shared_sources import Sources
from exporter.sources import driver_inventory
from exporter.sources.cdi import cdi_source as cdi
from exporter.sources.claim_access import Claims, ClaimsApi, NoClaimsApi, checkpoint_beside
from exporter.sources.driver_inventory import DriverInventory
from exporter.sources.kubelet.allocatable import KubeletAllocatable
from exporter.sources.kubelet.assignments import KeptAssignments, KubeletSource
from exporter.sources.node_inventory import DriverSource, Inventories, InventoryFile, InventorySource, NoInventory
from exporter.sources.node_pods import NoPods, Pods
from exporter.sources.pages.discovery import Discovery
from exporter.sources.pages.file import PromFileSource
from exporter.sources.pages.url import DcgmSource, PageSource
from exporter.sources.resource_slices import NoSlices, Slices
from exporter.sources.source import OnHealth, OptionalSource, SourceCache, absent, missing

if TYPE_CHECKING:
    from exporter.sources.kernel_log.kernel_log_source import KernelLog
    from exporter.sources.kubernetes.api import KubernetesApi
    from exporter.sources.kubernetes.node_objects import ApiPods, ApiSlices

Headers = tuple[tuple[str, str], ...]
_NO_PODS = absent(
    "nothing that was asked for is made of pods",
    "ask for labels of pods with --labels.pod-labels, or for workloads with --workload.labels: queues come with both",
)
_NO_SLICES = absent(
    "no claim has needed ResourceSlices so far, or nobody can be asked for them",
    "give access to the Kubernetes API, and do not turn --dra off",
)


def make_sources(
    config: Config,
    files: NodeFiles,
    handover: NodeHandover,
    kept: KeptAssignments,
    *,
    needs_pods: bool,
    annotations: frozenset[str],
    vendor: Vendor | None,
) -> Sources:
    """Make each source, or take it from the cache that `handover` has.

    `needs_pods`: a setting needs pods. `annotations` are those that are kept of a pod. `vendor` has the rules for
    another vendor's pages.
    """
    cache = SourceCache(handover.telemetry.note_health, handover.cache)
    is_nvml_on = config.nvml.mode != "off"
    headers = (("User-Agent", f"pod-gpu-metrics-exporter/{__version__}"), ("Via", f"1.1 {handover.instance}"))
    nvml = _nvml(config.nvml.mode, cache, page_host=config.node.name if config.dcgm.mode == "off" else "")
    measuring = _measuring(config, cache, nvml) if is_nvml_on else None
    pods = _optional_pods(config, cache, handover, annotations, needs_pods=needs_pods)
    slices = _optional_slices(config, cache, handover)
    return Sources(
        kubelet=_kubelet(config, cache, kept),
        allocatable=_allocatable(config, cache, kept),
        pages=_pages(config, files.http, headers, cache, nvml, vendor),
        discovery=_discovery(config, files.http, headers, cache, vendor),
        nvml=nvml,
        measuring=measuring,
        inventory=_inventories(config.devices, config.root, cache, nvml if is_nvml_on else None),
        kernel_log=_kernel_log(config.root, cache, handover) if config.kernel_log.is_on else None,
        pods=pods,
        needs_pods=needs_pods,
        slices=slices,
        claims=_claims(config, cache),
        cache=cache,
    )


def _measuring(config: Config, cache: SourceCache, nvml: DriverSource) -> Measuring:
    is_exposed = config.processes.is_exposed
    return cache.get(Measuring, nvml=nvml, root=config.root, is_missed=config.nvml.mode == "on", is_exposed=is_exposed)


def _optional_pods(
    config: Config, cache: SourceCache, handover: NodeHandover, annotations: frozenset[str], *, needs_pods: bool
) -> "OptionalSource[Pods]":
    pods: OptionalSource[Pods] = OptionalSource(
        lambda: _find_pods(config, cache, annotations),
        _no_pods(config.pods.kubelet_socket, cache.on_health, are_missed=needs_pods),
    )
    wanted = handover.the(WantedStreams)
    for_allocators = wanted.allocators and config.allocators.pods != "off"
    if handover.cache is not None and (needs_pods or wanted.workloads or for_allocators):
        # otherwise the first scrape begins it: by then the kubelet may have made its socket
        pods.look()
    return pods


def _optional_slices(config: Config, cache: SourceCache, handover: NodeHandover) -> "OptionalSource[Slices]":
    dra = config.devices.dra
    slices: OptionalSource[Slices] = OptionalSource(
        lambda: _find_slices(dra, config.kubernetes, config.node.name, cache), NoSlices(_NO_SLICES)
    )
    if dra == "on" or handover.the(WantedStreams).slices:
        # with --dra auto the first claim that needs them looks for them
        slices.look()
    return slices


def _kubelet(config: Config, cache: SourceCache, kept: KeptAssignments) -> KubeletSource:
    asks = {"resources": config.devices.resources, "claims": config.devices.follows_claims, "node": config.node.name}
    return cache.get(KubeletSource, settings=config.kubelet, kept=kept, **asks)


def _allocatable(config: Config, cache: SourceCache, kept: KeptAssignments) -> KubeletAllocatable:
    return cache.get(KubeletAllocatable, settings=config.kubelet, resources=config.devices.resources, kept=kept)


def _nvml(mode: str, cache: SourceCache, *, page_host: str) -> DriverSource:
    """The source NVML, unless it is off. `page_host` is the node's name if NVML makes the page, else ""."""
    from exporter.sources.nvml.nvml_source import NoNvml, Nvml  # noqa: PLC0415 - only a node that answers needs it

    if mode == "off":
        return NoNvml()
    # the page is the main job, and without NVML there is no page
    return cache.get(Nvml, is_missed=mode == "on" or bool(page_host), page_host=page_host)


def _pages(
    config: Config,
    http: HttpConfig,
    headers: Headers,
    cache: SourceCache,
    nvml: DriverSource,
    vendor: Vendor | None,
) -> tuple[PageSource, ...]:
    """The named sources of GPU samples, or `nvml` in their place."""
    dcgm = config.dcgm
    if dcgm.mode == "off":
        from exporter.sources.nvml.nvml_source import NvmlPage  # noqa: PLC0415 - only this setting needs it

        return (cache.get(NvmlPage, nvml=nvml),)
    limits: dict[str, Any] = {"max_bytes": dcgm.max_bytes, "vendor": vendor}
    age = dcgm.file_max_age_seconds
    of_urls = {**limits, "timeout_seconds": dcgm.timeout_seconds, "headers": headers}
    named = zip(source_names(dcgm.urls), dcgm.urls, strict=True)
    if config.is_default("dcgm.url"):
        of_urls["unnamed_file"] = f"{config.root.rstrip('/')}{USUAL_DCGM_FILE}"
    urls = (cache.get(DcgmSource, name=name, url=url, http=http, **of_urls) for name, url in named)
    files = (cache.get(PromFileSource, path=path, max_age_seconds=age, **limits) for path in dcgm.files)
    return (*urls, *files)


def _discovery(
    config: Config, http: HttpConfig, headers: Headers, cache: SourceCache, vendor: Vendor | None
) -> Discovery:
    """The discovery of dcgm-exporter's pods; it finds none without --dcgm.selector."""
    dcgm = config.dcgm
    # with settings of TLS only over TLS, since in the clear anybody at that address would get the credentials
    by_tls = http.tls != ClientTls()
    return cache.get(
        _make_discovery,
        selectors=dcgm.selectors,
        namespaces=dcgm.namespaces,
        node=config.node.name,
        scheme="https" if by_tls else "http",
        port=dcgm.port,
        path=dcgm.path,
        takes_all_families=bool(config.families.allow),
        pages=(
            ("vendor", vendor),
            ("timeout_seconds", dcgm.timeout_seconds),
            ("max_bytes", dcgm.max_bytes),
            ("headers", headers),
            ("http", http if by_tls else HttpConfig()),
        ),
    )


def _make_discovery(
    *,
    takes_all_families: bool,
    pages: tuple[tuple[str, Any], ...],
    on_health: OnHealth,
    **settings: Any,  # noqa: ANN401 - the fields of Discovery
) -> Discovery:
    def make(name: str, url: str, places: asyncio.Semaphore) -> DcgmSource:
        admit = None if takes_all_families else gpu_families_from(name)
        return DcgmSource(name=name, url=url, places=places, on_health=on_health, admit=admit, **dict(pages))

    return Discovery(make=make, on_health=on_health, **settings)


def _kernel_log(root: str, cache: SourceCache, handover: NodeHandover) -> "KernelLog":
    # only this setting needs these modules
    from exporter.ownership.kernel_events import KernelEvents  # noqa: PLC0415
    from exporter.sources.kernel_log.kernel_log_source import DEVICE, KernelLog  # noqa: PLC0415

    events = handover.the(KernelEvents)
    return cache.get(KernelLog, path=f"{root.rstrip('/')}{DEVICE}", events=events, telemetry=handover.telemetry)


def _inventories(devices: DeviceSettings, root: str, cache: SourceCache, nvml: DriverSource | None) -> Inventories:
    """The sources that know the node's GPUs, the best first: the user's file, already read, and the machine's own.

    Raises ConfigError: the file cannot be used.
    """
    file = cache.get(InventoryFile, path=devices.inventory_file) if devices.inventory_file else None
    parts: list[InventorySource] = [file] if file else []
    if devices.inventory == "auto":
        base = root.rstrip("/")
        folders = tuple(base + folder for folder in cdi.FOLDERS)
        minors = base + cdi.MINORS
        parts += (
            cache.get(DriverInventory, folder=base + driver_inventory.FOLDER),
            cache.get(cdi.CdiInventory, folders=folders, minors=minors),
            *((nvml,) if nvml is not None else ()),
        )
    return Inventories(parts or [NoInventory()], file)


def _find_pods(config: Config, cache: SourceCache, annotations: frozenset[str]) -> Pods | None:
    """The source of pods that --pods.source means; None while `auto` finds neither."""
    settings, api = config.pods, config.kubernetes
    auto = settings.source == "auto"
    if settings.source == "kubelet" or (auto and Path(settings.kubelet_socket).is_socket()):
        from exporter.sources.kubelet.kubelet_pods import PodsApi  # noqa: PLC0415 - only a node that wants pods pays for it

        max_stale = config.kubelet.max_stale_seconds
        socket = settings.kubelet_socket
        return cache.get(PodsApi, socket=socket, max_stale_seconds=max_stale, annotations=annotations)
    if api.url is not None and (not auto or Path(api.token_file).exists()):
        return cache.get(_make_pods, node_name=config.node.name, annotations=annotations, **asdict(api))
    return None


def _no_pods(kubelet_socket: str, on_health: OnHealth, *, are_missed: bool) -> NoPods:
    why = missing(
        f"neither {kubelet_socket} (Kubernetes 1.37 and later, or 1.36 with the kubelet's gate PodsAPI) nor a token for"
        " the Kubernetes API is there: labels of pods are left out",
        "mount that socket's folder, or a service account's token",
    )
    return NoPods(why if are_missed else _NO_PODS, on_health)


def no_pods_for_allocators(kubelet_socket: str) -> Health:
    """The health of pods if an allocator gives devices on this node, and nothing has the pods."""
    return missing(
        f"neither {kubelet_socket} (Kubernetes 1.37 and later, or 1.36 with the kubelet's gate PodsAPI) nor a token for"
        " the Kubernetes API is there: which GPUs an allocator such as HAMi gave to containers is not known",
        "mount that socket's folder, or a service account's token with the right to list and watch pods (API group"
        ' ""), as deploy/rbac.yaml gives it; --allocators.pods off if it shall not be known',
    )


def _find_slices(dra: str, api: KubernetesSettings, node: str, cache: SourceCache) -> Slices | None:
    """The source of ResourceSlices; None with --dra off, where there is no Kubernetes API, or for `auto` no token."""
    wanted = api.url if dra == "on" else dra == "auto" and may_ask(api)
    return cache.get(_make_slices, node_name=node, **asdict(api)) if wanted else None


def may_ask(api: KubernetesSettings) -> bool:
    """Whether there is a Kubernetes API, and a token for it. Plain HTTP (`kubectl proxy`) needs no token."""
    return api.url is not None and (Path(api.token_file).exists() or not api.url.startswith("https:"))


def _make_pods(*, node_name: str, annotations: frozenset[str], on_health: OnHealth, **api: str) -> "ApiPods":
    from exporter.sources.kubernetes.node_objects import ApiPods  # noqa: PLC0415 - only this setting needs it

    return ApiPods(api=make_api(**api), node_name=node_name, annotations=annotations, on_health=on_health)


def _make_slices(*, node_name: str, on_health: OnHealth, **api: str) -> "ApiSlices":
    from exporter.sources.kubernetes.node_objects import ApiSlices  # noqa: PLC0415 - only this setting needs it

    return ApiSlices(api=make_api(**api), node_name=node_name, on_health=on_health)


def _claims(config: Config, cache: SourceCache) -> Claims:
    path = checkpoint_beside(config.kubelet.socket)
    namespaces = config.devices.admin_namespaces
    return cache.get(_make_claims, path=path, admin_namespaces=namespaces, api=config.kubernetes)


def _make_claims(
    *, path: str, admin_namespaces: tuple[str, ...], api: KubernetesSettings, on_health: OnHealth
) -> Claims:
    def find() -> ClaimsApi | None:
        if not may_ask(api):
            return None
        from exporter.sources.kubernetes.resource_claims import ApiClaims  # noqa: PLC0415 - only this setting needs it

        return ApiClaims(api=make_api(**asdict(api)))

    by_api: OptionalSource[ClaimsApi] = OptionalSource(find, NoClaimsApi())
    return Claims(path=path, api=by_api, admin_namespaces=admin_namespaces, on_health=on_health)


def make_api(**api: str) -> "KubernetesApi":
    """The Kubernetes API by its settings."""
    from exporter.sources.kubernetes.api import KubernetesApi  # noqa: PLC0415 - only a node that asks it pays for it

    return KubernetesApi(**api)
