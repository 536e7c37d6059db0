"""What is written about the program, held against the program."""

import re

import click

from exporter.cli.main import commands
from exporter.settings import SETTINGS
from exporter.simulator.pages import GENERATIONS
from exporter.telemetry import FAMILIES
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text()


def test_every_flag_is_in_the_readme_with_its_default() -> None:
    rows = {cells[0]: cells for line in README.splitlines() if (cells := re.findall(r"`([^`]*)`", line))}
    for setting in SETTINGS:
        assert setting.flag in rows, setting.flag
        if setting.default:
            assert setting.default in rows[setting.flag], setting.flag


def test_no_flag_in_the_readme_that_there_is_not() -> None:
    known = {
        option for command in commands.commands.values() for parameter in command.params for option in parameter.opts
    }
    of_docker_and_systemctl = {"--rm", "--network", "--read-only", "--cap-drop", "--build", "--now"}
    named = {flag.rstrip(".") for flag in re.findall(r"(?<![\w-])--[a-z][a-z.-]+", README)}
    assert named <= known | of_docker_and_systemctl


def test_every_family_of_our_own_is_in_the_readme() -> None:
    for family in FAMILIES:
        assert f"`{family.name}" in README, family.name


def test_the_demo_offers_every_generation_that_the_simulator_writes() -> None:
    (generation,) = (found for found in commands.commands["demo"].params if found.name == "generation")
    assert isinstance(generation.type, click.Choice)
    assert tuple(generation.type.choices) == GENERATIONS
