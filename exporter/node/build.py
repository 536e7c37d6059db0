"""From a `Config` to the parts of the node role: sources, rules and policies."""

import asyncio
import logging
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from exporter import __version__
from exporter.attribution.fields import ADDITIVE, Additive
from exporter.attribution.labels import LabelPolicy
from exporter.attribution.pod_labels import PodLabelPolicy
from exporter.attribution.rule_file import DeviceRules, read_rules
from exporter.config.http_file import HttpConfig
from exporter.config.node import Config
from exporter.config.pages import source_names
from exporter.config.parsers import Selector
from exporter.config.tls import ClientTls
from exporter.errors import ConfigError
from exporter.exposition.gpu_families import only_gpu_families
from exporter.log import log
from exporter.model.snapshot import Health
from exporter.sources.inventory_file import InventoryFile
from exporter.sources.kubelet.assignments import KubeletSource
from exporter.sources.kubelet.pods import PodsApi
from exporter.sources.kubernetes.api import KubernetesApi
from exporter.sources.kubernetes.pods import ApiPods
from exporter.sources.kubernetes.slices import ApiSlices
from exporter.sources.kubernetes.workloads import Workloads
from exporter.sources.pages.discovery import Discovery
from exporter.sources.pages.file import PromFileSource
from exporter.sources.pages.url import DcgmSource

OnHealth = Callable[[str, Health], None]
PageSource = DcgmSource | PromFileSource
PodsSource = PodsApi | ApiPods


class Closable(Protocol):
    """What every source can do."""

    async def close(self) -> None:
        """End what is in flight."""


S = TypeVar("S", bound=Closable)


class Sources:
    """The sources of one configuration. Those that the configuration before had too, with the same settings, go on.

    A reload therefore loses no owner, no connection and no divided counter of a source that it does not change.
    """

    def __init__(self, on_health: OnHealth, before: "Sources | None" = None) -> None:
        self._on_health = on_health
        self._before: Mapping[Hashable, Closable] = before.made if before else {}
        self.made: dict[Hashable, Closable] = {}

    def get(self, make: Callable[..., S], **settings: Hashable) -> S:
        """The source that `make` made of these settings before, or else makes now."""
        key = (make, *sorted(settings.items()))
        known = self.made.get(key, self._before.get(key))
        # not by its truth: a source that knows nothing yet may be empty
        source: S = make(**settings, on_health=self._on_health) if known is None else known  # type: ignore[assignment] # a key names its type
        self.made[key] = source
        return source

    def settle(self) -> None:
        """The configuration before is history: let go of it."""
        self._before = {}

    def not_in(self, other: "Sources") -> Iterable[Closable]:
        """Those that the other does not have."""
        return [source for key, source in self.made.items() if key not in other.made]

    def all(self) -> Iterable[Closable]:
        """Every one."""
        return tuple(self.made.values())


def page_sources(config: Config, http: HttpConfig, instance: str, sources: Sources) -> tuple[PageSource, ...]:
    """The sources of GPU samples. `instance` is what this process calls itself in the header Via."""
    headers = _headers(instance)
    urls = (
        sources.get(
            DcgmSource,
            name=name,
            url=url,
            timeout_seconds=config.dcgm.timeout_seconds,
            max_bytes=config.dcgm.max_bytes,
            headers=headers,
            http=http,
        )
        for name, url in zip(source_names(config.dcgm.urls), config.dcgm.urls, strict=True)
    )
    files = (
        sources.get(
            PromFileSource,
            path=path,
            max_age_seconds=config.dcgm.file_max_age_seconds,
            max_bytes=config.dcgm.max_bytes,
        )
        for path in config.dcgm.files
    )
    return (*urls, *files)


def _headers(instance: str) -> tuple[tuple[str, str], ...]:
    return ("User-Agent", f"pod-gpu-metrics-exporter/{__version__}"), ("Via", f"1.1 {instance}")


