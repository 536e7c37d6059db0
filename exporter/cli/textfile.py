"""`textfile`: a .prom file for node-exporter's textfile collector.

Tests: tests/end_to_end/test_textfile.py.
"""

import asyncio
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from exporter import log
from exporter.cli.commands import Help, command
from exporter.cli.options import read_config, setting_options
from exporter.config.node_settings import SETTINGS, Config
from exporter.config.parsers import positive_duration
from exporter.errors import ConfigError, ExporterError, read_flag
from exporter.node.role import NODE, make_role, say_what_is_read
from exporter.outputs import textfile as drop
from exporter.role import log_settings
from exporter.service import Service, on_signal, say_why_it_ended
from exporter.threads import use_daemon_threads

# settings without an effect here: nothing listens, no accounts are kept, and owners are always in the file
_ELSEWHERE = ("web.", "accounting.", "labels.owners")
_WITHOUT = tuple(setting.name for setting in SETTINGS if setting.name.startswith(_ELSEWHERE))


_HELP = Help(
    usage="--output FILE [FLAGS]",
    says="Write GPU metrics with the pods that own them to a file for node-exporter.",
    groups={
        "The file": {
            "--output": "In the folder of node-exporter's collector",
            "--interval": "How often it is replaced. Default: 15s",
            "--once": "Write it once and end",
        },
        "Where samples and owners come from": {
            "--dcgm.url": "dcgm-exporter's page; repeatable",
            "--dcgm.file": "The .prom file of GPU samples",
            "--dcgm.mode": "off: without dcgm-exporter, by NVML",
            "--kubelet.socket": "The kubelet's pod-resources socket",
            "--config.file": "All of this as YAML, in place of flags",
        },
    },
    examples=(
        "textfile --output /var/lib/node/gpu.prom",
        "textfile --output gpu.prom --once",
        "textfile --output gpu.prom --interval 1m",
    ),
)


@command(_HELP)
@click.option("--output", metavar="FILE", required=True, help="The file; node-exporter reads *.prom in its folder.")
@click.option("--interval", metavar="DURATION", default="15s", show_default=True, help="How often it is replaced.")
@click.option("--once", is_flag=True, help="Write it once and end; exit code 1 if there were no GPU samples.")
@setting_options(without=_WITHOUT)
def textfile(output: str, interval: str, once: bool, **given: Any) -> None:  # noqa: ANN401 - see serve
    """Write GPU metrics with the pods that own them to a file for node-exporter."""
    seconds = read_flag("--interval", interval, positive_duration, "a duration such as 15s")
    path = Path(output)
    if not path.name.endswith(".prom"):
        raise ConfigError(f"--output: {output!r} is not allowed; node-exporter reads files that end in .prom")
    check_folder(path)

    def read() -> Config:
        # nothing listens here, so with port 0 no upstream can be this program's own address
        return read_config(given, web_listen_address=":0")

    config = read()
    log.start_logging(config.log.level, config.log.format)
    try:
        has_samples = asyncio.run(write_drops(config, path, interval_seconds=seconds, once=once, reread=read))
    except OSError as error:
        raise ExporterError(f"--output: {output} cannot be written: {error.strerror}") from error
    if once and not has_samples:
        raise ExporterError(f"no GPU samples: {output} holds the exporter's own metrics alone")


def check_folder(path: Path) -> None:
    """Check the place of the file, before anybody waits for the sources.

    Raises:
        ConfigError: the folder is missing or may not be written to, or the file is a folder.
    """
    folder = path.parent
    if not folder.is_dir():
        raise ConfigError(f"--output: there is no folder {folder}; make it, or name the one that node-exporter reads")
    if path.is_dir():
        raise ConfigError(f"--output: {path} is a folder; name a file in it, such as {path / 'gpu.prom'}")
    # A new file is renamed over the old one, so the right on the folder counts, not that on the file. Root has every
    # right, but some folders take no files at all, so only a try shows it.
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"--output: nothing can be written to the folder {folder}: {error.strerror}") from error


async def write_drops(
    config: Config, output: Path, *, interval_seconds: float, once: bool, reread: Callable[[], Config] | None = None
) -> bool:
    """Write the file for node-exporter, once or until SIGTERM or SIGINT. Return whether the last one has GPU samples.

    `reread` makes the configuration again at SIGHUP.

    Raises:
        ConfigError: a file that the configuration names cannot be used.
        OSError: with `once`, the file could not be written. Without it, that is logged and tried again.
    """
    use_daemon_threads()
    stop = on_signal(signal.SIGTERM, signal.SIGINT)
    kind = replace(NODE, make=partial(make_role, divides_counters=not once, keeps_accounts=False))
    running = Service(config, kind, reread)
    watch = asyncio.create_task(running.watch(on_signal(signal.SIGHUP)))
    watch.add_done_callback(say_why_it_ended)
    try:
        say_what_is_read(config)
        log_settings(config)
        while True:
            snapshot = await running.collect(None)
            try:
                drop.write(output, drop.render(snapshot))
            except OSError as error:
                if once:
                    raise
                log.error("textfile not written, the old one stays", path=str(output), error=str(error))
            if once:
                return snapshot.joined is not None
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), interval_seconds)
            if stop.is_set():
                return snapshot.joined is not None
    finally:
        watch.cancel()
        await running.close()
