"""Each command that README.md and docs/ print in a block is run as it is written, but for those that need a cluster.

The walk of the first minutes has a test of its own (test_walk.py). Here a simulated node stands at the places that the
pages name: the kubelet's socket, dcgm-exporter on 9401, AMD's exporter on 5000, Prometheus on 9090.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.test_walk import COMMANDS as WALKED
from tests.support.components import real
from tests.support.exporter import at_default_places
from tests.support.places import DATA, ROOT
from tests.support.walk import GOES_ON, SECONDS, Step, as_json

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAM = "pod-gpu-metrics-exporter"
# What a block begins with that is a command, and none of a sample, a query or a file.
_OURS = re.compile(rf"^(?:\$ )?(?:\.venv/bin/)?((?:{PROGRAM}|curl -s) .*)$")
OWNER = r'pod="[a-z0-9-]+"'
# A page that names no pod in these blocks would not be what the command is for.
PAGE_WITH_OWNERS = ("/gpu/metrics", OWNER)

# Beside an exporter of that node on port 9400: what a command shows (a regular expression).
ASKS = {
    f"{PROGRAM} top --json": r'"owners"',
    f"{PROGRAM} top": r"GPU",
    f"{PROGRAM} doctor --conformance": r"(?s)kubernetesVersion.*<testsuites",
    f"{PROGRAM} doctor": r"(?m)^ok +kubelet: answers",
    f"{PROGRAM} report --prometheus http://localhost:9090 --since 14d --advise": "What would have sufficed",
    f"{PROGRAM} report": "GPU-hours",
    "curl -s 'localhost:9400/container/metrics": r"(?s)^\[.*\]\s*$",
    "curl -s localhost:9400/processes": r"(?s)^\[.*\]\s*$",
}
# Likewise, but this Prometheus has nothing of the kind: what they say of it.
LACKS = {
    f"{PROGRAM} report --prometheus http://localhost:9090 --month": "no accounts of that span",
    f"{PROGRAM} report --prometheus http://localhost:9090 --since 7d --by workload --per-token": "token",
}
# Beside a node alone: a server's path, and what it answers there.
SERVES = {
    f"{PROGRAM} demo --nodes 5": ("/container/metrics", r'"node_name":'),
    f"{PROGRAM} cluster --cluster.prometheus": ("/container/metrics", r'"node_name":'),
    f"{PROGRAM} serve --dcgm.file": ("/gpu/metrics", r'dcgm_gpu_health\{.*pod_name="[a-z0-9-]+"'),
    f"{PROGRAM} serve --dcgm.url http://127.0.0.1:5000/": ("/gpu/metrics", "AMD Instinct"),
    f"{PROGRAM} serve": PAGE_WITH_OWNERS,
    f"{PROGRAM} doctor --dcgm.url": ("", r"(?m)^ok +kubelet: answers"),
    f"{PROGRAM} textfile --output": ("/var/lib/prometheus/node-exporter/gpu.prom", OWNER),
}
# Who runs these has what a test machine has not; what each does is tried elsewhere.
ELSEWHERE = {
    "curl -s localhost:9400/autoscale/ml/trainer/": "a workload of the reader's; tests/cluster asks for simulated ones",
    f"{PROGRAM} doctor --cuda-binary FILE": "a file of the reader's; tests/probe has files",
    f"{PROGRAM} bundle show": "a bundle of the reader's; tests/bundle/test_show.py makes some",
    f"{PROGRAM} bundle test": "a bundle of the reader's; tests/simulator/replay plays some",
    f"{PROGRAM} demo --replay": "a bundle of the reader's; tests/simulator/replay plays some",
    f"{PROGRAM} device-access": "cgroups of a service; tests/cli/test_device_access.py makes some",
}


def commands() -> Iterator[tuple[str, str]]:
    """Each page and command of ours that a block prints, without its comment."""
    walked = {command for page in WALKED.values() for command in page}
    for path in PAGES:
        # every second piece is a block, and begins with its language
        for block in re.split(r"^```", path.read_text(), flags=re.MULTILINE)[1::2]:
            for line in block.replace("\\\n", " ").splitlines()[1:]:
                command = _OURS.match(line)
                if command and line not in walked:
                    yield path.name, re.sub(r"\s+#.*| &$", "", command[1])


def beginning(command: str) -> str | None:
    """The row that is about a command: the longest one that it begins with."""
    rows = [row for row in (*ELSEWHERE, *ASKS, *LACKS, *SERVES) if command.startswith(row)]
    return max(rows, key=len, default=None)


COMMANDS = sorted({command for _, command in commands()})


# issue 22, "Must show" 4
def test_each_command_is_run_and_each_row_is_about_one() -> None:
    assert len(COMMANDS) > 20
    assert [command for command in COMMANDS if beginning(command) is None] == []
    assert {beginning(command) for command in COMMANDS} == {*ELSEWHERE, *ASKS, *LACKS, *SERVES}


def set_up() -> list[Step]:
    """A node whose demo listens on port 9500, at the places that the pages name."""
    demo = f"{PROGRAM} demo --web.listen-address :9500 --processes.expose on --settings-file demo.yaml"
    socket = "sed -n 's/^kubelet.socket: *//p' demo.yaml | tr -d '\"'"
    page = "sed -n 's/^dcgm.url: *//p' demo.yaml | tr -d '\"[]'"
    return [
        Step(command=f"{sys.executable} -m tests.support.quick_program . {GOES_ON}", shows="ready"),
        Step(command="mount -t tmpfs none /run && mount -t tmpfs none /var/lib && mkdir -p /run/prometheus"),
        Step(command="mkdir -p /var/lib/kubelet /var/lib/prometheus/node-exporter amd dcgm"),
        Step(command="cp -a /etc etc && echo 'dcgm.timeout: 3s' >etc/gpu-metrics.yaml"),
        Step(command="echo 127.0.0.1 localhost prometheus.monitoring collector.monitoring >etc/hosts"),
        Step(command="mount --bind etc /etc"),
        Step(command=f"{demo} {GOES_ON}", shows="http://"),
        Step(command="curl -s localhost:9500/gpu/metrics", shows=OWNER),
        Step(command=f"cat demo.yaml; ln -s $(dirname $({socket})) /var/lib/kubelet/pod-resources", shows="kubelet"),
        Step(command=f"curl -s $({page}) | tee dcgm/metrics", shows="DCGM_FI_DEV"),
        # the file is an old exporter's
        Step(command="sed s/DCGM_FI_DEV_XID_ERRORS/dcgm_xid_errors/ dcgm/metrics >/run/prometheus/dcgm.prom"),
        Step(command="python3 -m http.server 9401 -d dcgm " + GOES_ON),
        Step(command="cp amd.prom amd/metrics && python3 -m http.server 5000 -d amd " + GOES_ON),
        Step(command="prometheus --config.file=prometheus.yml --web.listen-address=:9090 " + GOES_ON, shows="ready"),
        Step(command="curl -s 'localhost:9090/api/v1/query?query=pod_gpu_info'", shows='"pod"'),
    ]


def asking(command: str) -> Step:
    """A command that ends by itself, or a screen that Ctrl-C ends."""
    row = str(beginning(command))
    if row in LACKS:
        return Step(command=f"{{ {command}; }} 2>&1; true", shows=LACKS[row])
    shows = ASKS[row]
    if "--conformance" in row:
        return Step(command=f"{command}; cat evidence.yaml evidence.xml", shows=shows)
    if command == f"{PROGRAM} top":
        return Step(command=f"timeout -s INT 5 script -qefc '{command}' /dev/null; true", shows=shows)
    # the demo has processes, and where the page means one exporter the other one has port 9400
    command = re.sub("^curl -s", "curl -s --connect-to localhost:9400:localhost:9500", command)
    # jq is a program of the reader's
    return Step(command=command.partition(" | jq ")[0], shows=shows)


def serving(command: str) -> Step:
    """A command that goes on until it is ended: what it answers, or the file that it writes."""
    path, shows = SERVES[str(beginning(command))]
    if not path:
        return Step(command=f"{command}; true", shows=shows)
    answer = f"cat {path}" if path.startswith("/var/") else f"curl -sf localhost:9400{path}"
    look = f"for try in $(seq 100); do {answer} && break; sleep 0.2; done"
    return Step(command=f"{command} >log 2>&1 & server=$!; {look}; kill $server; wait $server", shows=shows)


@pytest.mark.real
@pytest.mark.timeout(400)
def test_the_commands_as_written(tmp_path: Path) -> None:
    real("unshare")
    if os.geteuid() != 0:
        real("root-to-make-namespaces-with")
    programs = real("prometheus").parent
    shutil.copy(DATA / "vendors" / "amd.prom", tmp_path)
    (tmp_path / "prometheus.yml").write_text(scraping("localhost:9500"))
    steps = [
        *set_up(),
        *(serving(command) for command in COMMANDS if beginning(command) in SERVES),
        Step(command=f"{PROGRAM} serve --config.file demo.yaml {GOES_ON}", shows="listening"),
        *(asking(command) for command in COMMANDS if beginning(command) in ASKS | LACKS),
    ]
    path = f"{tmp_path}:{Path(sys.executable).parent}:{programs}:{os.environ['PATH']}"
    ended = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, "-m", "tests.support.walk"],
        input=as_json(steps),
        capture_output=True,
        text=True,
        check=False,
        timeout=len(steps) * SECONDS,
        env={**at_default_places(), "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "160", "TERM": "xterm"},
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    for step, output in zip(steps, json.loads(ended.stdout), strict=True):
        assert re.search(step.shows, output), f"{step.command}\n{output[-2000:]}\n{ended.stderr[-2000:]}"


def scraping(target: str) -> str:
    """A configuration of Prometheus with both paths of an exporter, as docs/scrape.md has it."""
    jobs = [
        {
            "job_name": path,
            "metrics_path": path,
            "honor_labels": True,
            "scrape_interval": "1s",
            "static_configs": [{"targets": [target], "labels": {"node": "demo"}}],
            "relabel_configs": [
                {"source_labels": ["__metrics_path__"], "target_label": "metrics_path"},
                {"target_label": "exporter", "replacement": PROGRAM},
            ],
        }
        for path in ("/gpu/metrics", "/metrics")
    ]
    return json.dumps({"scrape_configs": jobs})
