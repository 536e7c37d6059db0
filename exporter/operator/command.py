"""`operator`: makes the objects that GPUExporters and GPUAutoscalers describe, and keeps them up to date.

Tests: tests/operator/test_process.py.
"""

from functools import partial
from typing import Any

from exporter import service
from exporter.cli.commands import Help, command
from exporter.cli.options import read_role_config, setting_options
from exporter.config.operator_settings import SETTINGS, load_operator
from exporter.operator.operator import OPERATOR

_HELP = Help(
    says="Keep what GPUExporters and GPUAutoscalers of a Kubernetes cluster describe.",
    groups={
        "What it keeps": {
            "--operator.namespace": "Only these. Default: all namespaces",
            "--operator.exporter-image": "The exporters' image",
            "--operator.dcgm-image": "The image of dcgm-exporter",
        },
        "Several replicas": {
            "--operator.leader-election": "Whether only one works at a time",
            "--operator.lease-namespace": "Where the lease is",
        },
        "The operator itself": {
            "--kubernetes.url": "The Kubernetes API, outside a pod",
            "--web.listen-address": "Where to listen. Default: :9400",
            "--config.file": "All of this as YAML, in place of flags",
            "--log.level": "debug, info, warn or error",
        },
    },
    examples=(
        "operator",
        "operator --operator.namespace team-a",
        "operator --kubernetes.url http://127.0.0.1:8001",
    ),
)


@command(_HELP)
@setting_options(settings=SETTINGS)
def operator(**given: Any) -> None:  # noqa: ANN401 - see serve
    """Keep what GPUExporters and GPUAutoscalers of a Kubernetes cluster describe."""
    service.run(OPERATOR, partial(read_role_config, given, load_operator, SETTINGS))
