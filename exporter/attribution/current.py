"""The owners of the moment: worked out anew only when something they follow from has changed.

Pure but for what it remembers. What comes in is compared by identity, so that a steady scrape costs nothing here.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from exporter.attribution.device_ids import RULES, Rule
from exporter.attribution.labels import Attribution, LabelPolicy
from exporter.attribution.owners import Knowledge, build_owners
from exporter.attribution.pod_labels import PodLabelPolicy
from exporter.attribution.sharing import CounterBook
from exporter.model import AddedLabels, Assignment, Inventory, Owners, PodInfo, SliceDevice, Subject

OfPods = Mapping[tuple[str, str], AddedLabels]
_NOTHING: Mapping[tuple[str, str, str], SliceDevice] = MappingProxyType({})


class CurrentOwners:
    """Keeps owners and attribution up to date."""

    def __init__(
        self,
        policy: LabelPolicy,
        pod_label_policy: PodLabelPolicy | None = None,
        rules: Sequence[Rule] = RULES,
        book: CounterBook | None = None,
        node: str = "",
    ) -> None:
        """`book` is what divided counters stand at, where there was something before this object.

        `node` is this node's name.
        """
        self.book = book or CounterBook()
        self.owners = Owners()
        self.label_problems: Mapping[str, int] = {}
        self._policy = policy
        self._pod_label_policy = pod_label_policy
        self._rules = rules
        self._node = node
        self._knowledge = Knowledge(rules=rules, node=node)
        self._made_from: tuple[object, ...] = ()
        self._of_pods: OfPods = {}
        self._pods: Mapping[tuple[str, str], PodInfo] | None = None
        self.attribution: Attribution = Attribution(self.owners, policy, book=self.book)

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
        slices: Mapping[tuple[str, str, str], SliceDevice] = _NOTHING,
        pods: Mapping[tuple[str, str], PodInfo] | None = None,
    ) -> Attribution:
        """The attribution for pages of these subjects. The same object as long as nothing that it says has changed."""
        if inventory is not self._knowledge.inventory or slices is not self._knowledge.slices:
            self._knowledge = Knowledge(rules=self._rules, inventory=inventory, slices=slices, node=self._node)
        made_from = (assignments, subjects, self._knowledge)
        resolved = len(self._made_from) == len(made_from) and all(
            one is other for one, other in zip(self._made_from, made_from, strict=True)
        )
        if not resolved:
            self.owners = build_owners(assignments, subjects, self._knowledge)
            self._made_from = made_from
        changed = not resolved
        if self._pod_label_policy is not None and (changed or pods is not self._pods):
            self._pods = pods
            of_pods = self._labels_of_pods(assignments, pods or {})
            changed = changed or of_pods != self._of_pods
            self._of_pods = of_pods
        if changed:
            self.attribution = Attribution(self.owners, self._policy, of_pods=self._of_pods, book=self.book)
        return self.attribution

    def _labels_of_pods(self, assignments: frozenset[Assignment], pods: Mapping[tuple[str, str], PodInfo]) -> OfPods:
        """Of the pods that hold devices alone."""
        found: dict[tuple[str, str], AddedLabels] = {}
        problems: Counter[str] = Counter()
        for key in {(assignment.owner.namespace, assignment.owner.pod) for assignment in assignments}:
            pod = pods.get(key)
            if pod is not None and self._pod_label_policy is not None:
                found[key], of_pod = self._pod_label_policy.labels_of(pod)
                problems.update(of_pod)
        self.label_problems = dict(problems)
        return found
