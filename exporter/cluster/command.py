"""`cluster`: the exporters of all nodes behind one address."""

from functools import partial
from typing import Any

from exporter import service
from exporter.cli.commands import command
from exporter.cli.options import read_role_config, setting_options
from exporter.cluster.role import CLUSTER
from exporter.config.cluster_settings import SETTINGS, load_cluster


@command()
@setting_options(settings=SETTINGS)
def cluster(**given: Any) -> None:  # noqa: ANN401 - see serve
    """Ask the exporters of all nodes, and answer for all of them at once; autoscalers ask at /autoscale/."""
    service.run(CLUSTER, partial(read_role_config, given, load_cluster, SETTINGS))
