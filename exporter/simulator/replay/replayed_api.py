"""The Kubernetes API of a bundle: lists, watches that send what each moment changes, and single objects.

Tests: tests/simulator/replay/test_replay_node.py.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from aiohttp import web

from exporter.bundle.recording import PeerAnswer
from exporter.errors import Trouble
from exporter.lenient import AnyObject, each_mapping, mapping, text
from exporter.simulator.kubernetes import versioned
from exporter.simulator.replay.replayed_trouble import (
    DEADLINE,
    NO_CONNECTION,
    UNREACHABLE,
    http_status,
    words_of_refusal,
)
from exporter.simulator.serving import Serving

_MOST_OBJECTS = 50_000
_FOR_EVER_SECONDS = 1e6
_NOT_RECORDED = Trouble("unimplemented", "the bundle has no answer to this")
_Event = tuple[int, str, AnyObject]  # version, kind, object


class ReplayedCollection:
    """The objects of a path as versions of one list.

    A moment that has other objects than the moment before makes events of it, as an API server would have sent them: a
    watch that begins later gets those that it has missed, and one that is open gets them at once.
    """

    def __init__(self) -> None:
        self.version = 1
        self._objects: dict[tuple[str, str], tuple[AnyObject, int]] = {}
        self._events: list[_Event] = []

    def show(self, items: Sequence[AnyObject]) -> None:
        """Let these be the objects from now on."""
        now = {_name_of(item): item for item in items}
        for name in self._objects.keys() - now.keys():
            self.version += 1
            self._events.append((self.version, "DELETED", self._objects.pop(name)[0]))
        for name, item in now.items():
            before = self._objects.get(name)
            if before is not None and before[0] == item:
                continue
            self.version += 1
            self._objects[name] = (item, self.version)
            self._events.append((self.version, "MODIFIED" if before else "ADDED", item))

    def items(self) -> list[AnyObject]:
        """The objects, with their versions."""
        return [versioned(_with_metadata(item), version) for item, version in self._objects.values()]

    def events_since(self, version: int) -> Iterator[_Event]:
        """The events after a version."""
        for event in self._events:
            if event[0] > version:
                yield event


class ReplayedApi:
    """An API server.

    What the bundle has no answer to is not there (404). Several sources may have asked the same path: then one of them
    that got an answer counts, and their objects are one collection.
    """

    def __init__(self) -> None:
        self._answers: Mapping[str, PeerAnswer] = {}
        self._collections: dict[str, ReplayedCollection] = {}
        self._changed = asyncio.Event()
        self._port = 0
        self._serving: Serving | None = None

    @property
    def url(self) -> str:
        """Its URL, once it has been started."""
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listen."""
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._serving = Serving(app, drain_seconds=0.1)
        await self._serving.start("127.0.0.1", self._port)
        self._port = self._serving.address[1]

    async def stop(self) -> None:
        """Stop listening, and end every watch."""
        self._wake()
        serving = self._serving
        self._serving = None
        if serving is not None:
            await serving.stop()

    async def show(self, answers: Sequence[PeerAnswer]) -> None:
        """Answer like this from now on."""
        items: dict[str, list[AnyObject]] = {}
        self._answers = {}
        for answer in answers:
            self._answers = {**self._answers, answer.question: _better(self._answers.get(answer.question), answer)}
            content = _content(answer.body)
            if answer.trouble is None and "items" in content:
                items.setdefault(answer.question, []).extend(each_mapping(content["items"], _MOST_OBJECTS))
        for path, of_path in items.items():
            self._collections.setdefault(path, ReplayedCollection()).show(of_path)
        is_away = bool(answers) and all(answer.trouble and answer.trouble.reason in NO_CONNECTION for answer in answers)
        if is_away:
            await self.stop()
        elif self._serving is None:
            await self.start()
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        answer = self._answers.get(request.path)
        trouble = answer.trouble if answer else _NOT_RECORDED
        if answer is None or trouble is not None:
            return await _fail(request, trouble or _NOT_RECORDED)
        collection = self._collections.get(request.path)
        if collection is None:
            return web.Response(body=answer.body, content_type="application/json")
        if request.query.get("watch") == "1":
            return await self._watch(request, collection)
        metadata = {"resourceVersion": str(collection.version)}
        return web.json_response({"metadata": metadata, "items": collection.items()})

    async def _watch(self, request: web.Request, collection: ReplayedCollection) -> web.StreamResponse:
        """Send the changes since the version that is asked for, until the moment has another answer."""
        asked = request.query.get("resourceVersion", "")
        since = int(asked) if asked.isdecimal() else 0
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        with suppress(ConnectionError):  # the exporter has ended the watch
            while self._is_well(request.path):
                changed = self._changed
                for version, kind, item in collection.events_since(since):
                    await _send(response, kind, versioned(_with_metadata(item), version))
                since = collection.version
                await _send(response, "BOOKMARK", {"metadata": {"resourceVersion": str(since)}})
                if self._serving is None:
                    break
                await changed.wait()
        return response

    def _is_well(self, path: str) -> bool:
        answer = self._answers.get(path)
        return answer is not None and answer.trouble is None


async def _fail(request: web.Request, trouble: Trouble) -> web.Response:
    """Fail a request as the trouble says.

    Where no answer came in time, none comes; where the connection broke, it is broken; and a refusal has the status
    and the words of the API server. Of an answer that could not be used only that is known: so it is no object.
    """
    if trouble.reason == DEADLINE:
        await asyncio.sleep(_FOR_EVER_SECONDS)
    if trouble.reason in UNREACHABLE and request.transport is not None:
        request.transport.abort()
    status = http_status(trouble)
    if not status:  # an answer that cannot be used
        return web.Response(text="[]", content_type="application/json")
    content = {"kind": "Status", "code": status, "message": words_of_refusal(trouble)}
    return web.json_response(content, status=status)


def _better(before: PeerAnswer | None, answer: PeerAnswer) -> PeerAnswer:
    """Of two sources' answers to a question, one that did not fail."""
    return before if before is not None and before.trouble is None else answer


def _content(body: bytes) -> AnyObject:
    try:
        content = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        content = {}
    return mapping(content)


def _name_of(item: AnyObject) -> tuple[str, str]:
    metadata = mapping(item, "metadata")
    return text(metadata, "namespace"), text(metadata, "uid") or text(metadata, "name")


def _with_metadata(item: AnyObject) -> dict[str, Any]:
    return {**item, "metadata": dict(mapping(item, "metadata"))}


async def _send(response: web.StreamResponse, kind: str, item: AnyObject) -> None:
    await response.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")
