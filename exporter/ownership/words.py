"""The step that tells which device a token means: by what the node shows, or by the allocator's word on the pod.

    assignments ─┐
    pods ────────┼─► Words.of ─► assignments with words ─► owners.py
    evidence ────┘

A token is an id of an allocator, which does not say which device its container has (allocators/table.py). For each
container and resource the first of these counts that names as many devices as the container was given:

1. evidence that names all of the container's devices: what the plugin answered the kubelet, or the environment;
2. NVML, where the container's processes run on a device that the annotation does not name;
3. the ids themselves, where the user says so (--allocators.hami id);
4. the annotation of the pod that the kubelet runs.

What nothing tells stays a token, with the reason. Pure, except for what `Words` remembers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from exporter.errors import Trouble
from exporter.model.device_ref import DeviceRef
from exporter.model.devices import Assignment, Inventory
from exporter.model.grants import NO_EVIDENCE, Evidence, Given, Grant, Word
from exporter.model.pods import Owner, PodInfo, PodsByName
from exporter.ownership.allocators.allocator_table import ALLOCATORS, Allocator, marked, usual
from exporter.ownership.allocators.positions import places
from exporter.ownership.allocators.said import Unreadable, WrittenDevice
from exporter.ownership.device_ids import RULES, Rule, read_device_id
from exporter.ownership.names_of_gpus import NamesOfGpus
from exporter.wording import counted

_ContainerResource = tuple[Owner, str]
NO_INVENTORY = Inventory()


@dataclass(frozen=True, slots=True)
class _Token:
    """An assignment that is a token, and what its id says."""

    assignment: Assignment
    ref: DeviceRef


@dataclass(frozen=True, slots=True)
class _Heard:
    """The word of an allocator for one container: an entry for each device, or the trouble why there is no word."""

    source: str
    entries: tuple[WrittenDevice, ...] = ()
    trouble: Trouble | None = None


class Words:
    """Gives tokens their words. It keeps the assignments that it made, as objects, while nothing of them changes."""

    def __init__(
        self,
        rules: Sequence[Rule] = RULES,
        allocators: Mapping[str, Allocator] = ALLOCATORS,
        trusts_ids_of: str = "",
        *,
        doubts_ids: bool = True,
    ) -> None:
        """`trusts_ids_of` is the allocator whose ids count before its annotation; "" for none.

        `doubts_ids`: ids that only their pods show to be tokens are taken for tokens while their pods are not known.
        """
        self._doubts_ids = doubts_ids
        self._rules = rules
        self._allocators = allocators
        self._trusts_ids_of = trusts_ids_of
        self._refs: dict[int, tuple[Assignment, DeviceRef | None]] = {}
        self._made: dict[_ContainerResource, tuple[Assignment, ...]] = {}
        self._last: frozenset[Assignment] = frozenset()
        self._of_last: frozenset[Assignment] = frozenset()

    def of(
        self,
        assignments: frozenset[Assignment],
        pods: PodsByName,
        evidence: Evidence = NO_EVIDENCE,
        inventory: Inventory = NO_INVENTORY,
    ) -> frozenset[Assignment]:
        """The assignments, each token with its word. The same object as before if nothing changed.

        `pods` are the pods that the kubelet runs, by name. `inventory` tells which numbers and UUIDs are one GPU's.
        """
        tokens = self._tokens_among(assignments, pods)
        before = self._made
        names = NamesOfGpus(inventory)
        made: dict[_ContainerResource, tuple[Assignment, ...]] = {}
        for use, of_use in tokens.items():
            with_words = self._with_words(use, of_use, pods, evidence, names)
            # an equal assignment stays the same object, so that nobody reads it again
            made[use] = before[use] if before.get(use) == with_words else with_words
        self._made = made
        is_same = made.keys() == before.keys() and all(made[use] is before[use] for use in made)
        if assignments is not self._of_last or not is_same:
            of_tokens = (token.assignment for of_use in tokens.values() for token in of_use)
            self._last = assignments.difference(of_tokens).union(*made.values()) if made else assignments
            self._of_last = assignments
        return self._last

    def _tokens_among(
        self, assignments: frozenset[Assignment], pods: PodsByName
    ) -> Mapping[_ContainerResource, Sequence[_Token]]:
        """The tokens by container and resource, in stable order."""
        before = self._refs
        self._refs = {}
        tokens: dict[_ContainerResource, list[_Token]] = {}
        for assignment in assignments:
            if assignment.claim is not None or assignment.units:
                continue
            as_read = before.get(id(assignment))
            if as_read is None or as_read[0] is not assignment:
                as_read = assignment, read_device_id(assignment.resource, assignment.device_id, self._rules)
            self._refs[id(assignment)] = as_read
            ref = as_read[1]
            if ref is None or not ref.allocator:
                ref = self._marked(assignment, ref, pods.get(assignment.owner.pod_key))
            if ref is not None:
                tokens.setdefault((assignment.owner, assignment.resource), []).append(_Token(assignment, ref))
        for of_use in tokens.values():
            of_use.sort(key=lambda token: token.assignment.device_id)
        return tokens

    def _marked(self, assignment: Assignment, ref: DeviceRef | None, pod: PodInfo | None) -> DeviceRef | None:
        """The token that an id is by a mark on its pod, whatever its form; None if there is none."""
        allocators = self._allocators.values()
        if pod is None:
            allocator = usual(assignment.resource, allocators) if self._doubts_ids else None
        else:
            allocator = marked(assignment.resource, pod.annotations, allocators) if pod.annotations else None
        if allocator is None:
            return None
        return replace(ref or DeviceRef(form=f"a token of {allocator.name}"), allocator=allocator.name)

    def _with_words(
        self,
        use: _ContainerResource,
        tokens: Sequence[_Token],
        pods: PodsByName,
        evidence: Evidence,
        names: NamesOfGpus,
    ) -> tuple[Assignment, ...]:
        """A container's tokens of one resource, each with its word."""
        owner, resource = use
        allocator = self._allocators[tokens[0].ref.allocator]
        pod = pods.get(owner.pod_key)
        if pod is not None and not allocator.gives_tokens(resource, pod.annotations):
            return tuple(map(_named_by_its_id, tokens))
        heard = _heard(allocator, owner, resource, pod)
        if allocator.counts_units(resource):
            most = len(heard.entries) or None
        else:
            most = len(tokens)
            heard = _checked(heard, most)
        if self._trusts_ids_of == allocator.name:
            heard = _by_ids(heard, allocator, tokens, names)
        given = (*evidence.get(use, ()), *evidence.get((owner, ""), ()))
        words = _Choice(allocator, heard, most, names).words(given)
        if allocator.counts_units(resource):
            return _counted(tokens, words, heard, names)
        return tuple(
            replace(token.assignment, word=_of_token(word, token, names))
            for token, word in zip(tokens, words, strict=True)
        )


