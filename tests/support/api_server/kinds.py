"""The kinds of objects that the simulated API server serves."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.support.api_server.answers import Object, qualified

VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind in one version.

    `storage` is the resource under which its objects are stored, where that is another's: two versions of one object.
    `schema` is that of a custom resource.
    """

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool = True
    has_status: bool = False
    has_scale: bool = False  # the discovery says so; nobody here scales
    has_generation: bool = False
    schema: Object | None = field(default=None, hash=False, compare=False)
    storage: str = ""

    @property
    def api_version(self) -> str:
        """`group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """`gpuexporters.gpu.example.com`, by which its objects are stored."""
        return self.storage or qualified(self.plural, self.group)


def _built_in(api_version: str, name: str, plural: str, flags: str = "", storage: str = "") -> Kind:
    """A row of the table: `c` is a kind without namespaces, `s` has a status apart, `r` replicas, `g` generations."""
    group, _, version = api_version.rpartition("/")
    return Kind(
        group=group, version=version, name=name, plural=plural, namespaced="c" not in flags, has_status="s" in flags,
        has_scale="r" in flags, has_generation="g" in flags, storage=storage,
    )  # fmt: skip


_RBAC = "rbac.authorization.k8s.io/v1"
POD = _built_in("v1", "Pod", "pods", "s")
NODE = _built_in("v1", "Node", "nodes", "cs")
DAEMON_SET = _built_in("apps/v1", "DaemonSet", "daemonsets", "sg")
DEFINITION = _built_in("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", "csg")
EVENT = _built_in("events.k8s.io/v1", "Event", "events")
CORE_EVENT = _built_in("v1", "Event", "events", storage=EVENT.resource)
BUILT_IN = (
    _built_in("v1", "ConfigMap", "configmaps"),
    _built_in("v1", "Service", "services", "s"),
    _built_in("v1", "ServiceAccount", "serviceaccounts"),
    _built_in("v1", "Namespace", "namespaces", "cs"),
    CORE_EVENT,
    NODE,
    POD,
    DAEMON_SET,
    _built_in("apps/v1", "Deployment", "deployments", "srg"),
    _built_in("apps/v1", "ReplicaSet", "replicasets", "srg"),
    _built_in("apps/v1", "StatefulSet", "statefulsets", "srg"),
    _built_in("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "s"),
    _built_in("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", "g"),
    _built_in(_RBAC, "ClusterRoleBinding", "clusterrolebindings", "c"),
    _built_in("coordination.k8s.io/v1", "Lease", "leases"),
    EVENT,
    DEFINITION,
)
# Events are stored as events.k8s.io/v1: its fields, and their names in core v1.
_IN_CORE = {"regarding": "involvedObject", "note": "message", "reportingController": "reportingComponent"}


class Kinds:
    """The kinds that are served now, by the parts of a path or by an object's own words."""

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
        versions: dict[str, list[str]] = {}
        for group, version, _ in self._by_path:
            if version not in versions.setdefault(group, []):
                versions[group].append(version)
        return versions

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind that a path names."""
        return self._by_path.get((group, version, plural))

    def of_object(self, api_version: str, name: str) -> Kind | None:
        """The kind that an object or an owner reference names."""
        group, _, version = api_version.rpartition("/")
        kinds = self._by_path.values()
        return next((kind for kind in kinds if (kind.name, kind.group, kind.version) == (name, group, version)), None)


def shown(kind: Kind, item: Object) -> Object:
    """A stored object in the version that it is asked for in."""
    if kind == CORE_EVENT:
        item = {_IN_CORE.get(name, name): value for name, value in item.items()}
    return {**item, "apiVersion": kind.api_version}


def kinds_of(definition: Object) -> list[Kind]:
    """The kinds that a CustomResourceDefinition serves, one for each version."""
    spec = definition["spec"]
    return [
        Kind(
            group=spec["group"],
            version=version["name"],
            name=spec["names"]["kind"],
            plural=spec["names"]["plural"],
            namespaced=spec.get("scope") == "Namespaced",
            has_status="status" in (version.get("subresources") or {}),
            has_generation=True,
            schema=version["schema"]["openAPIV3Schema"],
        )
        for version in spec["versions"]
        if version.get("served")
    ]
