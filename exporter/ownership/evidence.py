"""What the node itself shows of containers whose device ids are tokens: by the kubelet's checkpoint, or otherwise.

The checkpoint names a container by its pod's uid and its own name; the kubelet's List names it by its pod's name and
its own. The ids that the kubelet gave join the two: ids in use belong to one container. An entry of a pod that has
ended may stay until the kubelet gives devices again; it is dropped before its ids are given to somebody else. So an
entry counts for the container that List gives exactly the same ids, if the file is not older than that container
(`Arrivals`) and, if pods are known, only with the uid of a pod of that name.

Pure, except for what `Arrivals` and `Turnover` remember. Callers pass moments in, in seconds.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import inf

from exporter.model.devices import Assignment
from exporter.model.grants import NO_EVIDENCE, CheckpointEntry, Evidence, Given
from exporter.model.nothing import NOTHING
from exporter.model.pods import Owner, PodsOfNames
from exporter.ownership.allocators.allocator_table import may_be_marked
from exporter.ownership.device_ids import Rule, read_device_id
from exporter.ownership.plugin_answers import as_given_by

Key = tuple[Owner, str]  # a container and a resource; "" stands for every resource
# Within this time a kubelet has written its checkpoint, after List has shown a container's devices.
SETTLED_SECONDS = 2.0
# the coarse clock of file systems may be this much behind
_CLOCK_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """All ids of one resource that a container has, and the allocator whose tokens they are.

    `are_shares`: each of them stands for a share of a device.
    """

    ids: frozenset[str]
    allocator: str
    are_shares: bool

    def given(self, given: Given) -> Given:
        """What a source names, as given by the allocator."""
        return as_given_by(given, self.allocator, is_share=self.are_shares)


AllTokens = Mapping[Key, Tokens]
NO_TOKENS: AllTokens = NOTHING
NONE_LATE: AbstractSet[Key] = frozenset()


# what was read of a container's ids: the tokens, or None if they name their own devices
ReadIds = dict[Key, tuple[frozenset[str], Tokens | None]]


def tokens_among(assignments: Iterable[Assignment], rules: Sequence[Rule], read: ReadIds | None = None) -> AllTokens:
    """The tokens of each container. A container's ids of one resource are all tokens if one of them is.

    `read` is what was read with the same rules before, which the call replaces: to read 800 ids takes some 10 ms.
    """
    # a container's assignments mostly have the same owner as an object, and there may be 80,000 of them
    by_object: defaultdict[tuple[int, str], list[Assignment]] = defaultdict(list)
    for assignment in assignments:
        if assignment.claim is None and not assignment.units:
            by_object[id(assignment.owner), assignment.resource].append(assignment)
    ids: defaultdict[Key, list[str]] = defaultdict(list)
    # those who gave devices of which the kubelet lists nothing
    givers: dict[Key, str] = {}
    for of_object in by_object.values():
        first = of_object[0]
        ids[first.owner, first.resource] += [assignment.device_id for assignment in of_object]
        if first.word is not None:
            givers[first.owner, first.resource] = first.word.grant.allocator
    before = {} if read is None else dict(read)
    now: ReadIds = {}
    for key, of_key in ids.items():
        as_set = frozenset(of_key)
        kept = before.get(key)
        if kept is None or kept[0] != as_set:
            giver = givers.get(key) or may_be_marked(key[1])
            kept = as_set, _tokens_of(key[1], as_set, rules, giver)
        now[key] = kept
    if read is not None:
        read.clear()
        read |= now
    return {key: tokens for key, (_, tokens) in now.items() if tokens is not None} or NO_TOKENS


def _tokens_of(resource: str, ids: frozenset[str], rules: Sequence[Rule], giver: str) -> Tokens | None:
    """The ids of one container as tokens; None if they name their own devices.

    `giver` is the allocator whose tokens they may be whatever their form; "" if there is none.
    """
    for device_id in ids:
        ref = read_device_id(resource, device_id, rules)
        allocator = giver or (ref.allocator if ref is not None else "")
        if allocator:
            return Tokens(ids=ids, allocator=allocator, are_shares=ref is not None and ref.shared)
    return None


def by_checkpoint(
    entries: Iterable[CheckpointEntry], tokens: AllTokens, pods: PodsOfNames, late: AbstractSet[Key]
) -> Mapping[Key, Given]:
    """The devices of containers by the kubelet's checkpoint.

    If several entries fit a container, they count only if they agree. Containers in `late` have none yet.
    """
    by_name: defaultdict[tuple[str, str], list[CheckpointEntry]] = defaultdict(list)
    for entry in entries:
        by_name[entry.container, entry.resource].append(entry)
    given: dict[Key, Given] = {}
    for key, token in tokens.items():
        owner, resource = key
        if key in late:
            continue
        uids = _uids_of(owner, pods)
        answers = {
            entry.given
            for entry in by_name.get((owner.container, resource), ())
            if entry.ids == token.ids and (not uids or entry.pod_uid in uids)
        }
        answer = answers.pop() if len(answers) == 1 else None
        if answer is not None:
            given[key] = token.given(answer)
    return given


def of_every_resource(
    given: Mapping[Owner, Given], tokens: AllTokens, before: Mapping[Key, Given]
) -> Mapping[Key, Given]:
    """What a source shows of containers, whatever the resource; the object `before` if nothing has changed."""
    of_containers: dict[Key, Given] = {}
    for (owner, _), of_key in tokens.items():
        if owner in given:
            of_containers[owner, ""] = of_key.given(given[owner])
    return before if of_containers == before else of_containers


def _uids_of(owner: Owner, pods: PodsOfNames) -> AbstractSet[str]:
    """The uids that a pod of this name may have; empty if they are not known.

    The kubelet gives a static pod another uid than the API does. Of a pod that may have gone meanwhile it is not known
    which pod has its name now.
    """
    of_name = [named.pod for named in pods.get(owner.pod_key, ()) if named.until == inf]
    return frozenset() if any(pod.is_static for pod in of_name) else {pod.uid for pod in of_name}


def together(sources: Iterable[Mapping[Key, Given]], before: Evidence) -> Evidence:
    """The evidence of all sources, the best first. It is `before`, as an object, if nothing has changed."""
    evidence: dict[Key, tuple[Given, ...]] = {}
    for source in sources:
        for key, given in source.items():
            evidence[key] = (*evidence.get(key, ()), given)
    return before if evidence == before else (evidence or NO_EVIDENCE)


@dataclass(frozen=True, slots=True)
class _Arrival:
    """When List was last asked before it had a container's tokens, and when it first had them. -inf: not known."""

    tokens: Tokens
    lacked_at: float
    listed_at: float


