"""The gRPC server that KEDA's operator asks: its limits, TLS with certificates that may change, and allowed clients.

gRPC cannot limit its connections. So it listens on an abstract unix socket, and `GuardedListener` hands it the bytes of
clients.

Tests: tests/cluster/keda/test_connections.py.
"""

import asyncio
import secrets
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, NoReturn, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from exporter import log
from exporter._gen import externalscaler_pb2 as messages
from exporter.cluster.keda.scaler import MOST_STREAMS, NoAnswer, Scaler, fault
from exporter.config.files import read_regular
from exporter.config.parsers import Address
from exporter.config.tls import ServerTls
from exporter.config.web_file import WebConfig
from exporter.errors import ConfigError, PortTaken
from exporter.pulse import end_tasks

MOST_CONNECTIONS = 128
_HAND_ON_SECONDS = 1.0
_PIECE_BYTES = 64 * 1024
_PLAIN = ServerTls()
SERVICE = "externalscaler.ExternalScaler"
MOST_CALLS = 256
# The metadata of a trigger is a few short texts.
MOST_BYTES = 64 * 1024
DRAIN_SECONDS = 5.0
OPTIONS = (
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_metadata_size", 8 * 1024),
    ("grpc.absolute_max_metadata_size", 16 * 1024),
    ("grpc.max_concurrent_streams", MOST_CALLS + MOST_STREAMS),
    ("grpc.server_handshake_timeout_ms", 10_000),
    # without this, a peer that is gone without closing would hold its stream for ever
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # KEDA keeps one connection for each address, and opens a closed one again at no cost
    ("grpc.max_connection_idle_ms", 300_000),
)

Context = grpc.aio.ServicerContext[bytes, bytes]
Asked = TypeVar("Asked", bound=Message)


