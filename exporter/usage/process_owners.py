"""The container that a process is in, by its cgroups, and the container's owner.

Each line of /proc/<pid>/cgroup is `<hierarchy>:<controllers>:<path>`: there is one line with cgroup v2, and a line for
each hierarchy with v1. The kubelet makes a level of cgroups for all pods, a level for each QoS class but Guaranteed,
and a level for each pod. Below the pod's level the container runtime makes a level for each container:

    /kubepods/burstable/pod<uid>/<id>                                                   cgroupfs driver
    /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope      systemd
    /system.slice/kubepods-burstable-pod<uid>.slice:cri-containerd:<id>       kubelet: systemd, containerd: cgroupfs

The reader's cgroup namespace decides how a path begins: for a reader in a container it begins with /.. for each level
above that container. Users may create cgroups with any names below their own container or user slice. So this module
reads a path downwards: only levels of the machine, of the kubelet or of a nested node's container may stand above the
kubelet's part. The container's level is right below the first pod's level; deeper levels do not count.

The owner of a container id comes from the status of pods, and from the link in /var/log/containers that the kubelet
makes for each container that it starts:

    <pod>_<namespace>_<container>-<container id>.log -> /var/log/pods/<namespace>_<pod>_<pod uid>/<container>/<N>.log

The names of namespaces, pods and containers have no underscore, those of pods may have dots. A link's name is cut at
251 characters before its .log, so a part of the container id may be missing; the target is whole. A pod with a cut link
is joined by its UID, if it has one container only. A part of an id never counts.

Pods name the ids of their containers in their status. A user who may write a pod's status can put any id there. So an
owner counts only if the process is in the owner's pod, by the pod's UID in the cgroup.

Tests: tests/usage/test_containers.py, tests/usage/test_cgroups.py.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from exporter.model.measured import NamedContainer, ProcessPlace
from exporter.model.nothing import nothing
from exporter.model.pods import Owner, PodInfo

_HEX = "[0-9a-f]"
CONTAINER_ID = f"{_HEX}{{64}}"
POD_UID = f"{_HEX}{{8}}(?:[-_]{_HEX}{{4}}){{3}}[-_]{_HEX}{{12}}|{_HEX}{{32}}"
# a kubelet with a cgroup root of its own has slices such as kubelet-kubepods.slice
_PREFIX = "(?:[a-z0-9_.-]+-)?"
_QOS = "(?:burstable|besteffort)"
_POD = re.compile(
    rf"""
    (?:(?P<all>kubepods|{_PREFIX}kubepods\.slice)/)?
    (?:(?:{_QOS}|{_PREFIX}kubepods-{_QOS}\.slice)/)?
    (?:pod(?P<uid>{POD_UID})|{_PREFIX}kubepods-(?:{_QOS}-)?pod(?P<slice_uid>{POD_UID})\.slice)
    (?:(?P<colon>:[a-z-]+:)|/|$)
    (?P<container>[^/]*)
    """,
    re.VERBOSE,
)
_CONTAINER = re.compile(rf"(?:(?:cri-containerd|crio|docker)-)?(?P<id>{CONTAINER_ID})(?:\.scope)?")
_COLONS = frozenset({None, ":cri-containerd:", ":crio:", ":docker:"})
# The levels that may stand above the kubelet's part: the machine's levels and the kubelet's root. If the node itself
# runs in a container (kind, k3d, LXD), a reader outside it also sees that container's levels; a reader in a pod of the
# node sees at most /.. in their place.
_ABOVE = re.compile(r"kubelet|kubelet\.slice|system\.slice|containerd\.service")
_ABOVE_NODES = re.compile(
    rf"{_ABOVE.pattern}|machine\.slice|docker|{CONTAINER_ID}|(?:docker|libpod)-{CONTAINER_ID}\.scope"
    rf"|libpod_parent|libpod-{CONTAINER_ID}|lxc|lxc\.payload\.[A-Za-z0-9-]+"
)
_ELSEWHERE = re.compile(
    rf"/(?:(?P<folder>docker)/|(?P<engine>docker|libpod|nerdctl)-)(?P<id>{CONTAINER_ID})(?:\.scope)?(?:/|$)"
)
_ENGINES = {"libpod": "podman"}

Root = tuple[str, ...]


def read_cgroups(text: str, root: Root | None = None) -> ProcessPlace | None:
    """The container of a process with these cgroups; None if it is in no container, or if lines name several.

    With `root` (see `kubelet_root`) the kubelet's part begins right below it. A line that names a pod comes before
    other lines, since the kubelet does not use every hierarchy.
    """
    places = set(filter(None, (_read_path(path, root) for path in _paths(text))))
    named = {place for place in places if place.is_of_pod} or places
    return next(iter(named)) if len(named) == 1 else None


def kubelet_root(text: str) -> Root | None:
    """The levels above the kubelet's part, by the exporter's cgroups; None outside a pod or in a cgroup namespace."""
    roots = set()
    for path in _paths(text):
        levels = path.split("/")[1:]
        for depth in reversed(range(len(levels))):
            pod = _POD.match("/".join(levels[depth:]))
            if pod and (pod["all"] or pod["colon"]):
                roots.add(tuple(levels[:depth]))
                break
    return roots.pop() if len(roots) == 1 else None


def _paths(text: str) -> Iterable[str]:
    """The paths of all lines, without the kernel's mark for removed cgroups.

    Names may have anything but slashes and newlines.
    """
    for line in text.split("\n"):
        path = line.split(":", 2)[-1]
        if path.startswith("/"):
            yield path.removesuffix(" (deleted)")


def _read_path(path: str, root: Root | None) -> ProcessPlace | None:
    levels = path.split("/")[1:]
    ups = next((depth for depth, level in enumerate(levels) if level != ".."), len(levels))
    sibling = _CONTAINER.fullmatch(levels[1]) if ups == 1 else None
    if sibling:
        return ProcessPlace(container_id=sibling["id"])  # the container is in the reader's own pod
    return _read_pod(levels, ups, root) or _read_elsewhere(path)


def _read_pod(levels: list[str], ups: int, root: Root | None) -> ProcessPlace | None:
    """The pod and container of a path; None if it is of no pod. Its first `ups` levels are `..`."""
    below = ups
    if not ups and root is not None:
        if tuple(levels[: len(root)]) != root:
            return None
        below = len(root)
    else:
        above = _ABOVE if ups else _ABOVE_NODES
        while below < len(levels) and above.fullmatch(levels[below]):
            below += 1
    pod = _POD.match("/".join(levels[below:]))
    # for a reader in a pod, paths of other pods begin at the level that both pods have in common
    is_whole = pod is not None and bool(pod["all"] or pod["colon"] or 0 < ups == below)
    if pod is None or not is_whole or pod["colon"] not in _COLONS:
        return None
    container = _CONTAINER.fullmatch(pod["container"])
    return ProcessPlace(
        container_id=container["id"] if container else "", pod_uid=(pod["uid"] or pod["slice_uid"]).replace("_", "-")
    )


def _read_elsewhere(path: str) -> ProcessPlace | None:
    """A container outside pods. If containers are nested, it is the outermost, which the machine's engine knows."""
    made = _ELSEWHERE.search(path)
    if made is None:
        return None
    engine = made["folder"] or made["engine"]
    return ProcessPlace(container_id=made["id"], is_of_pod=False, engine=_ENGINES.get(engine, engine))


