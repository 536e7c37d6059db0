"""`serve`: the node exporter."""

import asyncio
from typing import Any

import click

from exporter import service
from exporter.cli.options import read_config, setting_options
from exporter.log import start_logging
from exporter.node.role import NODE


@click.command()
@setting_options()
def serve(**given: Any) -> None:  # noqa: ANN401 - click hands over what the table of settings makes
    """Serve GPU metrics with the pods that own them, at /gpu/metrics."""
    config = read_config(given)
    start_logging(config.log.level, config.log.format)
    asyncio.run(service.serve(config, NODE, reread=lambda: read_config(given)))