def _heard(allocator: Allocator, owner: Owner, resource: str, pod: PodInfo | None) -> _Heard:
    """The allocator's word on the pod for this container."""
    if pod is None:
        return _Heard("", trouble=allocator.trouble)
    annotation = allocator.annotation_on(resource, pod.annotations)
    source = f"the annotation {annotation.key}" if annotation else ""
    try:
        written = annotation.read(pod.annotations) if annotation else None
        if annotation is None or written is None:
            return _Heard("", trouble=allocator.not_written)
        entries = places(written, annotation, resource, pod.containers).get(owner.container, ())
    except Unreadable as error:
        return _Heard(source, trouble=_no_word(source, str(error)))
    if not entries:
        return _Heard(source, trouble=_no_word(source, "it names no device for this container"))
    return _Heard(source, entries)


def _checked(heard: _Heard, ids: int) -> _Heard:
    """The word, if it names as many devices as the kubelet handed out ids."""
    if not heard.entries or len(heard.entries) == ids:
        return heard
    message = f"it names {counted(len(heard.entries), 'device')} for this container, and the kubelet handed out {ids}"
    return _Heard(heard.source, trouble=_no_word(heard.source, message))


def _no_word(source: str, message: str) -> Trouble:
    return Trouble(
        "",
        f"{source} cannot be believed: {message}",
        "no owner is shown until it can; look at the allocator's scheduler and device plugin, or who else wrote it",
    )


def _named_by_its_id(token: _Token) -> Assignment:
    """A token of an allocator that did not choose the device of this pod: the id is true."""
    word = Word(grant=Grant(allocator=token.ref.allocator), source="the id", ref=replace(token.ref, allocator=""))
    return replace(token.assignment, word=word)


def _by_ids(heard: _Heard, allocator: Allocator, tokens: Sequence[_Token], names: NamesOfGpus) -> _Heard:
    """The word that the kubelet's ids give, with the parts that the annotation says of these devices."""
    grants = {names.of(entry.ref): entry.grant for entry in heard.entries}
    in_order = [entry.grant for entry in heard.entries] or [Grant(allocator=allocator.name)] * len(tokens)
    entries = []
    for token, grant in zip(tokens, in_order, strict=True):
        ref = replace(token.ref, allocator="")
        entries.append(WrittenDevice(ref=ref, grant=grants.get(names.of(ref), grant)))
    return _Heard("the id", tuple(entries))


