"""What `doctor` has to say: for each source and device what works, what does not, why, and what to do. Pure."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from exporter.attribution.explain import explain, other_node, outside
from exporter.attribution.owners import Unmatched
from exporter.exposition.lines import Reason
from exporter.model import Health, Match, Snapshot
from exporter.outputs.devices import seen_devices

KUBELET = "kubelet"


class Level(Enum):
    """How bad a finding is. With a PROBLEM the main job does not work."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at. `remedy` is "" where there is nothing to do."""

    level: Level
    about: str
    says: str
    remedy: str = ""


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


def examine(snapshot: Snapshot, place: SocketPlace) -> tuple[Finding, ...]:
    """Everything worth saying, the sources first."""
    return (
        *_kubelet(snapshot, place),
        *_pages(snapshot),
        *_other_sources(snapshot),
        *_attribution(snapshot),
        *_devices(snapshot),
    )


def render(findings: tuple[Finding, ...]) -> str:
    """The report for a terminal. What came from elsewhere cannot move its cursor."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.level.value:8} {finding.about}: {finding.says}")
        if finding.remedy:
            lines.append(f"{'':8} -> {finding.remedy}")
    worst = [finding for finding in findings if finding.level is Level.PROBLEM]
    lines.append("")
    lines.append("The main job does not work: see above." if worst else "The main job works.")
    return "".join(f"{_printable(line)}\n" for line in lines)


def works(findings: tuple[Finding, ...]) -> bool:
    """Whether the main job works."""
    return not any(finding.level is Level.PROBLEM for finding in findings)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _kubelet(snapshot: Snapshot, place: SocketPlace) -> Iterator[Finding]:
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


def _pages(snapshot: Snapshot) -> Iterator[Finding]:
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


def _other_sources(snapshot: Snapshot) -> Iterator[Finding]:
    for name, health in snapshot.health.items():
        if name == KUBELET or name in snapshot.page_sources:
            continue
        if health.up:
            yield Finding(level=Level.OK, about=name, says="answers")
        else:
            says = health.message or "has not answered yet"
            remedy = health.remedy or "only what it adds is missing"
            yield Finding(level=Level.WARNING, about=name, says=says, remedy=remedy)


def _attribution(snapshot: Snapshot) -> Iterator[Finding]:
    owners, joined = snapshot.owners, snapshot.joined
    if joined is None:
        return
    reasons = Counter(match.reason for match in owners.matches)
    if reasons[Unmatched.OTHER_NODE]:
        says, remedy = other_node(owners, joined.subjects)
        yield Finding(level=Level.PROBLEM, about="page", says=says, remedy=remedy)
    elif owners.matches and not reasons[""]:
        yield Finding(
            level=Level.PROBLEM,
            about="attribution",
            says=f"none of the {len(owners.matches)} device ids that the kubelet handed out has a sample",
            remedy="see each of them below",
        )
    elif snapshot.facts.outside and not owners.matches:
        yield Finding(
            level=Level.PROBLEM,
            about="attribution",
            says="all that the kubelet handed out is outside --resources",
            remedy="see each of them below",
        )
    hidden = {
        subject.key
        for subject in joined.subjects
        if snapshot.facts.incoming_wins
        and subject.came_with
        and (holders := owners.of(subject.key))
        and all(holder.owner != subject.came_with for holder in holders)
    }
    if hidden:
        yield Finding(
            level=Level.WARNING,
            about="attribution",
            says=f"dcgm-exporter attributes already, and --labels.conflict keep hides the kubelet's word for"
            f" {len(hidden)} devices",
            remedy="use --labels.conflict replace, or start dcgm-exporter without -k (DCGM_EXPORTER_KUBERNETES)",
        )


def _devices(snapshot: Snapshot) -> Iterator[Finding]:
    subjects = snapshot.joined.subjects if snapshot.joined else {}
    for match in snapshot.owners.matches:
        about = _name_of(match)
        if not match.reason:
            device = f"{match.key.uuid} instance {match.key.instance}" if match.key and match.key.instance else ""
            device = device or (match.key.uuid if match.key else "")
            yield Finding(level=Level.OK, about=about, says=f"is {device}, {match.samples} samples")
        elif snapshot.joined is not None and match.reason != Unmatched.OTHER_NODE:
            advice = explain(match, snapshot.owners, subjects, snapshot.facts)
            if advice is not None:
                yield Finding(level=Level.WARNING, about=about, says=advice.says, remedy=advice.remedy)
    for assignment in snapshot.facts.outside:
        says, remedy = outside(assignment, snapshot.facts)
        owner = assignment.owner
        about = f"{assignment.device_id} ({owner.namespace}/{owner.pod}/{owner.container})"
        yield Finding(level=Level.WARNING, about=about, says=says, remedy=remedy)


def _name_of(match: Match) -> str:
    owner = match.assignment.owner
    return (
        f"{match.assignment.device_id} ({match.assignment.resource}, {owner.namespace}/{owner.pod}/{owner.container})"
    )
