"""`operator`: what GPUExporters and GPUAutoscalers describe is kept in line with them."""

import asyncio
import os
from collections.abc import Mapping
from typing import Any

import click

from exporter import service
from exporter.cli.options import file_of, flags_of, own_namespace, setting_options
from exporter.config.load_operator import load_operator
from exporter.config.operator import SETTINGS, OperatorConfig
from exporter.log import start_logging
from exporter.operator.role import OPERATOR


@click.command()
@setting_options(settings=SETTINGS)
def operator(**given: Any) -> None:  # noqa: ANN401 - see serve
    """Keep what GPUExporters and GPUAutoscalers of a Kubernetes cluster describe."""
    config = read_operator_config(given)
    start_logging(config.log.level, config.log.format)
    asyncio.run(service.serve(config, OPERATOR, reread=lambda: read_operator_config(given)))


def read_operator_config(given: Mapping[str, Any]) -> OperatorConfig:
    """The configuration of this command line, environment and file.

    Raises:
        ConfigError: one line.
    """
    path, file = file_of(given)
    return load_operator(flags_of(given, SETTINGS, {}), os.environ, file, path, own_namespace())
