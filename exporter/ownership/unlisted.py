"""Devices that containers hold of which the kubelet lists nothing: an allocator's word on the pod alone tells of them.

- KAI Scheduler and Run:ai: a reservation pod holds the whole GPU by the kubelet's word and uses nothing. The pods of
  its group, which bear the same label, share this GPU. So the reservation pod only looks at it, and they hold it.
- Koordinator: the annotation names the GPUs of a pod, and no device plugin has handed out anything.

Pure, except for what `UnlistedHolders` remembers.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from exporter.errors import Trouble
from exporter.model.device_ref import DeviceRef
from exporter.model.devices import Assignment, Inventory
from exporter.model.grants import NO_EVIDENCE, Evidence, Grant, Word
from exporter.model.pods import Owner, PodInfo, PodName, PodsByName
from exporter.ownership.allocators.allocator_table import ALLOCATORS, Allocator, Annotation
from exporter.ownership.allocators.gpu_groups import (
    FRACTION,
    GROUP_LABEL,
    KAI,
    RESERVATION_NAMESPACES,
    container_of,
    fraction_of,
    groups_of,
    is_reservation,
)
from exporter.ownership.allocators.positions import places
from exporter.ownership.allocators.said import Unreadable, WrittenDevice
from exporter.ownership.device_ids import RULES, Rule, read_device_id
from exporter.ownership.names_of_gpus import NO_INVENTORY, NamesOfGpus
from exporter.ownership.pods_of_names import ENDED_PHASES
from exporter.ownership.word_choice import Choice, Heard, no_word

_LABEL = f"the label {GROUP_LABEL}"
# names no device, not even the only one of a node: the pod that reserves it does not hold it
RESERVED = DeviceRef(form=_LABEL)
_PODS_UNREAD = Trouble(
    "",
    "this pod reserves its GPU for a group of pods that share it, and nothing here says which pods these are",
    "let the exporter read pods: give it the kubelet's Pods API or a token with the right to list and watch pods"
    " (--pods.source)",
)
_NO_RESERVATION = Trouble(
    "",
    "its pod has a part of a GPU, and no reservation pod of its group is known on this node",
    "wait until the scheduler has made it; if it stays so, look at the binder of the scheduler",
)


@dataclass(frozen=True, slots=True)
class _ContainerWord:
    """A container with the word of its allocator. `names` are the names of its devices, an assignment for each."""

    owner: Owner
    resource: str
    names: Sequence[str]
    allocator: Allocator
    heard: Heard

    def assignments(self, evidence: Evidence, names_of_gpus: NamesOfGpus) -> Iterator[Assignment]:
        """An assignment for each device: by the word, unless the node shows other devices."""
        given = (*evidence.get((self.owner, self.resource), ()), *evidence.get((self.owner, ""), ()))
        words = Choice(self.allocator, self.heard, len(self.names), names_of_gpus).words(given)
        for name, word in zip(self.names, words, strict=True):
            ref = replace(word.ref or DeviceRef(form=self.heard.source, allocator=self.allocator.name), shared=True)
            own_word = replace(word, ref=ref, is_unlisted=True)
            yield Assignment(owner=self.owner, resource=self.resource, device_id=name, word=own_word)


class UnlistedHolders:
    """Adds such holders to the assignments. What it made stays the same object while nothing of it changes."""

    def __init__(
        self,
        rules: Sequence[Rule] = RULES,
        allocators: Mapping[str, Allocator] = ALLOCATORS,
        namespaces: Collection[str] = RESERVATION_NAMESPACES,
    ) -> None:
        """`namespaces` are those of reservation pods."""
        self._rules = rules
        self._namespaces = namespaces
        self._writers = [allocator for allocator in allocators.values() if allocator.gives_without_kubelet]
        # the holders in each pod by its annotations, with what they were made of: to read one may take milliseconds
        self._by_annotations: dict[PodName, tuple[object, Sequence[_ContainerWord]]] = {}
        # whether a GPU was ever reserved: elsewhere the label is anybody's
        self._reserves = False
        self._made: dict[Assignment, Assignment] = {}
        self._last: frozenset[Assignment] = frozenset()
        self._of_last: frozenset[Assignment] = frozenset()
        self.holding: frozenset[Assignment] = frozenset()

    def of(
        self,
        assignments: frozenset[Assignment],
        pods: PodsByName,
        evidence: Evidence = NO_EVIDENCE,
        inventory: Inventory = NO_INVENTORY,
    ) -> frozenset[Assignment]:
        """The assignments with such holders (`holding`), and with reservation pods as containers that only look.

        The same object as before if nothing changed. `pods` are the pods that the kubelet runs, by name.
        """
        reserved = [held for held in assignments if is_reservation(held.owner, self._namespaces)]
        self._reserves = self._reserves or bool(reserved)
        refs = self._refs_of_groups(reserved, pods)
        names = NamesOfGpus(inventory)
        with_ids = {held.owner.pod_key for held in assignments}
        holding: list[Assignment] = []
        for holder in chain.from_iterable(self._holders_in(pod, refs, with_ids) for pod in _alive(pods, reserved)):
            holding += holder.assignments(evidence, names)
        self._by_annotations = {name: kept for name, kept in self._by_annotations.items() if name in pods}
        looks = [self._look(held, pods.get(held.owner.pod_key)) for held in reserved]
        before = self._made
        self._made = {made: before.get(made, made) for made in (*looks, *holding)}
        if assignments is not self._of_last or self._made.keys() != before.keys():
            self._last = assignments.difference(reserved).union(self._made.values()) if self._made else assignments
            self._of_last = assignments
            self.holding = frozenset(self._made[made] for made in holding)
        return self._last

    def _holders_in(
        self, pod: PodInfo, refs: Mapping[str, DeviceRef], with_ids: Collection[PodName]
    ) -> Iterator[_ContainerWord]:
        """The holders in a pod. `refs` are the GPUs of groups. An annotation of a pod `with_ids` does not count."""
        if self._reserves:
            yield from _of_groups(pod, refs)
        if (pod.namespace, pod.name) not in with_ids:
            yield from self._of_annotations(pod)

    def _look(self, held: Assignment, pod: PodInfo | None) -> Assignment:
        """A reservation pod's assignment, which holds nothing: its container looks at the GPU."""
        ref = read_device_id(held.resource, held.device_id, self._rules)
        if pod is None or ref is None:
            return replace(held, word=Word(grant=Grant(allocator=KAI), ref=RESERVED, trouble=_PODS_UNREAD))
        return replace(held, word=Word(grant=Grant(allocator=KAI), source=_LABEL, ref=replace(ref, is_look=True)))

    def _refs_of_groups(self, reserved: Iterable[Assignment], pods: PodsByName) -> Mapping[str, DeviceRef]:
        """The GPU of each group, by what the kubelet gave the group's reservation pod.

        A group whose reservation pods have several GPUs has none: one of them may be on its way out.
        """
        refs: defaultdict[str, set[DeviceRef]] = defaultdict(set)
        for held in reserved:
            pod = pods.get(held.owner.pod_key)
            ref = read_device_id(held.resource, held.device_id, self._rules)
            if pod is not None and ref is not None:
                for group in groups_of(pod):
                    refs[group].add(ref)
        return {group: ref for group, (ref, *others) in refs.items() if not others}

    def _of_annotations(self, pod: PodInfo) -> Sequence[_ContainerWord]:
        """The holders in a pod by the annotations of allocators that have no device plugin."""
        written = [
            (allocator, annotation)
            for allocator in self._writers
            for annotation in allocator.annotations
            if annotation.key in pod.annotations
        ]
        if not written:
            return ()
        name, made_of = (pod.namespace, pod.name), (pod.annotations, pod.containers)
        before = self._by_annotations.get(name)
        if before is None or before[0] != made_of:
            holders = [holder for by in written for holder in _of_annotation(pod, *by)]
            before = self._by_annotations[name] = made_of, holders
        return before[1]


