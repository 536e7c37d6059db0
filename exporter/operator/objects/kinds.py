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
# the annotation of objects without a namespace, which names their GPUExporter as namespace/name
FOR_ANNOTATION = f"{GROUP}/exporter"

# A Service's name is a DNS label (RFC 1035) of at most 63 characters; the longest suffix is "-counters".
_MOST = 54
_DIGITS = 10
_LABEL = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_LOOKS_MADE = re.compile(rf".*-[0-9a-f]{{{_DIGITS}}}")


def base_name(name: str) -> str:
    """The beginning of the names of all objects of a GPUExporter: at most 54 characters, if possible its own name.

    A name that is not allowed (too long, with dots, with a digit first) is changed and gets a hash at its end. A name
    that ends like a hash gets one, too, so that no two GPUExporters of a namespace have the same beginning. It is also
    the name of a GPUAutoscaler's object. KEDA puts `keda-hpa-` in front of that name, and makes a label of it.
    """
    if len(name) <= _MOST and _LABEL.fullmatch(name) and not _LOOKS_MADE.fullmatch(name):
        return name
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not plain[:1].isalpha():
        plain = f"x-{plain}"
    return f"{plain[: _MOST - _DIGITS - 1].rstrip('-')}-{sha256(name.encode()).hexdigest()[:_DIGITS]}"


def counters_name(name: str) -> str:
    """The name of the ConfigMap with the list of fields."""
    return f"{base_name(name)}-counters"


def config_name(name: str) -> str:
    """The name of the ConfigMap with the exporter's settings."""
    return f"{base_name(name)}-config"


def account_name(name: str) -> str:
    """The name of the ServiceAccount. It is never `default`, and the admission policy allows pods no other account."""
    return f"{base_name(name)}-gpu-metrics"


def binding_name(name: str, namespace: str) -> str:
    """The name of the ClusterRoleBinding. It is unique, since no namespace and no name has a colon."""
    return f"{EXPORTER}:{namespace}:{base_name(name)}"


def selector(name: str, what: str = EXPORTER) -> dict[str, str]:
    """The labels that select the pods. They must never change, since a DaemonSet's selector cannot be changed."""
    return {NAME_LABEL: what, INSTANCE_LABEL: base_name(name)}


def labels(name: str, what: str = EXPORTER) -> dict[str, str]:
    """The labels of every object. KEDA copies a ScaledObject's labels to the HorizontalPodAutoscaler that it makes."""
    return {**selector(name, what), MANAGER_LABEL: OPERATOR}


def owner(name: str, uid: str, kind: str = "GPUExporter") -> Object:
    """The owner reference by which the garbage collector deletes an object together with its custom resource."""
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


class Kind(NamedTuple):
    """A kind of objects: its API version and its names in objects (`name`) and in paths (`plural`)."""

    api_version: str
    name: str
    plural: str

    @property
    def root(self) -> str:
        """The beginning of all paths of this API version. The document at this path lists the kinds that it serves."""
        return f"/{'apis' if '/' in self.api_version else 'api'}/{self.api_version}"

    @property
    def group(self) -> str:
        """The API group; "" for the core group."""
        return self.api_version.rpartition("/")[0]

    def is_in(self, served: AbstractSet["Kind"]) -> bool:
        """Whether the API serves this kind; `served` are those kinds of COME_AND_GO that it serves now."""
        return self in served or self not in COME_AND_GO

    def path(self, namespace: str | None, name: str = "") -> str:
        """The path of a collection, or with `name` of an object.

        Without a namespace, the collection is that of all namespaces, or of objects that have none.
        """
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"{self.root}{within}/{self.plural}{f'/{name}' if name else ''}"


class Key(NamedTuple):
    """The name of an object: kind, namespace and name."""

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

# The kinds that people write. The operator looks after their objects.
CUSTOM = (GPU_EXPORTER, GPU_AUTOSCALER)
CUSTOM_NAMES = tuple(kind.name for kind in CUSTOM)

