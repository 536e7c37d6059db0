"""`bundle`: what a bundle of `doctor --bundle` has, and whether it plays as it should."""

import shutil
import sys
from pathlib import Path

import click

from exporter.cli.commands import Help, command

_WIDTH = 100

_HELP = Help(
    usage="show FILE [FLAGS]",
    says="Show what is in a bundle before you send it to anybody.",
    groups={
        "show: what the bundle is, and its words from outside": {
            "--all": "Every word, and not only the first of a kind",
        }
    },
    examples=(
        "doctor --bundle gpu-bundle.tar.gz",
        "bundle show gpu-bundle.tar.gz",
        "bundle show gpu-bundle.tar.gz --all",
    ),
)


@command(_HELP)
@click.argument("action", type=click.Choice(["show"]))
@click.argument("file", metavar="FILE")
@click.option("--all", "is_all", is_flag=True, help="Show every word, and not only the first lines of a kind.")
def bundle(action: str, file: str, is_all: bool) -> None:
    """Show what is in a bundle before you send it to anybody.

    show: what the bundle is, and every distinct word in it that is not the program's own, by what it is. Nothing is
    unpacked to disk.
    """
    if action == "show":
        _show(Path(file), is_all=is_all)


def _show(path: Path, *, is_all: bool) -> None:
    """Print what a bundle is. Raises DamagedBundle."""
    # imported only here: the table of commands completes the names of flags without them
    from exporter.bundle.archive import read  # noqa: PLC0415
    from exporter.bundle.show import shown  # noqa: PLC0415

    recording = read(path)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    click.echo(shown(recording, path.name, path.stat().st_size, width=width, is_all=is_all), nl=False)
