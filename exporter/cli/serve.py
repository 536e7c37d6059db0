"""`serve`: the node exporter.

Tests: tests/cli/test_first_minutes.py.
"""

from functools import partial
from typing import Any

from exporter import service
from exporter.cli.commands import Help, command
from exporter.cli.options import read_config, setting_options
from exporter.node.role import NODE

_HELP = Help(
    says="Serve GPU metrics with the pods that own them, at /gpu/metrics.",
    groups={
        "Where samples and owners come from": {
            "--dcgm.url": "dcgm-exporter's page; repeatable",
            "--dcgm.selector": "Find dcgm-exporter's pod by its labels",
            "--dcgm.mode": "off: without dcgm-exporter, by NVML",
            "--kubelet.socket": "The kubelet's pod-resources socket",
        },
        "What samples say": {
            "--labels.names": "pod, legacy, or names of your own",
            "--labels.pod-labels": "Labels of pods to add; repeatable",
            "--sharing": "What a shared GPU's samples become",
        },
        "The exporter": {
            "--web.listen-address": "Where to listen. Default: :9400",
            "--web.config.file": "TLS and passwords",
            "--config.file": "All of this as YAML, in place of flags",
            "--log.level": "debug, info, warn or error",
        },
    },
    examples=(
        "serve --dcgm.url http://gpu-1:9401/metrics",
        "serve --dcgm.selector auto --sharing split",
        "serve --config.file /etc/gpu-metrics.yaml",
    ),
)


@command(_HELP)
@setting_options()
def serve(**given: Any) -> None:  # noqa: ANN401 - click hands over what the table of settings makes
    """Serve GPU metrics with the pods that own them, at /gpu/metrics."""
    service.run(NODE, partial(read_config, given))
