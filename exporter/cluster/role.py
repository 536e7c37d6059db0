"""The cluster role as the service runs it: made of a configuration and the role before it."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, cast

from exporter import log
from exporter.cluster.cluster import Cluster, ClusterHandover
from exporter.cluster.exporters.exporters_source import Exporters
from exporter.config.cluster_settings import ClusterConfig, ClusterSettings, read_cluster_http
from exporter.config.common import KubernetesSettings
from exporter.config.http_file import HttpConfig
from exporter.config.parsers import Address
from exporter.config.tls import ClientTls, ServerTls
from exporter.config.web_file import WebConfig
from exporter.errors import ConfigError
from exporter.role import Role, RoleKind, about
from exporter.sources.cluster_source import ClusterSource, Places
from exporter.sources.exporters.asking import GivenPlaces
from exporter.sources.source import OnHealth, Source, SourceCache

if TYPE_CHECKING:
    from exporter.cluster.keda.grpc_server import KedaServer
    from exporter.cluster.scaled_objects import ScaledObjects
    from exporter.sources.kubernetes.api import KubernetesApi


def _make_source(cache: SourceCache, config: ClusterConfig, http: HttpConfig) -> tuple[ClusterSource, Sequence[Source]]:
    """The source that knows the nodes, and the sources that it uses."""
    # the pulse decides how often the source asks, so a changed interval makes no new source
    cluster = replace(config.cluster, interval_seconds=0.0)
    if cluster.prometheus_url is not None:
        from exporter.cluster.prometheus.prometheus_source import Prometheus  # noqa: PLC0415 - only a role that asks Prometheus needs it

        return cache.get(Prometheus, cluster=cluster, http=http), ()
    exporters = cache.get(_make_exporters, cluster=cluster, kubernetes=config.kubernetes, http=http)
    return exporters, (exporters.places,)


def _make_exporters(
    *, cluster: ClusterSettings, kubernetes: KubernetesSettings, http: HttpConfig, on_health: OnHealth
) -> Exporters:
    places = _places(cluster, kubernetes, "http" if http.tls == ClientTls() else "https", on_health)
    return Exporters(places=places, cluster=cluster, http=http, on_health=on_health)


def _make_scaled_objects(*, kubernetes: KubernetesSettings, on_health: OnHealth) -> "ScaledObjects":
    from exporter.cluster import scaled_objects  # noqa: PLC0415 - only a role that KEDA may ask needs it

    api = _api(kubernetes, scaled_objects.MANIFEST, scaled_objects.MEANWHILE)
    return scaled_objects.ScaledObjects(api=api, on_health=on_health)


def _api(kubernetes: KubernetesSettings, manifest: str, meanwhile: str) -> "KubernetesApi":
    from exporter.sources.kubernetes.api import KubernetesApi  # noqa: PLC0415 - only a role that asks Kubernetes needs it

    return KubernetesApi(**asdict(kubernetes), manifest=manifest, meanwhile=meanwhile)


def _places(cluster: ClusterSettings, kubernetes: KubernetesSettings, scheme: str, on_health: OnHealth) -> Places:
    if kubernetes.url is None or cluster.nodes:
        return GivenPlaces(cluster.nodes)
    from exporter.cluster.exporters import discovery  # noqa: PLC0415 - only a role that looks for exporters needs it

    api = _api(kubernetes, discovery.MANIFEST, discovery.MEANWHILE)
    return discovery.exporter_places(api=api, cluster=cluster, scheme=scheme, on_health=on_health)


@dataclass(eq=False)
class KedaPort:
    """KEDA's port, or none. A reload cannot open it, close it, or switch its TLS on or off.

    `wanted` is the configured address. `address` has the real number if the wanted port is 0.
    """

    wanted: Address | None
    address: Address | None = None
    tls: ServerTls | None = None
    server: "KedaServer | None" = None

    @classmethod
    async def open(cls, config: ClusterConfig, web: WebConfig, current: Callable[[], Role]) -> "KedaPort":
        """Listen on the configured address, if there is one. See `AnswerBeside`."""
        address = config.keda.listen_address
        if address is None:
            return cls(None)
        from exporter.cluster.keda.grpc_server import KedaServer  # noqa: PLC0415
        from exporter.cluster.keda.scaler import Scaler  # noqa: PLC0415 - only KEDA's port needs grpc

        scaler = Scaler(lambda: cast("Cluster", current()))
        server = KedaServer(scaler, web)
        real = await server.start(address)
        for of, (most, used) in scaler.bounds.items():
            current().telemetry.bound(of, most, used)
        log.info("listening for KEDA", address=str(real), tls=web.tls is not None)
        return cls(address, real, web.tls, server)

    def check_stays(self, config: ClusterConfig, web: WebConfig) -> None:
        """Refuse another address or other TLS settings; the certificates may change. See `SecondServer`."""
        if config.keda.listen_address != self.wanted:
            raise ConfigError("--keda.listen-address cannot change while the exporter runs: restart it")
        if self.server is not None and web.tls != self.tls:
            raise ConfigError(
                "while --keda.listen-address is open, tls_server_config of --web.config.file cannot change, only the"
                " content of the files that it names: restart the exporter"
            )

    def use_certificates(self) -> None:
        """Read the certificates' files again."""
        if self.server is not None and self.server.certificates:
            self.server.certificates.read_again()

    async def close(self) -> None:
        """Stop listening."""
        if self.server is not None:
            await self.server.close()


def make_role(config: ClusterConfig, before: object = None) -> Cluster:
    """Make a cluster role that takes over the counters and sources of `before`, if that was one. Read all files first.

    Raises:
        ConfigError: A file that the configuration names cannot be used. `before` is unchanged then.
    """
    http = read_cluster_http(config.cluster)
    handover = before.handover if isinstance(before, Cluster) else ClusterHandover()
    cache = SourceCache(handover.telemetry.note_health, handover.cache)
    source, others = _make_source(cache, config, http)
    may_ask = config.keda.listen_address is not None and config.kubernetes.url is not None
    scaled_objects = cache.get(_make_scaled_objects, kubernetes=config.kubernetes) if may_ask else None
    cache.settle()
    handover.cache = cache
    return Cluster(
        source=source,
        others=others,
        scaled_objects=scaled_objects,
        cache=cache,
        pulse_seconds=config.cluster.interval_seconds,
        patience_seconds=config.cluster.timeout_seconds,
        handover=handover,
    )


def say_what_is_asked(config: ClusterConfig) -> None:
    """Log one line that says which nodes will be asked."""
    cluster = config.cluster
    log.info(
        "asking",
        nodes=len(cluster.nodes) or f"those of {'Prometheus' if cluster.prometheus_url else 'the Kubernetes API'}",
        every_seconds=cluster.interval_seconds,
        timeout_seconds=cluster.timeout_seconds,
        max_age_seconds=cluster.max_age_seconds,
    )


CLUSTER = RoleKind(
    make=make_role, about=about, say=say_what_is_asked, names=lambda _: {"role": "cluster"}, beside=KedaPort.open
)
