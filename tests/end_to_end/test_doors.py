"""The doors of the README and of the pages that start the program: every such command, as written."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.components import real
from tests.support.exporter import at_default_places, config_from
from tests.support.places import ROOT

PAGES = ("install", "migration", "scrape", "doctor", "troubleshooting")
TEXTS = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in PAGES))
# Those of another language are found, too, so that none's end is taken for a beginning.
BLOCKS = [
    block
    for path in TEXTS
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)
    if not language
]
LINES = [line.partition("    #")[0].strip() for block in BLOCKS for line in block.splitlines()]
# other commands have tests of their own, and so has the one that writes files
COMMANDS = sorted(
    {line for line in LINES if re.match(r"pod-gpu-metrics-exporter (serve|textfile|doctor)\b(?! --conformance)", line)}
)


def test_there_are_doors() -> None:
    assert len(COMMANDS) >= 3
    assert {shlex.split(command)[1] for command in COMMANDS} == {"serve", "textfile", "doctor"}


@pytest.mark.real
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_as_written(command: str) -> None:
    real("unshare")
    if os.geteuid() != 0:
        real("root-to-make-namespaces-with")
    environment = {
        **at_default_places(),  # the namespaces have such places of their own
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    ended = subprocess.run(
        ["unshare", "--mount", "--net", sys.executable, "-m", "tests.support.door", command],
        capture_output=True,
        text=True,
        check=False,
        timeout=40,
        env=environment,
        cwd=ROOT,
    )
    assert ended.returncode == 0, ended.stderr
    if " doctor" in command:
        assert "ok       kubelet: answers (v1)" in ended.stdout
        return
    label = "pod_name" if "legacy" in command else "pod"
    assert re.search(rf'^(?:DCGM_FI_DEV_GPU_TEMP|dcgm_gpu_temp)\{{.*{label}="[a-z0-9-]+"', ended.stdout, re.MULTILINE)
    assert ("dcgm_gpu_health{" in ended.stdout) is ("legacy" in command)


def test_docker_run_as_written() -> None:
    (line,) = {line for line in LINES if line.startswith("docker run ")}
    words = shlex.split(line)
    arguments = words[words.index("pod-gpu-metrics-exporter:0.1.0") + 1 :]
    config = config_from(arguments)
    folder = Path(config.kubelet.socket).parent
    assert words[words.index("-v") + 1] == f"{folder}:{folder}:ro"
    # what tests/image/test_image.py runs it with
    assert {"--read-only", "--cap-drop", "ALL"} <= set(words)


def test_every_file_that_is_named_exists() -> None:
    for path in TEXTS:
        for name in re.findall(r"(?<![\w/.-])((?:deploy|docs)/[\w./-]+|daemonset\.yaml)", path.read_text()):
            assert (ROOT / name.rstrip(".")).exists(), name
