"""The step that tells which device a token means: by what the node shows, or by the allocator's word on the pod.

    assignments ─┐
    pods ────────┼─► Words.of ─► assignments with words ─► owners.py
    evidence ────┘

A token is an id of an allocator, which does not say which device its container has (allocators/). For each container
and resource, word_choice.py says what counts: what the node shows; the ids themselves, where the user says so
(--allocators.hami id); or the annotation of the pod that the kubelet runs.

What nothing tells stays a token, with the reason. Pure, except for what `Words` remembers.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from exporter.errors import Trouble
from exporter.model.device_ref import DeviceRef
from exporter.model.devices import Assignment, Inventory
from exporter.model.grants import NO_EVIDENCE, Evidence, Given, Grant, Word
from exporter.model.memo import Memo
from exporter.model.pods import Owner, PodInfo, PodsByName
from exporter.ownership.allocators.allocator_table import ALLOCATORS, Allocator, Annotation, marked, usual
from exporter.ownership.allocators.positions import places
from exporter.ownership.allocators.said import Said, Unreadable, WrittenDevice
from exporter.ownership.device_ids import RULES, Rule, read_device_id
from exporter.ownership.names_of_gpus import NO_INVENTORY, NamesOfGpus
from exporter.ownership.word_choice import Choice, Heard, no_word
from exporter.wording import counted

THE_ID = "the id"
_ContainerResource = tuple[Owner, str]
_POD_UNKNOWN = Trouble(
    "",
    "an allocator's scheduler chose the GPU, and which pod bears this name now is not known: the annotations may be"
    " those of a pod that had the name before",
    "wait until the source of pods answers: see what is said of the source pods",
)


@dataclass(frozen=True, slots=True)
class _Token:
    """An assignment that is a token, and what its id says."""

    assignment: Assignment
    ref: DeviceRef


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
        # with the assignment, so that no other one gets its id
        self._refs: dict[int, tuple[Assignment, DeviceRef | None]] = {}
        self._made: dict[_ContainerResource, tuple[Assignment, ...]] = {}
        # what each of them was made of: to read an annotation takes up to some milliseconds
        self._made_of: dict[_ContainerResource, object] = {}
        # of the pods in the present `of`, by the pod and the annotation as objects
        self._texts_read: dict[tuple[int, int], Said | Unreadable] = {}
        self._names = Memo(NamesOfGpus(NO_INVENTORY))
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
        before, made_of_before = self._made, self._made_of
        names = self._names.of(NamesOfGpus, inventory)
        made: dict[_ContainerResource, tuple[Assignment, ...]] = {}
        made_of: dict[_ContainerResource, object] = {}
        for use, of_use in tokens.items():
            owner, _ = use
            pod = pods.get(owner.pod_key)
            of_pod = (pod.annotations, pod.containers) if pod else bool(pods)
            given = (*evidence.get(use, ()), *evidence.get((owner, ""), ()))
            made_of[use] = of_use, of_pod, given, names
            if made_of_before.get(use) == made_of[use]:
                made[use] = before[use]
                continue
            with_words = self._with_words(use, of_use, pods, given, names)
            # an equal assignment stays the same object, so that nobody reads it again
            made[use] = before[use] if before.get(use) == with_words else with_words
        self._made, self._made_of = made, made_of
        self._texts_read.clear()
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
        refs: dict[int, tuple[Assignment, DeviceRef | None]] = {}
        tokens: dict[_ContainerResource, list[_Token]] = {}
        for assignment in assignments:
            if assignment.claim is not None or assignment.units:
                continue
            as_read = self._refs.get(id(assignment))
            if as_read is None:
                as_read = assignment, read_device_id(assignment.resource, assignment.device_id, self._rules)
            refs[id(assignment)] = as_read
            ref = as_read[1]
            if ref is None or not ref.allocator:
                ref = self._marked(assignment, ref, pods.get(assignment.owner.pod_key))
            if ref is not None:
                tokens.setdefault((assignment.owner, assignment.resource), []).append(_Token(assignment, ref))
        self._refs = refs
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
        given: Sequence[Given],
        names: NamesOfGpus,
    ) -> tuple[Assignment, ...]:
        """A container's tokens of one resource, each with its word."""
        owner, resource = use
        allocator = self._allocators[tokens[0].ref.allocator]
        pod = pods.get(owner.pod_key)
        if pod is not None and not allocator.gives_tokens(resource, pod.annotations):
            return tuple(map(_named_by_its_id, tokens))
        heard = self._heard(allocator, use, pod, are_pods_read=bool(pods))
        if allocator.counts_units(resource):
            most = len(heard.entries) or None
        else:
            most = len(tokens)
            heard = _checked(heard, most)
        of_ids = {names.of(token.ref) for token in tokens if token.ref.names_device}
        written = {names.of(entry.ref) for entry in heard.entries}
        if self._trusts_ids_of == allocator.name:
            heard = _by_ids(heard, allocator, tokens, names)
        words = Choice(allocator, heard, most, names).words(given)
        if allocator.counts_units(resource):
            return _counted(tokens, words, heard)
        return tuple(
            replace(
                token.assignment,
                word=_compared(_of_token(word, token), written if word.source == THE_ID else of_ids, names),
            )
            for token, word in zip(tokens, words, strict=True)
        )

    def _heard(
        self, allocator: Allocator, use: _ContainerResource, pod: PodInfo | None, *, are_pods_read: bool
    ) -> Heard:
        """The allocator's word on the pod for this container."""
        owner, resource = use
        if pod is None:
            return Heard("", trouble=_POD_UNKNOWN if are_pods_read else allocator.trouble)
        annotation = allocator.annotation_on(resource, pod.annotations)
        if annotation is None:
            return Heard("", trouble=allocator.not_written)
        source = f"the annotation {annotation.key}"
        try:
            written = self._said_on(pod, annotation)
            entries = places(written, annotation, resource, pod.containers).get(owner.container, ())
        except Unreadable as error:
            return Heard(source, trouble=no_word(source, str(error)))
        if not entries:
            return Heard(source, trouble=no_word(source, "it names no device for this container"))
        return Heard(source, entries)

    def _said_on(self, pod: PodInfo, annotation: Annotation) -> Said:
        """What an annotation says that is on a pod, read once for all its containers. Raises Unreadable."""
        name = id(pod), id(annotation)
        if name not in self._texts_read:
            try:
                self._texts_read[name] = annotation.read(pod.annotations)
            except Unreadable as error:
                self._texts_read[name] = error
        entries = self._texts_read[name]
        if isinstance(entries, Unreadable):
            raise entries
        return entries


