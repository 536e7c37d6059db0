"""`bundle`: what a bundle of `doctor --bundle` has, and whether it plays as it should."""

import shutil
import sys
from pathlib import Path

import click

from exporter.cli.commands import Help, command
from exporter.wording import one_line

_WIDTH = 100

_HELP = Help(
    usage="show|test FILE [FLAGS]",
    says="Show what is in a bundle before you send it to anybody, or play it and compare its owners.",
    groups={
        "show: what the bundle is, and its words from outside": {
            "--all": "Every word, and not only the first of a kind",
        },
        "test: who owns each device, beside what is expected": {
            "--update": "Write the owners of now down as expectation",
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
@click.option("--all", "is_all", is_flag=True, help="Show every word, and not only the first lines of a kind.")
@click.option("--update", "is_update", is_flag=True, help="Write the owners of now down as expectation, in any case.")
def bundle(action: str, file: str, is_all: bool, is_update: bool) -> None:
    """Show what is in a bundle before you send it to anybody, or play it and compare its owners.

    show: what the bundle is, and every distinct word in it that is not the program's own, by what it is. Nothing is
    unpacked to disk.

    test: the bundle is played, and who owns each device at each of its moments is compared with the file beside it
    (FILE.owners.yaml, in place of .tar.gz). Without that file it is written: correct by hand what is wrong in it. The
    exit code is 1 if something differs.
    """
    if action == "show":
        _show(Path(file), is_all=is_all)
    else:
        _test(Path(file), is_update=is_update)


def _show(path: Path, *, is_all: bool) -> None:
    """Print what a bundle is. Raises DamagedBundle."""
    # imported only here: the table of commands completes the names of flags without them
    from exporter.bundle.archive import read  # noqa: PLC0415
    from exporter.bundle.show import shown  # noqa: PLC0415

    recording = read(path)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    click.echo(shown(recording, path.name, path.stat().st_size, width=width, is_all=is_all), nl=False)


def _test(path: Path, *, is_update: bool) -> None:
    """Play a bundle and say how its owners differ from the expectation. Raises ExporterError: it cannot be played."""
    # imported only here, as above
    from exporter.log import start_logging  # noqa: PLC0415
    from exporter.simulator.replay.expectation import check_bundle  # noqa: PLC0415

    start_logging("error", "logfmt")
    is_right, lines = check_bundle(path, is_update=is_update)
    click.echo("\n".join(map(one_line, lines)))
    if not is_right:
        sys.exit(1)
