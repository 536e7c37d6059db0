"""The settings of the cluster role: those that a test changes, and else the defaults."""

from dataclasses import replace
from typing import Any

from exporter.cluster.exporters.discovery import ExporterPlaces, exporter_places
from exporter.config.cluster_settings import ClusterSettings, load_cluster
from exporter.config.parsers import Selector
from exporter.sources.kubernetes.api import KubernetesApi
from exporter.sources.source import OnHealth


def cluster_settings(**changes: Any) -> ClusterSettings:
    return replace(load_cluster({"cluster.node": ("http://127.0.0.1:9",)}, {}, None).cluster, **changes)


def endpoint_slices(
    *, api: KubernetesApi, namespace: str, service: str, port: str | None = None, on_health: OnHealth
) -> ExporterPlaces:
    cluster = cluster_settings(service=(namespace, service), port=port)
    return exporter_places(api=api, cluster=cluster, scheme="http", on_health=on_health)


def labelled_pods(
    *, api: KubernetesApi, namespace: str, selector: Selector, port: int, scheme: str = "http", on_health: OnHealth
) -> ExporterPlaces:
    cluster = cluster_settings(selector=selector, namespace=namespace, port=str(port))
    return exporter_places(api=api, cluster=cluster, scheme=scheme, on_health=on_health)
