"""The table of commands, and their class. It gives a command two helps: --help fits a screen, --help-all has all flags.

--help is made of a `Help`, which stands beside the command. Shells complete a flag's value as far as the placeholder in
--help tells the possible ones.

Tests: tests/cli/test_help.py.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from click.shell_completion import CompletionItem

from exporter.errors import ConfigError

PROGRAM = "pod-gpu-metrics-exporter"
# The module of each command. The command is its function of the same name, with _ for -.
COMMANDS = {
    "serve": "exporter.cli.serve",
    "demo": "exporter.simulator.demo",
    "textfile": "exporter.cli.textfile",
    "cluster": "exporter.cluster.command",
    "operator": "exporter.operator.command",
    "top": "exporter.top.command",
    "report": "exporter.report.command",
    "doctor": "exporter.doctor.command",
    "bundle": "exporter.bundle.bundle_command",
    "device-access": "exporter.cli.device_access",
    "healthcheck": "exporter.cli.healthcheck",
}
# A distribution of its own, so that the image and the exporter's wheel do not carry it.
_SIMULATOR = "exporter.simulator"
_WIDEST = 100
_WIDEST_FLAG = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Help:
    """What --help shows of a command: `says` is one sentence, `groups` are its flags by heading, a few words on each.

    `examples` are three command lines without the program's name.
    """

    usage: str = "[FLAGS]"
    says: str
    groups: Mapping[str, Mapping[str, str]]
    examples: Sequence[str]
    more: str = "--help-all shows all flags and their environment names."


class _Completed(click.types.StringParamType):
    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete `on|off` with words, and FILE or PATH with a file's name."""
        takes = param.make_metavar(ctx)
        words = [word for word in takes.split("|") if word.islower() and word.startswith(incomplete)]
        if not words and ("FILE" in takes or "PATH" in takes):
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(word) for word in words]


class WithTwoHelps(click.Command):
    """The class of every command. `shown` is what its --help shows."""

    def __init__(self, name: str | None, *, shown: Help, **attributes: Any) -> None:  # noqa: ANN401 - click's own
        self.shown = shown
        usual = {"help_option_names": ["-h", "--help"], "max_content_width": _WIDEST}
        super().__init__(name, context_settings=usual, **attributes)
        for parameter in self.params:
            if parameter.type is click.STRING:
                parameter.type = _Completed()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's parameters, and --help-all, which is no setting and is in no reference."""
        return [*super().get_params(ctx), _HELP_ALL]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the most used flags in groups, a line each, and three examples: at most 23 lines of 80 columns."""
        shown = self.shown
        formatter.write(f"Usage: {ctx.command_path} {shown.usage}\n")
        formatter.write_text(shown.says)
        groups = {heading: [self._row(*row) for row in rows.items()] for heading, rows in shown.groups.items()}
        width = max(len(flag) for rows in groups.values() for flag, _ in rows)
        formatter.write_paragraph()
        for heading, rows in groups.items():
            formatter.write(f"{heading}\n")
            with formatter.indentation():
                formatter.write_dl([(flag.ljust(width), says) for flag, says in rows], col_max=_WIDEST_FLAG)
        formatter.write("\nExamples\n")
        formatter.write("".join(f"  {PROGRAM} {example}\n" for example in shown.examples))
        formatter.write_text(shown.more)

    def format_all(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the whole help, as click does."""
        super().format_help(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all flags by the groups of their settings. Flags that are no setting come first."""
        from exporter.config import cluster_settings as of_cluster  # noqa: PLC0415 - only --help-all needs all three
        from exporter.config import node_settings as of_node  # noqa: PLC0415 - as above
        from exporter.config import operator_settings as of_operator  # noqa: PLC0415 - as above
        from exporter.config.settings import settings_of  # noqa: PLC0415 - as above

        groups = {**of_operator.GROUPS, **of_cluster.GROUPS, **of_node.GROUPS}
        headings = {setting.flag: name for name, group in groups.items() for _, setting in settings_of(group)}
        for heading, options in groupby(self.get_params(ctx), lambda option: headings.get(option.opts[0], "Flags")):
            records = [*filter(None, (option.get_help_record(ctx) for option in options))]
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)

    def _row(self, name: str, says: str) -> tuple[str, str]:
        """A flag with its placeholder, or a command, and its text."""
        option = next((option for option in self.params if name in option.opts), None)
        if not isinstance(option, click.Option) or option.is_flag:
            return name, says
        short = "WORD" if isinstance(option.type, click.Choice) else "NUMBER"
        return f"{name} {option.metavar or short}", says


def _show_all(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing and isinstance(ctx.command, WithTwoHelps):
        formatter = ctx.make_formatter()
        ctx.command.format_all(ctx, formatter)
        click.echo(formatter.getvalue().rstrip("\n"))
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all, help="Show all and exit."
)


def command(
    shown: Help,
    name: str | None = None,
    **attributes: Any,  # noqa: ANN401 - click's own
) -> Callable[[Callable[..., Any]], click.Command]:
    """A decorator that makes a command of a function, as click.command does."""
    return click.command(name, cls=WithTwoHelps, shown=shown, **attributes)


def command_named(name: str) -> WithTwoHelps:
    """Import one of COMMANDS.

    Raises:
        ConfigError: it is the demo, and the simulator is not installed.
    """
    module = COMMANDS[name]
    imported = simulator_module(module, name) if module.startswith(_SIMULATOR) else import_module(module)
    command: WithTwoHelps = getattr(imported, name.replace("-", "_"))
    return command


def installed_commands() -> list[str]:
    """The names of the commands that can be imported: without the simulator, all but the demo."""
    has_simulator = find_spec(_SIMULATOR) is not None
    return [name for name, module in COMMANDS.items() if has_simulator or not module.startswith(_SIMULATOR)]


def simulator_module(module: str, command_line: str) -> ModuleType:
    """Import a module of the simulator for the command that needs it.

    Raises:
        ConfigError: the simulator is not installed. The text says how to get it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(_SIMULATOR):
            raise
        raise ConfigError(
            f"{command_line} needs the simulator, which is not part of this installation; on a machine with Python:"
            f" pip install '{PROGRAM}[demo]', or `make run` in a checkout"
        ) from None


def this_program() -> str:
    """The words with which the user can start this program again: its name, or the path with which it was started."""
    import shutil  # noqa: PLC0415 - half a megabyte, which a healthcheck every 30 s does not need

    started_by = sys.argv[0]
    if Path(started_by).name != PROGRAM or shutil.which(PROGRAM) == str(Path(started_by).absolute()):
        return PROGRAM
    return started_by
