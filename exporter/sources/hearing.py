"""A listener, to whom sources tell what their peers answer, as it came. Only `doctor --bundle` has one.

Tests: tests/bundle/test_collecting.py.
"""

from collections.abc import Awaitable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from exporter.errors import SourceError, Trouble


class Listener(Protocol):
    """What sources tell of their peers. Only `called` may come from another thread."""

    def answered(self, peer: str, name: str, question: str, body: bytes) -> None:
        """Take a whole answer, unpacked. `peer`, `name` and `question` are those of a bundle's PeerAnswer."""

    def failed(self, peer: str, name: str, question: str, trouble: Trouble) -> None:
        """Take the failure of a question."""

    def listed(self, peer: str, name: str, question: str, items: list[Mapping[str, Any]]) -> None:
        """Take all objects of a collection, as the peer has them now."""

    def changed(self, peer: str, name: str, question: str, item: Mapping[str, Any], *, is_gone: bool) -> None:
        """Take an object of a collection that is new, has changed, or is gone."""

    def called(self, function: str, arguments: tuple[object, ...], result: object, code: int) -> None:
        """Take a call of NVML with its result, or with its nvmlReturn_t if that is not 0."""

    def logged(self, record: bytes) -> None:
        """Take a record of the kernel's log that may be about a GPU."""


# A source reads this when it is made: so all sources of a node have the listener of the context that made the node.
LISTENER: ContextVar[Listener | None] = ContextVar("LISTENER", default=None)


async def heard(listener: Listener, peer: str, name: str, question: str, answer: Awaitable[bytes]) -> bytes:
    """The answer, or its SourceError, once the listener has been told."""
    try:
        body = await answer
    except SourceError as error:
        listener.failed(peer, name, question, error.trouble)
        raise
    listener.answered(peer, name, question, body)
    return body
