"""The specs of GPUExporter and GPUAutoscaler, and their readers, which take objects as the API gives them. Pure.

deploy/operator/crds.yaml says what each field means, for `kubectl explain`; tests hold fields, defaults and bounds to
that schema. The API server has validated an object against its own schema, which may be older or newer.
So the readers validate again. If a field is None, the operator decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

from exporter import reading
from exporter.config.parsers import label_names, regex
from exporter.operator.objects.quantities import quantity
from exporter.reading import Invalid, by_key, each, group, key_of, of, one_of, text, whole

GROUP = "pod-gpu-metrics.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

Object = dict[str, Any]
OnOff = Literal["on", "off"]
AutoOnOff = Literal["auto", "on", "off"]

_MOST_IN_A_NAME = 253
_SECONDS_OF_A_WEEK = 7 * 24 * 3600
_NAME = r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?"
_LABEL_VALUE = r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_LABEL_KEY = r"([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"

_name = text(_NAME, "a name of lower-case letters, digits, - and .", _MOST_IN_A_NAME)
_image = text(r"\S+", "an image such as registry.example.com/exporter:0.1.0", 512)
_label_key = text(_LABEL_KEY, "a label's name", 317)
_label_value = text(_LABEL_VALUE, "a label's value", 63)
_labels = by_key(_label_key, _label_value, 32)
_quantities = by_key(_label_key, quantity, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapKey:
    """A file in a ConfigMap."""

    name: str = of(_name)
    key: str = of(text(r"\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*", "a key of a ConfigMap", 253), "counters.csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collectors:
    """The fields that dcgm-exporter exports: a list, or a ConfigMap. A spec has one of the two."""

    fields: tuple[str, ...] | None = of(
        each(text(r"DCGM_(FI|EXP)_[A-Z0-9_]+", "a field such as DCGM_FI_DEV_GPU_UTIL", 100), 256, least=1, once=True),
        None,
    )
    config_map: ConfigMapKey | None = of(group(ConfigMapKey), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A toleration of the pods, as in Kubernetes."""

    key: str | None = of(text(rf"({_LABEL_KEY})?", "a taint's key", 317), None)
    operator: Literal["Exists", "Equal"] | None = of(one_of("Exists", "Equal"), None)
    value: str | None = of(_label_value, None)
    effect: str | None = of(one_of("NoSchedule", "PreferNoSchedule", "NoExecute"), None)
    toleration_seconds: int | None = of(whole(-(2**63), 2**63 - 1), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The labels that the exporter adds to samples."""

    names: str = of(reading.parsed(label_names, "pod, legacy, or pod=X,namespace=Y,container=Z", 400), "pod")
    pod_uid: bool = of(reading.flag, False)
    pod_labels: tuple[str, ...] = of(
        each(reading.parsed(regex, "a regular expression of at least one character", 200, r"[ -~]+"), 32, once=True), ()
    )
    owners: OnOff = of(one_of("on", "off"), "on")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequirements:
    """Quantities by resource, as in Kubernetes."""

    requests: Mapping[str, str | int] | None = of(_quantities, None)
    limits: Mapping[str, str | int] | None = of(_quantities, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources of the two containers."""

    exporter: ResourceRequirements | None = of(group(ResourceRequirements), None)
    dcgm: ResourceRequirements | None = of(group(ResourceRequirements), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitor:
    """The settings of the PodMonitor."""

    enabled: AutoOnOff = of(one_of("auto", "on", "off"), "auto")
    labels: Mapping[str, str] = of(_labels, {})
    interval_seconds: int | None = of(whole(1, 3600), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUExporterSpec:
    """The spec of a GPUExporter: what runs on which nodes, and what it measures."""

    image: str | None = of(_image, None)
    dcgm_image: str | None = of(_image, None)
    image_pull_secrets: tuple[str, ...] = of(each(_name, 16, once=True), ())
    runtime_class_name: str | None = of(_name, None)
    collectors: Collectors | None = of(group(Collectors), None)
    interval_seconds: int = of(whole(1, 3600), 30)
    node_selector: Mapping[str, str] = of(_labels, {"nvidia.com/gpu.present": "true"})
    tolerations: tuple[Toleration, ...] = of(
        each(group(Toleration), 32), (Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule"),)
    )
    sharing: Literal["copy", "split", "device"] = of(one_of("copy", "split", "device"), "copy")
    labels: Labels = of(group(Labels), Labels())
    workloads: OnOff = of(one_of("on", "off"), "on")
    allocators: bool = of(reading.flag, False)
    nvml: AutoOnOff = of(one_of("auto", "on", "off"), "auto")
    probe: OnOff = of(one_of("off", "on"), "off")
    kernel_log: OnOff = of(one_of("off", "on"), "off")
    events: OnOff = of(one_of("off", "on"), "off")
    resources: Resources = of(group(Resources), Resources())
    service_monitor: Monitor = of(group(Monitor), Monitor())


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleTarget:
    """The workload to scale, in the same namespace."""

    api_version: str = of(text(r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?v[0-9][a-z0-9]*", "a version such as apps/v1", 317))
    kind: str = of(text(r"[A-Za-z][A-Za-z0-9]*", "a kind such as Deployment", 63))
    name: str = of(_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPolicy:
    """A rate at which the number of pods may change: by a number or by a percentage, within a period."""

    type: Literal["Pods", "Percent"] = of(one_of("Pods", "Percent"))
    value: int = of(whole(1, 2**31 - 1))
    period_seconds: int = of(whole(1, 1800))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRules:
    """The speed of scaling in one direction, as in autoscaling/v2. `tolerance` is a quantity."""

    stabilization_window_seconds: int | None = of(whole(0, 3600), None)
    select_policy: Literal["Max", "Min", "Disabled"] | None = of(one_of("Max", "Min", "Disabled"), None)
    policies: tuple[ScalingPolicy, ...] | None = of(each(group(ScalingPolicy), 16, least=1), None)
    tolerance: str | int | None = of(quantity, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Behavior:
    """The speed of scaling, up and down."""

    scale_up: ScalingRules | None = of(group(ScalingRules), None)
    scale_down: ScalingRules | None = of(group(ScalingRules), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUAutoscalerSpec:
    """The spec of a GPUAutoscaler: the workload to scale, the metric, and the bounds.

    `target` is the mean per pod, in the metric's unit. Any name is allowed as `metric` here, although the schema lists
    the known ones, so that autoscalers/troubles.py can explain an unknown name.
    """

    scale_target_ref: ScaleTarget = of(group(ScaleTarget))
    metric: str = of(text(r"[a-z][a-z0-9_]*", "a metric such as gpu_utilization", 100))
    target: float = of(reading.above_zero(1e15))
    min_replicas: int = of(whole(0, 100_000), 1)
    max_replicas: int = of(whole(1, 100_000))
    behavior: Behavior | None = of(group(Behavior), None)
    idle_seconds: int | None = of(whole(1, _SECONDS_OF_A_WEEK), None)
    cluster_address: str = of(
        text(
            r"([A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}",
            "an address such as host:9401",
            260,
        ),
        "pod-gpu-metrics-cluster.pod-gpu-metrics.svc:9401",
    )


def as_object(given: Any) -> Any:  # noqa: ANN401 - a part of a spec, and the JSON of it
    """A part of a spec in Kubernetes' form. Fields that are None are left out."""
    if is_dataclass(given):
        values = {key_of(declared): getattr(given, declared.name) for declared in fields(given)}
        return {key: as_object(value) for key, value in values.items() if value is not None}
    if isinstance(given, Mapping):
        return dict(given)
    return [as_object(item) for item in given] if isinstance(given, tuple) else given


def read_exporter(item: object) -> GPUExporterSpec:
    """Read the spec of a GPUExporter from the whole object, as the API gave it.

    Raises:
        Invalid: A field cannot be used, or fields contradict each other.
    """
    given = reading.a_mapping(item, "the object").get("spec")
    spec = reading.read(GPUExporterSpec, {} if given is None else given, "spec")
    if spec.collectors and (spec.collectors.fields is None) == (spec.collectors.config_map is None):
        raise Invalid("spec.collectors", "give either fields or configMap")
    if spec.sharing == "split" and spec.labels.owners == "off":
        raise Invalid("spec.labels.owners", "off contradicts spec.sharing split, which divides among owners")
    if spec.events == "on" and spec.kernel_log != "on":
        raise Invalid("spec.events", '"on" needs spec.kernelLog "on": XIDs are read from the kernel\'s log')
    for index, toleration in enumerate(spec.tolerations):
        _check(toleration, f"spec.tolerations[{index}]")
    return spec


def read_autoscaler(item: object) -> GPUAutoscalerSpec:
    """Read the spec of a GPUAutoscaler from the whole object, as the API gave it.

    Raises:
        Invalid: A field cannot be used, or fields contradict each other.
    """
    spec = reading.read(GPUAutoscalerSpec, reading.a_mapping(item, "the object").get("spec"), "spec")
    if spec.max_replicas < spec.min_replicas:
        raise Invalid("spec.maxReplicas", f"{spec.max_replicas} is below spec.minReplicas, {spec.min_replicas}")
    if not spec.min_replicas and spec.idle_seconds is None:
        raise Invalid("spec.minReplicas", "0 needs spec.idleSeconds")
    return spec


def _check(toleration: Toleration, path: str) -> None:
    """Refuse a toleration whose fields contradict each other, as Kubernetes does."""
    if not toleration.key and toleration.operator != "Exists":
        raise Invalid(f"{path}.operator", "a toleration without key needs the operator Exists")
    if toleration.value and toleration.operator == "Exists":
        raise Invalid(f"{path}.value", "a toleration with the operator Exists has no value")
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        raise Invalid(f"{path}.effect", "tolerationSeconds needs the effect NoExecute")
