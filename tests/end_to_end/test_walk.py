"""A walk by the README alone, as a new user in a clean folder: every command of its first minutes, as written."""

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

COMMANDS = commands_of((ROOT / "README.md").read_text(), "The first minutes")
OWNER = r'pod="[a-z0-9-]+",namespace="[a-z-]+",container="[a-z]+"'
# The beginning of each command that shows something, and what.
SHOWS = {
    "make run": r"http://localhost:9400/",
    "curl -s localhost:9400/gpu/metrics": rf"DCGM_FI_DEV_POWER_USAGE\{{.*{OWNER}.*\}} \d",
    ".venv/bin/pod-gpu-metrics-exporter top": r"(?m)^0 .*\d+W (free|[a-z-]+/[a-z0-9-]+)",
    ".venv/bin/pod-gpu-metrics-exporter doctor": r"(?m)^ok +kubelet: answers",
    "cat >prometheus.yml": "",
    "prometheus ": "Server is ready",
    "curl -s localhost:9091/": r'"namespace":"[a-z-]+","pod":"[a-z0-9-]+"\},"value":\[[0-9.]+,"[0-9.]+"\]',
    "mkdir ": "",
    ".venv/bin/pod-gpu-metrics-exporter textfile": "",
    "prometheus-node-exporter ": "Listening on|listening",
    "curl -s localhost:9101/": r'DCGM_FI_DEV_POWER_USAGE\{.*namespace="[a-z-]+".*pod="[a-z0-9-]+".*\} \d',
}
STEPS = [
    Step(command=command, shows=shows)
    for command in COMMANDS
    for beginning, shows in SHOWS.items()
    if command.startswith(beginning)
]


def test_every_command_of_the_walk_is_taken() -> None:
    assert [step.command for step in STEPS] == COMMANDS
    assert len(STEPS) == len(SHOWS)


# issue 12, "Must show" 6
@pytest.mark.real
@pytest.mark.timeout(240)
def test_the_walk_as_written(tmp_path: Path) -> None:
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
        input=as_json(STEPS),
        capture_output=True,
        text=True,
        check=False,
        timeout=len(STEPS) * SECONDS,
        env=environment,
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    for step, output in zip(STEPS, json.loads(ended.stdout), strict=True):
        assert re.search(step.shows, output), f"{step.command}\n{output}"
    assert "DCGM_FI_DEV_POWER_USAGE" in (tmp_path / "textfile" / "gpu.prom").read_text()


def make_checkout(folder: Path) -> None:
    """What `make run` needs of a checkout that is installed already: pip has nothing to fetch."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy2(ROOT / name, folder)
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    (folder / ".venv" / "installed").touch()