def _alive(pods: PodsByName, reserved: Iterable[Assignment]) -> Sequence[PodInfo]:
    """The pods that may hold something: those that have not ended, and do not only reserve a GPU."""
    reserving = {held.owner.pod_key for held in reserved}
    return [pod for name, pod in pods.items() if pod.phase not in ENDED_PHASES and name not in reserving]


def _of_groups(pod: PodInfo, refs: Mapping[str, DeviceRef]) -> Iterator[_ContainerWord]:
    """The holder in a pod that has parts of the GPUs of its groups."""
    groups = groups_of(pod)
    if not groups:
        return
    container = pod.containers[0].name if pod.containers else ""
    try:
        container = container_of(pod)
        grant = fraction_of(pod)
    except Unreadable as error:
        heard = Heard(_LABEL, trouble=no_word("the part of a GPU that its pod has", str(error)))
    else:
        of_groups = [refs.get(group) for group in groups]
        devices = tuple(WrittenDevice(ref=ref, grant=grant) for ref in of_groups if ref is not None)
        heard = Heard(_LABEL, devices) if len(devices) == len(groups) else Heard(_LABEL, trouble=_NO_RESERVATION)
    owner = Owner(namespace=pod.namespace, pod=pod.name, container=container)
    yield _ContainerWord(owner, FRACTION, groups, Allocator(name=KAI), heard)


def _of_annotation(pod: PodInfo, allocator: Allocator, annotation: Annotation) -> Iterator[_ContainerWord]:
    """The holders in a pod by one annotation; a holder without a device if the annotation cannot be read."""
    source = f"the annotation {annotation.key}"
    resource = annotation.resources[0]
    try:
        written = annotation.read(pod.annotations)
        # Koordinator's may be about a pod's network cards alone
        has_devices = any(written.containers)
        of_containers = places(written, annotation, resource, pod.containers) if has_devices else {}
    except Unreadable as error:
        owner = Owner(namespace=pod.namespace, pod=pod.name, container=pod.containers[0].name if pod.containers else "")
        yield _ContainerWord(owner, resource, ("",), allocator, Heard(source, trouble=no_word(source, str(error))))
        return
    for container, devices in of_containers.items():
        owner = Owner(namespace=pod.namespace, pod=pod.name, container=container)
        yield _ContainerWord(owner, resource, [*map(str, range(len(devices)))], allocator, Heard(source, devices))
