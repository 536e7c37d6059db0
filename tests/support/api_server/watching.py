"""Watches: what happens to the objects that a request selects, as it happens."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping

from tests.support.api_server.answers import Object, Refused
from tests.support.api_server.forms import event_form
from tests.support.api_server.kinds import Kind
from tests.support.api_server.reading import numbers_of, shown, version_asked
from tests.support.api_server.selectors import Selector, selector_of
from tests.support.api_server.store import ADDED, DELETED, MODIFIED, Change, Store

BOOKMARK_SECONDS = 60.0
_LOOK_SECONDS = 0.2  # how often a watch looks whether it is to end


class Watch:
    """One watch. `has_ended` says whether it is to end, for reasons that it does not know."""

    def __init__(
        self,
        store: Store,
        kind: Kind,
        namespace: str,
        query: Mapping[str, str],
        *,
        has_ended: Callable[[], bool],
        bookmark_seconds: float = BOOKMARK_SECONDS,
        accept: str = "",
    ) -> None:
        """`accept` is the header of the request: it may ask for metadata alone."""
        self._store = store
        self._kind = kind
        self._namespace = namespace
        self._selects: Selector = selector_of(
            kind.resource, query.get("labelSelector", ""), query.get("fieldSelector", "")
        )
        self._since = version_asked(store, query)
        self._is_told_of_all = self._since == 0
        self._has_ended = has_ended
        self._bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        self._is_list = query.get("sendInitialEvents") == "true"
        self._bookmark_seconds = bookmark_seconds
        form = event_form(accept)
        self._shown: Callable[[Object], Object] = lambda item: form(shown(kind, item))
        seconds, _ = numbers_of(query)
        self._seconds = seconds if seconds > 0 else float("inf")

    async def events(self) -> AsyncIterator[bytes]:
        """The lines of the stream."""
        if not self._is_told_of_all and self._since < self._store.oldest:
            message = f"too old resource version: {self._since} ({self._store.oldest - 1})"
            yield _line("ERROR", Refused(410, "Expired", message).body)
            return
        for line in self._beginning():
            yield line
        end = time.monotonic() + self._seconds
        bookmark_at = time.monotonic() + self._bookmark_seconds
        # what is forgotten meanwhile can no longer be told
        while not self._has_ended() and time.monotonic() < end and self._since >= self._store.oldest - 1:
            for line in self._changes():
                yield line
            if self._bookmarks and time.monotonic() >= bookmark_at:
                bookmark_at = time.monotonic() + self._bookmark_seconds
                yield self._bookmark({})
            await self._wait(min(end, bookmark_at) - time.monotonic())

    def _beginning(self) -> list[bytes]:
        """What is there already, where that is asked for."""
        if not (self._is_told_of_all or self._is_list):
            return []
        self._since = self._store.version
        there = [item for _, item in self._store.all(self._kind.resource, self._namespace) if self._selects(item)]
        lines = [_line(ADDED, self._shown(item)) for item in there]
        if self._is_list and self._bookmarks:
            lines.append(self._bookmark({"annotations": {"k8s.io/initial-events-end": "true"}}))
        return lines

    def _changes(self) -> list[bytes]:
        """What has happened since the last look."""
        told = [(change, self._told(change)) for change in self._store.since(self._since)]
        self._since = self._store.version
        return [_line(what, self._shown(self._last_seen(change, what))) for change, what in told if what]

    def _told(self, change: Change) -> str:
        """What a change is to who watches these objects alone; "" for nothing."""
        if change.key.resource != self._kind.resource or self._namespace not in ("", change.key.namespace):
            return ""
        was = change.before is not None and self._selects(change.before)
        is_now = change.what != DELETED and self._selects(change.item)
        if was and is_now:
            return MODIFIED
        return ADDED if is_now else DELETED if was else ""

    def _last_seen(self, change: Change, what: str) -> Object:
        """What is shown of a change: of an object that is no longer selected what it was, in the new version."""
        if what != DELETED or change.before is None or change.what == DELETED:
            return change.item
        version = {"resourceVersion": str(change.version)}
        return {**change.before, "metadata": {**change.before["metadata"], **version}}

    def _bookmark(self, more: Object) -> bytes:
        metadata = {"resourceVersion": str(self._since), **more}
        return _line(
            "BOOKMARK",
            self._shown({"kind": self._kind.name, "apiVersion": self._kind.api_version, "metadata": metadata}),
        )

    async def _wait(self, seconds: float) -> None:
        if self._store.version > self._since:
            return
        try:
            async with asyncio.timeout(max(min(seconds, _LOOK_SECONDS), 0)):
                await self._store.news()
        except TimeoutError:
            pass


def _line(what: str, item: Object | str) -> bytes:
    return json.dumps({"type": what, "object": item}, separators=(",", ":")).encode() + b"\n"
