"""The owners of the moment: worked out anew only when something they follow from has changed.

Pure but for what it remembers. What comes in is compared by identity, so that a steady scrape costs nothing here.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from exporter.attribution.bearers import Listing, PodName, PodsOfOwners
from exporter.attribution.device_ids import RULES, Rule
from exporter.attribution.labels import SPLIT, Attribution, LabelPolicy
from exporter.attribution.owners import Knowledge, build_owners
from exporter.attribution.pod_labels import PodLabelPolicy
from exporter.attribution.sharing import CounterBook
from exporter.model.devices import AddedLabels, Assignment, Inventory, Owners, SliceDevice, SliceDeviceName
from exporter.model.pages import Page, Subject
from exporter.model.pods import Bearers, PodInfo

OfPods = Mapping[PodName, AddedLabels]
NO_SLICES: Mapping[SliceDeviceName, SliceDevice] = MappingProxyType({})
NO_BEARERS: Bearers = MappingProxyType({})
_NOT_ASKED = Listing()


class _WorkedOut(NamedTuple):
    """What `CurrentOwners` holds of one set of pages, while another's turn is."""

    made_from: tuple[object, ...]
    owners: Owners
    attributed_from: tuple[object, ...]
    attribution: Attribution


class CurrentOwners:
    """Keeps owners and attribution up to date."""

    def __init__(
        self,
        policy: LabelPolicy,
        pod_label_policy: PodLabelPolicy | None = None,
        rules: Sequence[Rule] = RULES,
        book: CounterBook | None = None,
        pods_of_owners: PodsOfOwners | None = None,
        node: str = "",
    ) -> None:
        """What there was before: `book` is what divided counters stand at, `pods_of_owners` whom names mean.

        `node` is this node's name.
        """
        self.book = book or CounterBook()
        self.pods_of_owners = pods_of_owners or PodsOfOwners()
        self.owners = Owners()
        self.label_problems: Mapping[str, int] = {}
        self._policy = policy
        self._pod_label_policy = pod_label_policy
        self._rules = rules
        self._node = node
        self._knowledge = Knowledge(rules=rules, node=node)
        self._made_from: tuple[object, ...] = ()
        self._of_pods: OfPods = {}
        self._labelled: Mapping[PodName, PodInfo] | None = None
        self._attributed_from: tuple[object, ...] = ()
        self.attribution: Attribution = Attribution(self.owners, policy, book=self.book)
        self._of: Hashable = None
        self._others: dict[Hashable, _WorkedOut] = {}

    @property
    def knowledge(self) -> Knowledge:
        """What ids are looked up in, as of the last update."""
        return self._knowledge

    def update(
        self,
        assignments: frozenset[Assignment],
        subjects: Mapping[Subject, int],
        *,
        inventory: Inventory,
        slices: Mapping[SliceDeviceName, SliceDevice] = NO_SLICES,
        bearers: Bearers = NO_BEARERS,
        listing: Listing = _NOT_ASKED,
        pages: Sequence[Page] = (),
        of: Hashable = None,
    ) -> Attribution:
        """The attribution for pages of these subjects. The same object as long as nothing that it says has changed.

        `bearers` are the pods by their names, and `listing` is what tells which of several is meant. `pages` are the
        reads that it will be used for, at once: what divided counters stand at depends on them. `of` tells pages of
        some sources from those of others: what was worked out for each is kept until `keep` says otherwise.
        """
        self._turn_to(of)
        if pages and self._policy.sharing == SPLIT:
            self.book.turn_to(pages)
        if inventory is not self._knowledge.inventory or slices is not self._knowledge.slices:
            self._knowledge = Knowledge(rules=self._rules, inventory=inventory, slices=slices, node=self._node)
        made_from = (assignments, subjects, self._knowledge)
        if not _same(self._made_from, made_from):
            self.owners = build_owners(assignments, subjects, self._knowledge)
            self._made_from = made_from
        pods = self.pods_of_owners.update(assignments, bearers, listing)
        if self._pod_label_policy is not None and pods is not self._labelled:
            self._labelled = pods
            of_pods = self._labels_of(pods, self._pod_label_policy)
            self._of_pods = self._of_pods if of_pods == self._of_pods else of_pods
        attributed_from = (self.owners, self._of_pods)
        if not _same(self._attributed_from, attributed_from):
            self._attributed_from = attributed_from
            self.attribution = Attribution(self.owners, self._policy, of_pods=self._of_pods, book=self.book)
        return self.attribution

    def keep(self, wanted: Collection[Hashable]) -> None:
        """Forget what was worked out `of` any others."""
        self._others = {of: kept for of, kept in self._others.items() if of in wanted}

    def _turn_to(self, of: Hashable) -> None:
        if of == self._of:
            return
        if self._made_from:
            self._others[self._of] = _WorkedOut(self._made_from, self.owners, self._attributed_from, self.attribution)
        self._of = of
        known = self._others.pop(of, None)
        if known is None:
            self._made_from = ()
        else:
            self._made_from, self.owners, self._attributed_from, self.attribution = known

    def _labels_of(self, pods: Mapping[PodName, PodInfo], policy: PodLabelPolicy) -> OfPods:
        found: dict[PodName, AddedLabels] = {}
        problems: Counter[str] = Counter()
        for name, pod in pods.items():
            found[name], of_pod = policy.labels_of(pod)
            problems.update(of_pod)
        self.label_problems = dict(problems)
        return found


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
