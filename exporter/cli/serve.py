"""`serve`: the node exporter."""

from functools import partial
from typing import Any

from exporter import service
from exporter.cli.commands import command
from exporter.cli.options import read_config, setting_options
from exporter.node.role import NODE


@command()
@setting_options()
def serve(**given: Any) -> None:  # noqa: ANN401 - click hands over what the table of settings makes
    """Serve GPU metrics with the pods that own them, at /gpu/metrics."""
    service.run(NODE, partial(read_config, given))
