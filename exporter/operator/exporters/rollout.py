"""How far the DaemonSet of a GPUExporter has come, by its own status. Pure.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/daemon-set-v1/#DaemonSetStatus says what each
number means. They are of the generation that the DaemonSet's controller saw last (observedGeneration).
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Self

from exporter.operator.objects.conditions import Verdict
from exporter.operator.objects.parts import AnyObject, and_more, mapping, number

_NAMED = 5
# these settings are in ConfigMaps: the kubelet looks at them every minute, or a little more
_ROLLED_OUT = (
    "every node that is to have an exporter has what is wanted now; a change of collectors, sharing, labels, nvml or"
    " probe reaches its pod within two minutes"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """Nodes: how many are to have an exporter, the newest one, one that is ready, and how many have one too many.

    `is_known` says that the DaemonSet's controller has counted them, `is_current` that it knows what is wanted now.
    """

    wanted: int = 0
    updated: int = 0
    ready: int = 0
    available: int = 0
    misplaced: int = 0
    is_known: bool = False
    is_current: bool = False

    @classmethod
    def of(cls, daemon_set: AnyObject | None) -> Self:
        """What a DaemonSet says of itself; numbers that cannot be are left out."""
        if daemon_set is None:
            return cls()
        status = mapping(daemon_set, "status")
        seen = number(status, "observedGeneration") or 0
        wanted = number(status, "desiredNumberScheduled")
        if wanted is None or not seen:
            return cls()
        return cls(
            wanted=wanted,
            updated=min(wanted, number(status, "updatedNumberScheduled") or 0),
            ready=min(wanted, number(status, "numberReady") or 0),
            available=min(wanted, number(status, "numberAvailable") or 0),
            misplaced=number(status, "numberMisscheduled") or 0,
            is_known=True,
            is_current=seen >= (number(mapping(daemon_set, "metadata"), "generation") or 0),
        )

    @property
    def is_done(self) -> bool:
        """Whether every node that is to have an exporter has the newest one, and it works."""
        return self.is_current and self.wanted == self.updated == self.ready == self.available


def readiness_of(rollout: Rollout, in_trouble: AbstractSet[str]) -> Verdict:
    """Whether what is wanted now runs and is ready on every node that is to have it."""
    too_many = (
        f"; {rollout.misplaced} more {_nodes(rollout.misplaced)} still run one, and are not selected or not tolerated"
        if rollout.misplaced
        else ""
    )
    if not rollout.is_known:
        return Verdict("False", "Starting", "the DaemonSet has just been made: its nodes are not counted yet")
    if rollout.is_done and not rollout.wanted:
        return Verdict(
            "True",
            "NoNodes",
            "no node is to have an exporter now -> if some should, look at their labels and taints, and at"
            f" spec.nodeSelector and spec.tolerations{too_many}",
        )
    if rollout.is_done:
        count = "the exporter of the node is ready" if rollout.wanted == 1 else f"all {rollout.wanted} nodes are ready"
        return Verdict("True", "AllNodesReady", f"{count}{too_many}")
    if rollout.is_current and rollout.updated == rollout.wanted:
        waits = f", in trouble: {and_more(sorted(in_trouble), _NAMED)}" if in_trouble else ""
        return Verdict(
            "False", "NodesNotReady", f"{rollout.ready} of {rollout.wanted} nodes are ready{waits}{too_many}"
        )
    return Verdict(
        "False",
        "RollingOut",
        f"{rollout.updated if rollout.is_current else 0} of {rollout.wanted} nodes have what is wanted now, and"
        f" {rollout.ready} are ready{too_many}",
    )


def progress_of(rollout: Rollout, in_trouble: AbstractSet[str]) -> Verdict:
    """Whether anything is under way that will end by itself."""
    if rollout.is_done:
        return Verdict("False", "RolledOut", _ROLLED_OUT)
    if not rollout.is_known or not rollout.is_current:
        return Verdict("True", "Starting", "Kubernetes has not looked at the changed DaemonSet yet")
    waiting = rollout.wanted - min(rollout.updated, rollout.available)
    if in_trouble and len(in_trouble) >= waiting:
        return Verdict(
            "False",
            "WaitsForNodes",
            f"{waiting} {_nodes(waiting)} cannot go on by themselves: {and_more(sorted(in_trouble), _NAMED)} -> mend"
            " what the condition Degraded names",
        )
    return Verdict("True", "RollingOut", f"{waiting} of {rollout.wanted} nodes are still being brought there")


def _nodes(count: int) -> str:
    return "node" if count == 1 else "nodes"
