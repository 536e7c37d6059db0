"""What KEDA takes for a ScaledObject, as far as the operator relies on it.

From kedacore/keda 2.20: the schema is of config/crd/bases/keda.sh_scaledobjects.yaml, the other rules are of
apis/keda/v1alpha1/scaledobject_webhook.go and CheckReplicaCountBoundsAreValid in scaledobject_types.go. Keys that KEDA
knows and the operator never writes are left out, so that a slip of the pen in one is seen.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from jsonschema import Draft202012Validator

Object = dict[str, Any]

_COUNT = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
_POLICY = {
    "type": "object",
    "additionalProperties": False,
    "required": ["type", "value", "periodSeconds"],
    "properties": {
        "type": {"enum": ["Pods", "Percent"]},
        "value": {"type": "integer", "minimum": 1},
        "periodSeconds": {"type": "integer", "minimum": 1, "maximum": 1800},
    },
}
_RULES = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "stabilizationWindowSeconds": {"type": "integer", "minimum": 0, "maximum": 3600},
        "selectPolicy": {"enum": ["Max", "Min", "Disabled"]},
        "policies": {"type": "array", "minItems": 1, "items": _POLICY},
        "tolerance": {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?([KMGTPE]i|[numkMGTPE])?$"},
    },
}
# The same as in autoscaling/v2; its limits are of pkg/apis/autoscaling/validation in kubernetes/kubernetes.
BEHAVIOR = {"type": "object", "additionalProperties": False, "properties": {"scaleUp": _RULES, "scaleDown": _RULES}}
_TRIGGER = {
    "type": "object",
    "additionalProperties": False,
    "required": ["type", "metadata"],
    "properties": {
        "type": {"const": "external"},
        "metricType": {"const": "AverageValue"},
        "metadata": {"type": "object", "additionalProperties": {"type": "string"}, "required": ["scalerAddress"]},
    },
}
SPEC = {
    "type": "object",
    "additionalProperties": False,
    "required": ["scaleTargetRef", "triggers"],
    "properties": {
        "scaleTargetRef": {
            "type": "object",
            "additionalProperties": False,
            "required": ["name"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "name": {"type": "string", "minLength": 1},
            },
        },
        "cooldownPeriod": _COUNT,
        "initialCooldownPeriod": _COUNT,
        "idleReplicaCount": _COUNT,
        "minReplicaCount": _COUNT,
        "maxReplicaCount": {**_COUNT, "minimum": 1},
        "advanced": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "horizontalPodAutoscalerConfig": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"behavior": BEHAVIOR},
                }
            },
        },
        "triggers": {"type": "array", "minItems": 1, "items": _TRIGGER},
    },
}
_MOST_LABEL_CHARS = 63


def hpa_name(scaled_object: Mapping[str, Any]) -> str:
    """The HPA that KEDA makes."""
    return f"keda-hpa-{scaled_object['metadata']['name']}"


def refusals(scaled_object: Mapping[str, Any], hpas: Iterable[Mapping[str, Any]] = ()) -> list[str]:
    """What the API server and KEDA's webhook say against a ScaledObject, beside the HPAs that are there."""
    found = [
        f"{error.json_path}: {error.message}" for error in Draft202012Validator(SPEC).iter_errors(scaled_object["spec"])
    ]
    spec, name = scaled_object["spec"], scaled_object["metadata"]["name"]
    least, most = max(1, spec.get("minReplicaCount", 0)), spec.get("maxReplicaCount", 100)
    if least > most:
        found.append("minReplicaCount is above maxReplicaCount")
    if spec.get("idleReplicaCount", -1) >= spec.get("minReplicaCount", 0):
        found.append("idleReplicaCount is not below minReplicaCount")
    if len(name) > _MOST_LABEL_CHARS or len(hpa_name(scaled_object)) > _MOST_LABEL_CHARS:
        found.append("the name is too long for a label")
    for hpa in hpas:
        owners = {(owner["kind"], owner["name"]) for owner in hpa["metadata"].get("ownerReferences", ())}
        if hpa["spec"]["scaleTargetRef"] == spec["scaleTargetRef"] and ("ScaledObject", name) not in owners:
            found.append(f"the workload is already managed by the hpa {hpa['metadata']['name']}")
    return found
