"""The gRPC server that KEDA's operator asks: limits, TLS that can be exchanged, and who may ask."""

import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from exporter._gen import externalscaler_pb2 as messages
from exporter.cluster.keda.certificates import Certificates
from exporter.cluster.keda.door import Door
from exporter.cluster.keda.scaler import MOST_STREAMS, NoAnswer, Scaler, fault
from exporter.config.parsers import Address
from exporter.config.web_file import WebConfig
from exporter.errors import PortTaken
from exporter.log import log

SERVICE = "externalscaler.ExternalScaler"
MOST_CALLS = 256
# A trigger's metadata are a few short texts.
MOST_BYTES = 64 * 1024
DRAIN_SECONDS = 5.0
OPTIONS = (
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_metadata_size", 8 * 1024),
    ("grpc.absolute_max_metadata_size", 16 * 1024),
    ("grpc.max_concurrent_streams", MOST_CALLS + MOST_STREAMS),
    ("grpc.server_handshake_timeout_ms", 10_000),
    # a peer that is gone without a word would hold its stream for ever
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # KEDA keeps one connection for each address, and a silent one costs it nothing to open again
    ("grpc.max_connection_idle_ms", 300_000),
)

Context = grpc.aio.ServicerContext[bytes, bytes]
Asked = TypeVar("Asked", bound=Message)


class KedaServer:
    """Listens from `start` to `close`, whichever role answers."""

    def __init__(self, scaler: Scaler, web: WebConfig) -> None:
        """`web` says who may connect.

        Raises:
            ConfigError: gRPC cannot protect what it protects.
        """
        self._scaler = scaler
        self._certificates = Certificates(web.tls) if web.tls else None
        self._server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=MOST_CALLS + MOST_STREAMS)
        self._inside = f"pod-gpu-metrics-keda-{secrets.token_hex(16)}"
        self._door = Door(self._inside)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, self._handlers()),))
        if web.users:
            log(
                logging.WARNING,
                "the passwords of --web.config.file do not protect --keda.listen-address, since KEDA sends none",
                remedy="let a NetworkPolicy admit KEDA's operator alone, or ask for its client certificate with"
                " client_auth_type: RequireAndVerifyClientCert",
            )

    async def start(self, address: Address) -> Address:
        """Listen. Returns the address, with the real number in place of port 0.

        Raises:
            PortTaken: it cannot be listened on; one line that says what to do.
        """
        named = f"unix-abstract:{self._inside}"
        if self._certificates:
            self._server.add_secure_port(named, self._certificates.credentials)
        else:
            self._server.add_insecure_port(named)
        await self._server.start()
        try:
            port = await self._door.start(address)
        except OSError as error:
            await self._server.stop(None)
            raise PortTaken(
                f"--keda.listen-address: cannot listen on {address}; is the address this machine's, or has another"
                " program the port?"
            ) from error
        return Address(host=address.host, port=port)

    def read_certificates_again(self) -> None:
        """Use the certificates as they are in their files now."""
        if self._certificates:
            self._certificates.read_again()

    async def close(self) -> None:
        """Stop listening. Streams end without an error, and other calls have DRAIN_SECONDS."""
        self._scaler.end_streams()
        await self._server.stop(DRAIN_SECONDS)
        await self._door.close()

    def _handlers(self) -> dict[str, "grpc.RpcMethodHandler[bytes, bytes]"]:
        """The methods, with bytes for messages: grpc itself writes a trace into the log for each that is garbage."""
        scaler, reference = self._scaler, messages.ScaledObjectRef
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
            except NoAnswer as error:
                failed = error
            except Exception as error:  # noqa: BLE001 - a fault of one call here must be an error there, and logged
                failed = fault(error, call)
            return await context.abort(failed.code, str(failed))

        return handle

    async def _stream(self, body: bytes, context: Context) -> None:
        try:
            self._check_peer(context)
            async with aclosing(self._scaler.stream_is_active(_read(messages.ScaledObjectRef, body))) as answers:
                async for said in answers:
                    await context.write(said.SerializeToString())
        except NoAnswer as error:
            failed = error
        except Exception as error:  # noqa: BLE001 - see _unary
            failed = fault(error, "StreamIsActive")
        else:
            return
        await context.abort(failed.code, str(failed))

    def _check_peer(self, context: Context) -> None:
        """Refuse a certificate for none of the names that the web config allows."""
        if self._certificates is None or not self._certificates.allowed_sans:
            return
        names = context.auth_context().get("x509_subject_alternative_name", ())
        if not {name.decode(errors="replace") for name in names} & self._certificates.allowed_sans:
            raise NoAnswer(
                grpc.StatusCode.PERMISSION_DENIED, "the client certificate is for none of the names that are allowed"
            )


def _read(kind: type[Asked], body: bytes) -> Asked:
    """The message.

    Raises:
        NoAnswer: it is none.
    """
    try:
        return kind.FromString(body)
    except DecodeError:
        raise NoAnswer(grpc.StatusCode.INVALID_ARGUMENT, f"the message is no {kind.__name__}") from None
