"""From a `Config` to the parts of the node role: sources, rules and policies."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from exporter import __version__
from exporter.attribution.fields import ADDITIVE, Additive
from exporter.attribution.labels import LabelPolicy
from exporter.attribution.pod_labels import PodLabelPolicy
from exporter.attribution.rule_file import DeviceRules, read_rules
from exporter.config import Config, source_names
from exporter.errors import ConfigError
from exporter.files import read_structured
from exporter.model import Health
from exporter.sources.dcgm import DcgmSource
from exporter.sources.kubernetes import ApiPods, ApiSlices, KubernetesApi
from exporter.sources.pods_api import PodsApi
from exporter.sources.promfile import PromFileSource

OnHealth = Callable[[str, Health], None]
PageSource = DcgmSource | PromFileSource
PodsSource = PodsApi | ApiPods


def page_sources(config: Config, instance: str, on_health: OnHealth) -> tuple[PageSource, ...]:
    """The sources of GPU samples. `instance` is what this process calls itself in the header Via."""
    headers = {"User-Agent": f"pod-gpu-metrics-exporter/{__version__}", "Via": f"1.1 {instance}"}
    urls = (
        DcgmSource(
            name=name,
            url=url,
            timeout_seconds=config.dcgm_timeout_seconds,
            max_bytes=config.dcgm_max_bytes,
            on_health=on_health,
            headers=headers,
        )
        for name, url in zip(source_names(config.dcgm_urls), config.dcgm_urls, strict=True)
    )
    files = (
        PromFileSource(
            path=path,
            max_age_seconds=config.dcgm_file_max_age_seconds,
            max_bytes=config.dcgm_max_bytes,
            on_health=on_health,
        )
        for path in config.dcgm_files
    )
    return (*urls, *files)


def device_rules(config: Config) -> DeviceRules:
    """The built-in rules, and those of --device-rules.

    Raises:
        ConfigError: the file cannot be used.
    """
    if config.device_rules is None:
        return DeviceRules()
    flag = "--device-rules"
    content = read_structured(config.device_rules, flag)
    try:
        rules = read_rules(content)
    except ValueError as error:
        raise ConfigError(f"{flag}: {config.device_rules!r}: {error}") from error
    for name in config.label_names:
        if name in rules.sample_labels.all:
            raise ConfigError(f"--labels.names: {name!r} is not allowed; {flag} reads the device from it")
    return rules


def label_policy(config: Config, rules: DeviceRules, *, divides_counters: bool) -> LabelPolicy:
    """The label flags; `divides_counters` is off where only one page will be made."""
    additive: Mapping[str, Additive] = {
        **ADDITIVE,
        **dict.fromkeys(config.sharing_gauges, Additive.GAUGE),
        **dict.fromkeys(config.sharing_counters, Additive.COUNTER),
    }
    return LabelPolicy(
        names=config.label_names,
        incoming_wins=config.incoming_wins,
        idle_labels=config.idle_labels,
        sharing=config.sharing,
        additive=additive,
        divides_counters=divides_counters,
        has_pod_labels=bool(config.pod_labels),
        has_claims=config.dra,
        sample_labels=rules.sample_labels,
    )


def pod_label_policy(config: Config) -> PodLabelPolicy | None:
    """Which labels come from pods; None where none do, and no source of pods is needed."""
    if not config.pod_uid and not config.pod_labels:
        return None
    return PodLabelPolicy(with_uid=config.pod_uid, patterns=tuple(map(re.compile, config.pod_labels)))


def pods_source(config: Config, on_health: OnHealth) -> PodsSource | None:
    """The source of pods that --pods.source means; None where `auto` finds neither, for now."""
    auto = config.pods_source == "auto"
    if config.pods_source == "kubelet" or (auto and Path(config.kubelet_pods_socket).is_socket()):
        return PodsApi(socket=config.kubelet_pods_socket, on_health=on_health)
    api = kubernetes_api(config)
    if api is not None and (not auto or Path(config.kubernetes_token_file).exists()):
        return ApiPods(api=api, node_name=config.node_name, on_health=on_health)
    return None


def slices_source(config: Config, on_health: OnHealth) -> ApiSlices | None:
    """The source of ResourceSlices; None without --dra, or where there is no Kubernetes API."""
    api = kubernetes_api(config) if config.dra else None
    return ApiSlices(api=api, node_name=config.node_name, on_health=on_health) if api else None


def kubernetes_api(config: Config) -> KubernetesApi | None:
    """The API server, if one is known."""
    if config.kubernetes_url is None:
        return None
    return KubernetesApi(
        url=config.kubernetes_url, token_file=config.kubernetes_token_file, ca_file=config.kubernetes_ca_file
    )


def family_filter(allow: Sequence[str], deny: Sequence[str]) -> Callable[[str], bool]:
    """Whether a family goes out: its whole name matches one of `allow` (if there are any) and none of `deny`."""
    allowed, denied = [re.compile(text) for text in allow], [re.compile(text) for text in deny]

    def wanted(name: str) -> bool:
        return (not allowed or any(pattern.fullmatch(name) for pattern in allowed)) and not any(
            pattern.fullmatch(name) for pattern in denied
        )

    return wanted