@dataclass(frozen=True, slots=True)
class _Choice:
    """The choice between what the allocator says of a container and what the node shows.

    `most` is the number of devices that the container was given; None if it is not known.
    """

    allocator: Allocator
    heard: _Heard
    most: int | None
    names: NamesOfGpus

    def words(self, given: Iterable[Given]) -> Sequence[Word]:
        """A word for each device, or for each token if the number of devices is not known."""
        for shown in given:
            if shown.is_whole and shown.refs and self.most in (None, len(shown.refs)):
                return self._shown(shown)
            if not shown.is_whole and self._names_others(shown):
                return self._seen(shown)
        if self.heard.entries:
            return [Word(grant=entry.grant, source=self.heard.source, ref=entry.ref) for entry in self.heard.entries]
        return [self._unknown] * (self.most or 1)

    def _names_others(self, seen: Given) -> bool:
        """Whether processes run on a device that the word does not name, though not on more than were given.

        A privileged container may use every GPU of the node.
        """
        if not seen.refs or len(seen.refs) > (self.most or 1):
            return False
        return not {*map(self.names.of, seen.refs)} <= self._by_word.keys()

    @property
    def _by_word(self) -> Mapping[object, WrittenDevice]:
        return {self.names.of(entry.ref): entry for entry in self.heard.entries}

    @property
    def _unknown(self) -> Word:
        grant = Grant(allocator=self.allocator.name)
        return Word(grant=grant, source=self.heard.source, trouble=self.heard.trouble or self.allocator.trouble)

    def _shown(self, shown: Given) -> Sequence[Word]:
        """The words of evidence that names all devices of the container."""
        grants = shown.grants or self._grants_for(shown.refs)
        trouble = self._contradiction(shown)
        return [
            Word(grant=grant, source=shown.source, ref=ref, trouble=trouble)
            for ref, grant in zip(shown.refs, grants, strict=True)
        ]

    def _seen(self, seen: Given) -> Sequence[Word]:
        """The words of evidence that may lack devices: those without a process stay unknown."""
        trouble = self._contradiction(seen)
        grants = self._grants_for(seen.refs)
        words = [
            Word(grant=grant, source=seen.source, ref=ref, trouble=trouble)
            for ref, grant in zip(seen.refs, grants, strict=True)
        ]
        return [*words, *[self._unknown] * ((self.most or 1) - len(words))]

    def _grants_for(self, refs: Sequence[DeviceRef]) -> Sequence[Grant]:
        """What the allocator says of the parts of these devices, by the device or else in its order."""
        entries = self.heard.entries
        in_order = [entry.grant for entry in entries[: len(refs)]]
        in_order += [Grant(allocator=self.allocator.name)] * (len(refs) - len(in_order))
        by_word = self._by_word
        own = [by_word.get(self.names.of(ref)) for ref in refs]
        return [entry.grant if entry else grant for entry, grant in zip(own, in_order, strict=True)]

    def _contradiction(self, shown: Given) -> Trouble | None:
        """The contradiction of the allocator's word by what the node shows; None if there is none."""
        by_word = self._by_word
        shown_names = [*map(self.names.of, shown.refs)]
        if not by_word or {*shown_names} <= by_word.keys():
            return None
        says = ", ".join(sorted(map(self.names.text, (entry.ref for entry in self.heard.entries))))
        shows = ", ".join(sorted(map(self.names.text, shown.refs)))
        return Trouble(
            "",
            f"{self.heard.source} says {says}, and {shown.source} shows {shows}, which counts",
            f"{self.allocator.name} gave another device than it wrote, or somebody else wrote the annotation: look at"
            " its device plugin on this node, and at who may write pods",
        )


def _of_token(word: Word, token: _Token, names: NamesOfGpus) -> Word:
    """A word in the place of a token."""
    if word.ref is None:
        return word
    ref = replace(word.ref, shared=token.ref.shared)
    own = replace(token.ref, allocator="", shared=False)
    is_of_id = None if token.ref.is_no_gpu else names.of(own) == names.of(ref)
    return replace(word, ref=ref, is_of_id=is_of_id)


def _counted(
    tokens: Sequence[_Token], words: Sequence[Word], heard: _Heard, names: NamesOfGpus
) -> tuple[Assignment, ...]:
    """An assignment for each device, which counts its part of the ids; the tokens themselves if no device is known."""
    first = tokens[0]
    if any(word.ref is None for word in words):
        return tuple(replace(token.assignment, word=words[0]) for token in tokens)
    ids = sum(token.assignment.count for token in tokens)
    counts = [ids]
    if len(words) > 1:
        counts = [round(entry.memory_units or 0) for entry in heard.entries]
    if len(counts) != len(words) or sum(counts) != ids:
        message = f"it counts {sum(counts)} units for this container, and the kubelet handed out {ids}"
        word = Word(grant=words[0].grant, source=heard.source, trouble=_no_word(heard.source, message))
        return tuple(replace(token.assignment, word=word) for token in tokens)
    return tuple(
        replace(first.assignment, count=count, word=_of_token(word, first, names))
        for word, count in zip(words, counts, strict=True)
    )
