"""The settings of the cluster role: where the node exporters are, and how they are asked.

A new setting is one field here (or in common.py); whoever reads it is given its group, or the value.
"""

from dataclasses import dataclass

from exporter.config.common import KubernetesSettings, LogSettings, WebSettings
from exporter.config.given import Configuration
from exporter.config.kinds import FILE, NUMBER, POSITIVE_DURATION, Kind
from exporter.config.parsers import (
    Address,
    address,
    base_url,
    label_names,
    matchers,
    namespace,
    namespaced_name,
    node_address,
    port_or_name,
    selector,
)
from exporter.config.settings import groups_of, optional, setting, settings_of, several

DEFAULT_PORT = 9400  # of a node exporter


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Where the node exporters answer, or the Prometheus server that scrapes them, and how each is asked.

    One of four ways is given. `nodes` are names and URLs; the name is "" where the exporter is to say it. `service` is
    a namespace and a name. `namespace` is None where there is no selector; `port` is a number, or the name of a port of
    the service.
    """

    nodes: tuple[tuple[str, str], ...] = several(
        "cluster.node",
        Kind(node_address, "[NAME=]URL such as gpu-1=http://10.0.0.1:9400, without a user or a query", "[NAME=]URL"),
        "A node's exporter, and the node's name where it is known.",
    )
    service: tuple[str, str] | None = optional(
        "cluster.service",
        Kind(namespaced_name, "NAMESPACE/NAME", "NAMESPACE/NAME"),
        "The Service of the node exporters: every address of its EndpointSlices is asked.",
    )
    selector: tuple[tuple[str, str], ...] | None = optional(
        "cluster.selector",
        Kind(selector, "labels such as app.kubernetes.io/name=pod-gpu-metrics-exporter, comma-separated", "LABELS"),
        "The labels of the node exporters' pods: every such pod is asked.",
    )
    namespace: str | None = optional(
        "cluster.namespace",
        Kind(namespace, "a namespace's name", "NAMESPACE"),
        "Where --cluster.selector finds pods: whoever makes pods there is believed. Default: this pod's own.",
    )
    port: str | None = optional(
        "cluster.port",
        Kind(port_or_name, "a port's number, or the name of a Service's port", "PORT"),
        "The exporters' port. Default: 9400 for pods; of a Service its only port, or the one that is called metrics,"
        " http-metrics or http.",
    )
    prometheus_url: str | None = optional(
        "cluster.prometheus",
        Kind(base_url, "a URL such as http://prometheus:9090, without a user or a query", "URL"),
        "Prometheus, Thanos or Mimir, which is asked in place of the node exporters.",
    )
    prometheus_matchers: str | None = optional(
        "cluster.prometheus-matchers",
        Kind(matchers, 'matchers of PromQL such as cluster="a",env!="test"', "MATCHERS"),
        "Which of Prometheus' node exporters count, where it knows those of several clusters.",
    )
    prometheus_labels: tuple[str, str, str] | None = optional(
        "cluster.prometheus-labels",
        Kind(label_names, "pod, legacy or pod=x,namespace=y,container=z", "NAMES"),
        "The owner's labels on Prometheus' samples: the node exporters' --labels.names. Default: pod.",
    )
    interval_seconds: float = setting(
        "cluster.interval",
        POSITIVE_DURATION,
        "How often each node exporter, or Prometheus, is asked, whoever asks here.",
        default="10s",
    )
    timeout_seconds: float = setting(
        "cluster.timeout", POSITIVE_DURATION, "How long an answer may take. Of Prometheus: 10s.", default="2s"
    )
    max_age_seconds: float = setting(
        "cluster.max-age",
        POSITIVE_DURATION,
        "An answer that is older does not count: its node is missing. Of Prometheus' last scrape: 90s.",
        default="30s",
    )
    max_bytes: int = setting(
        "cluster.max-bytes",
        NUMBER,
        "The largest answer, in bytes after decompression. Of Prometheus: 67108864.",
        default="4194304",
    )
    http_config_file: str | None = optional(
        "cluster.http-config",
        FILE,
        "TLS and authorisation towards the node exporters or Prometheus, in the form of Prometheus' http_config.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KedaSettings:
    """Where KEDA's external scaler is answered; None for nowhere."""

    listen_address: Address | None = optional(  # noqa: RUF009 - a field, as all settings are
        "keda.listen-address",
        Kind(address, "an address such as :9401, 127.0.0.1:9401 or [::1]:9401", "ADDRESS"),
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
SETTINGS = tuple(found for group in GROUPS.values() for _, found in settings_of(group))