_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_SUBDOMAIN = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
_TARGET = re.compile(
    rf"/(?:.*/)?(?P<folder>(?P<namespace>{_LABEL})_(?P<pod>{_SUBDOMAIN})_(?P<uid>{POD_UID}))"
    rf"/(?P<container>{_LABEL})/[0-9]+\.log",
    re.DOTALL,
)
_ID = re.compile(CONTAINER_ID)
_SUFFIX = ".log"
MOST_CHARS = 255 - len(_SUFFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLink:
    """A link to a container's log.

    `container_id` is "" if the name was cut; `folder` is the folder of the pod's logs.
    """

    owner: Owner
    pod_uid: str
    container_id: str
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Containers:
    """Containers by id (several if several claim the same id), and the only container of a pod by the pod's UID."""

    by_id: Mapping[str, tuple[NamedContainer, ...]] = field(default_factory=nothing)
    alone: Mapping[str, Owner] = field(default_factory=nothing)


def read_log_link(name: str, target: str) -> LogLink | None:
    """Read a link in /var/log/containers; None if it is not the kubelet's, or if its name and target disagree."""
    match = _TARGET.fullmatch(target)
    if match is None or not name.endswith(_SUFFIX):
        return None
    stem = name.removesuffix(_SUFFIX)
    beginning = f"{match['pod']}_{match['namespace']}_{match['container']}-"
    container_id = stem.removeprefix(beginning)
    is_whole = stem.startswith(beginning) and _ID.fullmatch(container_id) is not None
    if not is_whole and (len(stem) != MOST_CHARS or not _is_cut(stem, beginning)):
        return None
    return LogLink(
        owner=Owner(namespace=match["namespace"], pod=match["pod"], container=match["container"]),
        pod_uid=match["uid"],
        container_id=container_id if is_whole else "",
        folder=match["folder"],
    )


def _is_cut(stem: str, beginning: str) -> bool:
    """Whether `stem` is a cut form of `beginning` followed by an id."""
    rest = stem.removeprefix(beginning)
    if stem.startswith(beginning):
        return len(rest) < 64 and re.fullmatch("[0-9a-f]*", rest) is not None  # noqa: PLR2004 - digits of an id
    return beginning.startswith(stem)


def containers_of_logs(links: Iterable[LogLink], alone: Iterable[LogLink] = ()) -> Containers:
    """The containers of these links. The links `alone` have a cut name and a pod with only one container."""
    return Containers(
        by_id=_by_id(
            NamedContainer(container_id=link.container_id, owner=link.owner, pod_uid=link.pod_uid)
            for link in links
            if link.container_id
        ),
        alone=MappingProxyType({link.pod_uid: link.owner for link in alone}),
    )


def containers_of_pods(pods: Iterable[PodInfo]) -> Containers:
    """The containers of these pods, whose status has ids such as containerd://<id>."""
    return Containers(by_id=_by_id(container for pod in pods for container in _containers_of(pod)))


def _containers_of(pod: PodInfo) -> Iterator[NamedContainer]:
    for container, text in pod.container_ids.items():
        container_id = text.rpartition("://")[2]
        if _ID.fullmatch(container_id):
            yield NamedContainer(
                container_id=container_id,
                owner=Owner(namespace=pod.namespace, pod=pod.name, container=container),
                pod_uid="" if pod.is_static else pod.uid,
            )


def owner_of(place: ProcessPlace, tables: Sequence[Containers]) -> Owner | None:
    """The owner of the container; None if no table knows it, or if tables disagree."""
    if not place.is_of_pod or not place.container_id:
        return None
    owners = {
        named.owner
        for table in tables
        for named in table.by_id.get(place.container_id, ())
        if _fits(named.pod_uid, place.pod_uid)
    }
    if not owners and place.pod_uid:
        owners = {table.alone[place.pod_uid] for table in tables if place.pod_uid in table.alone}
    return next(iter(owners)) if len(owners) == 1 else None


def _fits(named: str, by_cgroup: str) -> bool:
    """Whether a pod's UID can be the UID in a cgroup. The kubelet makes UIDs of static pods itself, without dashes."""
    if not by_cgroup:
        return True  # a container of the reader's own pod, seen from within the pod
    return named == by_cgroup if named else "-" not in by_cgroup


def _by_id(containers: Iterable[NamedContainer]) -> Mapping[str, tuple[NamedContainer, ...]]:
    by_id: dict[str, tuple[NamedContainer, ...]] = {}
    for container in containers:
        by_id[container.container_id] = (*by_id.get(container.container_id, ()), container)
    return MappingProxyType(by_id)
