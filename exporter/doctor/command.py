"""`doctor`: the command, which asks the exporter that runs here, or every source in its place.

Tests: tests/doctor/test_doctor.py.
"""

import asyncio
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from exporter.cli.commands import Help, command
from exporter.cli.options import read_config, setting_options
from exporter.config.node_settings import Config
from exporter.errors import ConfigError, ExporterError
from exporter.log import start_logging
from exporter.memory import room_bytes
from exporter.top.transport import Gone

if TYPE_CHECKING:
    from exporter.doctor.checkup import Checkup

# What a bundle of one moment takes, of which more than a half are modules.
_LEAST_ROOM_BYTES = 64 * 1024 * 1024
_NICENESS = 10
# These settings say where the exporter answers and how this command logs. All others change the findings.
_WHERE = frozenset({"web_listen_address", "log_level", "log_format"})


_HELP = Help(
    says="Say what works, what does not, why, and what to do.",
    groups={
        "What it does": {
            "--bundle": "Also write a bundle, for a bug report",
            "--for": "Look every 5 s, for this long, such as 2m",
            "--plain": "Keep the names in the bundle",
            "--strict": "A warning, too, makes the exit code 1",
            "--conformance": "Also evidence for AI conformance",
            "--cuda-binary": "Only list the CUDA kernels in a file",
        },
        "Which exporter; by default the one that runs here": {
            "--web.listen-address": "One that runs here, on another port",
            "--config.file": "No exporter: the sources that this file names",
            "--dcgm.url": "No exporter: this page",
            "--kubelet.socket": "No exporter: this kubelet",
        },
    },
    examples=(
        "doctor",
        "doctor --bundle gpu-bundle.tar.gz",
        "doctor --dcgm.url http://gpu-1:9401/metrics",
    ),
    more="--help-all shows all flags: every setting of serve is one.",
)


@command(_HELP)
@click.option(
    "--bundle",
    metavar="FILE.tar.gz",
    help="Also write a bundle: what the exporter reads and says, for a bug report, with names replaced and without"
    " secrets. - writes the bundle to standard output, and doctor's words to standard error.",
)
@click.option(
    "--for",
    "duration",
    metavar="DURATION",
    help="With --bundle: look every 5 s, for this long (at most 10m). Default: one look.",
)
@click.option("--plain", is_flag=True, help="With --bundle: keep all names.")
@click.option(
    "--conformance",
    metavar="FILE",
    help="Also write evidence for Kubernetes' AI conformance, as YAML, and beside it as JUnit (.xml); a requirement"
    " that fails makes the exit code 1.",
)
@click.option("--strict", is_flag=True, help="A warning, too, makes the exit code 1.")
@click.option(
    "--cuda-binary", metavar="FILE", help="Only list the CUDA kernels in a program, library, object, fatbin or cubin."
)
@setting_options()
def doctor(
    bundle: str | None,
    duration: str | None,
    plain: bool,
    conformance: str | None,
    strict: bool,
    cuda_binary: str | None,
    **given: Any,  # noqa: ANN401 - see serve
) -> None:
    """Say what works, what does not, why, and what to do.

    Without flags the exporter that runs here is asked, at its default address (or the one that the environment or
    --web.listen-address names), and judged as it is configured. With flags, or where none answers, the sources are
    asked by this command in its place: give it the settings of the exporter in question.

    Exit code 0 only if the main job works and every device that a container holds was attributed.
    """
    if cuda_binary is not None:
        if bundle is not None or conformance or strict:
            raise ConfigError("--cuda-binary is about a file alone; leave out --bundle, --conformance and --strict")
        _list_kernels(cuda_binary)
        return
    config = read_config(given)
    start_logging("error", config.log.format)
    by_own_settings = any(value for name, value in given.items() if name not in _WHERE)
    if bundle is not None:
        seen = _bundle(bundle, duration, conformance, config, is_plain=plain, by_own_settings=by_own_settings)
    elif duration or plain:
        raise ConfigError("--for and --plain go with --bundle FILE")
    else:
        seen = _reported(_look(config, by_own_settings=by_own_settings), conformance, sys.stdout)
    if not seen.report.works(strict=strict):
        sys.exit(1)


def _list_kernels(cuda_binary: str) -> None:
    from exporter.doctor.cuda_file import listing  # noqa: PLC0415 - see _look

    print(listing(cuda_binary, shutil.get_terminal_size().columns if sys.stdout.isatty() else None), end="")


def _bundle(
    to: str, duration: str | None, conformance: str | None, config: Config, *, is_plain: bool, by_own_settings: bool
) -> "Checkup":
    """Make a bundle, print its report, and write it. Returns the checkup with that report.

    Raises ExporterError: it cannot be written, or the exporter is on another machine.
    """
    _spare_the_exporter()
    from exporter.doctor.bundling import BundleMaking, BundleOrder  # noqa: PLC0415 - see _look

    order = BundleOrder.of_flags(to, duration, is_plain=is_plain)
    making = BundleMaking(order)
    try:
        seen = _reported(making.collect(config, by_own_settings=by_own_settings), conformance, order.words)
        making.write()
    finally:
        making.close()
    return seen


def _spare_the_exporter() -> None:
    """See that the exporter, in whose container this may run, loses neither memory nor time to a bundle.

    Raises ExporterError: the container has no room for it.
    """
    room = room_bytes(Path("/"))
    if room is not None and room < _LEAST_ROOM_BYTES:
        mib = 1024 * 1024
        raise ExporterError(
            f"--bundle: the memory limit leaves {max(0, room) // mib} MiB here, and a bundle takes"
            f" {_LEAST_ROOM_BYTES // mib} MiB or more -> raise limits.memory of the exporter's container to 256Mi, or"
            " run doctor elsewhere on the node, with the exporter's flags"
        )
    with suppress(OSError):
        os.nice(_NICENESS)  # its scrapes come first
    with suppress(OSError):  # if memory runs out all the same, the kernel ends this process first
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _reported(seen: "Checkup", conformance: str | None, words: TextIO) -> "Checkup":
    """Print the report, with what the evidence says if that is wanted. Returns the checkup with it."""
    if conformance:
        seen = seen.with_evidence(Path(conformance))
    print(seen.report.render(), end="", file=words)
    return seen


def _look(config: Config, *, by_own_settings: bool) -> "Checkup":
    """The report of the exporter that runs here, or one by these settings. Raises Gone: a host elsewhere is silent."""
    # imported only here: the node exporter must not carry the imports of this command
    from exporter.doctor import asked_exporter, checkup  # noqa: PLC0415
    from exporter.outputs.diagnosis import warning  # noqa: PLC0415

    if by_own_settings:
        return asyncio.run(checkup.examine(config))
    try:
        return asked_exporter.checkup_of(*asked_exporter.exporter_at(config.web.listen_addresses[0]))
    except Gone as error:
        if asked_exporter.is_elsewhere(config.web.listen_addresses[0].host):
            raise
        why = str(error).removesuffix(": Connection refused")
    except (KeyError, TypeError, ValueError):
        why = "the exporter that runs here is of another version"
    return asyncio.run(checkup.examine(config)).remarked(
        warning(
            "doctor",
            f"{why}: this is judged by doctor's own settings",
            "give it the flags of the exporter in question, or its --web.listen-address",
        )
    )
