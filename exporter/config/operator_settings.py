"""The settings of the operator: its namespaces and images, and the lease by which one of several replicas works."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from exporter.config.common import KubernetesSettings, LogSettings, WebSettings
from exporter.config.gather import check_once, gather, make
from exporter.config.parsers import POSITIVE_DURATION, SettingKind, image, namespace, one_of
from exporter.config.settings import Configuration, SettingTexts, all_settings, groups_of, optional, setting, several
from exporter.errors import ConfigError
from exporter.lenient import AnyObject

MOST_LEASE_SECONDS = 3600
_NAMESPACE = SettingKind(namespace, "a namespace's name", "NAMESPACE")
_IMAGE = SettingKind(image, "an image such as registry.example.com/exporter:0.1.0", "IMAGE")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """The namespaces whose custom resources the operator looks after, its images, and its lease.

    Empty `namespaces` mean all; `lease_namespace` is None without a lease.
    """

    namespaces: tuple[str, ...] = several(
        "operator.namespace",
        _NAMESPACE,
        "The namespaces of the GPUExporters and GPUAutoscalers that it keeps. Default: all.",
    )
    exporter_image: str | None = optional(
        "operator.exporter-image",
        _IMAGE,
        "The exporters' image, if a GPUExporter names none. Default: pod-gpu-metrics-exporter of this version.",
    )
    dcgm_image: str | None = optional(
        "operator.dcgm-image",
        _IMAGE,
        "The image of dcgm-exporter, if a GPUExporter names none. Default: that of daemonset.yaml.",
    )
    leader_election: Literal["on", "off"] = setting(
        "operator.leader-election",
        one_of("on", "off"),
        "Whether it works only while it holds a lease, so that only one of several replicas works.",
        default="on",
    )
    lease_namespace: str | None = optional(
        "operator.lease-namespace", _NAMESPACE, "Where the lease is. Default: this pod's own namespace."
    )
    lease_name: str = setting(
        "operator.lease-name",
        SettingKind(namespace, "a name of lower-case letters, digits and -", "NAME"),
        "What the lease is called.",
        default="pod-gpu-metrics-operator",
    )
    lease_seconds: float = setting(
        "operator.lease-duration",
        POSITIVE_DURATION,
        "How long after a replica has crashed another one takes over, in whole seconds.",
        default="15s",
    )
    interval_seconds: float = setting(
        "operator.interval",
        POSITIVE_DURATION,
        "How often it looks for the kinds of KEDA and the Prometheus operator.",
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
SETTINGS = all_settings(OperatorConfig)
_SETTINGS = {setting.name: setting for setting in SETTINGS}


def load_operator(
    flags: Mapping[str, Sequence[str]],
    environ: Mapping[str, str],
    file: AnyObject | None,
    config_file: str | None = None,
    own_namespace: str = "",
) -> OperatorConfig:
    """The configuration; arguments and errors are those of `load` in load.py."""
    given = gather(_SETTINGS, flags, environ, file)
    own = environ.get("POD_NAMESPACE", "").strip() or own_namespace
    if own and "operator.lease-namespace" not in given:
        given["operator.lease-namespace"] = SettingTexts("this pod's own namespace", (own,))
    config = make(OperatorConfig, _SETTINGS, given, environ, config_file)
    _check_together(config)
    return config


def _check_together(config: OperatorConfig) -> None:
    """Raises ConfigError: the API or the lease's namespace is unknown, a duration is odd, or a value is there twice."""
    operator = config.operator
    if not config.kubernetes.url:
        raise ConfigError(
            "the operator needs the Kubernetes API: run in a pod with a service account, or name it with"
            " --kubernetes.url"
        )
    if operator.leader_election == "on" and operator.lease_namespace is None:
        raise ConfigError(
            "--operator.leader-election: it is not known in which namespace the lease is; name it with"
            " --operator.lease-namespace, or turn it off where only one replica ever runs"
        )
    if operator.lease_seconds % 1 or operator.lease_seconds > MOST_LEASE_SECONDS:
        raise ConfigError(
            f"--operator.lease-duration: {operator.lease_seconds:g}s is not allowed; it takes whole seconds, an hour at"
            " most"
        )
    check_once("--operator.namespace", operator.namespaces)
    check_once("--web.listen-address", config.web.listen_addresses)
