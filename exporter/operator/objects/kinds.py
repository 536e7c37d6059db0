"""The kinds of objects that the operator reads and writes, and their paths. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from exporter.attribution.workloads import is_object_name
from exporter.operator.objects.names import FOR_ANNOTATION, INSTANCE_LABEL, MANAGER, MANAGER_LABEL
from exporter.operator.objects.parts import AnyObject, text

Object = dict[str, Any]


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

    @property
    def version(self) -> str:
        """The version within its group."""
        return self.api_version.rpartition("/")[2]

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
        return f"{self.kind} {self.namespace}/{self.name}"


GPU_EXPORTER = Kind("pod-gpu-metrics.dev/v1alpha1", "GPUExporter", "gpuexporters")
GPU_AUTOSCALER = Kind("pod-gpu-metrics.dev/v1alpha1", "GPUAutoscaler", "gpuautoscalers")
DAEMON_SET = Kind("apps/v1", "DaemonSet", "daemonsets")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
SERVICE = Kind("v1", "Service", "services")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
ROLE = Kind("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
CLUSTER_ROLE = Kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles")
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
ALL = (
    *CUSTOM,
    DAEMON_SET,
    CONFIG_MAP,
    SERVICE,
    SERVICE_ACCOUNT,
    ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    POD_MONITOR,
    SCALED_OBJECT,
    AUTOSCALER,
    POD,
    NODE,
    LEASE,
    EVENT,
)
CLUSTER_WIDE = frozenset({CLUSTER_ROLE, CLUSTER_ROLE_BINDING, NODE})
BY_NAME = {kind.name: kind for kind in ALL}
OPERATOR = MANAGER  # the field manager, too


def kind_of(item: AnyObject) -> Kind:
    """The kind of an object that is to be written.

    Raises:
        KeyError: the operator has nothing to do with it.
    """
    return BY_NAME[item["kind"]]


def key_of(item: AnyObject) -> Key:
    """What an object is called; what it does not say is empty."""
    about = metadata(item)
    return Key(text(item, "kind"), text(about, "namespace"), text(about, "name"))


def path_of(item: AnyObject) -> str:
    """The path of an object that is to be written."""
    about = item["metadata"]
    return kind_of(item).path(about.get("namespace"), about["name"])


def metadata(item: AnyObject) -> AnyObject:
    """An object's metadata; nothing where what came is none."""
    found = item.get("metadata")
    return found if isinstance(found, Mapping) else {}


def controller_of(item: AnyObject) -> AnyObject:
    """The owner reference that controls an object; empty where nobody does."""
    owners = metadata(item).get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, Mapping) and owner.get("controller") is True:
            return owner
    return {}


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
    found = about.get(name)
    return {key: value for key, value in found.items() if isinstance(value, str)} if isinstance(found, Mapping) else {}


def is_controlled_by(item: AnyObject, uid: str) -> bool:
    """Whether the object with this uid made it, and it is that one's to change."""
    return bool(uid) and controller_of(item).get("uid") == uid
