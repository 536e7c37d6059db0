"""The composition root of the cluster role: a `ClusterConfig` becomes a source of nodes, and this a `Cluster`."""

from exporter.cluster.cluster import Cluster
from exporter.cluster.lasting import Lasting
from exporter.config.cluster import ClusterConfig
from exporter.config.http_file import HttpConfig
from exporter.sources.exporters.places import Given
from exporter.sources.exporters.source import Exporters
from exporter.sources.made import Made
from exporter.sources.source import OnHealth


def make_cluster(config: ClusterConfig, http: HttpConfig, lasting: Lasting | None = None) -> Cluster:
    """A cluster. `lasting` is that of the role until now: what the new configuration does not change goes on."""
    lasting = lasting or Lasting()
    made = Made(lasting.telemetry.note_health, lasting.made)
    cluster = config.cluster
    exporters = made.get(
        _make_exporters,
        nodes=cluster.nodes,
        timeout_seconds=cluster.timeout_seconds,
        max_age_seconds=cluster.max_age_seconds,
        max_bytes=cluster.max_bytes,
        http=http,
    )
    made.settle()
    lasting.made = made
    return Cluster(
        source=exporters,
        others=(exporters.places,),
        made=made,
        interval_seconds=cluster.interval_seconds,
        patience_seconds=cluster.timeout_seconds,
        lasting=lasting,
    )


def _make_exporters(
    *,
    nodes: tuple[tuple[str, str], ...],
    timeout_seconds: float,
    max_age_seconds: float,
    max_bytes: int,
    http: HttpConfig,
    on_health: OnHealth,
) -> Exporters:
    return Exporters(
        places=Given(nodes),
        timeout_seconds=timeout_seconds,
        max_age_seconds=max_age_seconds,
        max_bytes=max_bytes,
        http=http,
        on_health=on_health,
    )
