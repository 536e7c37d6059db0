"""The web config's certificates for gRPC, which takes certificates and keys as texts, and no limits on TLS."""

import logging
from typing import Any

import grpc

from exporter.config.regular import read_regular
from exporter.config.tls import ServerTls
from exporter.errors import ConfigError
from exporter.log import log

_PLAIN = ServerTls(cert_file="", key_file="")


def check_fits(tls: ServerTls) -> None:
    """Refuse what gRPC cannot be told here: a file that asks for protection must get it.

    A client certificate that is wanted only if there is one is not asked for: whoever has none may ask as well.

    Raises:
        ConfigError: with the key.
    """
    for key in ("min_version", "max_version"):
        if getattr(tls, key) != getattr(_PLAIN, key):
            raise ConfigError(
                f"--keda.listen-address: {key} of --web.config.file cannot be kept over gRPC, which speaks TLS 1.2 and"
                " 1.3; leave it out"
            )
    if tls.ciphers:
        raise ConfigError(
            "--keda.listen-address: cipher_suites of --web.config.file cannot be kept over gRPC; leave them out"
        )


class Certificates:
    """What gRPC needs of a web config's TLS. Another certificate is used from the next handshake on."""

    def __init__(self, tls: ServerTls) -> None:
        """Read the files, which the web config's own check has found usable.

        Raises:
            ConfigError: TLS that gRPC cannot have, or a file that is gone.
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
        # None says that nothing has changed, which types-grpcio does not know
        take: Any = self._take
        self.credentials = grpc.dynamic_ssl_server_credentials(first, take, self._is_required)

    def read_again(self) -> None:
        """The files may have changed. What cannot be read leaves the certificates as they are."""
        try:
            self._next = self._read()
        except OSError as error:
            log(logging.WARNING, "certificates for KEDA's port could not be read again", error=str(error))

    def _read(self) -> grpc.ServerCertificateConfiguration:
        tls = self._tls
        pair = (read_regular(tls.key_file), read_regular(tls.cert_file))
        authority = read_regular(tls.client_ca_file) if self._is_required else None
        return grpc.ssl_server_certificate_configuration([pair], authority)

    def _take(self) -> grpc.ServerCertificateConfiguration | None:
        """What has changed since the last handshake, for a thread of gRPC's."""
        found, self._next = self._next, None
        return found
