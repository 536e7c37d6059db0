"""`cluster`: the exporters of all nodes behind one address."""

import asyncio
import os
from collections.abc import Mapping
from typing import Any

import click

from exporter import service
from exporter.cli.options import file_of, flags_of, own_namespace, setting_options
from exporter.cluster.role import CLUSTER
from exporter.config.cluster import SETTINGS, ClusterConfig
from exporter.config.load_cluster import load_cluster
from exporter.log import start_logging


@click.command()
@setting_options(settings=SETTINGS)
def cluster(**given: Any) -> None:  # noqa: ANN401 - see serve
    """Ask the exporters of all nodes, and answer for all of them at once; autoscalers ask at /autoscale/."""
    config = read_cluster_config(given)
    start_logging(config.log.level, config.log.format)
    asyncio.run(service.serve(config, CLUSTER, reread=lambda: read_cluster_config(given)))


def read_cluster_config(given: Mapping[str, Any]) -> ClusterConfig:
    """The configuration of this command line, environment and file.

    Raises:
        ConfigError: one line.
    """
    path, file = file_of(given)
    return load_cluster(flags_of(given, SETTINGS, {}), os.environ, file, path, own_namespace())
