"""The composition root of the cluster role: a `ClusterConfig` becomes a source of nodes, and this a `Cluster`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from exporter.cluster.cluster import Cluster
from exporter.cluster.lasting import Lasting
from exporter.config.cluster import DEFAULT_PORT, ClusterConfig, ClusterSettings
from exporter.config.common import KubernetesSettings
from exporter.config.http_file import HttpConfig
from exporter.config.parsers import LABEL_SETS
from exporter.config.tls import ClientTls
from exporter.sources.any_cluster import ClusterSource
from exporter.sources.any_places import Places
from exporter.sources.exporters.places import Given
from exporter.sources.exporters.source import Exporters
from exporter.sources.made import Made
from exporter.sources.source import OnHealth, Source

if TYPE_CHECKING:
    from exporter.sources.kubernetes.scaled_objects import ScaledObjects


def make_cluster(config: ClusterConfig, http: HttpConfig, lasting: Lasting | None = None) -> Cluster:
    """A cluster. `lasting` is that of the role until now: what the new configuration does not change goes on."""
    lasting = lasting or Lasting()
    made = Made(lasting.telemetry.note_health, lasting.made)
    cluster = config.cluster
    source, others = _make_source(made, config, http)
    may_ask = config.keda.listen_address is not None and config.kubernetes.url is not None
    scaled_objects = made.get(_make_scaled_objects, kubernetes=config.kubernetes) if may_ask else None
    made.settle()
    lasting.made = made
    return Cluster(
        source=source,
        others=others,
        scaled_objects=scaled_objects,
        made=made,
        interval_seconds=cluster.interval_seconds,
        patience_seconds=cluster.timeout_seconds,
        lasting=lasting,
    )


def _make_source(made: Made, config: ClusterConfig, http: HttpConfig) -> tuple[ClusterSource, Sequence[Source]]:
    """What knows the nodes, and the sources that it has of its own."""
    # how often it is asked is no affair of its
    cluster = replace(config.cluster, interval_seconds=0.0)
    if cluster.prometheus_url is not None:
        return made.get(_make_prometheus, cluster=cluster, http=http), ()
    exporters = made.get(_make_exporters, cluster=cluster, kubernetes=config.kubernetes, http=http)
    return exporters, (exporters.places,)


def _make_prometheus(*, cluster: ClusterSettings, http: HttpConfig, on_health: OnHealth) -> ClusterSource:
    from exporter.sources.prometheus.source import Prometheus  # noqa: PLC0415 - only where it is asked

    return Prometheus(
        url=cluster.prometheus_url or "",
        matchers=cluster.prometheus_matchers or "",
        owner_labels=cluster.prometheus_labels or LABEL_SETS["pod"],
        timeout_seconds=cluster.timeout_seconds,
        max_age_seconds=cluster.max_age_seconds,
        max_bytes=cluster.max_bytes,
        http=http,
        on_health=on_health,
    )


def _make_exporters(
    *, cluster: ClusterSettings, kubernetes: KubernetesSettings, http: HttpConfig, on_health: OnHealth
) -> Exporters:
    return Exporters(
        places=_places(cluster, kubernetes, "http" if http.tls == ClientTls() else "https", on_health),
        timeout_seconds=cluster.timeout_seconds,
        max_age_seconds=cluster.max_age_seconds,
        max_bytes=cluster.max_bytes,
        http=http,
        on_health=on_health,
    )


def _make_scaled_objects(*, kubernetes: KubernetesSettings, on_health: OnHealth) -> "ScaledObjects":
    from exporter.sources.kubernetes import scaled_objects  # noqa: PLC0415 - not where KEDA does not ask
    from exporter.sources.kubernetes.api import KubernetesApi  # noqa: PLC0415

    api = KubernetesApi(
        url=kubernetes.url or "",
        token_file=kubernetes.token_file,
        ca_file=kubernetes.ca_file,
        manifest=scaled_objects.MANIFEST,
        meanwhile=scaled_objects.MEANWHILE,
    )
    return scaled_objects.ScaledObjects(api=api, on_health=on_health)


def _places(cluster: ClusterSettings, kubernetes: KubernetesSettings, scheme: str, on_health: OnHealth) -> Places:
    """What knows where the node exporters are."""
    if kubernetes.url is None or cluster.nodes:
        return Given(cluster.nodes)
    from exporter.sources.kubernetes import exporters  # noqa: PLC0415 - not where they are given
    from exporter.sources.kubernetes.api import KubernetesApi  # noqa: PLC0415

    api = KubernetesApi(
        url=kubernetes.url,
        token_file=kubernetes.token_file,
        ca_file=kubernetes.ca_file,
        manifest=exporters.MANIFEST,
        meanwhile=exporters.MEANWHILE,
    )
    if cluster.service:
        namespace, service = cluster.service
        return exporters.endpoint_slices(
            api=api, namespace=namespace, service=service, port=cluster.port or "", scheme=scheme, on_health=on_health
        )
    return exporters.labelled_pods(
        api=api,
        namespace=cluster.namespace or "",
        selector=cluster.selector or (),
        port=int(cluster.port or DEFAULT_PORT),
        scheme=scheme,
        on_health=on_health,
    )
