"""The command line: which command runs, and how a wrong one ends (exit code 2 and one line)."""

import sys
from collections.abc import Sequence

import click

from exporter import __version__
from exporter.cli.demo import demo
from exporter.cli.doctor import doctor
from exporter.cli.healthcheck import healthcheck
from exporter.cli.serve import serve
from exporter.cli.textfile import textfile
from exporter.errors import ConfigError, ExporterError

PROGRAM = "pod-gpu-metrics-exporter"
EXIT_FAILED = 1
EXIT_CONFIG = 2


@click.group()
@click.version_option(__version__, prog_name=PROGRAM)
def commands() -> None:
    """dcgm-exporter's GPU metrics with the pod, namespace and container that own each GPU.

    Without a command, `serve` runs.
    """


commands.add_command(serve)
commands.add_command(demo)
commands.add_command(textfile)
commands.add_command(doctor)
commands.add_command(healthcheck)


def run(arguments: Sequence[str]) -> int:
    """Run a command; the exit code."""
    arguments = list(arguments)
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("--help", "--version")):
        arguments.insert(0, "serve")
    try:
        commands.main(arguments, prog_name=PROGRAM, standalone_mode=False)
    except click.exceptions.NoSuchOption as error:
        close = f"; did you mean {', '.join(sorted(error.possibilities))}?" if error.possibilities else ""
        return _fail(f"{error.option_name}: no such flag{close} (see {arguments[0]} --help)", EXIT_CONFIG)
    except click.ClickException as error:
        return _fail(error.format_message(), EXIT_CONFIG)
    except ConfigError as error:
        return _fail(str(error), EXIT_CONFIG)
    except ExporterError as error:
        return _fail(str(error), EXIT_FAILED)
    except click.Abort:
        return EXIT_FAILED
    return 0


def _fail(message: str, code: int) -> int:
    print(f"{PROGRAM}: {' '.join(message.split())}", file=sys.stderr)
    return code
