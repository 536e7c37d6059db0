"""The command line: it runs a command, and ends a wrong one with one line and exit code 2.

Tests: tests/cli/test_command_line.py.
"""

import os
import sys
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from exporter import __version__
from exporter.cli.commands import COMMANDS, PROGRAM, Help, WithTwoHelps, command_named, installed_commands
from exporter.errors import ConfigError, ExporterError
from exporter.wording import one_line

EXIT_FAILED = 1
EXIT_CONFIG = 2
_ALONE = ("-h", "--help", "--help-all", "--version")
# click's name for the variable by which a shell asks for completions
_COMPLETES = "_POD_GPU_METRICS_EXPORTER_COMPLETE"


class _Commands(WithTwoHelps, click.Group):
    """All commands. A command's file is imported when it is named.

    A healthcheck, which runs every 30 s, must not carry the servers.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command. A shell that completes a line is not told which command lacks the simulator."""
        names = installed_commands() if ctx.resilient_parsing else COMMANDS
        return command_named(cmd_name) if cmd_name in names else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. If a shell completes a line, the command that may be left out is not there yet."""
        return super().parse_args(ctx, _with_command(args) if args and ctx.resilient_parsing else args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command without importing any, or a flag of the command that may be left out."""
        if incomplete.startswith("-"):
            return command_named("serve").shell_complete(ctx, incomplete)
        return [CompletionItem(name) for name in COMMANDS if name.startswith(incomplete)]

    def format_all(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help of every command that is installed, with its flags."""
        for name in installed_commands():
            command = command_named(name)
            command.format_all(click.Context(command, ctx, name), formatter)
            formatter.write("\n\n")


_HELP = Help(
    usage="[COMMAND] [FLAGS]",
    says="dcgm-exporter's GPU metrics with the pod that owns each GPU.",
    groups={
        "On a GPU node": {
            "serve": "Serve them, at /gpu/metrics; runs also without a command",
            "textfile": "Write them to a file for node-exporter",
            "healthcheck": "Whether the exporter works, as an exit code",
            "device-access": "Let a systemd unit open the devices of NVIDIA's driver",
        },
        "For a cluster": {
            "cluster": "Answer for all nodes at once, also to autoscalers",
            "operator": "Keep what GPUExporters and GPUAutoscalers describe",
        },
        "For people": {
            "top": "GPUs, how busy they are, and their pods, in this terminal",
            "doctor": "What works, what does not, why, and what to do",
            "bundle": "Show or play a bundle, the file for a bug report",
            "report": "Who held and used GPUs over a span, and what it cost",
            "demo": "Try it without a GPU and without Kubernetes",
        },
    },
    examples=(
        "demo",
        "serve --dcgm.url http://localhost:9401/metrics",
        "doctor",
    ),
    more="--help after a command shows its flags; --version shows the version.",
)


@click.group("", cls=_Commands, shown=_HELP)
@click.version_option(__version__, prog_name=PROGRAM)
def commands() -> None:
    """dcgm-exporter's GPU metrics with the pod, namespace and container that own each GPU.

    Without a command, `serve` runs. To try the program without a GPU and without Kubernetes, run `demo`.
    """


def import_command(arguments: Sequence[str]) -> None:
    """Import the file of the command that a command line names. This takes most of the time of a start."""
    (name,) = _with_command(arguments)[:1]
    if name in installed_commands() and _COMPLETES not in os.environ:
        command_named(name)


def _with_command(arguments: Sequence[str]) -> list[str]:
    """The command line with its command, which is `serve` if it has none."""
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in _ALONE):
        return ["serve", *arguments]
    return list(arguments)


def run(arguments: Sequence[str]) -> int:
    """Run a command. Return the exit code."""
    return run_group(commands, _with_command(arguments), PROGRAM)


def run_group(group: click.Group, arguments: Sequence[str], program: str) -> int:
    """Run a command of a group under the program's name. Return the exit code."""

    def fail(message: str, code: int) -> int:
        print(f"{program}: {one_line(message)}", file=sys.stderr)
        return code

    is_command = arguments and arguments[0] in group.list_commands(click.Context(group))
    see = f"(see {program} {arguments[0]} --help)" if is_command else f"(see {program} --help)"
    try:
        group.main(arguments, prog_name=program, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        # exit code 0, as with kubectl itself
        print(error.format_message())
        return 0
    except click.UsageError as error:
        from exporter.cli.mistakes import answer  # noqa: PLC0415 - only a mistake needs it

        words = answer(error, arguments) if group is commands else error.format_message().removesuffix(".")
        return fail(f"{words} {see}", EXIT_CONFIG)
    except click.ClickException as error:
        return fail(error.format_message(), EXIT_CONFIG)
    except ConfigError as error:
        return fail(str(error), EXIT_CONFIG)
    except ExporterError as error:
        return fail(str(error), EXIT_FAILED)
    except click.Abort:
        return EXIT_FAILED
    return 0
