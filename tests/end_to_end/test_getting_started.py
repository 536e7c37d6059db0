"""The first five minutes of docs/getting-started.md, as they are written there, with a real Prometheus."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import quick_yaml
from tests.support.places import ROOT
from tests.support.prometheus import prometheus

TEXT = (ROOT / "docs" / "getting-started.md").read_text().partition("\n## In a cluster")[0]
(SETTINGS,) = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
QUERIES = re.findall(r"^```promql\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]
# what each command is to print
SAYS = ("DCGM_FI_DEV_POWER_USAGE{", "held", "devices attributed.")


@pytest.fixture(scope="module")
def port() -> Iterator[str]:
    """Where the demo answers that `make run` starts: any free port in place of 9400."""
    command = [sys.executable, "-m", "exporter", "demo", "--web.listen-address=127.0.0.1:0"]
    demo = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert demo.stderr is not None
    try:
        for line in demo.stderr:
            if answers := re.search(r"http://localhost:(\d+)/", line):
                yield answers[1]
                return
        pytest.fail("the demo did not say where it answers")
    finally:
        demo.kill()
        demo.communicate()


# issue 12, "Must show" 6: the part of it that a page of its own has
@pytest.mark.parametrize(("command", "says"), list(zip(COMMANDS, SAYS, strict=True)))
def test_the_command_answers(command: str, says: str, port: str) -> None:
    here = command.replace(":9400", f":{port}").replace(
        ".venv/bin/pod-gpu-metrics-exporter", f"{sys.executable} -m exporter"
    )
    environment = {**os.environ, "POD_GPU_EXPORTER_WEB_LISTEN_ADDRESS": f"127.0.0.1:{port}"}
    ended = subprocess.run(
        ["bash", "-c", here], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert says in ended.stdout


@pytest.mark.real
def test_prometheus_answers_its_questions(port: str, tmp_path: Path) -> None:
    settings = quick_yaml.load(SETTINGS.replace(":9400", f":{port}"))
    rules = [path for pattern in settings["rule_files"] for path in sorted(ROOT.glob(pattern))]
    assert rules == sorted((ROOT / "deploy" / "prometheus" / "rules").glob("*.yaml"))
    assert QUERIES
    with prometheus(tmp_path, settings["scrape_configs"], rule_files=rules) as server:
        server.wait_for_scrapes(jobs=2)
        for query in QUERIES:
            answered = server.query(query)
            assert answered, query
            assert all(labels["namespace"] for labels, _ in answered)
