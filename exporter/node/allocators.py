"""The reading of pods for the sake of allocators, once the kubelet shows that one gives devices on this node."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from exporter.config.node_settings import AllocatorSettings
from exporter.model.devices import Assignment
from exporter.node.part import Asking
from exporter.ownership.allocators.allocator_table import may_be_marked
from exporter.ownership.allocators.gpu_groups import is_reservation
from exporter.ownership.device_ids import Rule, read_device_id
from exporter.sources.node_pods import NoPods

if TYPE_CHECKING:
    from exporter.model.snapshot import Health
    from exporter.node.handover import WantedStreams
    from exporter.node.shared_sources import Sources
    from exporter.ownership.current import CurrentOwners
    from exporter.sources.kubelet.device_checkpoint import DeviceCheckpoint


def is_of_allocator(assignment: Assignment, rules: Sequence[Rule], namespaces: Collection[str]) -> bool:
    """Whether an assignment shows that an allocator gives devices on this node: a token, or a reservation pod's."""
    if assignment.claim is not None:
        return False
    if is_reservation(assignment.owner, namespaces):
        return True
    ref = read_device_id(assignment.resource, assignment.device_id, rules)
    return ref is not None and bool(ref.allocator)


class AllocatorPods:
    """Reads pods if ids of the kubelet are an allocator's tokens: the pods' annotations say what the ids do not.

    Pods are missed, and the health of their source says so, only where nothing else tells what containers have.
    """

    def __init__(
        self,
        settings: AllocatorSettings,
        sources: "Sources",
        owners: "CurrentOwners",
        wanted: "WantedStreams",
        missed: "Health",
        checkpoint: "DeviceCheckpoint",
    ) -> None:
        """`missed` is the health of pods if they are needed and nothing has them.

        The `checkpoint` tells what a token means, too. It is read before this part asks.
        """
        self._settings = settings
        self._kubelet = sources.kubelet
        self._pods = sources.pods
        self._owners = owners
        self._wanted = wanted
        self._missed = missed
        self._checkpoint = checkpoint
        self._only_pods_tell = settings.pods == "on"
        self._seen_in: frozenset[Assignment] = frozenset()

    def ask(self, asking: Asking) -> None:
        """Keep the stream open, once it was needed."""
        if self._settings.pods == "on" or (self._settings.pods == "auto" and self._wanted.allocators):
            self._begin(asking)
        elif self._settings.pods == "auto" and self._wanted.maybe_allocators:
            asking.begin(self._pods)

    async def follow_up(self, asking: Asking) -> None:
        """Read pods from the first token on. This look waits for them, since a label that comes later is a new series.

        The look-up of claims, which follows, waits for all that was begun.
        """
        assignments = self._kubelet.assignments
        if self._settings.pods != "auto" or self._wanted.allocators or assignments is self._seen_in:
            return
        rules = self._owners.knowledge.rules
        new = assignments - self._seen_in
        namespaces = self._settings.reservation_namespaces
        self._only_pods_tell = self._only_pods_tell or any(is_reservation(held.owner, namespaces) for held in new)
        if any(is_of_allocator(assignment, rules, namespaces) for assignment in new):
            self._wanted.allocators = True
            self._begin(asking)
        elif any(may_be_marked(assignment.resource) for assignment in new):
            # only a pod itself says whether its ids are tokens, so nobody misses pods
            self._wanted.maybe_allocators = True
            asking.begin(self._pods)
        self._seen_in = assignments

    def _begin(self, asking: Asking) -> None:
        needs_pods = self._only_pods_tell or not self._checkpoint.health.up
        if isinstance(self._pods.now, NoPods) and needs_pods:
            self._pods.now.miss(self._missed)
        asking.begin(self._pods)
