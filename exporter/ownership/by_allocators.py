"""The assignments with the words of allocators: what they wrote on the pods that the kubelet runs.

Pure, except for what `ByAllocators` remembers.

Tests: tests/allocated/test_random_worlds.py.
"""

from exporter.model.devices import Assignment, Inventory
from exporter.model.grants import Evidence
from exporter.model.memo import Memo
from exporter.model.nothing import NOTHING
from exporter.model.pods import PodsByName, PodsOfNames
from exporter.ownership.pods_of_names import Listing, PodsOfOwners
from exporter.ownership.unlisted import UnlistedHolders
from exporter.ownership.words import Words

_NO_PODS: PodsByName = NOTHING


class ByAllocators:
    """Gives assignments their words. Nothing is worked out again as long as every input is the same object."""

    def __init__(self, words: Words, unlisted: UnlistedHolders, *, reads_pods: bool = True) -> None:
        """`reads_pods`: off if words on pods never count, though something else may read pods."""
        self._reads_pods = reads_pods
        self._words = words
        self._unlisted = unlisted
        # a pod's word is about its own devices, and another pod may have these once it is gone
        self._pods = PodsOfOwners(keeps_gone=False)
        # the holders of the last answer of which the kubelet lists nothing; the same object while nothing changed
        self.unlisted: frozenset[Assignment] = frozenset()
        self._given: Memo[frozenset[Assignment]] = Memo(frozenset())

    def of(
        self,
        assignments: frozenset[Assignment],
        pods_of_names: PodsOfNames,
        listing: Listing,
        evidence: Evidence,
        inventory: Inventory,
    ) -> frozenset[Assignment]:
        """The assignments; the same object while nothing changed. Arguments are those of `CurrentOwners.update`."""
        # a pod may hold devices by its allocator's word of which the kubelet lists nothing
        pods = _NO_PODS
        if pods_of_names and self._reads_pods:
            pods = self._pods.update(assignments, pods_of_names, listing, listing.listed)
        return self._given.of(self._give, assignments, pods, evidence, inventory)

    def _give(
        self, assignments: frozenset[Assignment], pods: PodsByName, evidence: Evidence, inventory: Inventory
    ) -> frozenset[Assignment]:
        """The tokens with their words, then the holders of which the kubelet lists nothing.

        The second step looks at reservation pods, whose ids are true, so the first one leaves them as they are.
        """
        assignments = self._words.of(assignments, pods, evidence, inventory)
        assignments = self._unlisted.of(assignments, pods, evidence, inventory)
        self.unlisted = self._unlisted.holding
        return assignments