def discovery(config: Config, http: HttpConfig, instance: str, sources: Sources) -> Discovery | None:
    """What finds dcgm-exporter's pods; None without --dcgm.selector."""
    if not config.dcgm.selectors:
        return None
    # what knows of TLS is asked over it; in the clear, whoever has the address would be told the credentials
    by_tls = http.tls != ClientTls()
    return sources.get(
        _discovery,
        selectors=config.dcgm.selectors,
        namespaces=config.dcgm.namespaces,
        scheme="https" if by_tls else "http",
        takes_all_families=bool(config.families.allow),
        port=config.dcgm.port,
        path=config.dcgm.path,
        timeout_seconds=config.dcgm.timeout_seconds,
        max_bytes=config.dcgm.max_bytes,
        headers=_headers(instance),
        http=http if by_tls else HttpConfig(),
    )


def _discovery(
    *,
    selectors: tuple[Selector, ...],
    namespaces: tuple[str, ...],
    scheme: str,
    takes_all_families: bool,
    port: int,
    path: str,
    on_health: OnHealth,
    **settings: Any,  # noqa: ANN401 - what every DcgmSource is given
) -> Discovery:
    def make(name: str, url: str, places: asyncio.Semaphore) -> DcgmSource:
        admit = None if takes_all_families else _gpu_families_from(name)
        return DcgmSource(name=name, url=url, places=places, on_health=on_health, admit=admit, **settings)

    return Discovery(selectors=selectors, namespaces=namespaces, port=port, path=path, make=make, scheme=scheme)


def _gpu_families_from(name: str) -> Callable[[bytes], bytes]:
    """What a pod that was found may bring; that it brings more is said once."""
    complained = False

    def admit(page: bytes) -> bytes:
        nonlocal complained
        admitted = only_gpu_families(page)
        if admitted is not page and not complained:
            complained = True
            log(
                logging.WARNING,
                "a pod that was found brings families that are not dcgm-exporter's: they are left out;"
                " --families.allow takes them",
                source=name,
            )
        return admitted

    return admit


def kubelet_source(config: Config, sources: Sources) -> KubeletSource:
    """The kubelet's pod-resources socket."""
    return sources.get(
        KubeletSource,
        socket=config.kubelet.socket,
        timeout_seconds=config.kubelet.timeout_seconds,
        max_age_seconds=config.kubelet.max_age_seconds,
        max_stale_seconds=config.kubelet.max_stale_seconds,
        resources=config.devices.resources,
        claims=config.devices.dra != "off",
        node=config.node.name,
    )


def inventory_source(config: Config, sources: Sources) -> InventoryFile | None:
    """The inventory, if one is named.

    Raises:
        ConfigError: it cannot be used.
    """
    return sources.get(InventoryFile, path=config.devices.inventory_file) if config.devices.inventory_file else None


def device_rules(config: Config, content: object) -> DeviceRules:
    """The built-in rules, and those of --device-rules, of which `content` is the parsed file.

    Raises:
        ConfigError: the file cannot be used.
    """
    if config.devices.rules_file is None:
        return DeviceRules()
    flag = "--device-rules"
    try:
        rules = read_rules(content)
    except ValueError as error:
        raise ConfigError(f"{flag}: {config.devices.rules_file!r}: {error}") from error
    for name in config.labels.names:
        if name in rules.sample_labels.all:
            raise ConfigError(f"--labels.names: {name!r} is not allowed; {flag} reads the device from it")
    return rules


def label_policy(config: Config, rules: DeviceRules, *, divides_counters: bool) -> LabelPolicy:
    """The label flags; `divides_counters` is off where only one page will be made."""
    additive: Mapping[str, Additive] = {
        **ADDITIVE,
        **dict.fromkeys(config.sharing.gauges, Additive.GAUGE),
        **dict.fromkeys(config.sharing.counters, Additive.COUNTER),
    }
    return LabelPolicy(
        names=config.labels.names,
        incoming_wins=config.labels.incoming_wins,
        idle_labels=config.labels.idle,
        sharing=config.sharing.mode,
        additive=additive,
        divides_counters=divides_counters,
        has_pod_labels=bool(config.labels.pod_labels),
        has_claims=config.devices.dra != "off",
        sample_labels=rules.sample_labels,
    )


