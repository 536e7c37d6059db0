"""Reads objects for the worker as they are now, and watches which of them change.

For consecutive looks in a namespace, its other objects are listed once: a list for each of a thousand objects would
take minutes. The operator watches each kind of custom resource, and each kind that it makes. An event only names the
changed object, and the worker reads it. So the operator asks for metadata alone, and a ConfigMap of 1 MB costs as much
as an empty one. A kind whose list or watch fails is asked for again after a growing pause, and delays no other kind.
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

# The most objects of a kind that are looked through in one namespace, and the most that are kept of all namespaces.
MOST_NEIGHBOURS = 2_000
MOST_KEPT = 20_000
# The most names that are given for one namespace, and the most that are read in all.
MOST_NAMES_OF_NAMESPACE = 2_500
MOST_NAMES = 1_000_000
# For a periodic look, a list may be this many times as old as the time that it took to read. So reading lists takes
# only a small part of the time.
_TIMES_OLDER = 20.0
_MOST_SECONDS_OLDER = 10.0
Use = Callable[[AnyObject], AnyObject]
_ANY: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """The objects in a namespace, or the failure; the time of the request, and how long it took."""

    items: Sequence[AnyObject]
    failure: SourceError | None
    began_seconds: float
    took_seconds: float


class Reader:
    """A reader of objects. Each object has its apiVersion and kind, which the items of a list lack.

    Every method raises SourceError if the answer is not known, or if there are too many objects.
    """

    # The time, by the event loop's clock, at which the key of this look was named. `neighbours` gives no older list.
    # None for a periodic look.
    named_at_seconds: float | None = None

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        # the last one that was used is at the end
        self._listed: dict[tuple[Kind, str | None], _Listed] = {}

    async def get(self, key: Key) -> AnyObject | None:
        """An object; None if there is none.

        None, too, for a cluster-wide object that the operator may not read: it is not ours.
        """
        kind = kinds.BY_NAME[key.kind]
        try:
            item = await self.document(kind.path(key.namespace, key.name))
        except SourceError as error:
            if kind in kinds.CLUSTER_WIDE and error.reason == "permission":
                return None
            raise
        return None if item is None else _of(kind, item)

    async def all_of(self, keys: Iterable[Key]) -> dict[Key, AnyObject]:
        """The objects with these names, as far as they exist."""
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
        """List the objects of a kind with these labels and fields, in a namespace or everywhere (None).

        Args:
            kind: the kind.
            namespace: the namespace, None for all.
            labels: the wanted values by label.
            fields: the wanted values by field, such as `metadata.name`.
            use: makes the returned value of an object.
            most: the most objects allowed.
        """
        parameters = {}
        if labels:
            parameters["labelSelector"] = _selector(labels)
        if fields:
            parameters["fieldSelector"] = _selector(fields)
        path = kind.path(namespace)
        items, _ = await self._api.list(path, parameters, lambda item: use(_of(kind, item)), most=most)
        return items

    async def keys(self, kind: Kind, namespace: str | None) -> set[Key]:
        """The names of the objects of a kind; of each namespace only as many as the operator looks after."""
        keys: set[Key] = set()
        counts = Counter[str]()

        def note(item: AnyObject) -> None:
            key = key_of(_of(kind, item))
            counts[key.namespace] += 1
            if counts[key.namespace] <= MOST_NAMES_OF_NAMESPACE:
                keys.add(key)

        await self._api.list(kind.path(namespace), {}, note, metadata_only=True, most=MOST_NAMES)
        return keys

    async def neighbours(self, kind: Kind, namespace: str | None, use: Use) -> Sequence[AnyObject]:
        """All objects of a kind, in a namespace or everywhere, each as `use` makes it.

        The list was read after the key was named. Callers that share a list get the same sequence.
        """
        now = asyncio.get_running_loop().time()
        listed = self._listed.pop((kind, namespace), None)
        if listed is None or not self._is_new_enough(listed, now):
            listed = await self._list_anew(kind, namespace, use)
        self._listed[kind, namespace] = listed
        while len(self._listed) > 1 and sum(len(kept.items) + 1 for kept in self._listed.values()) > MOST_KEPT:
            del self._listed[next(iter(self._listed))]
        if listed.failure is not None:
            raise listed.failure.with_traceback(None)
        return listed.items

    async def _list_anew(self, kind: Kind, namespace: str | None, use: Use) -> _Listed:
        clock = asyncio.get_running_loop().time
        began = clock()
        items: Sequence[AnyObject] = ()
        failure: SourceError | None = None
        try:
            items = await self.listed(kind, namespace, use=use, most=MOST_NEIGHBOURS if namespace else MOST_KEPT)
        except Malformed as error:
            failure = error if error.reason != "oversize" else _too_many(kind, namespace)
        return _Listed(items=items, failure=failure, began_seconds=began, took_seconds=clock() - began)

    def _is_new_enough(self, listed: _Listed, now: float) -> bool:
        if self.named_at_seconds is not None:
            return listed.began_seconds >= self.named_at_seconds
        return now - listed.began_seconds <= min(_TIMES_OLDER * listed.took_seconds, _MOST_SECONDS_OLDER)

    async def document(self, path: str) -> AnyObject | None:
        """The document at a path; None if there is none."""
        try:
            return await self._api.get(path)
        except Unsupported:
            return None


def _too_many(kind: Kind, namespace: str | None) -> Malformed:
    who = f"the namespace {namespace} has more than {MOST_NEIGHBOURS}"
    if not namespace:
        who = f"the cluster has more than {MOST_KEPT}"
    return Malformed(
        "oversize",
        f"{who} {kind.name}s, which are too many to look through",
        remedy="delete those that nobody needs, or spread them over several namespaces; until then all stays as it is",
    )


def _selector(values: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in values.items())


def _of(kind: Kind, item: AnyObject) -> AnyObject:
    return {**item, "apiVersion": kind.api_version, "kind": kind.name}


async def served(api: KubernetesApi) -> AbstractSet[Kind]:
    """The kinds of COME_AND_GO that the API serves, according to its discovery, which everybody may read.

    A CustomResourceDefinition that says Established may not be served yet (recorded on 1.36: 404 for 0.1 s, then 429).

    Raises:
        SourceError: it is not known what the API serves.
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
    """The watches, which report changes as long as `run` runs. No `namespaces` means all of them.

    `on_key` is called with each custom resource that may need a look, and `on_failure` for each list or watch that
    failed. `on_list` is called after each list, since a list does not tell which objects are gone since the last one.
    """

    api: KubernetesApi
    namespaces: Sequence[str]
    on_key: Callable[[Key], None]
    on_list: Callable[[], None]
    on_failure: Callable[[], None]
    _failing: dict[str, str] = field(default_factory=dict)

    async def run(self, served: AbstractSet[Kind]) -> None:
        """Watch until this is cancelled. Kinds that come and go are watched if they are `served`."""
        watched = [kind for kind in (*kinds.CUSTOM, *kinds.MADE) if kind.is_in(served)]
        watches = [self._list_watch(kind, within) for kind in watched for within in self._places(kind)]
        try:
            for watch in watches:
                watch.begin()
            await asyncio.Event().wait()
        finally:
            await asyncio.gather(*(watch.end() for watch in watches))

    def _places(self, kind: Kind) -> Sequence[str | None]:
        """The namespaces in which a kind is watched.

        An operator of some namespaces may not see objects without a namespace.
        """
        if not self.namespaces:
            return (None,)
        return () if kind in kinds.CLUSTER_WIDE else self.namespaces

    def _list_watch(self, kind: Kind, namespace: str | None) -> ListWatch:
        """The watch of a kind in a namespace (None: in all). It keeps no object, but hands on keys of changes."""

        def name(item: AnyObject) -> None:
            # an answer of only metadata has the kind PartialObjectMetadata
            for key in [key_of({**item, "kind": kind.name})] if kind in kinds.CUSTOM else whose(item):
                self.on_key(key)

        return ListWatch(
            kind.path(namespace),
            self.api,
            paths=(kind.path(namespace),),
            # of the kinds that the operator makes, only objects with its label
            labels="" if kind in kinds.CUSTOM else f"{kinds.MANAGER_LABEL}={kinds.OPERATOR}",
            metadata_only=True,
            most=MOST_NAMES,
            # an object is named as it is read, and not kept: there may be a million
            read=name,
            replace=lambda _: self.on_list(),
            put=lambda _: None,
            remove=lambda _: None,
            on_health=self._note,
        )

    def _note(self, path: str, health: Health) -> None:
        """Log a failure once, even if many kinds fail for the same reason."""
        trouble = str(health.trouble) if health.trouble else ""
        if trouble:
            self.on_failure()
            if trouble not in self._failing.values():
                log.warning("a watch failed; it is tried again", path=path, error=trouble)
            self._failing[path] = trouble
        elif self._failing.pop(path, ""):
            log.info("a watch works again", path=path)
