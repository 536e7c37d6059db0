"""The kinds of objects that the simulated API server serves."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.support.api_server.answers import Json, Object, qualified
from tests.support.api_server.shapes import BuiltInShape, SchemaShape, Shape

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Where a scale subresource finds its numbers in the object."""

    wanted: str = ".spec.replicas"
    there: str = ".status.replicas"
    selector: str = ""  # "" is that of the built-in kinds: spec.selector.matchLabels


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind in one version; kinds of the same `storage` are views of the same objects.

    `skeleton` is what every object of a built-in kind has, as Go writes what holds nothing. `schema` is the structural
    one of a custom resource.
    """

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool = True
    singular: str = ""
    list_name: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    has_status: bool = False
    scale: Scale | None = None
    has_generation: bool = False
    needs_version: bool = False  # a PUT must say which resourceVersion it was made of
    skeleton: Object = field(default_factory=dict, hash=False, compare=False)
    schema: Object | None = field(default=None, hash=False, compare=False)
    columns: tuple[Object, ...] = field(default=(), hash=False, compare=False)
    storage: str = ""

    @property
    def api_version(self) -> str:
        """`group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """`gpuexporters.gpu.example.com`, by which its objects are stored, unless it is a view of another's."""
        return self.storage or qualified(self.plural, self.group)

    @property
    def verbs(self) -> list[str]:
        """What may be done to its objects."""
        return [verb for verb in VERBS if verb != "deletecollection" or self.plural != "namespaces"]

    @property
    def shape(self) -> Shape:
        """How its objects merge."""
        return BuiltInShape((self.name,)) if self.schema is None else SchemaShape(self.schema, is_top=True)

    def is_custom(self) -> bool:
        """Whether a CustomResourceDefinition defines it."""
        return self.schema is not None


def _workload(name: str, plural: str, short: str, *, scale: bool) -> Kind:
    return Kind(
        group="apps", version="v1", name=name, plural=plural, short_names=(short,), categories=("all",),
        has_status=True, has_generation=True, scale=Scale() if scale else None, skeleton={"spec": {}, "status": {}},
    )  # fmt: skip


def _core(name: str, plural: str, *short: str, **more: Json) -> Kind:
    return Kind(group="", version="v1", name=name, plural=plural, short_names=short, **more)


def _rbac(name: str, plural: str, *, namespaced: bool) -> Kind:
    return Kind(group="rbac.authorization.k8s.io", version="v1", name=name, plural=plural, namespaced=namespaced)


_EVENT_SKELETON: Object = {"deprecatedSource": {}, "deprecatedFirstTimestamp": None, "deprecatedLastTimestamp": None}
EVENT = Kind(
    group="events.k8s.io", version="v1", name="Event", plural="events", short_names=("ev",), skeleton=_EVENT_SKELETON,
)  # fmt: skip
CORE_EVENT = _core("Event", "events", "ev", skeleton=_EVENT_SKELETON, storage=EVENT.resource)
DEFINITION = Kind(
    group="apiextensions.k8s.io", version="v1", name="CustomResourceDefinition", plural="customresourcedefinitions",
    namespaced=False, short_names=("crd", "crds"), categories=("api-extensions",), has_status=True,
    has_generation=True, needs_version=True, skeleton={"spec": {"names": {}}, "status": {}},
)  # fmt: skip
NAMESPACE = _core(
    "Namespace", "namespaces", "ns", namespaced=False, has_status=True, skeleton={"spec": {}, "status": {}}
)
POD = _core("Pod", "pods", "po", categories=("all",), has_status=True, skeleton={"spec": {}, "status": {}})
NODE = _core("Node", "nodes", "no", namespaced=False, has_status=True, skeleton={"spec": {}, "status": {}})
DAEMON_SET = _workload("DaemonSet", "daemonsets", "ds", scale=False)
LEASE = Kind(
    group="coordination.k8s.io", version="v1", name="Lease", plural="leases", needs_version=True, skeleton={"spec": {}},
)  # fmt: skip
BUILT_IN: tuple[Kind, ...] = (
    _core("ConfigMap", "configmaps", "cm"),
    _core("Secret", "secrets"),
    _core(
        "Service", "services", "svc", categories=("all",), has_status=True,
        skeleton={"spec": {}, "status": {"loadBalancer": {}}},
    ),
    _core("ServiceAccount", "serviceaccounts", "sa"),
    CORE_EVENT,
    NAMESPACE,
    NODE,
    POD,
    DAEMON_SET,
    _workload("Deployment", "deployments", "deploy", scale=True),
    _workload("ReplicaSet", "replicasets", "rs", scale=True),
    _workload("StatefulSet", "statefulsets", "sts", scale=True),
    Kind(
        group="batch", version="v1", name="Job", plural="jobs", categories=("all",), has_status=True,
        has_generation=True, skeleton={"spec": {}, "status": {}},
    ),
    Kind(
        group="autoscaling", version="v2", name="HorizontalPodAutoscaler", plural="horizontalpodautoscalers",
        short_names=("hpa",), categories=("all",), has_status=True,
        skeleton={"spec": {}, "status": {"desiredReplicas": 0, "currentMetrics": None}},
    ),
    Kind(
        group="policy", version="v1", name="PodDisruptionBudget", plural="poddisruptionbudgets", short_names=("pdb",),
        has_status=True, has_generation=True, skeleton={"spec": {}, "status": {}},
    ),
    Kind(group="discovery.k8s.io", version="v1", name="EndpointSlice", plural="endpointslices", has_generation=True),
    _rbac("Role", "roles", namespaced=True),
    _rbac("RoleBinding", "rolebindings", namespaced=True),
    _rbac("ClusterRole", "clusterroles", namespaced=False),
    _rbac("ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    *(
        Kind(
            group="admissionregistration.k8s.io", version="v1", name=name, plural=plural, namespaced=False,
            categories=("api-extensions",), has_status=has_status, has_generation=True,
            skeleton={"spec": {}, **({"status": {}} if has_status else {})},
        )
        for name, plural, has_status in (
            ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", True),
            ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", False),
        )
    ),
    EVENT,
    LEASE,
    DEFINITION,
)  # fmt: skip


class Kinds:
    """The kinds that are served now, found by the parts of a path or by an object's own words."""

    def __init__(self) -> None:
        self._by_path = {(kind.group, kind.version, kind.plural): kind for kind in BUILT_IN}

    def __iter__(self) -> Iterator[Kind]:
        return iter(tuple(self._by_path.values()))

    def add(self, kind: Kind) -> None:
        """Serve a custom resource, or serve it otherwise from now on."""
        self._by_path[kind.group, kind.version, kind.plural] = kind

    def remove(self, resource: str) -> None:
        """Serve a custom resource no longer, in no version."""
        self._by_path = {path: kind for path, kind in self._by_path.items() if kind.resource != resource}

    def groups(self) -> dict[str, list[str]]:
        """The versions of each API group."""
        told: dict[str, list[str]] = {}
        for group, version, _ in self._by_path:
            if version not in told.setdefault(group, []):
                told[group].append(version)
        return told

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind that a path names."""
        return self._by_path.get((group, version, plural))

    def of_object(self, api_version: str, name: str) -> Kind | None:
        """The kind that an object or an owner reference names."""
        return next((kind for kind in self if kind.api_version == api_version and kind.name == name), None)

    def of_storage(self, resource: str) -> Kind:
        """One of the kinds whose objects are stored under a name; a KeyError where there is none."""
        for kind in self:
            if kind.resource == resource and not kind.storage:
                return kind
        raise KeyError(resource)
