"""The connection with the kubelet over a unix socket: the set-up of a channel, and the meaning of errors.

A failed connection alone does not tell what is wrong: the socket's file and the mounts of this container do.
"""

import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from exporter.errors import Malformed, SourceError, TimedOut, Unavailable, Unsupported
from exporter.model.snapshot import KUBELET
from exporter.sources.hearing import LISTENER, Listener, heard

M = TypeVar("M", bound=Message)

CHANNEL_OPTIONS = (
    # grpc-python sends the socket's path, percent-encoded, as the authority, which Go's server may refuse
    ("grpc.default_authority", "localhost"),
    # the channel is back within a second after the socket; with the default backoff it took 5 to 11 s (measured)
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # answers on nodes with many pods exceed grpc's default of 4 MiB
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.enable_http_proxy", 0),
)


@dataclass(frozen=True, slots=True)
class Interface:
    """The interface that a socket of the kubelet serves, and the flag that names the socket."""

    name: str
    setting: str

    @property
    def is_this_it(self) -> str:
        """The remedy if something else than this interface answers."""
        return f"is this the kubelet's {self.name} socket? Name it with {self.setting}"


POD_RESOURCES = Interface("pod-resources", "--kubelet.socket")
PODS_API = Interface("Pods API", "--kubelet.pods-socket")
ENDED = "the kubelet may be restarting, and is asked again; if this stays, look at its log on the node"
SLOW_KUBELET = "the kubelet is slow: look at its log on the node, or raise --kubelet.timeout"


def open_channel(socket: str) -> grpc.aio.Channel:
    """A channel for the life of the program, made for a peer that restarts."""
    return grpc.aio.insecure_channel(f"unix:{socket}", options=CHANNEL_OPTIONS)


def parsed(message: M, body: bytes, what: str, of: Interface) -> M:
    """The message, filled from its serialised form.

    Raises Malformed: the bytes are no such message (`what` names it).
    """
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise Malformed("garbage", f"{what}: {error}", remedy=of.is_this_it) from error
    return message


@dataclass(slots=True, eq=False)
class PodResourcesClient:
    """Calls to the pod-resources socket over a channel of its own, which the first call opens. Answers are bytes."""

    socket: str
    timeout_seconds: float
    _channel: grpc.aio.Channel | None = field(default=None, init=False)
    _listener: Listener | None = field(default_factory=LISTENER.get, init=False)

    async def call(self, method: str, *, versions: str) -> bytes:
        """The answer to a question without parameters. `versions` are the versions that an error names as asked for.

        Raises SourceError: there is no answer.
        """
        if self._listener is not None:
            question = method.removeprefix("/")
            return await heard(self._listener, "kubelet", KUBELET, question, self._call(method, versions))
        return await self._call(method, versions)

    async def _call(self, method: str, versions: str) -> bytes:
        if self._channel is None:
            self._channel = open_channel(self.socket)
        call = self._channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
        try:
            body: bytes = await call(b"", timeout=self.timeout_seconds)
        except grpc.aio.AioRpcError as error:
            raise translate(error, self.socket, POD_RESOURCES, versions, self.timeout_seconds) from error
        return body

    async def close(self) -> None:
        """Close the channel, if there is one."""
        if self._channel is not None:
            await self._channel.close()