# The kinds that come and go with their CustomResourceDefinition. All others are always served.
COME_AND_GO = (*CUSTOM, POD_MONITOR, SCALED_OBJECT)
# The kinds that the operator makes.
MADE = (DAEMON_SET, CONFIG_MAP, SERVICE, SERVICE_ACCOUNT, CLUSTER_ROLE_BINDING, POD_MONITOR, SCALED_OBJECT, AUTOSCALER)
CLUSTER_WIDE = frozenset({CLUSTER_ROLE_BINDING, NODE})
BY_NAME = {kind.name: kind for kind in (*CUSTOM, *MADE, POD, NODE, LEASE, EVENT)}


def key_of(item: AnyObject) -> Key:
    """The name of an object; "" for each part that it lacks."""
    about = metadata(item)
    return Key(text(item, "kind"), text(about, "namespace"), text(about, "name"))


def path_of(item: AnyObject) -> str:
    """The path of an object that is to be written.

    Raises:
        KeyError: the operator does not know its kind.
    """
    about = item["metadata"]
    return BY_NAME[item["kind"]].path(about.get("namespace"), about["name"])


def metadata(item: AnyObject) -> AnyObject:
    """An object's metadata; empty if it has none."""
    return mapping(item, "metadata")


def name_of(item: AnyObject) -> str:
    """An object's name; "" if it has none."""
    return text(metadata(item), "name")


def uid_of(item: AnyObject) -> str:
    """An object's uid; "" if it has none."""
    return text(metadata(item), "uid")


def controller_of(item: AnyObject) -> AnyObject:
    """The owner reference of the object's controller; empty if it has no controller."""
    owners = mappings(metadata(item), "ownerReferences")
    return next((owner for owner in owners if owner.get("controller") is True), {})


def whose(item: AnyObject) -> Sequence[Key]:
    """The custom resources that an object may belong to, by its controller, else its annotation, else its labels.

    The maker of an object writes all three, and the API server checks little of them. A key becomes a path of the API.
    So a name that no object can have (`../secrets`) is ignored, and so is a kind that is not the operator's own.
    """
    return [key for key in _named_by(item) if key.kind in CUSTOM_NAMES and all(map(is_object_name, key[1:]))]


def _named_by(item: AnyObject) -> Sequence[Key]:
    about = metadata(item)
    namespace = text(about, "namespace")
    owner = controller_of(item)
    if owner.get("apiVersion") == GPU_EXPORTER.api_version:
        return [Key(text(owner, "kind"), namespace, text(owner, "name"))]
    # the HorizontalPodAutoscaler that KEDA makes has the labels of the ScaledObject that controls it
    if owner and owner.get("kind") != SCALED_OBJECT.name:
        return []
    for_namespace, _, for_name = _texts(about, "annotations").get(FOR_ANNOTATION, "").partition("/")
    if for_name and not namespace:
        return [Key(GPU_EXPORTER.name, for_namespace, for_name)]
    name = _texts(about, "labels").get(INSTANCE_LABEL, "")
    return [Key(kind.name, namespace, name) for kind in CUSTOM]


def is_for(item: AnyObject, owner: Key) -> bool:
    """Whether an object without a namespace names this custom resource, which cannot own it, in its annotation."""
    about = metadata(item)
    return (
        not about.get("namespace")
        and _texts(about, "labels").get(MANAGER_LABEL) == OPERATOR
        and _texts(about, "annotations").get(FOR_ANNOTATION) == f"{owner.namespace}/{owner.name}"
    )


def _texts(about: AnyObject, name: str) -> Mapping[str, str]:
    return {key: value for key, value in mapping(about, name).items() if isinstance(value, str)}


def is_controlled_by(item: AnyObject, uid: str) -> bool:
    """Whether the object with this uid controls `item`, and so may change it."""
    return bool(uid) and controller_of(item).get("uid") == uid