def pod_label_policy(config: Config) -> PodLabelPolicy | None:
    """Which labels come from pods; None where none do, and no source of pods is needed."""
    if not config.labels.pod_uid and not config.labels.pod_labels:
        return None
    return PodLabelPolicy(
        with_uid=config.labels.pod_uid,
        patterns=tuple(map(re.compile, config.labels.pod_labels)),
        limit=config.labels.pod_labels_limit,
    )


def pods_source(config: Config, sources: Sources) -> PodsSource | None:
    """The source of pods that --pods.source means; None where `auto` finds neither, for now."""
    auto = config.pods.source == "auto"
    if config.pods.source == "kubelet" or (auto and Path(config.pods.kubelet_socket).is_socket()):
        return sources.get(
            PodsApi, socket=config.pods.kubelet_socket, max_stale_seconds=config.kubelet.max_stale_seconds
        )
    if config.kubernetes.url is not None and (not auto or Path(config.kubernetes.token_file).exists()):
        return sources.get(_api_pods, **_api_settings(config))
    return None


def slices_source(config: Config, sources: Sources) -> ApiSlices | None:
    """The source of ResourceSlices; None with --dra off, where there is no Kubernetes API, or for `auto` no token."""
    wanted = (
        config.kubernetes.url if config.devices.dra == "on" else config.devices.dra == "auto" and _may_ask_api(config)
    )
    return sources.get(_api_slices, **_api_settings(config)) if wanted else None


def workloads_source(config: Config, sources: Sources) -> Workloads:
    """Workloads of pods; without a Kubernetes API, those that pods themselves tell."""
    settings = _api_settings(config) if _may_ask_api(config) else {}
    return sources.get(_workloads, labels=config.workloads.labels, **settings)


def _may_ask_api(config: Config) -> bool:
    """Whether there is a Kubernetes API, and a token for it; plain HTTP (`kubectl proxy`) needs none."""
    url = config.kubernetes.url
    return url is not None and (Path(config.kubernetes.token_file).exists() or not url.startswith("https:"))


def _workloads(
    *,
    labels: tuple[str, ...],
    on_health: OnHealth,  # noqa: ARG001 - it is no source of its own: what it lacks is left out
    url: str = "",
    token_file: str = "",
    ca_file: str = "",
    node_name: str = "",  # noqa: ARG001 - an object's path does not need it
) -> Workloads:
    api = KubernetesApi(url=url, token_file=token_file, ca_file=ca_file) if url else None
    return Workloads(api=api, labels=labels)


def _api_settings(config: Config) -> Mapping[str, Hashable]:
    return {
        "url": config.kubernetes.url,
        "token_file": config.kubernetes.token_file,
        "ca_file": config.kubernetes.ca_file,
        "node_name": config.node.name,
    }


def _api_pods(*, url: str, token_file: str, ca_file: str, node_name: str, on_health: OnHealth) -> ApiPods:
    api = KubernetesApi(url=url, token_file=token_file, ca_file=ca_file)
    return ApiPods(api=api, node_name=node_name, on_health=on_health)


def _api_slices(*, url: str, token_file: str, ca_file: str, node_name: str, on_health: OnHealth) -> ApiSlices:
    api = KubernetesApi(url=url, token_file=token_file, ca_file=ca_file)
    return ApiSlices(api=api, node_name=node_name, on_health=on_health)


def family_filter(allow: Sequence[str], deny: Sequence[str]) -> Callable[[str], bool]:
    """Whether a family goes out: its whole name matches one of `allow` (if there are any) and none of `deny`."""
    allowed, denied = [re.compile(text) for text in allow], [re.compile(text) for text in deny]

    def wanted(name: str) -> bool:
        return (not allowed or any(pattern.fullmatch(name) for pattern in allowed)) and not any(
            pattern.fullmatch(name) for pattern in denied
        )

    return wanted
