"""The settings of the node exporter, a group for each part of it.

A new setting is one field here (or in page_settings.py or common.py). A part that reads it is given its group.

Tests: tests/config/test_config.py, tests/config/test_settings.py.
"""

from dataclasses import dataclass, field
from typing import Literal

from exporter.config import parsers
from exporter.config.common import KubernetesSettings, LogSettings, WebSettings
from exporter.config.page_settings import DcgmSettings, FamilySettings, NvmlSettings, ProbeSettings, ProcessSettings
from exporter.config.parsers import FILE, NUMBER, POSITIVE_DURATION, REGEX, Pairs, SettingKind, choice, one_of
from exporter.config.settings import Configuration, all_settings, groups_of, optional, setting, several


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """The kubelet's pod-resources socket. `max_stale_seconds` None: it depends on how the kubelet fails."""

    socket: str = setting(
        "kubelet.socket",
        parsers.SOCKET,
        "The kubelet's pod-resources socket. Mount its directory: a kubelet restart replaces the file.",
        default="/var/lib/kubelet/pod-resources/kubelet.sock",
        also_env="DCGM_POD_RESOURCES_KUBELET_SOCKET",
    )
    max_age_seconds: float = setting(
        "kubelet.max-age",
        parsers.DURATION,
        "The exporter asks the kubelet again only after this time.",
        default="1s",
    )
    timeout_seconds: float = setting(
        "kubelet.timeout", POSITIVE_DURATION, "How long one call to the kubelet may take.", default="5s"
    )
    max_stale_seconds: float | None = optional(
        "kubelet.max-stale",
        parsers.DURATION,
        "How long the last known owners stay in force while the kubelet fails or lists no pod yet. Default: 10m"
        " if it is down or lists no pod, 1m for any other failure.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSettings:
    """Which resources are GPUs, and the sources that list the node's GPUs and name their ids."""

    resources: tuple[str, ...] = several(
        "resources",
        SettingKind(parsers.resource_glob, "a glob such as nvidia.com/*", "GLOB"),
        "Which extended resources are GPUs.",
        default="nvidia.com/*,tencent.com/vcuda-*,volcano.sh/vgpu-number,aliyun.com/gpu-mem",
        also_env="NVIDIA_RESOURCE_NAMES",
    )
    rules_file: str | None = optional(
        "device-rules",
        parsers.RULES,
        "Another vendor's device ids, labels and families: a YAML file, or shipped rules (docs/vendors.md).",
    )
    inventory_file: str | None = optional(
        "inventory.file",
        FILE,
        "A YAML or JSON file with the node's GPUs and MIG instances, to resolve MIG-<uuid> ids.",
    )
    inventory: Literal["auto", "file", "off"] = setting(
        "inventory",
        one_of("auto", "file", "off"),
        "What lists GPUs and MIG instances. auto: the driver, CDI specs and NVML, and --inventory.file, which"
        " wins. file: that file alone.",
        default="auto",
    )
    dra: Literal["auto", "on", "off"] = setting(
        "dra",
        one_of("auto", "on", "off"),
        "Also attribute devices of DRA claims, with dra_… labels. auto asks the Kubernetes API only if a claim"
        " needs it and a token is there.",
        default="auto",
    )

    admin_namespaces: tuple[str, ...] = several(
        "claims.admin-namespaces",
        SettingKind(parsers.namespace, "a namespace's name", "NAMESPACE"),
        "Namespaces whose claims have admin access, and hold nothing, unless NVIDIA's DRA driver or the"
        " Kubernetes API says which claims have it.",
        default=",".join(parsers.GPU_OPERATOR_NAMESPACES),
    )

    @property
    def follows_claims(self) -> bool:
        """Whether devices of DRA claims are attributed to pods."""
        return self.dra != "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The node. `is_named`: the user gave its name; else it is the host's name, which may differ from the node's."""

    name: str = setting(
        "node-name",
        SettingKind(parsers.not_empty, "a name", "NAME"),
        "The node's name in the mapping families. Default: the host name.",
        also_env="NODE_NAME",
    )
    is_named: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSettings:
    """The labels that samples gain. `idle`: samples without an owner gain them, too, with empty values."""

    names: tuple[str, str, str] = setting(
        "labels.names",
        SettingKind(
            parsers.label_names,
            "pod, legacy, or pod=X,namespace=Y,container=Z with three different label names"
            " that are not a device's own",
            "NAMES",
        ),
        "The names of the added labels: pod (pod, namespace, container), legacy (pod_name, pod_namespace,"
        " container_name), or your own.",
        default="pod",
    )
    owners: bool = setting(
        "labels.owners",
        choice({"on": True, "off": False}),
        "off: samples have no owners, so that pods make no new series; pod_gpu_info on /metrics names the owners.",
        default="on",
    )
    incoming_wins: bool = setting(
        "labels.conflict",
        choice({"replace": False, "keep": True}),
        "Whose word counts if a page already names an owner: the kubelet's (replace) or the page's (keep).",
        default="replace",
    )
    idle: bool = setting(
        "labels.idle",
        choice({"empty": True, "omit": False}),
        "Samples without an owner get the three labels with empty values, or none. Default: empty with the names"
        " pod, else omit.",
    )
    pod_uid: bool = setting(
        "labels.pod-uid", choice({"on": True, "off": False}), "Add the owner's UID as pod_uid.", default="off"
    )
    pod_labels: tuple[str, ...] = several(
        "labels.pod-labels", REGEX, "Add the owner's pod labels whose whole name matches, as label_<name>."
    )
    pod_labels_limit: int = setting(
        "labels.pod-labels-limit",
        NUMBER,
        "The most of these labels for one pod, in the order of their names. The others are counted.",
        default="32",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsSettings:
    """The source of pods, and the socket of the kubelet's Pods API."""

    source: Literal["auto", "kubelet", "api"] = setting(
        "pods.source",
        one_of("auto", "kubelet", "api"),
        "Where pods' labels and UIDs come from, if needed: the kubelet's Pods API, the Kubernetes API, or the"
        " first that is there (auto).",
        default="auto",
    )
    kubelet_socket: str = setting(
        "kubelet.pods-socket",
        parsers.SOCKET,
        "The socket of the kubelet's Pods API (from Kubernetes 1.37 on; 1.36 has it with the gate PodsAPI). Mount"
        " its directory.",
        default="/var/lib/kubelet/pods-api/pods-api.sock",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorSettings:
    """The schedulers with a device plugin of their own, which write on the pod which GPU a container has."""

    pods: Literal["auto", "on", "off"] = setting(
        "allocators.pods",
        one_of("auto", "on", "off"),
        "Read what HAMi, Volcano, gpushare, KAI and others wrote on pods. auto: once ids of the kubelet show such"
        " an allocator. on: from the start, as Koordinator needs.",
        default="auto",
    )
    hami: Literal["annotation", "id"] = setting(
        "allocators.hami",
        one_of("annotation", "id"),
        "What counts if HAMi's annotation and the kubelet's id differ, and nothing on the node shows the GPU. id:"
        " if HAMi aligns ids (enablegetpreferredallocation: true).",
        default="annotation",
    )
    reads_environ: bool = setting(
        "allocators.environ",
        choice({"off": False, "on": True}),
        "Read a container's GPUs from its first process's environment (NVIDIA_VISIBLE_DEVICES and the like"
        " only). It needs hostPID and the capability SYS_PTRACE.",
        default="off",
    )
    reservation_namespaces: tuple[str, ...] = several(
        "allocators.reservation-namespaces",
        SettingKind(parsers.namespace, "a namespace's name", "NAMESPACE"),
        "Where a container resource-reservation only reserves its GPU for other pods (KAI Scheduler, Run:ai)."
        " Nobody else may make pods there.",
        default="kai-resource-reservation,runai-reservation",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSettings:
    """The treatment of samples of a device with several owners."""

    mode: Literal["copy", "split", "device"] = setting(
        "sharing",
        one_of("copy", "split", "device"),
        "Samples of a device with several owners. copy: one for each owner. split: the same, with what adds up"
        " divided. device: one without an owner.",
        default="copy",
    )
    gauges: tuple[str, ...] = several(
        "sharing.gauges",
        parsers.FAMILY,
        "Another family that split divides into equal parts, like reserved memory.",
    )
    counters: tuple[str, ...] = several(
        "sharing.counters", parsers.FAMILY, "Another family that split divides by its increases, like energy."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSettings:
    """The labels that name a pod's workload."""

    labels: tuple[str, ...] = several(
        "workload.labels",
        SettingKind(parsers.not_empty, "a label of pods such as app.kubernetes.io/name", "LABEL"),
        "A pod label that names the workload in /container/metrics in place of the pod's owner. The first that"
        " the pod has counts.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountingSettings:
    """The accounts of containers' GPU time and energy. Only `serve` keeps them: it looks at the node by itself."""

    is_on: bool = setting(
        "accounting.mode",
        choice({"on": True, "off": False}),
        "Count GPU-seconds, energy, idle time, XIDs and throttling by container, on /metrics.",
        default="on",
    )
    interval_seconds: float = setting(
        "accounting.interval",
        POSITIVE_DURATION,
        "How often the exporter looks at the node for the accounts. Scrapes change nothing.",
        default="10s",
    )
    idle_below: float = setting(
        "accounting.idle-below",
        parsers.RATIO,
        "A device is idle while its activity (GR_ENGINE_ACTIVE, else GPU_UTIL) is below this.",
        default="0.05",
    )
    keep_seconds: float = setting(
        "accounting.keep",
        parsers.DURATION,
        "How long the counters of a container that is gone are shown; at least for two scrapes.",
        default="5m",
    )
    state_file: str | None = optional(
        "accounting.state",
        FILE,
        "The file that keeps the counters over a restart of the exporter. Its folder must be there.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLogSettings:
    """The kernel's log."""

    is_on: bool = setting(
        "kernel-log.mode",
        choice({"off": False, "on": True}),
        "Read errors of GPUs and NVSwitches (Xid, SXid, PCIe) from /dev/kmsg, for /events and"
        " pod_gpu_xid_errors_total. XIDs of pages then do not count.",
        default="off",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpSettings:
    """The receiver that metrics are pushed to. `headers` and `resource` come from OpenTelemetry's own environment.

    `url` is the whole address, made of `endpoint`; None if nothing is pushed.
    """

    endpoint: str | None = optional(
        "otlp.endpoint",
        SettingKind(
            parsers.base_url,
            "an http or https URL such as http://collector:4318 (OTLP over HTTP; gRPC is not spoken)",
            "URL",
        ),
        "Push metrics to this receiver by OTLP over HTTP, at /v1/metrics. Also"
        " OTEL_EXPORTER_OTLP_METRICS_ENDPOINT (the whole URL) or OTEL_EXPORTER_OTLP_ENDPOINT.",
    )
    interval_seconds: float = setting("otlp.interval", POSITIVE_DURATION, "How often to push.", default="30s")
    http_config_file: str | None = optional(
        "otlp.http-config", FILE, "TLS and authorisation towards the receiver, as Prometheus' http_config."
    )
    url: str | None
    headers: Pairs = field(repr=False)
    resource: Pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Configuration):
    """The configuration of the node exporter; durations are in seconds.

    `root` holds the folders that no setting names, such as /proc/driver. Only the simulated node has another root.
    """

    web: WebSettings
    kubelet: KubeletSettings
    devices: DeviceSettings
    dcgm: DcgmSettings
    nvml: NvmlSettings
    processes: ProcessSettings
    probe: ProbeSettings
    node: NodeSettings
    labels: LabelSettings
    pods: PodsSettings
    allocators: AllocatorSettings
    kubernetes: KubernetesSettings
    sharing: SharingSettings
    workloads: WorkloadSettings
    families: FamilySettings
    accounting: AccountingSettings
    kernel_log: KernelLogSettings
    otlp: OtlpSettings
    log: LogSettings
    root: str = "/"

    def _named_files(self) -> tuple[str | None, ...]:
        return (
            self.web.config_file,
            self.dcgm.http_config_file,
            self.devices.rules_file,
            self.otlp.http_config_file if self.otlp.url else None,
        )


GROUPS = groups_of(Config)
SETTINGS = all_settings(Config)
