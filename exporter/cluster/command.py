"""`cluster`: the exporters of all nodes behind one address.

Tests: tests/cli/test_command_line.py.
"""

from functools import partial
from typing import Any

from exporter import service
from exporter.cli.commands import Help, command
from exporter.cli.options import read_role_config, setting_options
from exporter.cluster.role import CLUSTER
from exporter.config.cluster_settings import SETTINGS, load_cluster

_HELP = Help(
    says="Ask the exporters of all nodes, and answer for all of them at once.",
    groups={
        "Whom to ask, in one of these ways": {
            "--cluster.service": "The Service of the node exporters",
            "--cluster.selector": "Labels of their pods",
            "--cluster.node": "One by one; repeatable",
            "--cluster.prometheus": "The Prometheus that scrapes them",
        },
        "How": {
            "--cluster.port": "The exporters' port. Default: 9400",
            "--cluster.interval": "How often each is asked. Default: 10s",
            "--cluster.max-age": "When a node counts as missing: 30s",
        },
        "The role itself": {
            "--web.listen-address": "Where to listen. Default: :9400",
            "--web.config.file": "TLS and passwords",
            "--config.file": "All of this as YAML, in place of flags",
        },
    },
    examples=(
        "cluster --cluster.service monitoring/gpu-metrics",
        "cluster --cluster.node http://gpu-1:9400",
        "cluster --cluster.prometheus http://prom:9090",
    ),
)


@command(_HELP)
@setting_options(settings=SETTINGS)
def cluster(**given: Any) -> None:  # noqa: ANN401 - see serve
    """Ask the exporters of all nodes, and answer for all of them at once; autoscalers ask at /autoscale/."""
    service.run(CLUSTER, partial(read_role_config, given, load_cluster, SETTINGS))
