"""The answer to a wrong command line: what is wrong with it, and what to type instead.

This module is imported only for a wrong command line, since it imports every command to find the ones with a flag.
"""

from collections.abc import Sequence

import click

from exporter.cli.commands import COMMANDS, PROGRAM, command_named, installed_commands
from exporter.config.suggestions import asked, closest, did_you_mean

# commands and flags, each with the words of other programs for it
_OTHER_WORDS = {
    "serve": "agent daemon exporter node run server start",
    "demo": "fake mock simulate",
    "textfile": "file write",
    "cluster": "aggregate keda scaler",
    "operator": "controller manager",
    "top": "list ls nvidia-smi ps show watch",
    "report": "bill cost costs usage",
    "doctor": "check debug diagnose status test validate why",
    "healthcheck": "health ping",
    "--help": "help",
    "--version": "version",
}
_MEANT = {word: command for command, words in _OTHER_WORDS.items() for word in words.split()}
# the flag that a word after a command was most likely meant for
_ARGUMENTS = {
    "serve": "--dcgm.url",
    "textfile": "--output",
    "cluster": "--cluster.node",
    "top": "--url",
    "report": "--prometheus",
    "demo": "--gpus",
    "doctor": "--web.listen-address",
    "healthcheck": "--web.listen-address",
    "device-access": "--unit",
    "operator": "--operator.namespace",
}


def answer(error: click.UsageError, arguments: Sequence[str]) -> str:
    """The answer: one line, without its end. `arguments` begin with the command."""
    command, *given = arguments
    if command not in COMMANDS:
        near = asked([_MEANT[command]] if command in _MEANT else closest(command, COMMANDS)[:1])
        return f"{command}: no such command; {f'{near} There are' if near else 'there are'} {', '.join(COMMANDS)}"
    if isinstance(error, click.NoSuchOption):
        return _no_such_flag(error.option_name, command, given)
    if isinstance(error, click.BadOptionUsage):
        return f"{error.option_name}: a value is missing; it takes {_takes(error.option_name, command)}"
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return _missing(error.param, command)
    words = error.format_message().removesuffix(".")
    value = next((argument for argument in given if f"unexpected extra argument ({argument})" in words), "")
    if value in COMMANDS:
        others = " ".join(argument for argument in given if argument != value)
        return f"{value}: a command stands before its flags: {PROGRAM} {value} {others}"
    if value and command not in _ARGUMENTS:
        return f"{value}: a word too many; {_form_of(command)}"
    if _MEANT.get(value, "").startswith("--"):
        return f"{value}: {command} takes flags alone; did you mean {_MEANT[value]}?"
    return f"{value}: {command} takes flags alone; did you mean {_ARGUMENTS[command]} {value}?" if value else words


def _missing(parameter: click.Parameter, command: str) -> str:
    """The answer to a command line without a parameter that the command needs."""
    if isinstance(parameter, click.Argument):
        return f"{command}: a word is missing; {_form_of(command)}"
    flag = parameter.opts[0]
    return f"{flag} is missing; {command} needs it: {PROGRAM} {command} {flag} {_takes(flag, command)}"


def _form_of(command: str) -> str:
    """How a command is typed that takes words and not only flags."""
    return f"type {PROGRAM} {command} {command_named(command).shown.usage}"


def _no_such_flag(flag: str, command: str, arguments: Sequence[str]) -> str:
    """The answer to an unknown flag, by click's name for it.

    That is -w for `-web.listen-address=:9400`, which programs in Go would take.
    """
    if not flag.startswith("--"):
        flag = next((argument.partition("=")[0] for argument in arguments if argument.startswith(flag)), flag)
    has_it = [name for name in installed_commands() if name != command and flag in _flags_of(name)]
    elsewhere = f"{', '.join(has_it)} {'have' if has_it[1:] else 'has'} it" if has_it else ""
    # a flag with a dot is one of this program's, and so it is not compared with the names of other flags
    instead = (elsewhere if "." in flag else "") or did_you_mean(flag, _flags_of(command), command) or elsewhere
    return f"{flag}: no such flag of {command}; {instead or '--help-all shows all'}"


def _flags_of(command: str) -> Sequence[str]:
    return [flag for parameter in command_named(command).params for flag in parameter.opts]


def _takes(flag: str, command: str) -> str:
    (option,) = (param for param in command_named(command).params if flag in param.opts)
    return option.make_metavar(click.Context(command_named(command)))
