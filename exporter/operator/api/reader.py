"""How objects are read for the worker: as they are now, and none where there is none.

What else is in a namespace is listed once for all who look at it one after the other: with a thousand objects, a list
for each of them would take minutes.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from exporter.errors import Malformed, SourceError, Unsupported
from exporter.operator.objects.kinds import BY_NAME, CLUSTER_WIDE, Key, Kind, key_of
from exporter.operator.objects.parts import AnyObject
from exporter.sources.kubernetes.api import KubernetesApi, as_it_is

# So many objects of a kind in one namespace are looked through, and so many are kept of all namespaces together.
MOST_NEIGHBOURS = 2_000
MOST_KEPT = 20_000
# So many names of a namespace are given, of so many that are read.
MOST_NAMES_OF_NAMESPACE = 2_500
MOST_NAMES = 1_000_000
# A list may be so many times older than a periodic look as it took to read: that leaves time for all else.
_TIMES_OLDER, _MOST_SECONDS_OLDER = 20.0, 10.0
Use = Callable[[AnyObject], AnyObject]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """What is in a namespace, or why nobody knows; when it was asked for, and for how long."""

    items: Sequence[AnyObject]
    failure: SourceError | None
    began_seconds: float
    took_seconds: float


class Reader:
    """Reads objects. Each has its apiVersion and kind, which the items of a list do not say."""

    # when what is looked at now was named, by the event loop's clock: `neighbours` are no older. None: a periodic look
    named_at_seconds: float | None = None

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        # the one that was listed last is at the end
        self._listed: dict[tuple[Kind, str | None], _Listed] = {}

    async def get(self, key: Key) -> AnyObject | None:
        """An object; None where there is none.

        One of the whole cluster that may not be read is none either: who may not read it has not made it.

        Raises:
            SourceError: it is not known.
        """
        kind = BY_NAME[key.kind]
        try:
            return _of(kind, await self._api.get(kind.path(key.namespace, key.name)))
        except Unsupported:
            return None
        except SourceError as error:
            if kind in CLUSTER_WIDE and error.reason == "permission":
                return None
            raise

    async def all_of(self, keys: Iterable[Key]) -> dict[Key, AnyObject]:
        """Those of the objects that there are.

        Raises:
            SourceError: it is not known.
        """
        wanted = tuple(keys)
        found = await asyncio.gather(*(self.get(key) for key in wanted))
        return {key: item for key, item in zip(wanted, found, strict=True) if item is not None}

    async def listed(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str], use: Use = as_it_is
    ) -> Sequence[AnyObject]:
        """What `use` makes of the objects of a kind with these labels, in a namespace or everywhere.

        Raises:
            SourceError: it is not known.
        """
        return await self._list(kind, namespace, "labelSelector", labels, use)

    async def keys(self, kind: Kind, namespace: str | None) -> set[Key]:
        """What the objects of a kind are called; of each namespace not more than are looked after.

        Raises:
            SourceError: it is not known.
        """
        found, counts = set[Key](), Counter[str]()

        def note(item: AnyObject) -> None:
            key = key_of(_of(kind, item))
            counts[key.namespace] += 1
            if counts[key.namespace] <= MOST_NAMES_OF_NAMESPACE:
                found.add(key)

        await self._api.list(kind.path(namespace), {}, note, metadata_only=True, most=MOST_NAMES)
        return found

    async def neighbours(self, kind: Kind, namespace: str | None, use: Use) -> Sequence[AnyObject]:
        """What `use` makes of all objects of a kind in a namespace or everywhere, as they were when the key was named.

        It may be as they were later. Of one list the sequence is the same object.

        Raises:
            SourceError: it is not known, or they are too many.
        """
        now, listed = asyncio.get_running_loop().time(), self._listed.pop((kind, namespace), None)
        if listed is None or not self._is_new_enough(listed, now):
            items: Sequence[AnyObject] = ()
            failure: SourceError | None = None
            try:
                items = await self._list(kind, namespace, "", {}, use, MOST_NEIGHBOURS if namespace else MOST_KEPT)
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

    async def selected(self, kind: Kind, fields: Mapping[str, str], namespace: str) -> Sequence[AnyObject]:
        """The objects of a kind with these values in fields by which it can be selected.

        Raises:
            SourceError: it is not known.
        """
        return await self._list(kind, namespace, "fieldSelector", fields)

    async def document(self, path: str) -> AnyObject | None:
        """What stands at a path; None where there is nothing.

        Raises:
            SourceError: it is not known.
        """
        try:
            return await self._api.get(path)
        except Unsupported:
            return None

    async def _list(
        self,
        kind: Kind,
        namespace: str | None,
        parameter: str,
        values: Mapping[str, str],
        use: Use = as_it_is,
        most: int | None = None,
    ) -> Sequence[AnyObject]:
        selector = ",".join(f"{name}={value}" for name, value in values.items())
        parameters = {parameter: selector} if selector else {}
        path = kind.path(namespace)
        items, _ = await self._api.list(path, parameters, lambda item: use(_of(kind, item)), most=most)
        return items


def _too_many(kind: Kind, namespace: str | None) -> Malformed:
    where, most = (f"the namespace {namespace}", MOST_NEIGHBOURS) if namespace else ("the cluster", MOST_KEPT)
    return Malformed(
        "oversize",
        f"{where} has more than {most} {kind.name}s, which are too many to look through",
        remedy="delete those that nobody needs, or spread them over several namespaces; until then all stays as it is",
    )


def _of(kind: Kind, item: AnyObject) -> AnyObject:
    return {**item, "apiVersion": kind.api_version, "kind": kind.name}
