"""What the cluster role answers beside HTTP: KEDA over gRPC, which is imported only where it is switched on."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from exporter.cluster.cluster import Cluster
from exporter.config.cluster import ClusterConfig
from exporter.config.parsers import Address
from exporter.config.tls import ServerTls
from exporter.config.web_file import WebConfig
from exporter.errors import ConfigError
from exporter.log import log
from exporter.role import Role

if TYPE_CHECKING:
    from exporter.cluster.keda.server import KedaServer


class KedaPort:
    """KEDA's port, or none: neither can become the other while the program runs, and TLS stays what it is."""

    def __init__(
        self,
        wanted: Address | None,
        address: Address | None = None,
        tls: ServerTls | None = None,
        server: "KedaServer | None" = None,
    ) -> None:
        """`address` has the real number where port 0 is `wanted`."""
        self.address = address
        self._wanted = wanted
        self._tls = tls
        self._server = server

    @classmethod
    async def open(cls, config: ClusterConfig, web: WebConfig, current: Callable[[], Role]) -> "KedaPort":
        """Listen where the configuration says so.

        Raises:
            ConfigError: gRPC cannot protect what the web config protects.
            PortTaken: the address cannot be had.
        """
        address = config.keda.listen_address
        if address is None:
            return cls(None)
        from exporter.cluster.keda.scaler import Scaler  # noqa: PLC0415 - grpc only where it is wanted
        from exporter.cluster.keda.server import KedaServer  # noqa: PLC0415

        scaler = Scaler(lambda: _cluster(current()))
        server = KedaServer(scaler, web)
        real = await server.start(address)
        for of, (most, used) in scaler.bounds.items():
            current().telemetry.bound(of, most, used)
        log(logging.INFO, "listening for KEDA", address=str(real), tls=web.tls is not None)
        return cls(address, real, web.tls, server)

    def check_stays(self, config: ClusterConfig, web: WebConfig) -> None:
        """Refuse another address, and other TLS but for the certificates themselves.

        Raises:
            ConfigError: with the setting.
        """
        if config.keda.listen_address != self._wanted:
            raise ConfigError("--keda.listen-address cannot change while the exporter runs: restart it")
        if self._server is not None and web.tls != self._tls:
            raise ConfigError(
                "tls_server_config of --web.config.file cannot change while --keda.listen-address is open, but for the"
                " content of its files: restart the exporter"
            )

    def use_certificates(self) -> None:
        """Use the certificates as they are in their files now."""
        if self._server is not None:
            self._server.read_certificates_again()

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            await self._server.close()


def _cluster(role: Role) -> Cluster:
    if not isinstance(role, Cluster):
        raise TypeError(role)
    return role
