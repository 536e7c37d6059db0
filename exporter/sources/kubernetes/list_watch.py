"""A collection of the Kubernetes API: it is listed once, page by page, and then watched for changes.

After a break the watch goes on from its last version. The list is requested again only if the API has forgotten that
version (410 Gone).

Tests: tests/sources/kubernetes/test_node_objects.py.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

from exporter.errors import Malformed, SourceError, Unavailable, Unsupported
from exporter.sources.hearing import LISTENER
from exporter.sources.kubernetes.api import (
    LONGEST_PAUSE_SECONDS,
    WATCH_SECONDS,
    Forgotten,
    KubernetesApi,
    Object,
    as_it_is,
)
from exporter.sources.polled import Watch
from exporter.sources.source import OnHealth

_ASKED_AGAIN = "the API server may be restarting, and is asked again; until then the last word stays in force"


class ListWatch(Watch):
    """The base class of sources that list and watch a collection.

    Args:
        name: see `Source`.
        api: the API server.
        paths: the collection in several versions; the first that the API server knows is used.
        selector: a selector of fields.
        labels: a selector of labels.
        metadata_only: the API sends only each object's metadata.
        most: the most objects that the list may have.
        read: makes of an object what the functions below get.
        replace: called with all objects of a list.
        put: called with an object that is new or has changed.
        remove: called with an object that is gone.
        on_health: see `Attempts`.
    """

    def __init__(
        self,
        name: str,
        api: KubernetesApi,
        *,
        paths: Sequence[str],
        selector: str = "",
        labels: str = "",
        metadata_only: bool = False,
        most: int | None = None,
        read: Callable[[Object], Any] = as_it_is,
        replace: Callable[[Sequence[Any]], None],
        put: Callable[[Any], None],
        remove: Callable[[Any], None],
        on_health: OnHealth,
    ) -> None:
        super().__init__(name, on_health, longest_pause_seconds=LONGEST_PAUSE_SECONDS)
        self._api = api
        self._paths = paths
        self._selectors = {
            name: value for name, value in (("fieldSelector", selector), ("labelSelector", labels)) if value
        }
        self._metadata_only = metadata_only
        self._most = most
        self._not_as_specified = f"is what answers a Kubernetes API (--kubernetes.url)? Until then {api.meanwhile}"
        self._read = read
        self._on_list = replace
        self._on_put = put
        self._on_removal = remove
        self._path = ""
        self._version: str | None = None
        self._forgotten = False
        self._listener = LISTENER.get()

    async def close(self) -> None:
        """End the watch, and close the connections to the API."""
        await self.end()
        await self._api.close()

    async def _attend(self) -> None:
        """List unless the last version is known, then watch until the API server forgets that version."""
        try:
            if self._version is None:
                await self._list()
            while True:
                await self._follow()
        except Forgotten:
            self._version = None
            self._forgotten = True
        except SourceError as error:
            if isinstance(error, Unsupported):
                self._version = None  # an upgraded API server may no longer serve the API version of the path
            if self._listener is not None:
                self._version = None  # the next list tells the listener that it is well again
                self._listener.failed("kubernetes", self.name, self._path or self._paths[0], error.trouble)
            raise

    async def _list(self) -> None:
        """List the first of the paths that the API server serves. Raises as `KubernetesApi.list` does."""
        # "0" asks for the state that the API server has at hand; after a 410 that may be the old state again
        parameters = {**self._selectors, "resourceVersion": "" if self._forgotten else "0"}
        for path in self._paths:
            read = partial(self._used_of, path)
            try:
                items, version = await self._api.list(
                    path,
                    parameters,
                    as_it_is if self._listener is not None else read,
                    metadata_only=self._metadata_only,
                    most=self._most,
                )
            except Unsupported as error:
                if self._listener is not None:
                    self._listener.failed("kubernetes", self.name, path, error.trouble)
                continue
            if self._listener is not None:
                self._listener.listed("kubernetes", self.name, path, [*items])
                items = [read(item) for item in items]
            with self._as_specified(path):
                self._on_list(items)
            self._path = path
            self._version = version
            self._forgotten = False
            self.in_sync()
            return
        message = f"the Kubernetes API knows none of {', '.join(self._paths)}"
        raise Unsupported(message, remedy=f"this cluster serves none of them; {self._api.meanwhile}")

    async def _follow(self) -> None:
        """Watch from the list's version on, until the API server ends it. Raises as `KubernetesApi.lines` does."""
        parameters = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            **self._selectors,
            "resourceVersion": self._version or "",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        started = asyncio.get_running_loop().time()
        lines = self._api.lines(self._path, parameters, self.in_sync, metadata_only=self._metadata_only)
        async with aclosing(lines) as events:
            async for event in events:
                self._take(event)
                self.heard()
        if asyncio.get_running_loop().time() - started < 1.0:
            # a watch ends at once if the API server is shutting down; without a pause it would be asked in a circle
            raise Unavailable("unreachable", f"the Kubernetes API ended the watch of {self._path}", remedy=_ASKED_AGAIN)

    def _take(self, event: Object) -> None:
        """Take an event of the watch. Raises Forgotten: list anew; SourceError: it reports an error, or is no event."""
        kind = event.get("type")
        item = event.get("object")
        if not isinstance(item, Mapping):
            raise Malformed("garbage", f"an event of {self._path} holds no object", remedy=self._not_as_specified)
        if kind == "ERROR":
            if item.get("code") == HTTPStatus.GONE:
                raise Forgotten
            message = f"the watch of {self._path} failed: {item.get('message')}"
            raise Unavailable("unreachable", message, remedy=_ASKED_AGAIN)
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            if self._listener is not None:
                self._listener.changed("kubernetes", self.name, self._path, item, is_gone=kind == "DELETED")
            used = self._used_of(self._path, item)
            with self._as_specified(self._path):
                (self._on_removal if kind == "DELETED" else self._on_put)(used)
        version = item.get("metadata", {}).get("resourceVersion")
        if version:
            self._version = str(version)

    def _used_of(self, path: str, item: Object) -> Any:  # noqa: ANN401 - what `read` gives
        with self._as_specified(path):
            return self._read(item)

    @contextmanager
    def _as_specified(self, path: str) -> Iterator[None]:
        try:
            yield
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            message = f"an object of {path} is not of the kind it should be: {error}"
            raise Malformed("garbage", message, remedy=self._not_as_specified) from error
