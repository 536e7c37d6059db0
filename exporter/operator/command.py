"""`operator`: makes the objects that GPUExporters and GPUAutoscalers describe, and keeps them up to date."""

from functools import partial
from typing import Any

from exporter import service
from exporter.cli.commands import command
from exporter.cli.options import read_role_config, setting_options
from exporter.config.operator_settings import SETTINGS, load_operator
from exporter.operator.operator import OPERATOR


@command()
@setting_options(settings=SETTINGS)
def operator(**given: Any) -> None:  # noqa: ANN401 - see serve
    """Keep what GPUExporters and GPUAutoscalers of a Kubernetes cluster describe."""
    service.run(OPERATOR, partial(read_role_config, given, load_operator, SETTINGS))
