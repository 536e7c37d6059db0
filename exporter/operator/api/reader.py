"""How objects are read for the worker: as they are now, and none where there is none."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from exporter.errors import SourceError, Unsupported
from exporter.operator.objects.kinds import BY_NAME, CLUSTER_WIDE, Key, Kind
from exporter.operator.objects.parts import AnyObject
from exporter.sources.kubernetes.api import KubernetesApi


class Reader:
    """Reads objects. Each has its apiVersion and kind, which the items of a list do not say."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api

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

    async def listed(self, kind: Kind, namespace: str | None, labels: Mapping[str, str]) -> Sequence[AnyObject]:
        """The objects of a kind with these labels, in a namespace or everywhere.

        Raises:
            SourceError: it is not known.
        """
        return await self._list(kind, namespace, "labelSelector", labels)

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
        self, kind: Kind, namespace: str | None, parameter: str, values: Mapping[str, str]
    ) -> Sequence[AnyObject]:
        selector = ",".join(f"{name}={value}" for name, value in values.items())
        parameters = {parameter: selector} if selector else {}
        items, _ = await self._api.list(kind.path(namespace), parameters, lambda item: _of(kind, item))
        return items


def _of(kind: Kind, item: AnyObject) -> AnyObject:
    return {**item, "apiVersion": kind.api_version, "kind": kind.name}
