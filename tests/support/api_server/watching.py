"""Watches: what happens to the objects that a request selects, as it happens."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

import msgspec

from tests.support.api_server.answers import Object, Refused
from tests.support.api_server.kinds import Kind, shown
from tests.support.api_server.reading import in_form
from tests.support.api_server.selectors import Selector, selector_of
from tests.support.api_server.store import ADDED, DELETED, MODIFIED, Change, Store

BOOKMARK_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One watch from a version on, by the query and the header Accept of its request.

    `Store.wake` wakes it; it then ends if `has_ended` says so.
    """

    store: Store
    kind: Kind
    namespace: str
    query: Mapping[str, str]
    accept: str
    has_ended: Callable[[], bool]
    bookmark_seconds: float = BOOKMARK_SECONDS

    async def events(self) -> AsyncIterator[bytes]:
        """The lines of the stream."""
        is_meant, since = selector_of(self.kind, self.query), int(self.query["resourceVersion"])
        if since < self.store.oldest:
            message = f"too old resource version: {since} ({self.store.oldest - 1})"
            yield _line("ERROR", Refused(410, "Expired", message).body)
            return
        end = time.monotonic() + float(self.query.get("timeoutSeconds") or "inf")
        bookmark_at = time.monotonic() + self.bookmark_seconds
        # what is forgotten meanwhile can no longer be told
        while time.monotonic() < end and since >= self.store.oldest - 1:
            changes, since = self.store.since(since), self.store.version
            for change in changes:
                if what := self._what(change, is_meant):
                    yield self._event(what, _last_seen(change, what))
            if self.has_ended():
                return
            if time.monotonic() >= bookmark_at:
                bookmark_at = time.monotonic() + self.bookmark_seconds
                if self.query.get("allowWatchBookmarks") == "true":
                    yield self._event("BOOKMARK", {"kind": self.kind.name, "metadata": {"resourceVersion": str(since)}})
            if self.store.version == since:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(min(end, bookmark_at) - time.monotonic(), 0)):
                        await self.store.news()

    def _what(self, change: Change, is_meant: Selector) -> str:
        """What a change is to who watches these objects alone; "" for nothing."""
        if change.key.resource != self.kind.resource or self.namespace not in ("", change.key.namespace):
            return ""
        was = change.before is not None and is_meant(change.before)
        is_now = change.what != DELETED and is_meant(change.item)
        if was and is_now:
            return MODIFIED
        return ADDED if is_now else DELETED if was else ""

    def _event(self, what: str, item: Object) -> bytes:
        return _line(what, in_form(shown(self.kind, item), self.accept))


def _last_seen(change: Change, what: str) -> Object:
    """The object of a change; if it is no longer selected, the object before the change, with the new version."""
    if what != DELETED or change.before is None or change.what == DELETED:
        return change.item
    return {**change.before, "metadata": {**change.before["metadata"], "resourceVersion": str(change.version)}}


def _line(what: str, item: Object | str) -> bytes:
    return msgspec.json.encode({"type": what, "object": item}) + b"\n"
