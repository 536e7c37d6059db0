"""What `doctor` says of the sources: the kubelet, the pages of samples, and what adds to them. Pure.

Why a source fails, and what to do about it, is worded by the source itself: here it is only put in its place.
"""

from collections.abc import Iterator

from exporter.exposition.lines import Reason
from exporter.exposition.series import MOST_DEVICES
from exporter.model.snapshot import KUBELET, Health, Snapshot
from exporter.outputs.devices import seen_devices
from exporter.outputs.findings.report import Finding, Level


def of_kubelet(snapshot: Snapshot) -> Iterator[Finding]:
    """The kubelet's socket: without it nothing has an owner."""
    health = snapshot.health[KUBELET]
    if not health.up:
        yield _trouble(KUBELET, health, Level.PROBLEM)
        return
    version = snapshot.facts.kubelet_version
    handed_out = len(snapshot.owners.matches)
    yield Finding(level=Level.OK, about=KUBELET, says=f"answers ({version}); {handed_out} device ids are handed out")
    if health.trouble:
        yield _trouble(KUBELET, health, Level.WARNING)
    if version == "v1alpha1":
        yield Finding(
            level=Level.WARNING,
            about=KUBELET,
            says="serves only v1alpha1 of its pod-resources API: it is older than Kubernetes 1.20",
            remedy="the main job works with it; devices of DRA claims are not in it: upgrade the node for those",
        )


def of_pages(snapshot: Snapshot) -> Iterator[Finding]:
    """The sources of GPU samples, and the page that is made of them."""
    for name in snapshot.page_sources:
        health = snapshot.health[name]
        if health.up:
            yield Finding(level=Level.OK, about=name, says="answers")
            if health.trouble:
                yield _trouble(name, health, Level.WARNING)
        else:
            others_answer = snapshot.joined is not None
            yield _trouble(name, health, Level.WARNING if others_answer else Level.PROBLEM)
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
    if joined.unread:
        yield Finding(
            level=Level.WARNING,
            about="page",
            says=f"{joined.unread} samples are of devices beyond the first {MOST_DEVICES} of their page: they go out as"
            " they came, and have no owner, account or row of their own",
            remedy="no node has that many GPUs: name the page of this node's dcgm-exporter, not that of a cluster",
        )
    rejected = {reason: count for reason, count in joined.rejected.items() if reason != Reason.RESERVED_NAME}
    if rejected:
        what = ", ".join(f"{count} for {reason}" for reason, count in sorted(rejected.items()))
        yield Finding(level=Level.WARNING, about="page", says=f"lines, or parts of lines, were left out: {what}")


def of_other_sources(snapshot: Snapshot) -> Iterator[Finding]:
    """What adds to the main job: NVML, the inventory, pods, ResourceSlices."""
    for name, health in snapshot.health.items():
        if name == KUBELET or name in snapshot.page_sources:
            continue
        if health.up:
            yield Finding(level=Level.OK, about=name, says="answers")
        if not health.up or health.trouble:
            yield _trouble(name, health, Level.WARNING)
    why = snapshot.unmeasured
    if why is not None and all(why != health.trouble for health in snapshot.health.values()):
        # Nobody has asked for it, so it is no warning: whoever would like to have it reads here how.
        says = f"their pods' use is not measured, rows are what --sharing says: {why.message}"
        yield Finding(level=Level.OK, about="shared GPUs", says=says, remedy=why.remedy)


def _trouble(name: str, health: Health, level: Level) -> Finding:
    """What a source says of its own trouble. One that was never heard says nothing, and doctor speaks in its place."""
    if health.trouble is None:
        return Finding(level=level, about=name, says="has not answered yet", remedy=_NO_WORD_YET)
    return Finding(level=level, about=name, says=health.trouble.message, remedy=health.trouble.remedy)


_NO_WORD_YET = (
    "look again in a minute; if it stays so, something on the way drops packets: can this container reach that address"
    " (network policies, proxies, firewalls)?"
)
