"""What the pods of a look belong to."""

import asyncio
from collections.abc import Mapping

from exporter.attribution.bearers import PodName
from exporter.model.pods import PodInfo
from exporter.model.snapshot import Snapshot
from exporter.node.waiting import left
from exporter.sources.kubernetes.workloads import Workloads


async def workloads_of(
    snapshot: Snapshot,
    workloads: Workloads,
    pods: Mapping[PodName, PodInfo],
    of_owners: Mapping[PodName, PodInfo],
    wait_seconds: float | None,
    began: float,
) -> Mapping[PodName, tuple[str, str]]:
    """Of the pods that the rows can name: those that hold devices (`of_owners`), and those that a page came with.

    `pods` are all that are known. The wait is part of one of `wait_seconds` that began at `began`.
    """
    holders = {(match.assignment.owner.namespace, match.assignment.owner.pod) for match in snapshot.owners.matches}
    named = set[PodName]()
    for subject in snapshot.joined.subjects if snapshot.joined else ():
        named |= {(owner.namespace, owner.pod) for owner in (subject.came_with, subject.exported) if owner}
    known = [*of_owners.values(), *(pods[key] for key in named - holders if key in pods)]
    asked = workloads.begin(known)
    if asked:
        await asyncio.wait((asked,), timeout=left(workloads.patience_seconds, wait_seconds, began))
    found = ((pod, workloads.of(pod)) for pod in known)
    return {(pod.namespace, pod.name): (what.name, what.kind) for pod, what in found if what}
