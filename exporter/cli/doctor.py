"""`doctor`: what works on this node, what does not, why, and what to do."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from exporter import telemetry
from exporter.cli.options import read_config, setting_options
from exporter.errors import ExporterError


@click.command()
@click.option("--bundle", metavar="FILE.tar.gz", help="Also write all of it to a file for a bug report; no secrets.")
@setting_options()
def doctor(bundle: str | None, **given: Any) -> None:  # noqa: ANN401 - see serve
    """Say what works, what does not, why, and what to do; exit code 0 only if the main job works.

    Give it the settings of the exporter in question: settings that come by environment or file are found where they
    are (kubectl exec into its container), flags are to be repeated.
    """
    # imported only here: the node exporter must not carry what only this command needs
    from exporter import checkup  # noqa: PLC0415

    config = read_config(given)
    telemetry.start_logging("error", config.log_format)
    seen = asyncio.run(checkup.examine(config))
    print(seen.report(), end="")
    if bundle:
        try:
            seen.write_bundle(Path(bundle))
        except OSError as error:
            raise ExporterError(f"--bundle: {bundle} cannot be written: {error.strerror}") from error
    if not seen.works():
        sys.exit(1)