class Arrivals:
    """Remembers when List first had each container's tokens.

    The kubelet shows new devices in List some milliseconds before it writes its checkpoint. A file from before that may
    still have the entry of the container that had the same ids before.
    """

    def __init__(self) -> None:
        self._arrivals: dict[Key, _Arrival] = {}
        self._noted: AllTokens | None = None
        self._asked_at = -inf
        self._settled_at = -inf  # from then on every container counts
        self._late: AbstractSet[Key] = NONE_LATE

    def note(self, tokens: AllTokens, asked_at: float) -> None:
        """Note the tokens of the List that was asked at this moment."""
        if tokens is not self._noted:
            before = self._arrivals
            self._arrivals = {}
            for key, of_key in tokens.items():
                arrival = before.get(key)
                is_new = arrival is None or arrival.tokens != of_key
                self._arrivals[key] = _Arrival(of_key, self._asked_at, asked_at) if is_new else before[key]
            self._noted = tokens
            self._settled_at = max((one.listed_at for one in self._arrivals.values()), default=-inf) + SETTLED_SECONDS
        self._asked_at = asked_at

    def late(self, tokens: AllTokens, changed_at: float, now: float) -> AbstractSet[Key]:
        """The containers among these that a checkpoint may not have yet which was changed at this moment.

        The same object as long as they are the same.
        """
        if tokens is self._noted and now >= self._settled_at:
            return NONE_LATE
        late = frozenset(key for key, of_key in tokens.items() if self._is_late(key, of_key, changed_at, now))
        if late != self._late:
            self._late = late
        return self._late

    def _is_late(self, key: Key, tokens: Tokens, changed_at: float, now: float) -> bool:
        arrival = self._arrivals.get(key)
        if arrival is None or arrival.tokens != tokens:
            return True
        return changed_at < arrival.lacked_at - _CLOCK_SECONDS and now < arrival.listed_at + SETTLED_SECONDS


class Turnover:
    """Remembers since when each container has been as it is."""

    def __init__(self) -> None:
        self._noted: Mapping[Owner, object] = {}
        self._since: Mapping[Owner, float] = {}

    def note(self, facts: Mapping[Owner, object], now: float) -> Mapping[Owner, float]:
        """Since when these facts hold of each container; the same object as long as nothing changes."""
        if facts != self._noted:
            before = {owner: self._since[owner] for owner, fact in self._noted.items() if facts.get(owner) == fact}
            self._since = {owner: before.get(owner, now) for owner in facts}
            self._noted = facts
        return self._since
