"""A socket of the kubelet that answers as the bundle says: pod-resources, or the Pods API.

Tests: tests/simulator/replay/test_replay_node.py.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.json_format import ParseDict, ParseError

from exporter._gen import pods_pb2 as messages
from exporter.bundle.recording import PeerAnswer
from exporter.errors import Trouble
from exporter.lenient import mappings
from exporter.simulator.kubelet import Context, server_at
from exporter.simulator.replay.replayed_trouble import (
    DEADLINE,
    MISSING,
    NO_CONNECTION,
    UNIMPLEMENTED,
    grpc_status,
)

_WATCH = "/WatchPods"
_MOST_PODS = 20_000
_FOR_EVER_SECONDS = 1e6
_NOT_RECORDED = Trouble(UNIMPLEMENTED, "the bundle has no answer")
# Of a trouble `missing` whose folder was there: the texts of sources/kubelet/socket.py
_NO_FOLDER = "does not exist here"
_IS_FOLDER = "is a folder"
_IS_FILE = "is no socket"


class ReplayedSocket:
    """A socket and its server.

    Each method answers as it did at the moment that is shown. A method that was never asked is not served, and a socket
    of which the bundle has no answer at all does not exist: the exporter then says what it said without one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._answers: Mapping[str, PeerAnswer] = {}
        self._changed = asyncio.Event()
        self._server: grpc.aio.Server | None = None

    async def show(self, answers: Sequence[PeerAnswer]) -> None:
        """Answer like this from now on: without any answer there is no socket."""
        self._answers = {answer.question: answer for answer in answers}
        troubles = [answer.trouble for answer in answers]
        only_troubles = [trouble for trouble in troubles if trouble is not None]
        is_away = len(only_troubles) == len(troubles) and all(
            trouble.reason in NO_CONNECTION for trouble in only_troubles
        )
        if is_away:
            await self._leave(only_troubles[0] if only_troubles else None)
        elif self._server is None:
            _clear(self.path)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._server = await server_at(self.path, (_Methods(self),))
        self._changed.set()
        self._changed = asyncio.Event()

    async def stop(self) -> None:
        """Stop at once, and break calls in flight."""
        if self._server is not None:
            await self._server.stop(grace=None)
            self._server = None

    async def _leave(self, trouble: Trouble | None) -> None:
        """Leave what the exporter met in place of a server: a dead socket, nothing, or not even the folder."""
        await self.stop()
        _clear(self.path)
        message = trouble.message if trouble else ""
        if trouble is None or (trouble.reason == MISSING and _NO_FOLDER in message):
            if self.path.parent.exists() and not any(self.path.parent.iterdir()):
                self.path.parent.rmdir()
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if _IS_FOLDER in message:
            self.path.mkdir()
        elif _IS_FILE in message:
            self.path.touch()
        elif trouble.reason != MISSING:
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(self.path))

    def answer(self, question: str) -> PeerAnswer | None:
        """The answer to a question; None: the method is not served."""
        answer = self._answers.get(question)
        is_served = answer and not (answer.trouble and answer.trouble.reason == UNIMPLEMENTED)
        return answer if is_served else None

    async def say(self, question: str, _: bytes, context: Context) -> bytes:
        """Answer a question once."""
        answer = self.answer(question)
        trouble = answer.trouble if answer else _NOT_RECORDED
        if trouble is not None:
            await _fail(trouble, context)
        return answer.body if answer else b""

    async def watch(self, question: str, _: bytes, context: Context) -> AsyncIterator[bytes]:
        """Send the pods of the moment, then INITIAL_SYNC_COMPLETE, and then what each later moment changes."""
        sent: dict[str, bytes] = {}
        is_first = True
        while True:
            changed = self._changed
            answer = self.answer(question)
            trouble = answer.trouble if answer else _NOT_RECORDED
            if answer is None or trouble is not None:
                await _fail(trouble or _NOT_RECORDED, context)
                return
            pods = dict(_pods_of(answer.body))
            for event in _changes(sent, pods):
                yield event.SerializeToString()
            sent = pods
            if is_first:
                is_first = False
                yield messages.WatchPodsEvent(type=messages.INITIAL_SYNC_COMPLETE).SerializeToString()
            await changed.wait()


class _Methods(grpc.GenericRpcHandler):
    """The methods that are served at the moment."""

    def __init__(self, of_socket: ReplayedSocket) -> None:
        self._socket = of_socket

    def service(self, handler_call_details: Any) -> Any:  # noqa: ANN401 - grpc has no types for these
        """The handler of a method; None: UNIMPLEMENTED."""
        question = handler_call_details.method.removeprefix("/")
        if self._socket.answer(question) is None:
            return None
        if question.endswith(_WATCH):
            return grpc.unary_stream_rpc_method_handler(partial(self._socket.watch, question))
        return grpc.unary_unary_rpc_method_handler(partial(self._socket.say, question))


async def _fail(trouble: Trouble, context: Context) -> None:
    """Fail a call as the trouble says.

    Where no answer came in time, none comes. The caller's own deadline then ends the call, as it did.
    """
    if trouble.reason == DEADLINE:
        await asyncio.sleep(_FOR_EVER_SECONDS)
    await context.abort(*grpc_status(trouble))


def _clear(path: Path) -> None:
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def _pods_of(body: bytes) -> Iterator[tuple[str, bytes]]:
    """The UID and the serialised form of each pod. One that is no pod is left out."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return
    for item in mappings(content, "items", _MOST_PODS):
        try:
            pod = ParseDict(dict(item), messages.Pod(), ignore_unknown_fields=True)
        except (AttributeError, ParseError, RecursionError, TypeError, ValueError):
            continue
        yield pod.metadata.uid, pod.SerializeToString()


def _changes(sent: Mapping[str, bytes], pods: Mapping[str, bytes]) -> Iterable[messages.WatchPodsEvent]:
    """The events between two states. DELETED carries only name, namespace and uid."""
    for uid in sent.keys() - pods.keys():
        metadata = messages.Pod.FromString(sent[uid]).metadata
        identity = messages.ObjectMeta(name=metadata.name, namespace=metadata.namespace, uid=uid)
        gone = messages.Pod(metadata=identity).SerializeToString()
        yield messages.WatchPodsEvent(type=messages.DELETED, pod=gone)
    for uid, pod in pods.items():
        if uid not in sent:
            yield messages.WatchPodsEvent(type=messages.ADDED, pod=pod)
        elif sent[uid] != pod:
            yield messages.WatchPodsEvent(type=messages.MODIFIED, pod=pod)
