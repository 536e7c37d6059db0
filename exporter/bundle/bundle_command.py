"""`bundle`: shows what a bundle has, or plays it and compares its owners with those that are right.

Tests: tests/simulator/replay/test_expectation.py.
"""

import shutil
import sys
from pathlib import Path

import click

from exporter.cli.commands import Help, command, simulator_module
from exporter.errors import ConfigError
from exporter.wording import one_line

_WIDTH = 100

_HELP = Help(
    usage="show|test FILE [FLAGS]",
    says="Show what is in a bundle, before you send it; or play it, and compare the owners.",
    groups={
        "show: print what the bundle is, and its words from outside": {
            "--all": "Every word, and not only the first of a kind",
        },
        "test: compare owners with FILE.owners.yaml, or write that": {
            "--update": "Write FILE.owners.yaml anew",
        },
    },
    examples=(
        "doctor --bundle gpu-bundle.tar.gz",
        "bundle show gpu-bundle.tar.gz",
        "bundle test gpu-bundle.tar.gz",
    ),
)


@command(_HELP)
@click.argument("action", type=click.Choice(["show", "test"]))
@click.argument("file", metavar="FILE")
@click.option("--all", "is_all", is_flag=True, help="show: every word, and not only the first lines of a kind.")
@click.option(
    "--update", "is_update", is_flag=True, help="test: write the expectation anew, by what the program says now."
)
def bundle(action: str, file: str, is_all: bool, is_update: bool) -> None:
    """Show what is in a bundle, before you send it; or play it, and compare the owners.

    show prints what the bundle is, and every distinct word in the bundle that is not the program's own, by its kind.
    Nothing is unpacked to disk.

    test plays the bundle, and compares who owns each device at each moment with the expectation, a file beside the
    bundle: b.owners.yaml for b.tar.gz. Without an expectation, test writes one by what the program says now: correct
    by hand what is wrong there. The exit code is 1 if an owner differs.
    """
    if (is_all and action != "show") or (is_update and action != "test"):
        raise ConfigError("--all goes with `bundle show`, and --update with `bundle test`")
    if action == "show":
        _show(Path(file), is_all=is_all)
    else:
        _test(Path(file), is_update=is_update)


def _show(path: Path, *, is_all: bool) -> None:
    """Print what a bundle is, and its words from outside. Raises DamagedBundle."""
    # imported only here: the table of commands completes the names of flags without them
    from exporter.bundle.archive import read  # noqa: PLC0415
    from exporter.bundle.show import shown  # noqa: PLC0415

    recording = read(path)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    click.echo(shown(recording, path.name, path.stat().st_size, width=width, is_all=is_all), nl=False)


def _test(path: Path, *, is_update: bool) -> None:
    """Play a bundle and say how its owners differ from the expectation.

    Raises:
        ConfigError: the simulator is not installed.
        ExporterError: the bundle cannot be played.
    """
    # imported only here, as above
    from exporter.log import start_logging  # noqa: PLC0415

    expectation = simulator_module("exporter.simulator.replay.expectation", "bundle test")
    start_logging("error", "logfmt")
    is_right, lines = expectation.check_bundle(path, is_update=is_update)
    click.echo("\n".join(map(one_line, lines)))
    if not is_right:
        sys.exit(1)
