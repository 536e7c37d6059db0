"""The current owners: worked out anew only when one of their inputs has changed.

Pure, except for what it remembers. Inputs are compared by identity, so a scrape in which nothing changed costs nothing
here.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from operator import is_
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from exporter.accounting.sharing import CounterBook
from exporter.attribution.bearers import Listing, PodName, PodsOfOwners
from exporter.attribution.device_ids import RULES, Rule
from exporter.attribution.labels import SPLIT, LabelPolicy
from exporter.attribution.measured_shares import MeasuredShares
from exporter.attribution.owners import Knowledge, build_owners
from exporter.attribution.pod_labels import OfPod, PodLabelPolicy
from exporter.attribution.rows import Attribution
from exporter.model.devices import (
    NO_OFFERS,
    AddedLabels,
    Assignment,
    Inventory,
    Offers,
    Owners,
    SliceDevice,
    SliceDeviceName,
)
from exporter.model.pages import Page, Subject
from exporter.model.pods import Bearers, PodInfo

if TYPE_CHECKING:
    from exporter.model.measured import Measured

OfPods = Mapping[PodName, OfPod]
MeasuredFor = Callable[[Owners], "Measured | None"]
NO_SLICES: Mapping[SliceDeviceName, SliceDevice] = MappingProxyType({})
NO_BEARERS: Bearers = MappingProxyType({})
_NOT_ASKED = Listing()


class _WorkedOut(NamedTuple):
    """The owners and attribution of one set of pages, kept while `CurrentOwners` works on another set."""

    made_from: tuple[Any, ...]
    owners: Owners
    attributed_from: tuple[object, ...]
    attribution: Attribution


class CurrentOwners:
    """The owners and the attribution of the last `update`."""

    def __init__(
        self,
        policy: LabelPolicy,
        pod_label_policy: PodLabelPolicy | None = None,
        rules: Sequence[Rule] = RULES,
        book: CounterBook | None = None,
        pods_of_owners: PodsOfOwners | None = None,
        node: str = "",
    ) -> None:
        """`book` and `pods_of_owners` come from the node before a reload; `node` is this node's name.

        `book` holds the values of divided counters, `pods_of_owners` the pods that owners' names mean.
        """
        self.book = book or CounterBook()
        self.pods_of_owners = pods_of_owners or PodsOfOwners()
        self.owners = Owners()
        self.label_problems: Mapping[str, int] = {}
        self.pod_labels: Mapping[PodName, AddedLabels] = {}
        self._policy = policy
        self._pod_label_policy = pod_label_policy
        self._rules = rules
        self._node = node
        self._knowledge = Knowledge(rules=rules, node=node)
        self._made_from: tuple[Any, ...] = ()
        self._of_pods: OfPods = {}
        self._labelled: Mapping[PodName, PodInfo] | None = None
        self._attributed_from: tuple[object, ...] = ()
        self.attribution: Attribution = Attribution(self.owners, policy, book=self.book)
        self.measured: Measured | None = None  # what rows show
        self._shares = MeasuredShares()
        self._shown_in: tuple[object, ...] = ()
        self._of: Hashable = None
        self._others: dict[Hashable, _WorkedOut] = {}

    @property
    def knowledge(self) -> Knowledge:
        """The rules, inventory and slices that the last update looked ids up in."""
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
        offers: Offers = NO_OFFERS,
        pages: Sequence[Page] = (),
        of: Hashable = None,
        measured: MeasuredFor | None = None,
    ) -> Attribution:
        """The attribution for pages of these subjects. The same object as long as it would say the same.

        `bearers` are the pods by name, and `listing` decides which pod a name means where several bore it. `offers` is
        what the kubelet can hand out. `pages` are
        the reads that the caller joins next, before any other update: divided counters advance with them. `of` names
        the set of sources that the pages come from: each set's attribution is kept until `keep` drops it. `measured`
        says what owners use; rows show it from the next new page on, or with other owners: a page says one thing of the
        same owners, however often it is read.
        """
        self._turn_to(of)
        if pages and self._policy.sharing == SPLIT:
            self.book.turn_to(pages)
        if inventory is not self._knowledge.inventory or slices is not self._knowledge.slices:
            self._knowledge = Knowledge(rules=self._rules, inventory=inventory, slices=slices, node=self._node)
        made_from = (assignments, subjects, self._knowledge, offers)
        if not same(self._made_from, made_from):
            self.owners = build_owners(assignments, subjects, self._knowledge, offers)
            self._made_from = made_from
        if measured is not None or self.measured is not None:
            self._turn_to_measured(measured(self.owners) if measured else None, pages)
        pods = self.pods_of_owners.update(assignments, bearers, listing)
        if self._pod_label_policy is not None and pods is not self._labelled:
            self._labelled = pods
            of_pods = self._labels_of(pods, self._pod_label_policy)
            if of_pods != self._of_pods:
                self._of_pods = of_pods
                self.pod_labels = {name: of_pod.added for name, of_pod in of_pods.items()}
        attributed_from = (self.owners, self._of_pods, self._shares)
        if not same(self._attributed_from, attributed_from):
            self._attributed_from = attributed_from
            self.attribution = Attribution(
                self.owners, self._policy, of_pods=self._of_pods, book=self.book, measured=self._shares
            )
        return self.attribution

    def owners_of(self, subjects: Mapping[Subject, int]) -> Owners:
        """The owners by the assignments of the last update, were these the subjects: those of a page that is away."""
        assignments, _, knowledge, offers = self._made_from
        return build_owners(assignments, subjects, knowledge, offers)

    def keep(self, wanted: Collection[Hashable]) -> None:
        """Forget the attribution of every set of sources that is not in `wanted`."""
        if self._others:
            self._others = {of: kept for of, kept in self._others.items() if of in wanted}

    def _turn_to(self, of: Hashable) -> None:
        """Put the attribution of the last set of sources aside, and take up that of this set, if it is known."""
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

    def _turn_to_measured(self, measured: "Measured | None", pages: Sequence[Page]) -> None:
        """From here on rows show this, unless the pages and the owners are those of the last time."""
        shown_in = (self.owners, *(page.moment for page in pages))
        # owners are equal only to themselves
        if measured is not self.measured and shown_in != self._shown_in:
            self.measured = measured
            self._shares = self._shares.followed_by(measured)
        self._shown_in = shown_in

    def _labels_of(self, pods: Mapping[PodName, PodInfo], policy: PodLabelPolicy) -> OfPods:
        labels: dict[PodName, OfPod] = {}
        problems: Counter[str] = Counter()
        for name, pod in pods.items():
            labels[name], of_problems = policy.labels_of(pod)
            problems.update(of_problems)
        self.label_problems = dict(problems)
        return labels


def same(one: Sequence[object], other: Sequence[object]) -> bool:
    """Whether both hold the same objects: identity, since comparing the values would cost every scrape."""
    return len(one) == len(other) and all(map(is_, one, other))
