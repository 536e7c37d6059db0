"""What `doctor` finds at the sources: the kubelet, the pages of samples, and what adds to them. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from exporter.exposition.lines import Reason
from exporter.model.snapshot import Health, Snapshot
from exporter.outputs.devices import seen_devices
from exporter.outputs.findings.report import Finding, Level

KUBELET = "kubelet"


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketPlace:
    """What the file system says of the kubelet's socket.

    `is_mount_point` says that the file itself is mounted into this container, not the folder that it is in.
    """

    path: str
    folder_exists: bool
    is_mount_point: bool

    @property
    def folder(self) -> str:
        """Where the socket lies."""
        return self.path.rpartition("/")[0] or "/"


def of_kubelet(snapshot: Snapshot, place: SocketPlace) -> Iterator[Finding]:
    """The kubelet's socket: without it nothing has an owner."""
    health = snapshot.health[KUBELET]
    if not health.up:
        says, remedy = _why_no_kubelet(health, place)
        yield Finding(level=Level.PROBLEM, about=KUBELET, says=says, remedy=remedy)
        return
    version = snapshot.facts.kubelet_version
    handed_out = len(snapshot.owners.matches)
    yield Finding(level=Level.OK, about=KUBELET, says=f"answers ({version}); {handed_out} device ids are handed out")
    if health.message:
        yield Finding(
            level=Level.WARNING,
            about=KUBELET,
            says=health.message,
            remedy="can the node reach the API server? The kubelet's log on the node says so; it asks again by itself",
        )
    if version == "v1alpha1":
        yield Finding(
            level=Level.WARNING,
            about=KUBELET,
            says="serves only v1alpha1 of its pod-resources API: it is older than Kubernetes 1.20",
            remedy="the main job works with it; devices of DRA claims are not in it: upgrade the node for those",
        )


def _why_no_kubelet(health: Health, place: SocketPlace) -> tuple[str, str]:
    mount = f"mount the directory: -v {place.folder}:{place.folder}:ro, or a hostPath volume of it"
    if health.reason == "permission":
        return f"no right to open {place.path}", "run as uid 0 (no capability is needed, nor privileged: true)"
    if not place.folder_exists:
        return f"{place.folder} does not exist here: the socket's directory is not mounted", mount
    if health.reason == "missing":
        return (
            f"{place.folder} is there, and no socket in it",
            "is the kubelet running, with this as its root directory (its flag --root-dir)? Mount that one's",
        )
    if health.reason == "refused" and place.is_mount_point:
        return (
            f"{place.path} is mounted as a file, and dead: the kubelet made a new one when it restarted",
            f"{mount}, instead of the file",
        )
    if health.reason == "refused":
        return f"nobody listens on {place.path}", "the kubelet is down or restarting: look at its log on the node"
    return health.message, "is this the kubelet's pod-resources socket? Name it with --kubelet.socket"


def of_pages(snapshot: Snapshot) -> Iterator[Finding]:
    """The sources of GPU samples, and the page that is made of them."""
    for name in snapshot.page_sources:
        health = snapshot.health[name]
        if health.up:
            yield Finding(level=Level.OK, about=name, says="answers")
            continue
        others_answer = snapshot.joined is not None
        yield Finding(
            level=Level.WARNING if others_answer else Level.PROBLEM,
            about=name,
            says=health.message,
            remedy=health.remedy
            or _PAGE_REMEDIES.get(health.reason, "look at dcgm-exporter's log, and at what the URL answers to curl"),
        )
    joined = snapshot.joined
    if joined is None:
        return
    seen = seen_devices(snapshot)
    own = joined.rejected.get(Reason.RESERVED_NAME, 0)
    if own and not seen:
        yield Finding(
            level=Level.PROBLEM,
            about="page",
            says="the page is an exporter's own: it has families named pod_gpu_exporter_…, and no GPU",
            remedy="name dcgm-exporter's port, not this program's, with --dcgm.url; both are 9400 by default",
        )
    elif not seen:
        yield Finding(
            level=Level.PROBLEM,
            about="page",
            says="no sample carries a GPU's UUID",
            remedy="is this dcgm-exporter's page? Labels of other names are named with --device-rules",
        )
    else:
        yield Finding(level=Level.OK, about="page", says=f"{joined.sample_count} samples of {len(seen)} devices")
    rejected = {reason: count for reason, count in joined.rejected.items() if reason != Reason.RESERVED_NAME}
    if rejected:
        what = ", ".join(f"{count} for {reason}" for reason, count in sorted(rejected.items()))
        yield Finding(level=Level.WARNING, about="page", says=f"lines, or parts of lines, were left out: {what}")


_PAGE_REMEDIES = {
    "refused": "is dcgm-exporter running, and on this port? Its default is 9400, which is this program's too: one of"
    " the two must move (dcgm-exporter's flag -a, --web.listen-address), and --dcgm.url name dcgm-exporter's",
    "unreachable": "can this container reach that address? dcgm-exporter's pod has one of its own unless it uses"
    " hostNetwork",
    "deadline": "dcgm-exporter is slow: raise --dcgm.timeout, or have it collect less",
    "no_samples": "is this dcgm-exporter's metrics path? Its default is /metrics",
    "missing": "name the file that is written, with --dcgm.file",
    "stale": "is the file's writer running?",
}


def of_other_sources(snapshot: Snapshot) -> Iterator[Finding]:
    """What adds to the main job: the inventory, pods, ResourceSlices."""
    for name, health in snapshot.health.items():
        if name == KUBELET or name in snapshot.page_sources:
            continue
        if health.up:
            yield Finding(level=Level.OK, about=name, says="answers")
        else:
            says = health.message or "has not answered yet"
            remedy = health.remedy or (_REMEDIES.get(health.reason, _ONLY_THAT) if health.message else _NO_WORD_YET)
            yield Finding(level=Level.WARNING, about=name, says=says, remedy=remedy)


_ONLY_THAT = "only what it adds is missing"
_NO_WORD_YET = (
    "look again in a minute; if it stays so, something on the way drops packets: can this container reach that address"
    " (network policies, proxies, firewalls)?"
)
# For failures whose source does not know better.
_REMEDIES = {
    "missing": "mount or name what is missing; until then only what it adds is missing",
    "refused": "is what answers there running, and is this its address? Until then only what it adds is missing",
    "unreachable": "can this container reach that address (network policies, proxies, DNS)?",
    "deadline": "can this container reach that address? What drops packets looks like this",
    "tls": "is this the certificate authority of what answers there?",
    "garbage": "is the file, or what answers, what the setting that names it means? The last good word stays in force",
}
