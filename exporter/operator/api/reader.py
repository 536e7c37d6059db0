"""Reads objects for the worker, as they are now, and watches which of them change.

What else is in a namespace is listed once for all who look at it in a row: a list for each of a thousand objects would
take minutes. Each kind of custom resource, and each that the operator makes, is watched. An event only names what
changed, and the worker reads it: so nothing but metadata is asked for, and a ConfigMap of 1 MB weighs as much as an
empty one. A kind whose list or watch fails is asked again, with a growing pause, and holds up no other.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from exporter import log
from exporter.errors import Malformed, SourceError, Unsupported
from exporter.lenient import AnyObject, mappings
from exporter.model.snapshot import Health
from exporter.operator.objects import kinds
from exporter.operator.objects.kinds import Key, Kind, key_of, whose
from exporter.sources.kubernetes.api import KubernetesApi, as_it_is
from exporter.sources.kubernetes.list_watch import ListWatch

# So many objects of a kind in one namespace are looked through, and so many are kept of all namespaces together.
MOST_NEIGHBOURS = 2_000
MOST_KEPT = 20_000
# So many names of a namespace are given, of so many that are read.
MOST_NAMES_OF_NAMESPACE = 2_500
MOST_NAMES = 1_000_000
# A list may be so many times older than a periodic look as it took to read: that leaves time for all else.
_TIMES_OLDER, _MOST_SECONDS_OLDER = 20.0, 10.0
Use = Callable[[AnyObject], AnyObject]
_ANY: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """What is in a namespace, or why nobody knows; when it was asked for, and for how long."""

    items: Sequence[AnyObject]
    failure: SourceError | None
    began_seconds: float
    took_seconds: float


class Reader:
    """Reads objects. Each has its apiVersion and kind, which the items of a list do not say.

    Every method raises SourceError: it is not known, or there are too many of them.
    """

    # when what is looked at now was named, by the event loop's clock: `neighbours` are no older. None: a periodic look
    named_at_seconds: float | None = None

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        # the one that was listed last is at the end
        self._listed: dict[tuple[Kind, str | None], _Listed] = {}

    async def get(self, key: Key) -> AnyObject | None:
        """An object; None where there is none, or one of the whole cluster that may not be read: it is not ours."""
        kind = kinds.BY_NAME[key.kind]
        try:
            item = await self.document(kind.path(key.namespace, key.name))
        except SourceError as error:
            if kind in kinds.CLUSTER_WIDE and error.reason == "permission":
                return None
            raise
        return None if item is None else _of(kind, item)

    async def all_of(self, keys: Iterable[Key]) -> dict[Key, AnyObject]:
        """Those of the objects that there are."""
        wanted = tuple(keys)
        objects = await asyncio.gather(*(self.get(key) for key in wanted))
        return {key: item for key, item in zip(wanted, objects, strict=True) if item is not None}

    async def listed(
        self,
        kind: Kind,
        namespace: str | None,
        labels: Mapping[str, str] = _ANY,
        *,
        fields: Mapping[str, str] = _ANY,
        use: Use = as_it_is,
        most: int | None = None,
    ) -> Sequence[AnyObject]:
        """What `use` makes of the objects of a kind with these labels and fields, in a namespace or everywhere."""
        given = {"labelSelector": labels, "fieldSelector": fields}
        selectors = {name: ",".join(f"{key}={value}" for key, value in each.items()) for name, each in given.items()}
        parameters = {name: selector for name, selector in selectors.items() if selector}
        path = kind.path(namespace)
        items, _ = await self._api.list(path, parameters, lambda item: use(_of(kind, item)), most=most)
        return items

    async def keys(self, kind: Kind, namespace: str | None) -> set[Key]:
        """What the objects of a kind are called; of each namespace not more than are looked after."""
        keys, counts = set[Key](), Counter[str]()

        def note(item: AnyObject) -> None:
            key = key_of(_of(kind, item))
            counts[key.namespace] += 1
            if counts[key.namespace] <= MOST_NAMES_OF_NAMESPACE:
                keys.add(key)

        await self._api.list(kind.path(namespace), {}, note, metadata_only=True, most=MOST_NAMES)
        return keys

    async def neighbours(self, kind: Kind, namespace: str | None, use: Use) -> Sequence[AnyObject]:
        """What `use` makes of all objects of a kind, in a namespace or everywhere.

        They are as they were when the key was named, or later. Callers that share a list get the same sequence.
        """
        now, listed = asyncio.get_running_loop().time(), self._listed.pop((kind, namespace), None)
        if listed is None or not self._is_new_enough(listed, now):
            items: Sequence[AnyObject] = ()
            failure: SourceError | None = None
            try:
                items = await self.listed(kind, namespace, use=use, most=MOST_NEIGHBOURS if namespace else MOST_KEPT)
            except Malformed as error:
                failure = error if error.reason != "oversize" else _too_many(kind, namespace)
            took = asyncio.get_running_loop().time() - now
            listed = _Listed(items=items, failure=failure, began_seconds=now, took_seconds=took)
        self._listed[kind, namespace] = listed
        while len(self._listed) > 1 and sum(len(each.items) + 1 for each in self._listed.values()) > MOST_KEPT:
            del self._listed[next(iter(self._listed))]
        if listed.failure is not None:
            raise listed.failure.with_traceback(None)
        return listed.items

    def _is_new_enough(self, listed: _Listed, now: float) -> bool:
        if self.named_at_seconds is not None:
            return listed.began_seconds >= self.named_at_seconds
        return now - listed.began_seconds <= min(_TIMES_OLDER * listed.took_seconds, _MOST_SECONDS_OLDER)

    async def document(self, path: str) -> AnyObject | None:
        """What stands at a path; None where there is nothing."""
        try:
            return await self._api.get(path)
        except Unsupported:
            return None


def _too_many(kind: Kind, namespace: str | None) -> Malformed:
    where, most = (f"the namespace {namespace}", MOST_NEIGHBOURS) if namespace else ("the cluster", MOST_KEPT)
    return Malformed(
        "oversize",
        f"{where} has more than {most} {kind.name}s, which are too many to look through",
        remedy="delete those that nobody needs, or spread them over several namespaces; until then all stays as it is",
    )


def _of(kind: Kind, item: AnyObject) -> AnyObject:
    return {**item, "apiVersion": kind.api_version, "kind": kind.name}


async def served(api: KubernetesApi) -> AbstractSet[Kind]:
    """Those of COME_AND_GO that the API serves, as its discovery says, which everybody may read.

    A CustomResourceDefinition that says Established may not be served yet (recorded on 1.36: 404 for 0.1 s, then 429).
    Raises SourceError: it is not known.
    """
    kinds_served: set[Kind] = set()
    for root in {kind.root for kind in kinds.COME_AND_GO}:
        try:
            answer = await api.get(root)
        except Unsupported:
            continue
        names = {item.get("name") for item in mappings(answer, "resources", MOST_NEIGHBOURS)}
        kinds_served |= {kind for kind in kinds.COME_AND_GO if kind.root == root and kind.plural in names}
    return frozenset(kinds_served)


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
        watched = [kind for kind in (*kinds.CUSTOM, *kinds.MADE) if kind.is_in(served)]
        watches = [self._list_watch(kind, within) for kind in watched for within in self._places(kind)]
        try:
            for each in watches:
                each.begin()
            await asyncio.Event().wait()
        finally:
            await asyncio.gather(*(each.end() for each in watches))

    def _places(self, kind: Kind) -> Sequence[str | None]:
        """Where a kind is watched: who looks after some namespaces may not see what is in none."""
        if not self.namespaces:
            return (None,)
        return () if kind in kinds.CLUSTER_WIDE else self.namespaces

    def _list_watch(self, kind: Kind, namespace: str | None) -> ListWatch:
        def name(item: AnyObject) -> None:
            # in metadata alone the kind is PartialObjectMetadata
            for key in [key_of({**item, "kind": kind.name})] if kind in kinds.CUSTOM else whose(item):
                self.on_key(key)

        return ListWatch(
            kind.path(namespace),
            self.api,
            paths=(kind.path(namespace),),
            # of what the operator makes, only what has its label
            labels="" if kind in kinds.CUSTOM else f"{kinds.MANAGER_LABEL}={kinds.OPERATOR}",
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
                log.warning("what changes cannot be watched, and is asked for again", path=path, error=trouble)
            self._failing[path] = trouble
        elif self._failing.pop(path, ""):
            log.info("what changes is watched again", path=path)
