"""The two helps of each command: --help on one screen, --help-all with everything; what shells complete."""

import shlex

import click
import pytest
from click.testing import CliRunner

from exporter.cli import main
from exporter.cli.commands import COMMANDS, command_named
from exporter.cli.main import commands

HELP = {"": commands.shown, **{name: command_named(name).shown for name in COMMANDS}}
PROGRAM = "pod-gpu-metrics-exporter"
LINES = 23  # of a terminal's 24, since the prompt comes after them


def shown(*arguments: str) -> list[str]:
    """On a terminal of 80 columns."""
    ended = CliRunner().invoke(commands, arguments, prog_name=PROGRAM)
    assert ended.exit_code == 0, ended.output
    return ended.stdout.splitlines()


def test_every_command_has_a_help() -> None:
    assert {name for rows in HELP[""].groups.values() for name in rows} == set(COMMANDS)


@pytest.mark.parametrize("command", HELP)
def test_help_fits_one_screen_and_is_grouped(command: str) -> None:
    lines = shown(*shlex.split(command), "--help")
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f"Usage: {PROGRAM}")
    for heading, flags in HELP[command].groups.items():
        begin = lines.index(heading) + 1
        assert [line.split()[0] for line in lines[begin : begin + len(flags)]] == list(flags)
    assert sum(line.startswith(f"  {PROGRAM}") for line in lines) == 3
    assert lines == shown(*shlex.split(command), "-h")


@pytest.mark.parametrize("command", COMMANDS)
def test_what_help_names_is_there_and_its_examples_are_taken(command: str) -> None:
    flags = {flag for parameter in command_named(command).params for flag in parameter.opts}
    assert {flag for rows in HELP[command].groups.values() for flag in rows} <= flags
    for example in (each for help_ in (HELP[""], HELP[command]) for each in help_.examples):
        name, *arguments = shlex.split(example)
        command_named(name).make_context(name, arguments)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_all_has_every_flag_under_a_heading(command: str) -> None:
    lines = shown(command, "--help-all")
    options = [each for each in command_named(command).params if isinstance(each, click.Option) and not each.hidden]
    named = {line.split()[0].rstrip(",") for line in lines if line.startswith("  --")}
    assert named >= {option.opts[0] for option in options}
    assert "Flags:" in lines
    if command == "serve":
        assert {"web:", "kubelet:", "devices:", "dcgm:", "accounting:"} <= set(lines)


def test_help_all_without_a_command_is_that_of_all_commands() -> None:
    lines = shown("--help-all")
    assert [line.split()[2] for line in lines if line.startswith("Usage: ")] == list(COMMANDS)
    assert sum(line.startswith("  --kubelet.timeout") for line in lines) == 5


@pytest.mark.parametrize(("help_", "width"), [("--help", 60), ("--help", 200), ("--help-all", 70), ("--help-all", 200)])
def test_a_terminal_of_another_width_is_used_up_to_100_columns(
    help_: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main.run(["serve", help_]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(f"  {PROGRAM}")]
    assert max(map(len, lines)) <= min(width, 100)
    if (help_, width) == ("--help-all", 200):
        assert max(map(len, lines)) > 90
