"""The settings of the operator: what it looks at, and how one of several replicas works.

A new setting is one field here (or in common.py); whoever reads it is given its group, or the value.
"""

from dataclasses import dataclass
from typing import Literal

from exporter.config.common import KubernetesSettings, LogSettings, WebSettings
from exporter.config.given import Configuration
from exporter.config.kinds import POSITIVE_DURATION, Kind, one_of
from exporter.config.parsers import image, namespace
from exporter.config.settings import groups_of, optional, setting, settings_of, several

MOST_LEASE_SECONDS = 3600
_NAMESPACE = Kind(namespace, "a namespace's name", "NAMESPACE")
_IMAGE = Kind(image, "an image such as registry.example.com/exporter:0.1.0", "IMAGE")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """Which custom resources are looked after, and by whom.

    No `namespaces` are all. `lease_namespace` is None where it is not known and no lease is taken.
    """

    namespaces: tuple[str, ...] = several(
        "operator.namespace", _NAMESPACE, "Where custom resources are looked after. Default: everywhere."
    )
    exporter_image: str | None = optional(
        "operator.exporter-image",
        _IMAGE,
        "The image of exporters whose GPUExporter names none. Default: pod-gpu-metrics-exporter of this version.",
    )
    dcgm_image: str | None = optional(
        "operator.dcgm-image",
        _IMAGE,
        "The image of dcgm-exporter where a GPUExporter names none. Default: that of daemonset.yaml.",
    )
    leader_election: Literal["on", "off"] = setting(
        "operator.leader-election",
        one_of("on", "off"),
        "Whether it works only while it holds a lease, so that of several replicas one does.",
        default="on",
    )
    lease_namespace: str | None = optional(
        "operator.lease-namespace", _NAMESPACE, "Where the lease is. Default: this pod's own namespace."
    )
    lease_name: str = setting(
        "operator.lease-name",
        Kind(namespace, "a name of lower-case letters, digits and -", "NAME"),
        "What the lease is called.",
        default="pod-gpu-metrics-operator",
    )
    lease_seconds: float = setting(
        "operator.lease-duration",
        POSITIVE_DURATION,
        "How long a replica that is gone without a word keeps the others from working; whole seconds.",
        default="15s",
    )
    interval_seconds: float = setting(
        "operator.interval",
        POSITIVE_DURATION,
        "How often it looks whether KEDA's and the Prometheus operator's kinds have come or gone.",
        default="5s",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorConfig(Configuration):
    """The configuration of the operator; durations are in seconds."""

    web: WebSettings
    operator: OperatorSettings
    kubernetes: KubernetesSettings
    log: LogSettings

    def _named_files(self) -> tuple[str | None, ...]:
        return (self.web.config_file,)


GROUPS = groups_of(OperatorConfig)
SETTINGS = tuple(found for group in GROUPS.values() for _, found in settings_of(group))
