"""The command line: which command runs, and how a wrong one ends (exit code 2 and one line)."""

import sys
from collections.abc import Sequence
from importlib import import_module

import click

from exporter import __version__
from exporter.cli.program import PROGRAM
from exporter.errors import ConfigError, ExporterError

EXIT_FAILED = 1
EXIT_CONFIG = 2
# The module of each; in it, the command is the function of the same name, with _ for -.
COMMANDS = {
    "serve": "exporter.cli.serve",
    "demo": "exporter.cli.demo",
    "textfile": "exporter.cli.textfile",
    "cluster": "exporter.cli.cluster",
    "operator": "exporter.cli.operator",
    "top": "exporter.cli.top.command",
    "report": "exporter.cli.report",
    "doctor": "exporter.cli.doctor.command",
    "device-access": "exporter.cli.device_access",
    "healthcheck": "exporter.cli.healthcheck",
}


class _Commands(click.Group):
    """Imports a command's file when the command is named: a healthcheck, every 30 s, must not carry the servers."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        return command_named(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments begin with, or a click.UsageError that names those that may be meant."""
        if args[0] not in COMMANDS:
            raise click.UsageError(_no_such_command(args[0]), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """A line for each, which is not cut short as click's own are."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, (command_named(name).help or "").split("\n\n")[0]) for name in COMMANDS])


def _no_such_command(name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistake needs it

    close = get_close_matches(name, COMMANDS, n=1)
    meant = f"did you mean {close[0]}? There are" if close else "there are"
    return f"{name}: no such command; {meant} {', '.join(COMMANDS)}"


def command_named(name: str) -> click.Command:
    """One of COMMANDS, imported now."""
    command: click.Command = getattr(import_module(COMMANDS[name]), name.replace("-", "_"))
    return command


@click.group(cls=_Commands)
@click.version_option(__version__, prog_name=PROGRAM)
def commands() -> None:
    """dcgm-exporter's GPU metrics with the pod, namespace and container that own each GPU.

    Without a command, `serve` runs. To try the program without a GPU and without Kubernetes, run `demo`.
    """


def import_command(arguments: Sequence[str]) -> None:
    """Import the file of the command that a command line names, which is most of what a start takes."""
    (name,) = _with_command(arguments)[:1]
    if name in COMMANDS:
        command_named(name)


def _with_command(arguments: Sequence[str]) -> list[str]:
    """A command line without a command means `serve`."""
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("--help", "--version")):
        return ["serve", *arguments]
    return list(arguments)


def run(arguments: Sequence[str]) -> int:
    """Run a command; the exit code."""
    arguments = _with_command(arguments)
    see = f"(see {PROGRAM} {arguments[0]} --help)" if arguments[0] in COMMANDS else f"(see {PROGRAM} --help)"
    try:
        commands.main(arguments, prog_name=PROGRAM, standalone_mode=False)
    except click.exceptions.NoSuchOption as error:
        close = f"; did you mean {', '.join(sorted(error.possibilities))}?" if error.possibilities else ""
        return _fail(f"{error.option_name}: no such flag{close} {see}", EXIT_CONFIG)
    except click.UsageError as error:
        return _fail(f"{error.format_message().removesuffix('.')} {see}", EXIT_CONFIG)
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
