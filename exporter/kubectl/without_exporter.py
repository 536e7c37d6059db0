"""`--nothing-installed`: the reader of a cluster's dcgm-exporters, for as long as the command runs.

Tests: tests/kubectl/test_nothing_installed.py.
"""

import sys

import click

from exporter.config.parsers import positive_duration
from exporter.errors import ConfigError, read_flag
from exporter.kubectl.api_proxy import ApiProxy
from exporter.kubectl.binary import Kubectl
from exporter.kubectl.nothing_installed import NothingInstalled, notes
from exporter.kubectl.places import FLAG

_LONGEST_SECONDS = 300.0


def reader(kubectl: Kubectl, exporter: str | None, wait: str, of_pods_in: str) -> NothingInstalled:
    """The reader, whose kubectl proxy ends with the command. Notes then follow on the standard error, unless it failed.

    Args:
        kubectl: the binary, with the flags that choose the cluster.
        exporter: --exporter, which here names the namespace of the dcgm-exporters.
        wait: --wait, a duration.
        of_pods_in: the namespace whose pods' devices are shown; "" for all devices.

    Raises:
        ConfigError: a flag is wrong.
        Gone: kubectl does not start.
    """
    seconds = read_flag("--wait", wait, positive_duration, "a duration such as 2s")
    if seconds > _LONGEST_SECONDS:
        raise ConfigError(f"--wait: {wait!r} is not allowed; at most 5m")
    namespace, _, service = (exporter or "").partition("/")
    if service:
        raise ConfigError(f"{FLAG}: {exporter!r} is not allowed with --nothing-installed; it takes NAMESPACE")
    context = click.get_current_context()
    made = NothingInstalled(context.with_resource(ApiProxy(kubectl)), namespace, seconds, of_pods_in)

    def say() -> None:
        has_failed = sys.exc_info()[0] is not None
        if made.rows and not has_failed:
            print("\n".join(notes(made.rows)), file=sys.stderr)

    context.call_on_close(say)
    return made
