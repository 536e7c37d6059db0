"""The look-up of what the environments of containers' first processes say of devices (`--allocators.environ`).

Tests: tests/node/test_node_evidence.py.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import inf

from exporter.model.grants import Given
from exporter.model.measured import Environments
from exporter.model.memo import Memo
from exporter.model.nothing import NOTHING
from exporter.model.pods import Owner, PodsByName
from exporter.node.part import Asking
from exporter.ownership.evidence import Turnover
from exporter.ownership.plugin_answers import PluginAnswer, read_answer
from exporter.sources.container_logs import ContainerLogs
from exporter.sources.process_environ import Environs
from exporter.usage.process_owners import Containers, containers_of_pods, owner_of

SOURCE = "the environment"
_Ids = Mapping[Owner, frozenset[str]]
_NOTHING_GIVEN: Mapping[Owner, Given] = NOTHING


@dataclass(kw_only=True, eq=False)
class EnvironmentsOfContainers:
    """Has environments read while it is not known what those of some containers with tokens say."""

    logs: ContainerLogs
    environs: Environs
    turnover: Turnover
    _of_pods: Memo[Containers] = field(default_factory=lambda: Memo(Containers()))
    _read: AbstractSet[Owner] = frozenset()
    _since: Mapping[Owner, float] = field(default_factory=dict)
    _given: Memo[Mapping[Owner, Given]] = field(default_factory=lambda: Memo(_NOTHING_GIVEN))

    async def follow_up(self, asking: Asking, ids: _Ids, pods: PodsByName) -> None:
        """Look for the containers with these ids. The look waits if some of them are new."""
        attempt = self.logs.begin()
        if attempt is not None:
            await asking.hear_one(self.logs, attempt)
        named = named_as(ids, self._tables(pods))
        uids = {owner: frozenset(uid for _, uid in of_owner) for owner, of_owner in named.items()}
        self._since = self.turnover.note({owner: (ids[owner], uids[owner]) for owner in ids}, time.monotonic())
        latest = max(self._since.values(), default=-inf)
        is_new = latest > self.environs.environments.read_at
        if not is_new and ids.keys() <= self._read_of(pods):
            return
        self.environs.want(frozenset(name for of_owner in named.values() for name, uid in of_owner))
        self.environs.look_after(latest)
        attempt = self.environs.begin() or self.environs.task
        if attempt is not None and is_new:
            await asking.hear_one(self.environs, attempt)

    def of(self, pods: PodsByName) -> Mapping[Owner, Given]:
        """The devices of containers by their environments; the same object as long as nothing changes."""
        environments = self.environs.environments
        return self._given.of(self._work_out, environments, *self._tables(pods), self._since)

    def _read_of(self, pods: PodsByName) -> AbstractSet[Owner]:
        """The containers whose environments were read, whatever these say."""
        self.of(pods)
        return self._read

    def _work_out(
        self, environments: Environments, logged: Containers, of_pods: Containers, since: Mapping[Owner, float]
    ) -> Mapping[Owner, Given]:
        """The devices of each container whose environment was read since it is there.

        If a container has several first processes, as when it has just started again, they count only if they agree.
        """
        answers: defaultdict[Owner, set[Given | None]] = defaultdict(set)
        for place, variables in environments.by_place.items():
            owner = owner_of(place, (logged, of_pods))
            if owner is not None and since.get(owner, inf) <= environments.read_at:
                answers[owner].add(read_answer(PluginAnswer(envs=variables), "", SOURCE))
        self._read = answers.keys()
        given = {owner: one for owner, (one, *others) in answers.items() if one is not None and not others}
        return self._given.value if given == self._given.value else given

    def _tables(self, pods: PodsByName) -> tuple[Containers, Containers]:
        return self.logs.containers, self._pods(pods)

    def _pods(self, pods: PodsByName) -> Containers:
        return self._of_pods.of(lambda pods: containers_of_pods(pods.values()), pods)


def named_as(owners: Iterable[Owner], tables: Iterable[Containers]) -> Mapping[Owner, AbstractSet[tuple[str, str]]]:
    """The ids of each of these containers, or else its pod's uid, each with its pod's uid."""
    named: dict[Owner, set[tuple[str, str]]] = {owner: set() for owner in owners}
    for table in tables:
        for container in (container for of_id in table.by_id.values() for container in of_id):
            if container.owner in named:
                named[container.owner].add((container.container_id, container.pod_uid))
        for uid, owner in table.alone.items():
            if owner in named:
                named[owner].add((uid, uid))
    return named
