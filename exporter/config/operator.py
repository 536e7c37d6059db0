"""The settings of the operator: what it looks at, and how one of several replicas works.

A new setting is one field here (or in common.py); whoever reads it is given its group, or the value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

from exporter.config.common import KubernetesSettings, LogSettings, WebSettings
from exporter.config.given import Doubt, Given, shown
from exporter.config.kinds import POSITIVE_DURATION, Kind, one_of
from exporter.config.parsers import image, namespace
from exporter.config.settings import optional, setting, settings_of, several

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
class Groups:
    """The groups, in the order in which --help shows their settings."""

    web: WebSettings
    operator: OperatorSettings
    kubernetes: KubernetesSettings
    log: LogSettings


GROUPS: Mapping[str, type] = {group.name: group.type for group in fields(Groups) if isinstance(group.type, type)}
SETTINGS = tuple(found for group in GROUPS.values() for _, found in settings_of(group))


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorConfig(Groups):
    """The configuration of the operator; durations are in seconds.

    `config_file` is the file that it was read from. `given` is the texts that it was made of, by setting name, and
    `doubts` what was probably meant otherwise.
    """

    config_file: str | None
    given: tuple[tuple[str, Given], ...]
    doubts: tuple[Doubt, ...]

    def shown(self) -> dict[str, dict[str, str]]:
        """Every setting's value and where it comes from, for people."""
        return shown(self.given)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it is made of: a change in one of them is a change of the configuration."""
        return tuple(path for path in (self.config_file, self.web.config_file) if path)
