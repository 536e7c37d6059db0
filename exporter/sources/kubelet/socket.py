"""What all talk with the kubelet over a unix socket has in common: how a channel is set up, and what errors mean."""

from dataclasses import dataclass

import grpc
import grpc.aio

from exporter.errors import Malformed, SourceError, TimedOut, Unavailable, Unsupported
from exporter.sources.kubelet.socket_file import look_at

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


@dataclass(frozen=True, slots=True)
class Interface:
    """What a socket of the kubelet serves, and the flag that names the socket."""

    name: str
    setting: str

    @property
    def is_this_it(self) -> str:
        """The remedy for whatever answers, and not as this interface does."""
        return f"is this the kubelet's {self.name} socket? Name it with {self.setting}"


POD_RESOURCES = Interface("pod-resources", "--kubelet.socket")
PODS_API = Interface("Pods API", "--kubelet.pods-socket")
SLOW_KUBELET = "the kubelet is slow: look at its log on the node, or raise --kubelet.timeout"


def open_channel(socket: str) -> grpc.aio.Channel:
    """A channel for the life of the program, made for a peer that restarts."""
    return grpc.aio.insecure_channel(f"unix:{socket}", options=CHANNEL_OPTIONS)


class PodResourcesClient:
    """Calls to the pod-resources socket over a channel of its own, which the first call opens. Answers are bytes."""

    def __init__(self, socket: str, timeout_seconds: float) -> None:
        self._socket = socket
        self._timeout_seconds = timeout_seconds
        self._channel: grpc.aio.Channel | None = None

    async def call(self, method: str, *, versions: str) -> bytes:
        """The answer to a question without parameters. `versions` are what an error says was asked for.

        Raises:
            SourceError: there is none.
        """
        if self._channel is None:
            self._channel = open_channel(self._socket)
        call = self._channel.unary_unary(
            method, request_serializer=lambda body: body, response_deserializer=lambda body: body
        )
        try:
            body: bytes = await call(b"", timeout=self._timeout_seconds)
        except grpc.aio.AioRpcError as error:
            raise translate(
                error, socket=self._socket, of=POD_RESOURCES, versions=versions, timeout_seconds=self._timeout_seconds
            ) from error
        return body

    async def close(self) -> None:
        """Close the channel, if there is one."""
        if self._channel is not None:
            await self._channel.close()


def translate(
    error: grpc.aio.AioRpcError, *, socket: str, of: Interface, versions: str, timeout_seconds: float
) -> SourceError:
    """Grpc's status as one of our reasons, with what to do. The texts are grpc core's and the kubelet's.

    `versions` of the interface are those that were asked for.
    """
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return Unsupported("unimplemented", f"{socket} serves no {of.name} {versions}", remedy=of.is_this_it)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TimedOut(
            "deadline", f"the kubelet did not answer on {socket} within {timeout_seconds:g} s", remedy=SLOW_KUBELET
        )
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        # one code for two things: only the text tells them apart
        if "rate limit" in details:
            return Unavailable(
                "rate_limited",
                "the kubelet's rate limit, shared by everyone on the node, is used up",
                remedy="who else on the node asks it this often? This program asks less with a longer"
                " --kubelet.max-age",
            )
        return Malformed("oversize", f"the kubelet's answer is too large: {details}", remedy=of.is_this_it)
    if code is not grpc.StatusCode.UNAVAILABLE:
        return Malformed(
            "garbage", f"{socket} does not answer like a kubelet: {code.name} {details}", remedy=of.is_this_it
        )
    if "Permission denied" in details:
        return Unavailable(
            "permission",
            f"no right to open {socket}",
            remedy="run as uid 0 (no capability is needed, nor privileged: true)",
        )
    if "No such file or directory" in details:
        return _missing(socket, of)
    if "Connection refused" in details:
        return _refused(socket)
    return Unavailable("unreachable", f"{socket}: {details}", remedy=of.is_this_it)


def _missing(socket: str, of: Interface) -> Unavailable:
    file = look_at(socket)
    if file.folder_exists:
        return Unavailable(
            "missing",
            f"{file.folder} is there, and no socket in it",
            remedy="is the kubelet running, with this as its root directory (its flag --root-dir)? Mount that one's,"
            f" or name the socket with {of.setting}",
        )
    return Unavailable(
        "missing",
        f"{file.folder} does not exist here: the socket's directory is not mounted",
        remedy=f"{_mount(file.folder)}; or name the socket with {of.setting}",
    )


def _refused(socket: str) -> Unavailable:
    file = look_at(socket)
    if file.is_mount_point:
        return Unavailable(
            "refused",
            f"{socket} is mounted as a file, and dead: the kubelet made a new one when it restarted",
            remedy=f"{_mount(file.folder)}, instead of the file",
        )
    return Unavailable(
        "refused",
        f"nobody listens on {socket}",
        remedy="the kubelet is down or restarting: look at its log on the node",
    )


def _mount(folder: str) -> str:
    return f"mount the directory: -v {folder}:{folder}:ro, or a hostPath volume of it"
