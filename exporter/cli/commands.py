"""The table of commands."""

from importlib import import_module

import click

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


def command_named(name: str) -> click.Command:
    """One of COMMANDS, imported now."""
    command: click.Command = getattr(import_module(COMMANDS[name]), name.replace("-", "_"))
    return command