def _checked(heard: Heard, ids: int) -> Heard:
    """The word, if it names as many devices as the kubelet handed out ids."""
    if not heard.entries or len(heard.entries) == ids:
        return heard
    message = f"it names {counted(len(heard.entries), 'device')} for this container, and the kubelet handed out {ids}"
    return Heard(heard.source, trouble=no_word(heard.source, message))


def _named_by_its_id(token: _Token) -> Assignment:
    """A token of an allocator that did not choose the device of this pod: the id is true."""
    word = Word(grant=Grant(allocator=token.ref.allocator), source=THE_ID, ref=replace(token.ref, allocator=""))
    return replace(token.assignment, word=word)


def _by_ids(heard: Heard, allocator: Allocator, tokens: Sequence[_Token], names: NamesOfGpus) -> Heard:
    """The word that the kubelet's ids give, with the parts that the annotation says of these devices."""
    grants = {names.of(entry.ref): entry.grant for entry in heard.entries}
    in_order = [entry.grant for entry in heard.entries] or [Grant(allocator=allocator.name)] * len(tokens)
    entries = []
    for token, grant in zip(tokens, in_order, strict=True):
        ref = replace(token.ref, allocator="")
        entries.append(WrittenDevice(ref=ref, grant=grants.get(names.of(ref), grant)))
    return Heard(THE_ID, tuple(entries))


def _of_token(word: Word, token: _Token) -> Word:
    """A word in the place of a token."""
    return word if word.ref is None else replace(word, ref=replace(word.ref, shared=token.ref.shared))


def _compared(word: Word, others: Collection[object], names: NamesOfGpus) -> Word:
    """A word that knows whether its device is one of `others`: the ids' or, if the ids count, the annotation's."""
    return replace(word, is_of_id=names.of(word.ref) in others) if others and word.ref is not None else word


def _counted(tokens: Sequence[_Token], words: Sequence[Word], heard: Heard) -> tuple[Assignment, ...]:
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
        word = Word(grant=words[0].grant, source=heard.source, trouble=no_word(heard.source, message))
        return tuple(replace(token.assignment, word=word) for token in tokens)
    return tuple(
        replace(first.assignment, count=count, word=_of_token(word, first))
        for word, count in zip(words, counts, strict=True)
    )
