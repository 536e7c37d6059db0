"""`textfile`: the .prom drop for node-exporter's textfile collector."""

import asyncio
from pathlib import Path
from typing import Any

import click

from exporter import service
from exporter.cli.options import read_config, setting_options
from exporter.config.node import Config
from exporter.config.parsers import positive_duration
from exporter.errors import ConfigError, ExporterError
from exporter.log import start_logging


@click.command()
@click.option("--output", metavar="FILE", required=True, help="The file; node-exporter reads *.prom in its folder.")
@click.option("--interval", metavar="DURATION", default="15s", show_default=True, help="How often it is replaced.")
@click.option("--once", is_flag=True, help="Write it once and end; exit code 1 if there were no GPU samples.")
@setting_options(without=("web.listen-address", "web.config.file"))
def textfile(output: str, interval: str, once: bool, **given: Any) -> None:  # noqa: ANN401 - see serve
    """Write GPU metrics with the pods that own them to a file for node-exporter."""
    try:
        seconds = positive_duration(interval)
    except ValueError:
        raise ConfigError(f"--interval: {interval!r} is not allowed; it takes a duration such as 15s") from None
    path = Path(output)
    if not path.name.endswith(".prom"):
        raise ConfigError(f"--output: {output!r} is not allowed; node-exporter reads files that end in .prom")

    def read() -> Config:
        # port 0: nothing listens here, so no upstream can be this program's own address
        return read_config(given, web_listen_address=":0")

    config = read()
    start_logging(config.log.level, config.log.format)
    try:
        has_samples = asyncio.run(
            service.write_textfile(config, path, interval_seconds=seconds, once=once, reread=read)
        )
    except OSError as error:
        raise ExporterError(f"--output: {output} cannot be written: {error.strerror}") from error
    if once and not has_samples:
        raise ExporterError(f"no GPU samples: {output} holds the exporter's own metrics alone")
