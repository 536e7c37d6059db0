"""The current owners, worked out again only if an input has changed; and since when they hold their devices.

Inputs are compared by identity, so a scrape in which nothing changed costs nothing here.

dcgm-exporter reads its GPUs every 30 s by default, and the kubelet's answer is newer. So a page may have values of the
previous holder. Outputs for people mark such values until the page changes.

Pure, except for what it remembers. Callers pass moments in, in seconds since 1970.

Tests: tests/ownership/test_claims_by_spec.py, tests/ownership/test_tenures.py.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from exporter.dividing.measured_values import MeasuredShares
from exporter.dividing.sharing import CounterBook
from exporter.model.devices import (
    NO_PLACES,
    NONE_ALLOCATABLE,
    AddedLabels,
    Allocatable,
    Assignment,
    CdiPlaces,
    DeviceKey,
    Holder,
    Inventory,
    Owners,
    Since,
    SliceDevices,
    cdi_names_among,
)
from exporter.model.grants import NO_EVIDENCE, Evidence
from exporter.model.memo import Memo, same
from exporter.model.nothing import NOTHING
from exporter.model.pages import Page, Subjects
from exporter.model.pods import Owner, PodName, PodsByName, PodsOfNames
from exporter.ownership.admin_access import NO_CLAIMS, KnownClaims
from exporter.ownership.by_allocators import ByAllocators
from exporter.ownership.device_ids import RULES, Rule
from exporter.ownership.labels import NOTHING as NO_ADDITIONS
from exporter.ownership.labels import SPLIT, LabelPolicy, PodAdditions, PodLabelPolicy
from exporter.ownership.owners import Knowledge, OwnersBuilder
from exporter.ownership.pods_of_names import Listing, PodsOfOwners
from exporter.ownership.queues import labels_of_queue
from exporter.ownership.requests import Requests
from exporter.ownership.sample_rows import Attribution, OfPods
from exporter.ownership.unlisted import UnlistedHolders
from exporter.ownership.words import Words

if TYPE_CHECKING:
    from exporter.model.measured import Measured

# Within this time dcgm-exporter has read its GPUs again, even if the page still has the same values.
MOST_UNREAD_SECONDS = 120.0
# the time for which it is remembered since when nobody has held a device
_NOBODYS_SECONDS = 3600.0
_COMPARED_WHOLE_BYTES = 1 << 20  # of a larger body only the hash is kept


class Tenures:
    """Remembers since when each device has its holders. `since` lacks the holders that the first look already saw."""

    def __init__(self) -> None:
        self.since: Since = {}
        self._noted: Owners | None = None
        self._changed: dict[str, tuple[bytes | int, float]] = {}

    def look(self, owners: Owners | None, pages: Sequence[Page], at_seconds: float) -> float | None:
        """Note who holds what (None: the kubelet has not answered yet).

        Returns the latest moment at which dcgm-exporter can have read the oldest values of the pages; None without a
        page.
        """
        if owners is not None and owners is not self._noted:
            self._note(owners, at_seconds)
        oldest = None
        for page in pages:
            changed_at = self._changed_at(page, pages)
            read_at = max(changed_at, page.read_at_seconds - MOST_UNREAD_SECONDS)
            oldest = read_at if oldest is None else min(oldest, read_at)
        return oldest

    def _changed_at(self, page: Page, pages: Sequence[Page]) -> float:
        """The time at which the text of a source's page changed.

        A new source takes the place of sources without a page.
        """
        body = page.body if len(page.body) <= _COMPARED_WHOLE_BYTES else hash(page.body)
        before = self._changed.get(page.source)
        if before is None:
            sources = {page.source for page in pages}
            self._changed = {name: last for name, last in self._changed.items() if name in sources}
        elif before[0] == body:
            return before[1]
        self._changed[page.source] = (body, page.read_at_seconds)
        return page.read_at_seconds

    def _note(self, owners: Owners, at_seconds: float) -> None:
        """Note from when on new holders hold a device; the owners of the first look may have held it for long."""
        noted = self._noted
        self._noted = owners
        if noted is None:
            return
        before = noted.holders
        now = owners.holders
        since = {
            (key, owner): moment
            for (key, owner), moment in self.since.items()
            if owner or at_seconds - moment < _NOBODYS_SECONDS
        }
        for key in before.keys() | now.keys():
            if before.get(key) is now.get(key):
                continue
            owners_now = _holding(now, key)
            owners_before = _holding(before, key)
            for owner in owners_before - owners_now:
                since.pop((key, owner), None)
            for owner in owners_now - owners_before:
                since[key, owner] = at_seconds
        self.since = since


def _holding(holders: Mapping[DeviceKey, Sequence[Holder]], key: DeviceKey) -> frozenset[Owner | None]:
    return frozenset(holder.owner for holder in holders.get(key, ())) or frozenset({None})


MeasuredFor = Callable[[Owners], "Measured | None"]
NO_SLICES: SliceDevices = NOTHING
NO_PODS: PodsOfNames = NOTHING
_NOT_ASKED = Listing()


class CurrentOwners:
    """The owners and the attribution of the last `update`."""

    _labelled: PodsByName = NOTHING  # the pods of `pod_labels`

    def __init__(
        self,
        policy: LabelPolicy,
        pod_label_policy: PodLabelPolicy | None = None,
        rules: Sequence[Rule] = RULES,
        book: CounterBook | None = None,
        pods_of_owners: PodsOfOwners | None = None,
        node: str = "",
        places: CdiPlaces = NO_PLACES,
        requests: Requests | None = None,
        *,
        by_allocators: ByAllocators | None = None,
        gpus: frozenset[str] = frozenset(),
    ) -> None:
        """`node` is this node's name. `words` has the words of allocators; by default those of the built-in table.

        `book`, `pods_of_owners`, `places`, `requests` and `gpus` are the predecessor's, before a reload.
        """
        self.book = book or CounterBook()
        self.pods_of_owners = pods_of_owners or PodsOfOwners()
        self.requests = requests or Requests()
        self.owners = Owners()
        self.label_problems: Mapping[str, int] = {}
        self.pod_labels: Mapping[PodName, AddedLabels] = {}
        self._policy = policy
        self._pod_label_policy = pod_label_policy
        self.knowledge = Knowledge(rules=rules, node=node, places=places)  # for the last look-ups of ids
        self.by_allocators = by_allocators or ByAllocators(Words(rules), UnlistedHolders(rules))
        self.evidence = NO_EVIDENCE
        self._held: Memo[frozenset[Assignment]] = Memo(frozenset())
        self._looked_up = Memo(None)
        self._builder = OwnersBuilder(gpus)
        self._of_pods: Memo[OfPods] = Memo({})
        self.attribution: Attribution = Attribution(self.owners, policy, book=self.book)
        self._of_pages = Memo(self.owners), Memo(self.attribution)
        self.measured: Measured | None = None  # the measured use that rows show
        self._shares = MeasuredShares()
        self._shown_in: tuple[object, ...] = ()
        self._of: Hashable = None
        self._of_others: dict[Hashable, tuple[Memo[Owners], Memo[Attribution]]] = {}

    def update(
        self,
        assignments: frozenset[Assignment],
        subjects: Subjects,
        *,
        inventory: Inventory,
        slices: SliceDevices = NO_SLICES,
        pods_of_names: PodsOfNames = NO_PODS,
        listing: Listing = _NOT_ASKED,
        allocatable: Allocatable = NONE_ALLOCATABLE,
        claims: KnownClaims = NO_CLAIMS,
        evidence: Evidence = NO_EVIDENCE,
        pages: Sequence[Page] = (),
        of: Hashable = None,
        measured: MeasuredFor | None = None,
    ) -> Attribution:
        """The attribution for pages of these subjects; the same object as long as nothing changed.

        `pods_of_names` are the pods by name; of several, `listing` decides which one is meant. `listed` are the
        kubelet's pods. `allocatable` has all ids that the kubelet can hand out, `claims` the known claims. `evidence`
        has what the node shows of containers. The caller joins `pages` before any other update, as divided counters
        advance with them. `of` names the pages' sources: their attribution is kept until `keep` drops it. `measured`
        gives the use of each owner, which rows show with the next new page or owners.
        """
        self.evidence = evidence
        self._turn_to(of)
        if pages and self._policy.sharing == SPLIT:
            self.book.turn_to(pages)
        assignments = self.by_allocators.of(assignments, pods_of_names, listing, evidence, inventory)
        pods = self.pods_of_owners.update(assignments, pods_of_names, listing)
        assignments = self._held.of(self.requests.of_their_containers, assignments, pods)
        self._looked_up.of(self._look_up, assignments, inventory, slices, claims)
        owners, attribution = self._of_pages
        self.owners = owners.of(self._builder.build, assignments, subjects, self.knowledge, allocatable)
        if measured is not None or self.measured is not None:
            self._turn_to_measured(measured(self.owners) if measured else None, pages)
        if pods is not self._labelled:
            self._label(pods)
        self.attribution = attribution.of(self._attribute, self.owners, self._of_pods.value, self._shares)
        return self.attribution

    def _attribute(self, owners: Owners, of_pods: OfPods, shares: MeasuredShares) -> Attribution:
        return Attribution(
            owners, self._policy, of_pods=of_pods, book=self.book, measured=shares, before=self.attribution
        )

    def _look_up(
        self, assignments: frozenset[Assignment], inventory: Inventory, slices: SliceDevices, claims: KnownClaims
    ) -> None:
        """Make `knowledge` of these inputs."""
        places = _places_of(assignments, inventory.places, self.knowledge.places)
        has_same_facts = same(self._looked_up.inputs[1:], (inventory, slices, claims))
        if not has_same_facts or places != self.knowledge.places:
            self.knowledge = replace(self.knowledge, inventory=inventory, slices=slices, places=places, claims=claims)

    def learn(self, places: CdiPlaces, claims: KnownClaims) -> None:
        """Take in the places and claims that are known now, as CDI specs or claims were read since the last update."""
        self.knowledge = replace(self.knowledge, places={**self.knowledge.places, **places}, claims=claims)

    def owners_of(self, subjects: Subjects) -> Owners:
        """The owners for the subjects of a page that is away, by the assignments of the last update."""
        owners, _ = self._of_pages
        assignments, _, knowledge, allocatable = owners.inputs
        return OwnersBuilder(self._builder.gpus).build(assignments, subjects, knowledge, allocatable)

    @property
    def gpus(self) -> frozenset[str]:
        """The GPUs of all pages so far, or two of them: a page lacks a lost GPU."""
        return self._builder.gpus

    def keep(self, wanted: Collection[Hashable]) -> None:
        """Forget the attribution of every set of sources that is not in `wanted`."""
        if self._of_others:
            self._of_others = {of: kept for of, kept in self._of_others.items() if of in wanted}

    def _turn_to(self, of: Hashable) -> None:
        """Put the attribution of the last set of sources aside, and take up the one of this set, if there is one."""
        if of == self._of:
            return
        self._of_others[self._of] = self._of_pages
        self._of = of
        new = Memo(self.owners), Memo(self.attribution)
        owners, attribution = self._of_pages = self._of_others.pop(of, new)
        self.owners = owners.value
        self.attribution = attribution.value

    def _turn_to_measured(self, measured: "Measured | None", pages: Sequence[Page]) -> None:
        """Show this measurement in rows, unless the pages and the owners are the same as last time."""
        shown_in = (self.owners, *(page.moment for page in pages))
        # `Owners` objects are compared by identity
        if measured is not self.measured and shown_in != self._shown_in:
            self.measured = measured
            self._shares = self._shares.followed_by(measured)
        self._shown_in = shown_in

    def _label(self, pods: PodsByName) -> None:
        """Read the labels of these pods: those that samples gain, and with the queue those of `pod_labels`."""
        self._labelled = pods
        if self._pod_label_policy is not None:
            self._of_pods.of(self._labels_of, pods, self._pod_label_policy)
        of_pods = self._of_pods.value
        labels: dict[PodName, AddedLabels] = {}
        for name, pod in pods.items():
            labels[name] = (*of_pods.get(name, NO_ADDITIONS).added, *labels_of_queue(pod))
        if labels != self.pod_labels:
            self.pod_labels = labels

    def _labels_of(self, pods: PodsByName, policy: PodLabelPolicy) -> OfPods:
        labels: dict[PodName, PodAdditions] = {}
        problems: Counter[str] = Counter()
        for name, pod in pods.items():
            labels[name], of_problems = policy.labels_of(pod)
            problems.update(of_problems)
        self.label_problems = dict(problems)
        if labels == self._of_pods.value:
            return self._of_pods.value
        return labels


def _places_of(assignments: Iterable[Assignment], now: CdiPlaces, before: CdiPlaces) -> CdiPlaces:
    """The places of the CDI devices that assignments name.

    A name belongs to one claim, so its last place still holds.
    """
    places = {**before, **now}
    return {name: places[name] for name in sorted(cdi_names_among(assignments) & places.keys())}