class GuardedListener:
    """The TCP listener in front of gRPC. If there are too many connections, the peer with most loses its oldest."""

    def __init__(self, inside: str) -> None:
        """`inside` is the name of the abstract unix socket on which gRPC listens."""
        self._inside = inside
        self._server: asyncio.Server | None = None
        self._peers: dict[asyncio.Task[None], str] = {}  # by the task of a connection, oldest first
        self._log = log.RareLog()

    async def start(self, address: Address) -> int:
        """Listen, without a host for IPv4 and IPv6, and return the port. OSError: the address cannot be had."""
        is_dual = not address.host and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if is_dual or ":" in address.host else socket.AF_INET
        listening = socket.create_server(
            (address.host, address.port), family=family, backlog=MOST_CONNECTIONS, dualstack_ipv6=is_dual
        )
        self._server = await asyncio.start_server(self._welcome, sock=listening)
        port: int = listening.getsockname()[1]
        return port

    async def close(self) -> None:
        """Stop listening. For at most _HAND_ON_SECONDS, hand on gRPC's last answers."""
        if self._server is not None:
            self._server.close()
        if tasks := tuple(self._peers):
            await asyncio.wait(tasks, timeout=_HAND_ON_SECONDS)
        await end_tasks(*tasks)

    def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername") or ("",)
        task = asyncio.create_task(self._serve(reader, writer))
        self._peers[task] = str(peer[0])
        task.add_done_callback(lambda ended: self._peers.pop(ended, None))
        if len(self._peers) > MOST_CONNECTIONS:
            self._make_room()

    def _make_room(self) -> None:
        """Close one connection. From now on it does not count, even if its task still runs."""
        counts = Counter(self._peers.values())
        most = max(counts.values())
        oldest = next(task for task, peer in self._peers.items() if counts[peer] == most)
        peer = self._peers.pop(oldest)
        oldest.cancel()
        self._log.warn(
            "connections",
            "too many connections to KEDA's port: the oldest of the peer with most of them is closed",
            peer=peer,
            connections=most,
            remedy="let a NetworkPolicy admit KEDA's operator alone",
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hand bytes to and fro between a client and gRPC, until gRPC ends the connection."""
        try:
            with suppress(OSError):
                from_inside, inside = await asyncio.open_unix_connection(f"\0{self._inside}")
                forward = asyncio.create_task(_hand_on(reader, inside))
                try:
                    await _hand_on(from_inside, writer)
                finally:
                    forward.cancel()
                    inside.close()
            writer.close()
        finally:
            # if `_make_room` cancelled this task, the connection is still open
            if not writer.is_closing():
                writer.transport.abort()


async def _hand_on(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await source.read(_PIECE_BYTES):
            to.write(piece)
            await to.drain()
        to.write_eof()


def check_fits(tls: ServerTls) -> None:
    """Refuse settings that gRPC cannot keep, so that no user relies on them.

    gRPC does not ask for an optional client certificate, since clients without one are allowed anyway.

    Raises:
        ConfigError: gRPC cannot keep a setting. The message names its key.
    """
    for key in ("min_version", "max_version"):
        if getattr(tls, key) != getattr(_PLAIN, key):
            raise ConfigError(
                f"--keda.listen-address: {key} of --web.config.file has no effect on gRPC, which speaks TLS 1.2 and"
                " 1.3; leave it out"
            )
    if tls.ciphers:
        raise ConfigError(
            "--keda.listen-address: cipher_suites of --web.config.file have no effect on gRPC; leave them out"
        )


class Certificates:
    """The certificates of a web config, for gRPC. A changed certificate is used from the next handshake on."""

    def __init__(self, tls: ServerTls) -> None:
        """Read the files, which the web config's check has found usable.

        Raises:
            ConfigError: A file cannot be read any more, or gRPC cannot keep a setting.
        """
        check_fits(tls)
        self.allowed_sans = frozenset(tls.client_allowed_sans)
        self._tls = tls
        self._is_required = tls.client_certificate == "required"
        self._next: grpc.ServerCertificateConfiguration | None = None
        try:
            first = self._read()
        except OSError as error:
            raise ConfigError(f"--web.config.file: {error.filename!r}: {error.strerror or error}") from error
        # `_take` may return None for "unchanged", which types-grpcio does not know
        take: Any = self._take
        self.credentials = grpc.dynamic_ssl_server_credentials(first, take, self._is_required)

    def read_again(self) -> None:
        """Read the files again. If one cannot be read, the certificates stay as they are."""
        try:
            self._next = self._read()
        except OSError as error:
            log.warning("certificates for KEDA's port could not be read again", error=str(error))

    def _read(self) -> grpc.ServerCertificateConfiguration:
        tls = self._tls
        pair = (read_regular(tls.key_file), read_regular(tls.cert_file))
        authority = read_regular(tls.ca_file) if self._is_required else None
        return grpc.ssl_server_certificate_configuration([pair], authority)

    def _take(self) -> grpc.ServerCertificateConfiguration | None:
        """The certificates if they have changed since the last handshake, else None. A thread of gRPC calls this."""
        pair = self._next
        self._next = None
        return pair


class KedaServer:
    """The gRPC server. It listens from `start` to `close`, also while roles replace each other."""

    def __init__(self, scaler: Scaler, web: WebConfig) -> None:
        """Prepare the server; `web` says which clients may connect.

        Raises:
            ConfigError: gRPC cannot keep a setting of `web`.
        """
        self._scaler = scaler
        self.certificates = Certificates(web.tls) if web.tls else None
        self._server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=MOST_CALLS + MOST_STREAMS)
        self._inside = f"pod-gpu-metrics-keda-{secrets.token_hex(16)}"
        self._listener = GuardedListener(self._inside)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, self._handlers()),))
        if web.users:
            log.warning(
                "the passwords of --web.config.file do not protect --keda.listen-address, since KEDA sends none",
                remedy="let a NetworkPolicy admit KEDA's operator alone, or ask for its client certificate with"
                " client_auth_type: RequireAndVerifyClientCert",
            )

    async def start(self, address: Address) -> Address:
        """Listen, and return the address with the real number in place of port 0.

        Raises:
            PortTaken: the port cannot be had.
        """
        named = f"unix-abstract:{self._inside}"
        if self.certificates:
            self._server.add_secure_port(named, self.certificates.credentials)
        else:
            self._server.add_insecure_port(named)
        await self._server.start()
        try:
            port = await self._listener.start(address)
        except OSError as error:
            await self._server.stop(None)
            raise PortTaken(
                f"--keda.listen-address: cannot listen on {address}; is the address this machine's, or has another"
                " program the port?"
            ) from error
        return Address(host=address.host, port=port)

    async def close(self) -> None:
        """Stop listening. Streams end without an error, and other calls get DRAIN_SECONDS to end."""
        self._scaler.end_streams()
        await self._server.stop(DRAIN_SECONDS)
        await self._listener.close()

    def _handlers(self) -> dict[str, "grpc.RpcMethodHandler[bytes, bytes]"]:
        """The methods, with messages as bytes: grpc itself would log a trace for each message that is garbage."""
        scaler = self._scaler
        reference = messages.ScaledObjectRef
        return {
            "IsActive": grpc.unary_unary_rpc_method_handler(self._unary("IsActive", reference, scaler.is_active)),
            "StreamIsActive": grpc.unary_stream_rpc_method_handler(self._stream),
            "GetMetricSpec": grpc.unary_unary_rpc_method_handler(
                self._unary("GetMetricSpec", reference, scaler.metric_spec)
            ),
            "GetMetrics": grpc.unary_unary_rpc_method_handler(
                self._unary("GetMetrics", messages.GetMetricsRequest, scaler.metrics)
            ),
        }

    def _unary(
        self, call: str, kind: type[Asked], answer: Callable[[Asked], Awaitable[Message]]
    ) -> Callable[[bytes, Context], Awaitable[bytes]]:
        async def handle(body: bytes, context: Context) -> bytes:
            try:
                self._check_peer(context)
                return (await answer(_read(kind, body))).SerializeToString()
            except Exception as error:  # noqa: BLE001 - a fault of one call here must be an error there, and logged
                return await _abort(context, error, call)

        return handle

    async def _stream(self, body: bytes, context: Context) -> None:
        try:
            self._check_peer(context)
            async with aclosing(self._scaler.stream_is_active(_read(messages.ScaledObjectRef, body))) as answers:
                async for response in answers:
                    await context.write(response.SerializeToString())
        except Exception as error:  # noqa: BLE001 - see _unary
            await _abort(context, error, "StreamIsActive")

    def _check_peer(self, context: Context) -> None:
        """Refuse a client whose certificate has none of the names that the web config allows."""
        if self.certificates is None or not self.certificates.allowed_sans:
            return
        names = context.auth_context().get("x509_subject_alternative_name", ())
        if not {name.decode(errors="replace") for name in names} & self.certificates.allowed_sans:
            raise NoAnswer(
                grpc.StatusCode.PERMISSION_DENIED, "the client certificate is for none of the names that are allowed"
            )


async def _abort(context: Context, error: Exception, call: str) -> NoReturn:
    failed = error if isinstance(error, NoAnswer) else fault(error, call)
    await context.abort(failed.code, str(failed))


def _read(kind: type[Asked], body: bytes) -> Asked:
    try:
        return kind.FromString(body)
    except DecodeError:
        raise NoAnswer(grpc.StatusCode.INVALID_ARGUMENT, f"the message is no {kind.__name__}") from None
