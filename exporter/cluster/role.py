"""The cluster role as the service runs it: made of a configuration and of the role until now."""

import logging
from collections.abc import Mapping
from typing import Any

from exporter import __version__
from exporter.cluster.beside import KedaPort
from exporter.cluster.build import make_cluster
from exporter.cluster.cluster import Cluster
from exporter.config.cluster import ClusterConfig
from exporter.config.cluster_files import read_cluster_http
from exporter.log import debug, log
from exporter.role import RoleKind


def make_role(config: ClusterConfig, before: object = None) -> Cluster:
    """A cluster that goes on with what `before` hands over, where that was one. All files are read first.

    Raises:
        ConfigError: a file that the configuration names cannot be used. `before` is then what it was.
    """
    lasting = before.lasting if isinstance(before, Cluster) else None
    return make_cluster(config, read_cluster_http(config.cluster), lasting)


def say_what_is_asked(config: ClusterConfig) -> None:
    """One line that says who will be asked, and every doubt."""
    cluster = config.cluster
    log(
        logging.INFO,
        "asking",
        nodes=len(cluster.nodes) or f"those of {'Prometheus' if cluster.prometheus_url else 'the Kubernetes API'}",
        every_seconds=cluster.interval_seconds,
        timeout_seconds=cluster.timeout_seconds,
        max_age_seconds=cluster.max_age_seconds,
    )
    for doubt in config.doubts:
        log(logging.WARNING, doubt.says, remedy=doubt.remedy)
    for name, shown in config.shown().items():
        debug("setting", name=name, value=shown["value"], given_by=shown["from"])


def _about(config: ClusterConfig, _: object) -> Mapping[str, Any]:
    return {"version": __version__, "settings": config.shown()}


CLUSTER = RoleKind(
    make=make_role, about=_about, say=say_what_is_asked, names=lambda _: {"role": "cluster"}, beside=KedaPort.open
)
