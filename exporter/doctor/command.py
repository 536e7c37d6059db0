"""`doctor`: the command, which asks the exporter that runs here, or every source in its place."""

import asyncio
import json
import shutil
import socket
import sys
from collections.abc import Mapping
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from exporter.cli.commands import Help, command
from exporter.cli.options import read_config, setting_options
from exporter.config.http_file import HttpConfig
from exporter.config.node_settings import Config
from exporter.config.parsers import Address
from exporter.errors import ConfigError, ExporterError
from exporter.lenient import AnyObject
from exporter.log import start_logging
from exporter.top.transport import Gone, HttpTransport, OtherProtocol

if TYPE_CHECKING:
    from exporter.doctor.checkup import Checkup

# These settings say where the exporter answers and how this command logs. All others change the findings.
_WHERE = frozenset({"web_listen_address", "log_level", "log_format"})
_ANSWER_SECONDS = 20.0  # long, since an exporter asks its own sources before it answers


_HELP = Help(
    says="Say what works, what does not, why, and what to do.",
    groups={
        "What it does": {
            "--bundle": "Also a file for a bug report",
            "--strict": "Warnings, too, end it with exit code 1",
            "--conformance": "Also evidence for AI conformance",
            "--cuda-binary": "Only list the CUDA kernels in a file",
        },
        "Of which exporter; without these, the one that runs here": {
            "--web.listen-address": "One that runs here on another port",
            "--config.file": "None that runs: the sources of this file",
            "--dcgm.url": "None that runs: this page",
            "--kubelet.socket": "None that runs: this kubelet",
        },
    },
    examples=(
        "doctor",
        "doctor --bundle /tmp/doctor.tar.gz",
        "doctor --dcgm.url http://gpu-1:9401/metrics",
    ),
    more="--help-all shows all flags: every setting of serve is one.",
)


@command(_HELP)
@click.option("--bundle", metavar="FILE.tar.gz", help="Also write all of it to a file for a bug report; no secrets.")
@click.option(
    "--conformance",
    metavar="FILE",
    help="Also write evidence for Kubernetes' AI conformance, as YAML, and beside it as JUnit (.xml); what fails of it"
    " makes the exit code 1.",
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
        from exporter.doctor.cuda_file import listing  # noqa: PLC0415 - see _look

        if bundle or conformance or strict:
            raise ConfigError("--cuda-binary is about a file alone; leave out --bundle, --conformance and --strict")
        print(listing(cuda_binary, shutil.get_terminal_size().columns if sys.stdout.isatty() else None), end="")
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


def _look(config: Config, *, by_own_settings: bool) -> "Checkup":
    """The report of the exporter that runs here, or one by these settings. Raises Gone: a host elsewhere is silent."""
    # imported only here: the node exporter must not carry the imports of this command
    from exporter.doctor import checkup  # noqa: PLC0415
    from exporter.outputs.diagnosis import fine, read_report, warning  # noqa: PLC0415

    if by_own_settings:
        return asyncio.run(checkup.examine(config))
    try:
        exporter, mapping, body = _find(config.web.listen_addresses[0])
        report = read_report(mapping["doctor"])
    except Gone as error:
        if _is_elsewhere(config.web.listen_addresses[0].host):
            raise
        why = str(error).removesuffix(": Connection refused")
    except (KeyError, TypeError, ValueError):
        why = "the exporter that runs here is of another version"
    else:
        seen = checkup.Checkup(report=report, files={"mapping.json": body, **_pages(exporter)}, where=exporter.url)
        asked = f"asked the exporter that runs here, {exporter.url} ({mapping.get('version')})"
        return seen.remarked(fine("doctor", asked))
    return asyncio.run(checkup.examine(config)).remarked(
        warning(
            "doctor",
            f"{why}: this is judged by doctor's own settings",
            "give it the flags of the exporter in question, or its --web.listen-address",
        )
    )


def _is_elsewhere(host: str) -> bool:
    """Whether a name is certainly not this machine's. Then the sources here say nothing about the exporter there."""
    if host in ("", "localhost", socket.gethostname()):
        return False
    try:
        ip_address(host)
    except ValueError:
        return True
    return False


def _find(address: Address) -> tuple[HttpTransport, AnyObject, bytes]:
    """The exporter that listens at an address, its /debug/mapping as JSON, and the same as bytes.

    Raises:
        Gone: there is no exporter, or it asks for a password or a client certificate.
    """
    for exporter in HttpTransport.here(address, HttpConfig(), _ANSWER_SECONDS):
        try:
            status, body = exporter.get("/debug/mapping")
        except OtherProtocol:
            continue
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise Gone(f"the exporter at {exporter.url} asks for a password (--web.config.file)")
        try:
            mapping = json.loads(body) if status == HTTPStatus.OK else None
        except (ValueError, RecursionError):
            mapping = None
        if not isinstance(mapping, dict) or "doctor" not in mapping:
            raise Gone(f"what answers at {exporter.url} is not this exporter (HTTP status {status})")
        return exporter, mapping, body
    # TLS 1.3 closes the connection without a reason if the client has no certificate
    why = "it asks for a client certificate, or speaks neither HTTP nor TLS"
    raise Gone(f"what listens at {address} cannot be read: {why}")


def _pages(exporter: HttpTransport) -> Mapping[str, bytes]:
    """The exporter's pages, by their names in the bundle."""
    pages = {}
    for path, name in (("/gpu/metrics", "gpu-metrics.prom"), ("/metrics", "metrics.prom")):
        try:
            pages[name] = exporter.get(path)[1]
        except Gone as error:  # the exporter is gone meanwhile, and the bundle says so in place of the page
            pages[name] = f"{path}: {error}\n".encode()
    return pages
