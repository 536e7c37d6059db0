"""The settings of the cluster role: where the node exporters are, and how the role asks them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from exporter.config import parsers
from exporter.config.common import KubernetesSettings, LogSettings, WebSettings
from exporter.config.gather import check_not_own_address, check_once, gather, make
from exporter.config.http_file import HttpConfig
from exporter.config.named_files import read_http_file
from exporter.config.parsers import FILE, NUMBER, POSITIVE_DURATION, SettingKind
from exporter.config.settings import (
    Configuration,
    SettingTexts,
    all_settings,
    by_default,
    groups_of,
    optional,
    setting,
    several,
)
from exporter.config.tls import ClientTls
from exporter.errors import ConfigError
from exporter.lenient import AnyObject

DEFAULT_PORT = 9400  # of a node exporter


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Where the node exporters answer, or the Prometheus server that scrapes them, and how the role asks them.

    The user gives exactly one of `nodes`, `service`, `selector` and `prometheus_url`.

    Attributes:
        nodes: names and URLs of node exporters. With the name "" the exporter says its node's name.
        service: namespace and name.
        namespace: where `selector` finds pods; None without a selector.
        port: a number, or the name of a port of the service.
    """

    nodes: tuple[tuple[str, str], ...] = several(
        "cluster.node",
        SettingKind(
            parsers.node_address,
            "[NAME=]URL such as gpu-1=http://10.0.0.1:9400, without a user or a query",
            "[NAME=]URL",
        ),
        "A node's exporter, and the node's name if you know it.",
    )
    service: tuple[str, str] | None = optional(
        "cluster.service",
        SettingKind(parsers.namespaced_name, "NAMESPACE/NAME", "NAMESPACE/NAME"),
        "The Service of the node exporters. The role asks each address of its EndpointSlices.",
    )
    selector: tuple[tuple[str, str], ...] | None = optional(
        "cluster.selector",
        SettingKind(
            parsers.selector,
            "labels such as app.kubernetes.io/name=pod-gpu-metrics-exporter, comma-separated",
            "LABELS",
        ),
        "The labels of the node exporters' pods. The role asks each such pod.",
    )
    namespace: str | None = optional(
        "cluster.namespace",
        SettingKind(parsers.namespace, "a namespace's name", "NAMESPACE"),
        "The namespace of these pods. Whoever may create pods there is believed. Default: this pod's own.",
    )
    port: str | None = optional(
        "cluster.port",
        SettingKind(parsers.port_or_name, "a port's number, or the name of a Service's port", "PORT"),
        "The exporters' port. Default: 9400 for pods; of a Service its only port, or the one that is called metrics,"
        " http-metrics or http.",
    )
    prometheus_url: str | None = optional(
        "cluster.prometheus",
        SettingKind(parsers.base_url, "a URL such as http://prometheus:9090, without a user or a query", "URL"),
        "Prometheus, Thanos or Mimir. The role asks it in place of the node exporters.",
    )
    prometheus_matchers: str | None = optional(
        "cluster.prometheus-matchers",
        SettingKind(parsers.matchers, 'matchers of PromQL such as cluster="a",env!="test"', "MATCHERS"),
        "Which node exporters count, if Prometheus scrapes several clusters.",
    )
    prometheus_labels: tuple[str, str, str] | None = optional(
        "cluster.prometheus-labels",
        SettingKind(parsers.label_names, "pod, legacy or pod=x,namespace=y,container=z", "NAMES"),
        "The owner's labels on Prometheus' samples: the node exporters' --labels.names. Default: pod.",
    )
    interval_seconds: float = setting(
        "cluster.interval",
        POSITIVE_DURATION,
        "How often the role asks each node exporter, or Prometheus.",
        default="10s",
    )
    timeout_seconds: float = setting(
        "cluster.timeout", POSITIVE_DURATION, "How long an answer may take. For Prometheus: 10s.", default="2s"
    )
    max_age_seconds: float = setting(
        "cluster.max-age",
        POSITIVE_DURATION,
        "A node whose last answer is older is missing. For Prometheus' last scrape: 90s.",
        default="30s",
    )
    max_bytes: int = setting(
        "cluster.max-bytes",
        NUMBER,
        "The largest answer, in bytes after decompression. For Prometheus: 67108864.",
        default="4194304",
    )
    http_config_file: str | None = optional(
        "cluster.http-config",
        FILE,
        "TLS and authorisation towards the node exporters or Prometheus, in the form of Prometheus' http_config.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KedaSettings:
    """The address at which the role answers KEDA's external scaler; None for nowhere."""

    listen_address: parsers.Address | None = optional(  # noqa: RUF009 - a field, as all settings are
        "keda.listen-address",
        SettingKind(parsers.address, "an address such as :9401, 127.0.0.1:9401 or [::1]:9401", "ADDRESS"),
        "Where to answer KEDA's triggers `external` and `external-push`, over gRPC with the TLS of --web.config.file."
        " Default: nowhere.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig(Configuration):
    """The configuration of the cluster role; durations are in seconds."""

    web: WebSettings
    cluster: ClusterSettings
    keda: KedaSettings
    kubernetes: KubernetesSettings
    log: LogSettings

    def _named_files(self) -> tuple[str | None, ...]:
        return self.web.config_file, self.cluster.http_config_file


GROUPS = groups_of(ClusterConfig)
SETTINGS = all_settings(ClusterConfig)
_SETTINGS = {setting.name: setting for setting in SETTINGS}
_WAYS = ("cluster.node", "cluster.service", "cluster.selector", "cluster.prometheus")
# Defaults with Prometheus: one server answers for all nodes, and its samples are as old as its last scrape, often 30 s.
_OF_PROMETHEUS = {"cluster.timeout": "10s", "cluster.max-age": "90s", "cluster.max-bytes": "67108864"}


def load_cluster(
    flags: Mapping[str, Sequence[str]],
    environ: Mapping[str, str],
    file: AnyObject | None,
    config_file: str | None = None,
    own_namespace: str = "",
) -> ClusterConfig:
    """The configuration; arguments and errors are those of `load` in load.py."""
    given = gather(_SETTINGS, flags, environ, file)
    given.update(_following(given, environ.get("POD_NAMESPACE", "").strip() or own_namespace))
    config = make(ClusterConfig, _SETTINGS, given, environ, config_file)
    _check_together(config)
    return config


def read_cluster_http(cluster: ClusterSettings) -> HttpConfig:
    """The settings of --cluster.http-config. Raises ConfigError: the file, or a file that it names, cannot be used."""
    flag = "--cluster.http-config"
    path = cluster.http_config_file
    http = read_http_file(path, flag)
    if http.scheme and not cluster.nodes and not cluster.prometheus_url and http.tls == ClientTls():
        raise ConfigError(
            f"{flag}: {path!r}: a password or a token is never sent over plain HTTP to what the Kubernetes API names;"
            " give tls_config too, and the node exporters are asked over HTTPS"
        )
    return http


def _following(given: Mapping[str, SettingTexts], own_namespace: str) -> dict[str, SettingTexts]:
    """The settings that follow from other settings: defaults with Prometheus, and the namespace for a selector."""
    if "cluster.prometheus" in given:
        return {
            name: by_default(f"--{name} with --cluster.prometheus", text)
            for name, text in _OF_PROMETHEUS.items()
            if given[name].origin == "default"
        }
    if "cluster.selector" not in given or "cluster.namespace" in given or not own_namespace:
        return {}
    return {"cluster.namespace": SettingTexts("this pod's own namespace", (own_namespace,))}


def _check_together(config: ClusterConfig) -> None:
    """Raises ConfigError: settings that are valid alone contradict one another, or a node is named twice."""
    cluster = config.cluster
    _check_ways(config)
    _check_prometheus(config)
    _check_selector(config)
    _check_times(cluster)
    _check_keda(config)
    for flag, values in (
        ("--cluster.node", tuple(url for _, url in cluster.nodes)),
        ("--cluster.node", tuple(name for name, _ in cluster.nodes if name)),
        ("--web.listen-address", config.web.listen_addresses),
    ):
        check_once(flag, values)
    for _, url in cluster.nodes:
        check_not_own_address("--cluster.node", urlsplit(url), config.web.listen_addresses)


def _check_ways(config: ClusterConfig) -> None:
    """Refuse a configuration that finds node exporters in no way, or in several."""
    given = dict(config.given)
    ways = [f"--{name}" for name in _WAYS if name in given]
    if not ways:
        raise ConfigError(f"nothing says where the node exporters are: give one of --{', --'.join(_WAYS)}")
    if len(ways) > 1:
        raise ConfigError(f"{ways[0]}: it contradicts {ways[1]}; node exporters are found in one way")


def _check_selector(config: ClusterConfig) -> None:
    """Refuse a selector, namespace or port that does not fit the way in which node exporters are found."""
    cluster = config.cluster
    given = dict(config.given)
    is_by_api = not cluster.nodes and not cluster.prometheus_url
    if is_by_api and not config.kubernetes.url:
        way = next(name for name in _WAYS if name in given)
        raise ConfigError(
            f"--{way}: it needs the Kubernetes API: run in a pod with a service account, or name it with"
            " --kubernetes.url"
        )
    if cluster.selector is None and "cluster.namespace" in given:
        raise ConfigError("--cluster.namespace: it goes with --cluster.selector; leave it out")
    if cluster.selector is not None and cluster.namespace is None:
        raise ConfigError("--cluster.selector: it is not known in which namespace; name it with --cluster.namespace")
    if cluster.port is None:
        return
    if cluster.nodes:
        raise ConfigError("--cluster.port: the port is a part of each --cluster.node; leave it out")
    if cluster.selector and not cluster.port.isdigit():
        raise ConfigError(
            f"--cluster.port: {cluster.port!r} is not allowed with --cluster.selector; it takes a port's number"
        )


def _check_prometheus(config: ClusterConfig) -> None:
    cluster = config.cluster
    if cluster.prometheus_url:
        check_not_own_address("--cluster.prometheus", urlsplit(cluster.prometheus_url), config.web.listen_addresses)
        if cluster.port is not None:
            raise ConfigError("--cluster.port: the port is a part of --cluster.prometheus; leave it out")
        return
    for name in ("cluster.prometheus-matchers", "cluster.prometheus-labels"):
        if name in dict(config.given):
            raise ConfigError(f"--{name}: it goes with --cluster.prometheus; leave it out")


def _check_keda(config: ClusterConfig) -> None:
    address = config.keda.listen_address
    if address and address.port and address in config.web.listen_addresses:
        raise ConfigError(f"--keda.listen-address: {address} is --web.listen-address too; give it a port of its own")


def _check_times(cluster: ClusterSettings) -> None:
    if cluster.max_age_seconds < cluster.interval_seconds + cluster.timeout_seconds:
        raise ConfigError(
            f"--cluster.max-age: {cluster.max_age_seconds:g}s is less than --cluster.interval and --cluster.timeout"
            f" together ({cluster.interval_seconds + cluster.timeout_seconds:g}s): nodes would be missing between two"
            " good answers"
        )
