"""Specs of custom resources: one with every field set, generated ones, and ones that are refused; and the schemas."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hypothesis import strategies as st
from jsonschema import Draft4Validator

from exporter.dcgm.table import TABLE
from exporter.operator.objects.resources import GPUExporterSpec, Object, read_autoscaler, read_exporter
from tests.support import quick_yaml
from tests.support.cel import reviewer
from tests.support.places import ROOT

CRDS: dict[str, Object] = {
    item["spec"]["names"]["kind"]: item
    for item in quick_yaml.load_all((ROOT / "deploy" / "operator" / "crds.yaml").read_text())
}
SCHEMAS: dict[str, Object] = {
    kind: item["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind, item in CRDS.items()
}
READERS: dict[str, Callable[[object], object]] = {"GPUExporter": read_exporter, "GPUAutoscaler": read_autoscaler}
SMALL = {"limits": {"memory": "1Gi"}, "requests": {"cpu": 1, "memory": "512Mi"}}
EVERYTHING: Object = {
    "image": "registry.example.com/gpu/exporter:1.2.3",
    "dcgmImage": "registry.example.com/gpu/dcgm-exporter@sha256:" + "0" * 64,
    "imagePullSecrets": ["pull", "pull.too"],
    "runtimeClassName": "nvidia",
    "collectors": {"fields": ["DCGM_FI_DEV_GPU_UTIL", "DCGM_EXP_XID_ERRORS_TOTAL", "DCGM_FI_DEV_SOMETHING_NEW"]},
    "intervalSeconds": 10,
    "nodeSelector": {"pool": "gpu", "example.com/zone": ""},
    "tolerations": [
        {"operator": "Exists"},
        {"key": "pool", "operator": "Equal", "value": "gpu", "effect": "NoExecute", "tolerationSeconds": 60},
    ],
    "sharing": "split",
    "labels": {"names": "legacy", "podUid": True, "podLabels": ["app", "team|tier", "x{1,2}"], "owners": "on"},
    "workloads": "off",
    "allocators": True,
    "nvml": "on",
    "probe": "on",
    "kernelLog": "on",
    "events": "on",
    "resources": {"exporter": SMALL, "dcgm": {"limits": {"cpu": "2", "memory": "1Gi"}}},
    "serviceMonitor": {"enabled": "on", "labels": {"release": "prometheus"}, "intervalSeconds": 15},
}
SCALING = {
    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "trainer"},
    "metric": "gpu_utilization",
    "target": 70,
    "maxReplicas": 8,
}
_RATE = {"type": "Percent", "value": 50, "periodSeconds": 60}
SCALING_EVERYTHING: Object = {
    **SCALING,
    "target": 0.5,
    "minReplicas": 0,
    "behavior": {
        "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [_RATE], "tolerance": "0.1"},
        "scaleDown": {"stabilizationWindowSeconds": 300, "selectPolicy": "Min", "policies": [_RATE], "tolerance": 0},
    },
    "idleSeconds": 600,
    "clusterAddress": "[fd00::1]:9401",
}


class Refused(NamedTuple):
    """What is changed of a valid spec, the field that the refusal names, and whether a CEL rule is what refuses it."""

    kind: str
    change: Object
    field: str
    by_rule: bool = False


def _many(most: int) -> list[str]:
    return [f"x{number}" for number in range(most + 1)]


REFUSED = [
    Refused("GPUExporter", {"image": ""}, "image"),
    Refused("GPUExporter", {"image": "two words"}, "image"),
    Refused("GPUExporter", {"dcgmImage": 5}, "dcgmImage"),
    Refused("GPUExporter", {"imagePullSecrets": ["UPPER"]}, "imagePullSecrets[0]"),
    Refused("GPUExporter", {"imagePullSecrets": ["a", "a"]}, "imagePullSecrets[1]"),
    Refused("GPUExporter", {"imagePullSecrets": _many(16)}, "imagePullSecrets"),
    Refused("GPUExporter", {"runtimeClassName": "a b"}, "runtimeClassName"),
    Refused("GPUExporter", {"collectors": {}}, "collectors", by_rule=True),
    Refused(
        "GPUExporter",
        {"collectors": {"fields": ["DCGM_FI_DEV_GPU_UTIL"], "configMap": {"name": "mine"}}},
        "collectors",
        by_rule=True,
    ),
    Refused("GPUExporter", {"collectors": {"fields": []}}, "collectors.fields"),
    Refused("GPUExporter", {"collectors": {"fields": ["gpu_util"]}}, "collectors.fields[0]"),
    Refused("GPUExporter", {"collectors": {"fields": ["DCGM_FI_A, gauge, x\nDCGM_FI_B"]}}, "collectors.fields[0]"),
    Refused("GPUExporter", {"collectors": {"fields": ["DCGM_FI_A"] * 2}}, "collectors.fields[1]"),
    Refused("GPUExporter", {"collectors": {"configMap": {}}}, "collectors.configMap.name"),
    Refused("GPUExporter", {"collectors": {"configMap": {"name": "m", "key": "../x"}}}, "collectors.configMap.key"),
    Refused("GPUExporter", {"intervalSeconds": 0}, "intervalSeconds"),
    Refused("GPUExporter", {"intervalSeconds": "30"}, "intervalSeconds"),
    Refused("GPUExporter", {"intervalSeconds": 1.5}, "intervalSeconds"),
    Refused("GPUExporter", {"intervalSeconds": 3601}, "intervalSeconds"),
    Refused("GPUExporter", {"nodeSelector": {"pool": "a b"}}, "nodeSelector.pool"),
    Refused("GPUExporter", {"nodeSelector": {"pool": True}}, "nodeSelector.pool"),
    Refused("GPUExporter", {"nodeSelector": []}, "nodeSelector"),
    Refused("GPUExporter", {"tolerations": [{"operator": "In"}]}, "tolerations[0].operator"),
    Refused("GPUExporter", {"tolerations": [{}]}, "tolerations[0].operator", by_rule=True),
    Refused(
        "GPUExporter",
        {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
        "tolerations[0].value",
        by_rule=True,
    ),
    Refused(
        "GPUExporter", {"tolerations": [{"key": "a", "tolerationSeconds": 1}]}, "tolerations[0].effect", by_rule=True
    ),
    Refused("GPUExporter", {"sharing": "evenly"}, "sharing"),
    Refused("GPUExporter", {"labels": {"names": "pod=x"}}, "labels.names"),
    Refused("GPUExporter", {"labels": {"podUid": "yes"}}, "labels.podUid"),
    Refused("GPUExporter", {"labels": {"podLabels": [""]}}, "labels.podLabels[0]"),
    Refused("GPUExporter", {"workloads": True}, "workloads"),
    Refused("GPUExporter", {"allocators": "on"}, "allocators"),
    Refused("GPUExporter", {"nvml": False}, "nvml"),
    Refused("GPUExporter", {"probe": "auto"}, "probe"),
    Refused("GPUExporter", {"kernelLog": True}, "kernelLog"),
    Refused("GPUExporter", {"events": "auto", "kernelLog": "on"}, "events"),
    Refused("GPUExporter", {"events": "on"}, "events", by_rule=True),
    Refused("GPUExporter", {"labels": {"owners": "maybe"}}, "labels.owners"),
    Refused("GPUExporter", {"labels": {"owners": "off"}, "sharing": "split"}, "labels.owners", by_rule=True),
    Refused("GPUExporter", {"resources": {"dcgm": {"limits": {"cpu": "much"}}}}, "resources.dcgm.limits.cpu"),
    Refused(
        "GPUExporter", {"resources": {"exporter": {"requests": {"memory": 1.5}}}}, "resources.exporter.requests.memory"
    ),
    Refused("GPUExporter", {"serviceMonitor": {"enabled": "maybe"}}, "serviceMonitor.enabled"),
    Refused("GPUExporter", {"serviceMonitor": {"labels": {"release": "-"}}}, "serviceMonitor.labels.release"),
    Refused("GPUExporter", {"serviceMonitor": {"intervalSeconds": 0}}, "serviceMonitor.intervalSeconds"),
    *(
        Refused("GPUAutoscaler", {field: None}, field)
        for field in ("scaleTargetRef", "metric", "target", "maxReplicas")
    ),
    Refused("GPUAutoscaler", {"scaleTargetRef": {"apiVersion": "v1", "name": "x"}}, "scaleTargetRef.kind"),
    Refused(
        "GPUAutoscaler",
        {"scaleTargetRef": {"apiVersion": "apps", "kind": "Deployment", "name": "x"}},
        "scaleTargetRef.apiVersion",
    ),
    Refused("GPUAutoscaler", {"metric": "GPU Utilization"}, "metric"),
    Refused("GPUAutoscaler", {"target": 0}, "target"),
    Refused("GPUAutoscaler", {"target": "70"}, "target"),
    Refused("GPUAutoscaler", {"maxReplicas": 0}, "maxReplicas"),
    Refused("GPUAutoscaler", {"minReplicas": 9}, "maxReplicas", by_rule=True),
    Refused("GPUAutoscaler", {"minReplicas": 0}, "minReplicas", by_rule=True),
    Refused("GPUAutoscaler", {"minReplicas": -1}, "minReplicas"),
    Refused("GPUAutoscaler", {"idleSeconds": 0}, "idleSeconds"),
    Refused("GPUAutoscaler", {"clusterAddress": "cluster"}, "clusterAddress"),
    Refused("GPUAutoscaler", {"behavior": {"scaleUp": {"policies": []}}}, "behavior.scaleUp.policies"),
    Refused(
        "GPUAutoscaler",
        {"behavior": {"scaleDown": {"policies": [{"type": "Pods", "value": 0, "periodSeconds": 1}]}}},
        "behavior.scaleDown.policies[0].value",
    ),
    Refused("GPUAutoscaler", {"behavior": {"scaleUp": {"tolerance": "-1"}}}, "behavior.scaleUp.tolerance"),
]


def custom_resource(kind: str, spec: object, name: str = "gpus") -> Object:
    """A custom resource as somebody would write it."""
    metadata = {"name": name, "namespace": "ml"}
    return {"apiVersion": "pod-gpu-metrics.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def refused_spec(refused: Refused) -> Object:
    """The whole spec that is refused."""
    usual = SCALING if refused.kind == "GPUAutoscaler" else {}
    return {key: value for key, value in {**usual, **refused.change}.items() if value is not None}


def spec_of(given: Object) -> GPUExporterSpec:
    return read_exporter(custom_resource("GPUExporter", given))


def complaints(kind: str, item: Object) -> list[str]:
    """The paths of fields that break the schema, its rules in CEL apart, or that it does not know."""
    found = Draft4Validator(_plain(SCHEMAS[kind])).iter_errors(item)
    return [error.json_path.removeprefix("$.") for error in found]


def _plain(schema: Any) -> Any:
    """The schema for jsonschema: a set is a list without twins, and a field that an API server prunes is an error."""
    if isinstance(schema, dict):
        plain = {key: _plain(value) for key, value in schema.items()}
        if schema.get("x-kubernetes-list-type") == "set":
            plain["uniqueItems"] = True
        return {"additionalProperties": False, **plain} if isinstance(schema.get("properties"), dict) else plain
    return [_plain(value) for value in schema] if isinstance(schema, list) else schema


def broken_rules(kind: str, item: Object) -> dict[str, str]:
    """The messages of the CEL rules that an object with its defaults breaks, by the fields that the rules name."""
    filled = {**item, "spec": {"minReplicas": 1, **item["spec"]}} if kind == "GPUAutoscaler" else item
    return {
        f"{path}{rule.get('fieldPath', '')}": why
        for path, rule, value in rules_of(filled, SCHEMAS[kind])
        if (why := reviewer(rule, value, value))
    }


def rules_of(value: Any, schema: Object, path: str = "") -> Iterator[tuple[str, Object, Any]]:
    """The CEL rules for a value and its parts: the part's path, the rule, and the part."""
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path.lstrip("."), rule, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from rules_of(inner, schema.get("properties", {}).get(key, {}), f"{path}.{key}")
    for index, inner in enumerate(value if isinstance(value, list) else ()):
        yield from rules_of(inner, schema["items"], f"{path}[{index}]")


NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?(\.[a-z0-9]{1,5})?", fullmatch=True)
_LABEL_VALUES = st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,10}[A-Za-z0-9])?)?", fullmatch=True)
_LABELS = st.dictionaries(st.sampled_from(["pool", "example.com/zone", "release"]), _LABEL_VALUES, max_size=3)
_IMAGES = st.from_regex(r"[a-z]{1,9}(/[a-z]{1,9})?:[0-9.]{1,5}", fullmatch=True)
_QUANTITIES = st.dictionaries(
    st.sampled_from(["cpu", "memory", "ephemeral-storage"]),
    st.one_of(st.integers(0, 64), st.sampled_from(["100m", "128Mi", "1.5", "1e3", "2Gi"])),
    max_size=3,
)
_TOLERATIONS = st.one_of(
    st.fixed_dictionaries({"operator": st.just("Exists")}, optional={"effect": st.just("NoSchedule")}),
    st.fixed_dictionaries({"key": NAMES}, optional={"value": _LABEL_VALUES, "operator": st.just("Equal")}),
    st.fixed_dictionaries(
        {"key": NAMES, "effect": st.just("NoExecute")}, optional={"tolerationSeconds": st.integers(0, 900)}
    ),
)
_FIELDS = st.lists(
    st.sampled_from([*(row.family for row in TABLE), "DCGM_FI_DEV_SOMETHING_NEW"]), min_size=1, max_size=8, unique=True
)
_ONE_OF_THREE = st.sampled_from(["auto", "on", "off"])
_ONE_OF_TWO = st.sampled_from(["on", "off"])
_RESOURCES = st.fixed_dictionaries({}, optional={"requests": _QUANTITIES, "limits": _QUANTITIES})
# specs of a GPUExporter that are valid
VALID = st.fixed_dictionaries(
    {},
    optional={
        "image": _IMAGES,
        "dcgmImage": _IMAGES,
        "imagePullSecrets": st.lists(NAMES, max_size=3, unique=True),
        "runtimeClassName": NAMES,
        "collectors": st.one_of(
            st.fixed_dictionaries({"fields": _FIELDS}),
            st.fixed_dictionaries(
                {
                    "configMap": st.fixed_dictionaries(
                        {"name": NAMES}, optional={"key": st.sampled_from(["a.csv", ".x"])}
                    )
                }
            ),
        ),
        "intervalSeconds": st.integers(1, 3600),
        "nodeSelector": _LABELS,
        "tolerations": st.lists(_TOLERATIONS, max_size=3),
        "sharing": st.sampled_from(["copy", "split", "device"]),
        "labels": st.fixed_dictionaries(
            {},
            optional={
                "names": st.sampled_from(["pod", "legacy", "pod=a,namespace=b,container=c"]),
                "podUid": st.booleans(),
                "podLabels": st.lists(st.sampled_from(["app", "a|b", "x{1,2}", "[a-z,]+"]), max_size=3, unique=True),
            },
        ),
        "workloads": _ONE_OF_TWO,
        "allocators": st.booleans(),
        "nvml": _ONE_OF_THREE,
        "probe": _ONE_OF_TWO,
        "kernelLog": _ONE_OF_TWO,
        "resources": st.fixed_dictionaries({}, optional={"exporter": _RESOURCES, "dcgm": _RESOURCES}),
        "serviceMonitor": st.fixed_dictionaries(
            {}, optional={"enabled": _ONE_OF_THREE, "labels": _LABELS, "intervalSeconds": st.integers(1, 3600)}
        ),
    },
)
