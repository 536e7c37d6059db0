"""The settings of the cluster role: those that a test changes, and else the defaults."""

from dataclasses import replace
from typing import Any

from exporter.config.cluster import ClusterSettings, load_cluster


def cluster_settings(**changes: Any) -> ClusterSettings:
    return replace(load_cluster({"cluster.node": ("http://127.0.0.1:9",)}, {}, None).cluster, **changes)
