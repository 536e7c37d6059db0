"""Troubles of a bundle as failures of a peer.

A bundle has a trouble in the exporter's words, and not the bytes that made it. So a peer of a replay fails in the way
of which the exporter makes a trouble of the same kind again and, as far as the words tell it, in the same words: the
status of an answer, an API server's own message, a code of grpc with its details.

Pure.

Tests: tests/simulator/replay/test_replayed_troubles.py.
"""

import re
from http import HTTPStatus

import grpc

from exporter.errors import Trouble

_STATUS = re.compile(r"\b(?:HTTP status|with) (\d{3})\b")
_CODE = re.compile(r"does not answer like a kubelet: ([A-Z_]+) ?(.*)", re.DOTALL)
_BROKE = re.compile(r"the connection to \S+ broke: (.*)", re.DOTALL)
_WORDS = re.compile(r"\b403: (.*)", re.DOTALL)
_STATUSES = {
    "unauthorized": HTTPStatus.UNAUTHORIZED,
    "permission": HTTPStatus.FORBIDDEN,
    "rate_limited": HTTPStatus.TOO_MANY_REQUESTS,
    "unimplemented": HTTPStatus.NOT_FOUND,
}
# A socket is missing or dead, or nobody listens at an address: that is no answer, but the state of the whole peer.
REFUSED = "refused"
MISSING = "missing"
NO_CONNECTION = frozenset({REFUSED, MISSING})
DEADLINE = "deadline"
UNREACHABLE = frozenset({"unreachable", "tls"})
UNIMPLEMENTED = "unimplemented"


def http_status(trouble: Trouble) -> int:
    """The HTTP status of a refusal; 0 if the trouble is of another kind.

    The words of most troubles have the status. Of a reason without one, it is the status that has this reason.
    """
    named = _STATUS.search(trouble.message)
    if trouble.reason == "http_status" or (named and trouble.reason in _STATUSES):
        return int(named[1]) if named else HTTPStatus.INTERNAL_SERVER_ERROR
    return _STATUSES.get(trouble.reason, 0)


def words_of_refusal(trouble: Trouble) -> str:
    """The API server's own words in a 403."""
    words = _WORDS.search(trouble.message)
    return words[1] if words else ""


def grpc_status(trouble: Trouble) -> tuple[grpc.StatusCode, str]:
    """A status of grpc and its details, of which sources/kubelet/socket.py makes this trouble again.

    grpc core itself words what is wrong with a connection, so that a server may say it in its place: no right to open
    the socket, or a connection that broke.
    """
    message = trouble.message
    code = _CODE.search(message)
    broke = _BROKE.search(message)
    if code:
        return grpc.StatusCode.__members__.get(code[1], grpc.StatusCode.UNKNOWN), code[2]
    if trouble.reason == "rate_limited":
        return grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit"
    if trouble.reason == "oversize":
        return grpc.StatusCode.RESOURCE_EXHAUSTED, message.rpartition("too large: ")[2]
    if trouble.reason == DEADLINE:
        return grpc.StatusCode.DEADLINE_EXCEEDED, message
    if trouble.reason == UNIMPLEMENTED:
        return grpc.StatusCode.UNIMPLEMENTED, message
    if trouble.reason == "permission":
        return grpc.StatusCode.UNAVAILABLE, "Permission denied"
    if broke:
        return grpc.StatusCode.UNAVAILABLE, broke[1]
    return grpc.StatusCode.UNAVAILABLE, message
