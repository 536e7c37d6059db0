"""Walks by README.md and docs/getting-started.md alone, in a clean folder: every command of their first minutes."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.components import real
from tests.support.exporter import at_default_places
from tests.support.places import ROOT
from tests.support.walk import SECONDS, Step, as_json, commands_of

# The section of each page that is walked.
SECTIONS = {"README.md": "Try it", "docs/getting-started.md": "Five minutes without a GPU"}
COMMANDS = {page: commands_of((ROOT / page).read_text(), section) for page, section in SECTIONS.items()}
OWNER = r'pod="[a-z0-9-]+",namespace="[a-z-]+",container="[a-z]+"'
VALUE = r'\},"value":\[[0-9.]+,"[0-9.]+"\]'
# The beginning of each command that shows something, and what; of several that fit, the first.
SHOWS = {
    'make run ARGS="--fail': r"http://localhost:9420/",
    "make run ": r"http://localhost:9400/",
    "curl -s localhost:9400/gpu/metrics": rf"DCGM_FI_DEV_POWER_USAGE\{{.*{OWNER}.*\}} \d",
    ".venv/bin/pod-gpu-metrics-exporter top": r"(?m)^0 .*\d+W (free|[a-z-]+/[a-z0-9-]+)",
    ".venv/bin/pod-gpu-metrics-exporter doctor": r"(?m)^ok +kubelet: answers",
    "cat >prometheus.yml": "",
    "prometheus ": "Server is ready",
    "curl -s localhost:9091/api/v1/query --data-urlencode 'query=sum by (namespace) ": rf'"namespace":"[a-z-]+"{VALUE}',
    "curl -s localhost:9091/": rf'"namespace":"[a-z-]+","pod":"[a-z0-9-]+"{VALUE}',
    ".venv/bin/pod-gpu-metrics-exporter report": r"(?m)^GPUs from .*by namespace$",
    "curl -s localhost:9420/": r'"code":79,',
    "mkdir ": "",
    ".venv/bin/pod-gpu-metrics-exporter textfile": "",
    "prometheus-node-exporter ": "Listening on|listening",
    "curl -s localhost:9101/": r'DCGM_FI_DEV_POWER_USAGE\{.*namespace="[a-z-]+".*pod="[a-z0-9-]+".*\} \d',
}


def steps(page: str) -> list[Step]:
    return [
        Step(command=command, shows=next(shows for beginning, shows in SHOWS.items() if command.startswith(beginning)))
        for command in COMMANDS[page]
    ]


def test_every_command_of_the_walks_shows_something() -> None:
    commands = [command for page in COMMANDS for command in COMMANDS[page]]
    assert len(COMMANDS["README.md"]) == 4
    assert all(any(command.startswith(beginning) for beginning in SHOWS) for command in commands)
    assert all(any(command.startswith(beginning) for command in commands) for beginning in SHOWS)


# issue 12, "Must show" 6
@pytest.mark.real
@pytest.mark.timeout(240)
@pytest.mark.parametrize("page", SECTIONS)
def test_the_walk_as_written(tmp_path: Path, page: str) -> None:
    real("unshare")
    real("make")
    if os.geteuid() != 0:
        real("root-to-make-namespaces-with")
    programs = real("prometheus").parent
    assert real("prometheus-node-exporter").parent == programs
    make_checkout(tmp_path)
    environment = {**at_default_places(), "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        ["unshare", "--net", sys.executable, "-m", "tests.support.walk"],
        input=as_json(steps(page)),
        capture_output=True,
        text=True,
        check=False,
        timeout=len(COMMANDS[page]) * SECONDS,
        env=environment,
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    for step, output in zip(steps(page), json.loads(ended.stdout), strict=True):
        assert re.search(step.shows, output), f"{step.command}\n{output}"


def make_checkout(folder: Path) -> None:
    """What `make run` needs of a checkout that is installed already: pip has nothing to fetch."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy2(ROOT / name, folder)
    (folder / "deploy").symlink_to(ROOT / "deploy")
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    (folder / ".venv" / "installed").touch()
