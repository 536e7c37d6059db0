"""Which objects changed: a list and a watch of each kind of custom resource, and of each kind that the operator makes.

An event only names the object that changed; the worker reads its current state. So nothing but metadata is asked for:
a ConfigMap of 1 MB weighs as much here as an empty one. A kind whose list or watch fails is asked again, with a growing
pause, and holds up no other.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from exporter.log import log
from exporter.model.snapshot import Health
from exporter.operator.api.reader import MOST_NAMES
from exporter.operator.objects.kinds import (
    AUTOSCALER,
    CLUSTER_ROLE_BINDING,
    CLUSTER_WIDE,
    COME_AND_GO,
    CONFIG_MAP,
    CUSTOM,
    DAEMON_SET,
    OPERATOR,
    POD_MONITOR,
    SCALED_OBJECT,
    SERVICE,
    SERVICE_ACCOUNT,
    Key,
    Kind,
    key_of,
    whose,
)
from exporter.operator.objects.names import MANAGER_LABEL
from exporter.operator.objects.parts import AnyObject
from exporter.sources.kubernetes.api import KubernetesApi
from exporter.sources.kubernetes.list_watch import ListWatch

# What the operator makes. Of these, only those with the operator's label are watched.
MADE = (
    DAEMON_SET,
    CONFIG_MAP,
    SERVICE,
    SERVICE_ACCOUNT,
    CLUSTER_ROLE_BINDING,
    POD_MONITOR,
    SCALED_OBJECT,
    AUTOSCALER,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """Names what changed for as long as `run` runs. No `namespaces` means all of them.

    `on_key` is called with each custom resource that may have to be looked at, `on_list` after each list: what is gone
    since the list before is not in it. `on_failure` is called for each list or watch that failed.
    """

    api: KubernetesApi
    namespaces: Sequence[str]
    on_key: Callable[[Key], None]
    on_list: Callable[[], None]
    on_failure: Callable[[], None]
    _failing: dict[str, str] = field(default_factory=dict)

    async def run(self, served: AbstractSet[Kind]) -> None:
        """Watch, of the kinds that come and go, those that are `served`; until this is cancelled."""
        watches = [self._list_watch(kind, within) for kind in _watched(served) for within in self._places(kind)]
        try:
            for each in watches:
                each.watch.begin()
            await asyncio.Event().wait()
        finally:
            await asyncio.gather(*(each.watch.close() for each in watches))

    def _places(self, kind: Kind) -> Sequence[str | None]:
        """Where a kind is watched: who looks after some namespaces may not see what is in none."""
        if not self.namespaces:
            return (None,)
        return () if kind in CLUSTER_WIDE else self.namespaces

    def _list_watch(self, kind: Kind, namespace: str | None) -> ListWatch:
        def name(item: AnyObject) -> None:
            # in metadata alone the kind is PartialObjectMetadata
            for key in [key_of({**item, "kind": kind.name})] if kind in CUSTOM else whose(item):
                self.on_key(key)

        return ListWatch(
            kind.path(namespace),
            self.api,
            paths=(kind.path(namespace),),
            labels="" if kind in CUSTOM else f"{MANAGER_LABEL}={OPERATOR}",
            metadata_only=True,
            most=MOST_NAMES,
            # named as it is read, and let go: of a million objects nothing is kept
            read=name,
            replace=lambda _: self.on_list(),
            put=lambda _: None,
            remove=lambda _: None,
            on_health=self._note,
        )

    def _note(self, path: str, health: Health) -> None:
        """Say once what fails, however many kinds fail by it."""
        trouble = str(health.trouble) if health.trouble else ""
        if trouble:
            self.on_failure()
            if trouble not in self._failing.values():
                log(logging.WARNING, "what changes cannot be watched, and is asked for again", path=path, error=trouble)
            self._failing[path] = trouble
        elif self._failing.pop(path, ""):
            log(logging.INFO, "what changes is watched again", path=path)


def _watched(served: AbstractSet[Kind]) -> Sequence[Kind]:
    return [kind for kind in (*CUSTOM, *MADE) if kind in served or kind not in COME_AND_GO]
