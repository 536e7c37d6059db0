"""What all talk with the kubelet over a unix socket has in common: how a channel is set up, and what errors mean."""

import grpc
import grpc.aio

from exporter.errors import Malformed, SourceError, TimedOut, Unavailable, Unsupported

CHANNEL_OPTIONS = (
    # grpc-python sends the socket's path, percent-encoded, as the authority, which Go's server may refuse
    ("grpc.default_authority", "localhost"),
    # back within a second of the socket being back; the default backoff was measured at 5 to 11 s
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # nodes with many pods pass grpc's default of 4 MiB
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.enable_http_proxy", 0),
)


def open_channel(socket: str) -> grpc.aio.Channel:
    """A channel for the life of the program, made for a peer that restarts."""
    return grpc.aio.insecure_channel(f"unix:{socket}", options=CHANNEL_OPTIONS)


def translate(
    error: grpc.aio.AioRpcError, *, socket: str, setting: str, serves: str, timeout_seconds: float
) -> SourceError:
    """Grpc's status as one of our reasons, with what to do. The texts are grpc core's and the kubelet's.

    `setting` is the flag that names the socket, `serves` the interface that was asked for.
    """
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return Unsupported("unimplemented", f"{socket} serves no {serves}")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TimedOut("deadline", f"the kubelet did not answer on {socket} within {timeout_seconds:g} s")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        # one code for two things: only the text tells them apart
        if "rate limit" in details:
            return Unavailable("rate_limited", "the kubelet's rate limit, shared by everyone on the node, is used up")
        return Malformed("oversize", f"the kubelet's answer is too large: {details}")
    if code is not grpc.StatusCode.UNAVAILABLE:
        return Malformed("garbage", f"{socket} does not answer like a kubelet: {code.name} {details}")
    for text, reason, advice in _UNAVAILABLE:
        if text in details:
            return Unavailable(reason, advice.format(socket=socket, setting=setting))
    return Unavailable("unreachable", f"{socket}: {details}")


_UNAVAILABLE = (
    (
        "Permission denied",
        "permission",
        "no permission for {socket}: its folder is for uid 0, run as root (without capabilities is enough)",
    ),
    (
        "No such file or directory",
        "missing",
        "{socket} does not exist: mount the folder it is in, or name the socket with {setting}",
    ),
    ("Connection refused", "refused", "nobody listens on {socket}: the kubelet is down or restarting"),
)