def translate(
    error: grpc.aio.AioRpcError, socket: str, of: Interface, versions: str, timeout_seconds: float = 0.0
) -> SourceError:
    """Grpc's status as one of our reasons, with what to do. The texts are grpc core's and the kubelet's."""
    code = error.code()
    details = error.details() or ""
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return Unsupported(f"{socket} serves no {of.name} {versions}", remedy=of.is_this_it)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TimedOut(f"the kubelet did not answer on {socket} within {timeout_seconds:g} s", remedy=SLOW_KUBELET)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        # this code means two things, and only the text shows which
        if "rate limit" in details:
            message = "the kubelet's rate limit, shared by everyone on the node, is used up"
            remedy = "who else on the node asks it this often? This program asks less with a longer --kubelet.max-age"
            return Unavailable("rate_limited", message, remedy=remedy)
        return Malformed("oversize", f"the kubelet's answer is too large: {details}", remedy=of.is_this_it)
    if code is not grpc.StatusCode.UNAVAILABLE:
        message = f"{socket} does not answer like a kubelet: {code.name} {details}"
        return Malformed("garbage", message, remedy=of.is_this_it)
    if "Permission denied" in details:
        message = f"no right to open {socket}"
        return Unavailable("permission", message, remedy="run as uid 0 (no capability is needed, nor privileged: true)")
    if "No such file or directory" in details:
        return _missing(socket, of)
    if "Connection refused" in details:
        return _no_socket(socket, of) or _refused(socket)
    if "HTTP/2" in details:  # grpc core could not read the answer as HTTP/2
        return Unavailable("unreachable", f"{socket}: {details}", remedy=of.is_this_it)
    return Unavailable(
        "unreachable", f"the connection to {socket} broke: {details or 'nothing says why'}", remedy=ENDED
    )


def _missing(socket: str, of: Interface) -> Unavailable:
    """The error for a socket that does not exist: the kubelet has not made it, or its folder is not mounted here."""
    folder = _folder(socket)
    try:
        is_there = Path(folder).is_dir()
    except PermissionError:
        is_there = True  # the folder may not be read, so only the right is missing
    if is_there:
        return Unavailable(
            "missing",
            f"{folder} is there, and no socket in it",
            remedy="is the kubelet running, with this as its root directory (its flag --root-dir)? Mount that one's,"
            f" or name the socket with {of.setting}",
        )
    message = f"{folder} does not exist here: the socket's directory is not mounted"
    return Unavailable("missing", message, remedy=f"{_mount(folder)}; or name the socket with {of.setting}")


def _no_socket(socket: str, of: Interface) -> Unavailable | None:
    """The error if `socket` is a folder or a file, to which the kernel refuses connections as to a dead socket.

    Else None.
    """
    path = Path(socket)
    if path.is_dir():
        message = f"{socket} is a folder and no socket"
        with suppress(OSError):
            for entry in sorted(path.iterdir()):
                if entry.is_socket():
                    return Unavailable("missing", message, remedy=f"name the socket in it: {of.setting} {entry}")
        remedy = (
            "mount its folder, not the file: Docker makes a folder where the file is not there yet;"
            f" or name the socket with {of.setting}"
        )
        return Unavailable("missing", message, remedy=remedy)
    if path.exists() and not path.is_socket():
        return Unavailable("missing", f"{socket} is no socket", remedy=f"name the socket with {of.setting}")
    return None


def _refused(socket: str) -> Unavailable:
    if is_mount_point(socket):
        message = f"{socket} is mounted as a file, and dead: the kubelet made a new one when it restarted"
        return Unavailable("refused", message, remedy=f"{_mount(_folder(socket))}, instead of the file")
    message = f"nobody listens on {socket}"
    return Unavailable("refused", message, remedy="the kubelet is down or restarting: look at its log on the node")


def _folder(socket: str) -> str:
    return socket.rpartition("/")[0] or "/"


def _mount(folder: str) -> str:
    return f"mount the directory: -v {folder}:{folder}:ro, or a hostPath volume of it"


MOUNTS = Path("/proc/self/mountinfo")


def is_mount_point(socket: str, mounts: Path = MOUNTS) -> bool:
    """Whether the file, not its folder, is mounted here. `mounts` is in the form of /proc/self/mountinfo (proc(5))."""
    try:
        escaped = {line.split()[4] for line in mounts.read_text(encoding="utf-8").splitlines() if line}
    except (OSError, UnicodeDecodeError, IndexError):
        return False
    points = {re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point) for point in escaped}
    return socket in points or str(Path(socket).resolve()) in points
