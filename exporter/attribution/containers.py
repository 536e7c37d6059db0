"""From a container id to its owner: by the kubelet's links to logs, and by what pods say of themselves.

For each container that it starts, the kubelet makes a link in /var/log/containers:

    <pod>_<namespace>_<container>-<container id>.log -> /var/log/pods/<namespace>_<pod>_<pod uid>/<container>/<N>.log

The names of namespaces, pods and containers have no underscore, those of pods may have dots. A link's name is cut at
251 characters before its .log, and with it at least the end of the container id; its target is whole. A pod that is
known by such a link alone is joined by its UID, as long as it has one container only. A part of an id never counts.

Pods name the ids of their containers in their status. Whoever may write the status of a pod can put another one's id
there, so an owner counts only if the process is in the owner's pod: the cgroup says so, by the pod's UID.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from exporter.attribution.cgroups import CONTAINER_ID, POD_UID
from exporter.model.measured import NamedContainer, Place
from exporter.model.pods import Owner, PodInfo

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
    """A link to a container's log. `container_id` is "" where the name was cut; `folder` has the logs of the pod."""

    owner: Owner
    pod_uid: str
    container_id: str
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Containers:
    """Containers by id, several of one id where several claim it; and, by pod UID, the one container of a pod."""

    by_id: Mapping[str, tuple[NamedContainer, ...]] = field(default_factory=lambda: MappingProxyType({}))
    alone: Mapping[str, Owner] = field(default_factory=lambda: MappingProxyType({}))


def read_log_link(name: str, target: str) -> LogLink | None:
    """What a link in /var/log/containers says; None where it is not the kubelet's, or name and target disagree."""
    said = _TARGET.fullmatch(target)
    if said is None or not name.endswith(_SUFFIX):
        return None
    stem = name.removesuffix(_SUFFIX)
    beginning = f"{said['pod']}_{said['namespace']}_{said['container']}-"
    container_id = stem.removeprefix(beginning)
    is_whole = stem.startswith(beginning) and _ID.fullmatch(container_id) is not None
    if not is_whole and (len(stem) != MOST_CHARS or not _is_cut(stem, beginning)):
        return None
    return LogLink(
        owner=Owner(namespace=said["namespace"], pod=said["pod"], container=said["container"]),
        pod_uid=said["uid"],
        container_id=container_id if is_whole else "",
        folder=said["folder"],
    )


def _is_cut(stem: str, beginning: str) -> bool:
    """Whether it is the first part of this beginning and an id, and not the whole."""
    rest = stem.removeprefix(beginning)
    if stem.startswith(beginning):
        return len(rest) < 64 and re.fullmatch("[0-9a-f]*", rest) is not None  # noqa: PLR2004 - digits of an id
    return beginning.startswith(stem)


def containers_of_logs(links: Iterable[LogLink], alone: Iterable[LogLink] = ()) -> Containers:
    """What these links say. `alone` are those with a cut name whose pod has one container only."""
    return Containers(
        by_id=_by_id(
            NamedContainer(container_id=link.container_id, owner=link.owner, pod_uid=link.pod_uid)
            for link in links
            if link.container_id
        ),
        alone=MappingProxyType({link.pod_uid: link.owner for link in alone}),
    )


def containers_of_pods(pods: Iterable[PodInfo]) -> Containers:
    """What pods say of their containers: ids such as containerd://<id>."""
    return Containers(
        by_id=_by_id(
            NamedContainer(
                container_id=container_id,
                owner=Owner(namespace=pod.namespace, pod=pod.name, container=container),
                pod_uid="" if pod.is_static else pod.uid,
            )
            for pod in pods
            for container, text in pod.container_ids.items()
            if _ID.fullmatch(container_id := text.rpartition("://")[2])
        )
    )


def owner_of(place: Place, tables: Sequence[Containers]) -> Owner | None:
    """Whose container it is; None where no table knows it, or they do not agree."""
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
    """Whether a pod's UID can be that of a cgroup. The kubelet makes those of static pods itself, without dashes."""
    if not by_cgroup:
        return True  # a container of the reader's own pod, seen from within the pod
    return named == by_cgroup if named else "-" not in by_cgroup


def _by_id(containers: Iterable[NamedContainer]) -> Mapping[str, tuple[NamedContainer, ...]]:
    found: dict[str, tuple[NamedContainer, ...]] = {}
    for container in containers:
        found[container.container_id] = (*found.get(container.container_id, ()), container)
    return MappingProxyType(found)
