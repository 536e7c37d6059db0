"""`doctor`: what works on this node, what does not, why, and what to do."""

import asyncio
import shutil
import sys
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from exporter.cli import running
from exporter.cli.command import command
from exporter.cli.options import read_config, setting_options
from exporter.config.node import Config
from exporter.errors import ConfigError, ExporterError
from exporter.log import start_logging

if TYPE_CHECKING:
    from exporter.cli.doctor.checkup import Checkup

# These settings say where the exporter answers and how this command logs. All others change what is judged.
_WHERE = frozenset({"web_listen_address", "log_level", "log_format"})


@command()
@click.option("--bundle", metavar="FILE.tar.gz", help="Also write all of it to a file for a bug report; no secrets.")
@click.option(
    "--conformance",
    metavar="FILE",
    help="Also write evidence for Kubernetes' AI conformance, as YAML; what fails of it makes the exit code 1.",
)
@click.option("--strict", is_flag=True, help="Warnings, too, end it with exit code 1.")
@click.option(
    "--cuda-binary", metavar="FILE", help="Only list the CUDA kernels in a program, library, object, fatbin or cubin."
)
@setting_options()
def doctor(bundle: str | None, conformance: str | None, strict: bool, cuda_binary: str | None, **given: Any) -> None:  # noqa: ANN401 - see serve; click's way
    """Say what works, what does not, why, and what to do.

    Without flags the exporter that runs here is asked, at its default address (or the one that the environment or
    --web.listen-address names), and judged as it is configured. With flags, or where none answers, the sources are
    asked by this command in its place: give it the settings of the exporter in question.

    Exit code 0 only if the main job works and every device that a container holds was attributed.
    """
    if cuda_binary is not None:
        _list_kernels(cuda_binary, alone=not (bundle or conformance or strict))
        return
    config = read_config(given)
    start_logging("error", config.log.format)
    seen = _look(config, by_own_settings=any(value for name, value in given.items() if name not in _WHERE))
    if conformance:
        seen = seen.with_evidence(Path(conformance))
    print(seen.report.render(), end="")
    if bundle:
        try:
            seen.write_bundle(Path(bundle))
        except OSError as error:
            raise ExporterError(f"--bundle: {bundle} cannot be written: {error.strerror}") from error
    if not seen.report.works(strict=strict):
        sys.exit(1)


def _list_kernels(path: str, *, alone: bool) -> None:
    from exporter.cli.doctor import cuda_binary  # noqa: PLC0415 - see _look

    if not alone:
        raise ConfigError("--cuda-binary is about a file alone; leave out --bundle, --conformance and --strict")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(cuda_binary.listing(path, width), end="")


def _look(config: Config, *, by_own_settings: bool) -> "Checkup":
    # imported only here: the node exporter must not carry what only this command needs
    from exporter.cli.doctor import checkup  # noqa: PLC0415
    from exporter.outputs.diagnosis import read_report, warning  # noqa: PLC0415

    if by_own_settings:
        return asyncio.run(checkup.examine(config))
    try:
        exporter, mapping, body = running.find(config.web.listen_addresses[0])
        report = read_report(mapping["doctor"])
    except running.NotReadable as error:
        why = str(error)
    except (KeyError, TypeError, ValueError):
        why = "the exporter that runs here is of another version"
    else:
        pages = {"/debug/mapping": body, **_pages(exporter)}
        return checkup.by_running(str(exporter), mapping.get("version"), report, pages)
    return asyncio.run(checkup.examine(config)).remarked(
        warning(
            "doctor",
            f"{why}: this is judged by doctor's own settings",
            "give it the flags of the exporter in question, or its --web.listen-address",
        )
    )


def _pages(exporter: running.Running) -> Mapping[str, bytes]:
    pages = {}
    for path in ("/gpu/metrics", "/metrics"):
        try:
            pages[path] = exporter.get(path)[1]
        except (OSError, HTTPException) as error:  # it went away meanwhile: the bundle says so in the page's place
            pages[path] = f"{path}: {error}\n".encode()
    return pages
