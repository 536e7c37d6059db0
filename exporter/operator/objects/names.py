"""What the objects of a GPUExporter are called, and how they say whose they are. Pure."""

import re
from hashlib import sha256

from exporter.operator.objects.resources import API_VERSION, GROUP, Object

MANAGER = "pod-gpu-metrics-operator"
EXPORTER = "pod-gpu-metrics-exporter"
NAME_LABEL = "app.kubernetes.io/name"
INSTANCE_LABEL = "app.kubernetes.io/instance"
MANAGER_LABEL = "app.kubernetes.io/managed-by"
# on objects without a namespace: the GPUExporter that they are for, as namespace/name
FOR_ANNOTATION = f"{GROUP}/exporter"

# A Service's name is a DNS label (RFC 1035) of at most 63 characters; the longest suffix is "-counters".
_MOST = 54
_DIGITS = 10
_LABEL = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_LOOKS_MADE = re.compile(rf".*-[0-9a-f]{{{_DIGITS}}}")


def base_name(name: str) -> str:
    """The name that all objects of a GPUExporter begin with, at most 54 characters long: its own, where it may be one.

    Another (too long, with dots, with a digit first) gets a hash at its end, and so does one that looks as if it had
    one. So no two GPUExporters of a namespace have the same.
    """
    if len(name) <= _MOST and _LABEL.fullmatch(name) and not _LOOKS_MADE.fullmatch(name):
        return name
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not plain[:1].isalpha():
        plain = f"x-{plain}"
    return f"{plain[: _MOST - _DIGITS - 1].rstrip('-')}-{sha256(name.encode()).hexdigest()[:_DIGITS]}"


def counters_name(name: str) -> str:
    """The ConfigMap with the list of fields."""
    return f"{base_name(name)}-counters"


def config_name(name: str) -> str:
    """The ConfigMap with the exporter's settings."""
    return f"{base_name(name)}-config"


def account_name(name: str) -> str:
    """The ServiceAccount. It is never `default`, and the admission policy lets pods run under no other name."""
    return f"{base_name(name)}-gpu-metrics"


def binding_name(name: str, namespace: str) -> str:
    """The ClusterRoleBinding: no namespace and no name has a colon."""
    return f"{EXPORTER}:{namespace}:{base_name(name)}"


def selector(name: str) -> dict[str, str]:
    """The labels by which the pods are found. A DaemonSet's selector cannot be changed: nor can these."""
    return {NAME_LABEL: EXPORTER, INSTANCE_LABEL: base_name(name)}


def labels(name: str) -> dict[str, str]:
    """The labels of every object."""
    return {**selector(name), MANAGER_LABEL: MANAGER}


def owner(name: str, uid: str, kind: str = "GPUExporter") -> Object:
    """The reference by which the garbage collector takes an object away together with the custom resource."""
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
