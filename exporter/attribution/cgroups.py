"""The container that a process is in, by the text of /proc/<pid>/cgroup.

Each line is `<hierarchy>:<controllers>:<path>`: one line with cgroup v2, one for each hierarchy with v1. The kubelet
makes a level for all pods, one for each QoS class but Guaranteed, and one for each pod. Below the pod's level the
container runtime makes one for each container:

    /kubepods/burstable/pod<uid>/<id>                                                   cgroupfs driver
    /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope      systemd
    /system.slice/kubepods-burstable-pod<uid>.slice:cri-containerd:<id>       kubelet: systemd, containerd: cgroupfs

A path is seen from the reader's cgroup namespace: for a reader in a container of its own it begins with /.. for each
level that it is above the reader's container.

Whoever may make cgroups gives them any name: a container may make some below its own, a user of the machine below
their user slice. So a path is read downwards, and only levels that belong to the machine, to the kubelet or to the
container of a nested node may stand above the kubelet's part. The container's level is the one right below the first
pod's; what is below that says nothing.
"""

import re
from collections.abc import Iterable

from exporter.model.measured import Place

_HEX = "[0-9a-f]"
CONTAINER_ID = f"{_HEX}{{64}}"
POD_UID = f"{_HEX}{{8}}(?:[-_]{_HEX}{{4}}){{3}}[-_]{_HEX}{{12}}|{_HEX}{{32}}"
# the slices of a kubelet with a cgroup root of its own: kubelet-kubepods.slice
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
# What may stand above the kubelet's part: the machine's levels and the kubelet's root. A node that runs in a container
# itself (kind, k3d, LXD) has that container's levels there, too, for whoever looks from outside the node. From within a
# pod of the node they are /.. at most.
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


def read_cgroups(text: str, root: Root | None = None) -> Place | None:
    """Where a process with these cgroups is; None where it is in no container, or lines name several.

    With `root` (see `kubelet_root`) the kubelet's part begins right there, and nowhere else. A line that names a pod
    counts before one that does not: the kubelet does not use every hierarchy.
    """
    places = {place for path in _paths(text) if (place := _read_path(path, root))}
    of_pods = {place for place in places if place.is_of_pod}
    named = of_pods or places
    return next(iter(named)) if len(named) == 1 else None


def kubelet_root(text: str) -> Root | None:
    """The levels above the kubelet's part in cgroups that are known to be a pod's: the exporter's own.

    None where they do not show it: outside a pod, and in a cgroup namespace of the container.
    """
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
    """The paths of all lines. Names of cgroups may hold all but slashes and newlines; the kernel marks removed ones."""
    for line in text.split("\n"):
        path = line.split(":", 2)[-1]
        if path.startswith("/"):
            yield path.removesuffix(" (deleted)")


def _read_path(path: str, root: Root | None) -> Place | None:
    levels = path.split("/")[1:]
    ups = next((depth for depth, level in enumerate(levels) if level != ".."), len(levels))
    if ups == 1 and (sibling := _CONTAINER.fullmatch(levels[1])):
        return Place(container_id=sibling["id"])  # beside the reader's own container, in the reader's pod
    return _read_pod(levels, ups, root) or _read_elsewhere(path)


def _read_pod(levels: list[str], ups: int, root: Root | None) -> Place | None:
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
    # from within a pod, other pods' paths begin at the level that both have in common
    is_whole = pod is not None and bool(pod["all"] or pod["colon"] or 0 < ups == below)
    if pod is None or not is_whole or pod["colon"] not in _COLONS:
        return None
    container = _CONTAINER.fullmatch(pod["container"])
    return Place(
        container_id=container["id"] if container else "",
        pod_uid=(pod["uid"] or pod["slice_uid"]).replace("_", "-"),
    )


def _read_elsewhere(path: str) -> Place | None:
    """A container that is no pod's. Of nested ones the outermost is the one that the machine's engine knows."""
    made = _ELSEWHERE.search(path)
    if made is None:
        return None
    engine = made["folder"] or made["engine"]
    return Place(container_id=made["id"], is_of_pod=False, engine=_ENGINES.get(engine, engine))
