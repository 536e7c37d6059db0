"""`serve`: the node exporter."""

from functools import partial
from typing import Any

import click

from exporter import service
from exporter.cli.options import read_config, setting_options
from exporter.node.role import NODE


@click.command()
@setting_options()
def serve(**given: Any) -> None:  # noqa: ANN401 - click hands over what the table of settings makes
    """Serve GPU metrics with the pods that own them, at /gpu/metrics."""
    service.run(NODE, partial(read_config, given))
