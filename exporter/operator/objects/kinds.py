"""The kinds of objects that the operator reads and writes, and their paths. Pure."""

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256
from typing import NamedTuple

from exporter.lenient import AnyObject, mapping, mappings, text
from exporter.operator.objects.resources import API_VERSION, GROUP, Object
from exporter.ownership.workloads import is_object_name

OPERATOR = "pod-gpu-metrics-operator"  # the field manager, too
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

    A name that may not (too long, with dots, with a digit first) gets a hash at its end, and so does one that ends like
    a hash. So no two GPUExporters of a namespace have the same. It is the name of a GPUAutoscaler's object, too: KEDA
    puts `keda-hpa-` in front of it and makes a label of that.
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


def selector(name: str, what: str = EXPORTER) -> dict[str, str]:
    """The labels by which the pods are found. A DaemonSet's selector cannot be changed: nor can these."""
    return {NAME_LABEL: what, INSTANCE_LABEL: base_name(name)}


def labels(name: str, what: str = EXPORTER) -> dict[str, str]:
    """The labels of every object; KEDA puts those of a ScaledObject on its own HorizontalPodAutoscaler, too."""
    return {**selector(name, what), MANAGER_LABEL: OPERATOR}


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


class Kind(NamedTuple):
    """A kind, as paths and objects name it."""

    api_version: str
    name: str
    plural: str

    @property
    def root(self) -> str:
        """What the paths of this API version begin with; what it serves is told there, too."""
        return f"/{'apis' if '/' in self.api_version else 'api'}/{self.api_version}"

    @property
    def group(self) -> str:
        """The API group, "" for the core."""
        return self.api_version.rpartition("/")[0]

    def is_in(self, served: AbstractSet["Kind"]) -> bool:
        """Whether the API serves it; `served` are the kinds that come and go, and that are there."""
        return self in served or self not in COME_AND_GO

    def path(self, namespace: str | None, name: str = "") -> str:
        """A collection, or with `name` an object. Without a namespace: those of all, or of none."""
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"{self.root}{within}/{self.plural}{f'/{name}' if name else ''}"


class Key(NamedTuple):
    """An object, by what it is called."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, "/".join(filter(None, (self.namespace, self.name))))))


GPU_EXPORTER = Kind("pod-gpu-metrics.dev/v1alpha1", "GPUExporter", "gpuexporters")
GPU_AUTOSCALER = Kind("pod-gpu-metrics.dev/v1alpha1", "GPUAutoscaler", "gpuautoscalers")
DAEMON_SET = Kind("apps/v1", "DaemonSet", "daemonsets")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
SERVICE = Kind("v1", "Service", "services")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
CLUSTER_ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings")
POD_MONITOR = Kind("monitoring.coreos.com/v1", "PodMonitor", "podmonitors")
SCALED_OBJECT = Kind("keda.sh/v1alpha1", "ScaledObject", "scaledobjects")
AUTOSCALER = Kind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
POD = Kind("v1", "Pod", "pods")
NODE = Kind("v1", "Node", "nodes")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
EVENT = Kind("events.k8s.io/v1", "Event", "events")

# What people write; the operator looks after these.
CUSTOM = (GPU_EXPORTER, GPU_AUTOSCALER)
CUSTOM_NAMES = tuple(kind.name for kind in CUSTOM)

# What a definition serves may come and go; what the API server itself serves stays.
COME_AND_GO = (*CUSTOM, POD_MONITOR, SCALED_OBJECT)
# What the operator makes.
MADE = (DAEMON_SET, CONFIG_MAP, SERVICE, SERVICE_ACCOUNT, CLUSTER_ROLE_BINDING, POD_MONITOR, SCALED_OBJECT, AUTOSCALER)
CLUSTER_WIDE = frozenset({CLUSTER_ROLE_BINDING, NODE})
BY_NAME = {kind.name: kind for kind in (*CUSTOM, *MADE, POD, NODE, LEASE, EVENT)}


def key_of(item: AnyObject) -> Key:
    """What an object is called; "" for each part that it lacks."""
    about = metadata(item)
    return Key(text(item, "kind"), text(about, "namespace"), text(about, "name"))


def path_of(item: AnyObject) -> str:
    """The path of an object that is to be written. Raises KeyError: the operator has nothing to do with its kind."""
    about = item["metadata"]
    return BY_NAME[item["kind"]].path(about.get("namespace"), about["name"])


def metadata(item: AnyObject) -> AnyObject:
    """An object's metadata; nothing where what came is none."""
    return mapping(item, "metadata")


def name_of(item: AnyObject) -> str:
    """Its name; "" where it says none."""
    return text(metadata(item), "name")


def uid_of(item: AnyObject) -> str:
    """Its uid; "" where it says none."""
    return text(metadata(item), "uid")


def controller_of(item: AnyObject) -> AnyObject:
    """The owner reference that controls an object; empty where nobody does."""
    owners = mappings(metadata(item), "ownerReferences")
    return next((owner for owner in owners if owner.get("controller") is True), {})


def whose(item: AnyObject) -> Sequence[Key]:
    """The custom resources that an object may belong to: by its controller, its annotation, or at last its labels.

    Whoever makes an object writes these, and the API server checks little of them. A key becomes a path of the API, so
    a name that no object can have (`../secrets`) and a kind that is not the operator's own name nobody.
    """
    return [key for key in _named_by(item) if key.kind in CUSTOM_NAMES and all(map(is_object_name, key[1:]))]


def _named_by(item: AnyObject) -> Sequence[Key]:
    about = metadata(item)
    namespace, owner = text(about, "namespace"), controller_of(item)
    if owner.get("apiVersion") == GPU_EXPORTER.api_version:
        return [Key(text(owner, "kind"), namespace, text(owner, "name"))]
    # KEDA's own autoscaler for a ScaledObject has the labels of that one
    if owner and owner.get("kind") != SCALED_OBJECT.name:
        return []
    for_namespace, _, for_name = _texts(about, "annotations").get(FOR_ANNOTATION, "").partition("/")
    if for_name and not namespace:
        return [Key(GPU_EXPORTER.name, for_namespace, for_name)]
    name = _texts(about, "labels").get(INSTANCE_LABEL, "")
    return [Key(kind.name, namespace, name) for kind in CUSTOM]


def is_for(item: AnyObject, owner: Key) -> bool:
    """Whether an object without a namespace says that it is for this custom resource, which cannot own it."""
    about = metadata(item)
    return (
        not about.get("namespace")
        and _texts(about, "labels").get(MANAGER_LABEL) == OPERATOR
        and _texts(about, "annotations").get(FOR_ANNOTATION) == f"{owner.namespace}/{owner.name}"
    )


def _texts(about: AnyObject, name: str) -> Mapping[str, str]:
    return {key: value for key, value in mapping(about, name).items() if isinstance(value, str)}


def is_controlled_by(item: AnyObject, uid: str) -> bool:
    """Whether the object with this uid made it, and it is that one's to change."""
    return bool(uid) and controller_of(item).get("uid") == uid
