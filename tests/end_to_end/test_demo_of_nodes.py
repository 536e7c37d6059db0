"""`demo --nodes 5`: five node exporters and the cluster role, as a process; its answers against the exporters' own."""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

NODES = 5
METRICS = ("gpu_utilization", "power_usage")
# by DRA, so that no node is for trainings alone: services have pods on several nodes
NOT_IN_PARTS = ("--shared=0", "--mig=0", "--claims=1")


@dataclass
class Demo:
    process: subprocess.Popen[str]
    cluster: str
    nodes: dict[str, str]


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    # pods live slowly, and their load with them
    command = [sys.executable, "-m", "exporter", "demo", f"--nodes={NODES}", *NOT_IN_PARTS, "--speed=0.1", "--seed=3"]
    process = subprocess.Popen([*command, "--web.listen-address=127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    cluster, nodes = "", {}
    for line in process.stderr:
        if found := re.search(r"http://localhost:(\d+)/", line):
            cluster = f"http://127.0.0.1:{found[1]}"
        if found := re.search(r"(http://\S+)/ +(gpu-node-\d)", line):
            nodes[found[2]] = found[1]
        if "Ctrl-C" in line:
            break
    yield Demo(process, cluster, nodes)
    process.kill()
    process.communicate()


def plain_sum(demo: Demo, namespace: str, workload: str, metric: str) -> tuple[float, int]:
    """What a script makes of the five exporters' own answers: the sum over pods of their means, and how many pods."""
    values = defaultdict(list)
    for url in demo.nodes.values():
        for row in json.loads(get(f"{url}/container/metrics")):
            if (row["namespace"], row.get("workload_name")) == (namespace, workload):
                values[row["pod"]].append(row[metric])
    return sum(sum(of_pod) / len(of_pod) for of_pod in values.values()), len(values)


# issue 11, "Must show" 1
def test_metrics_nodes_lists_every_node_as_its_own_exporter_does(demo: Demo) -> None:
    assert len(demo.nodes) == NODES
    for _ in range(20):
        before = {line for url in demo.nodes.values() for line in get(f"{url}/metrics/nodes").splitlines()}
        text = get(f"{demo.cluster}/metrics/nodes")
        if set(text.splitlines()) == before:
            break
        time.sleep(0.5)
    assert set(text.splitlines()) == before
    families = re.findall(r"^# TYPE (\w+) gauge$", text, re.MULTILINE)
    assert families == [f"gpu_node_{number + 1}_info" for number in range(NODES)]
    assert {re.findall('node="([^"]*)"', line)[0] for line in text.splitlines() if line[0] != "#"} == {*demo.nodes}


# issue 11, "Must show" 1
def test_the_page_shows_every_node_and_every_gpu(demo: Demo) -> None:
    page = get(f"{demo.cluster}/")
    assert f"{NODES} nodes: {NODES} have answered, 0 are missing." in page
    for name, url in demo.nodes.items():
        assert f'<a href="?node={name}"><bdi>{name}</bdi></a>' in page
        uuids = {row["device_uuid"] for row in json.loads(get(f"{url}/container/metrics"))}
        assert len(uuids) == 8
        assert all(uuid in page for uuid in uuids)


# issue 11, "Must show" 1
@pytest.mark.parametrize("metric", METRICS)
def test_the_answer_to_an_autoscaler_is_the_sum_that_a_script_computes(demo: Demo, metric: str) -> None:
    """Values move: at some moment the exporters say the same before and after the cluster role is asked."""
    seen = []
    for _ in range(60):
        before = plain_sum(demo, "chat", "chat-8b", metric)
        said = json.loads(get(f"{demo.cluster}/autoscale/chat/chat-8b/{metric}"))
        after = plain_sum(demo, "chat", "chat-8b", metric)
        seen.append((before, said, after))
        assert said["missing_nodes"] == []
        value, pods = before
        if before == after and value == pytest.approx(said["value"], rel=1e-12) and pods == said["pods"]:
            break
        time.sleep(0.25)
    else:
        pytest.fail(f"never the same: {seen[-3:]}")
    assert said["pods"] >= 2
    assert len(said["nodes"]) >= 2
    assert said["value"] > 0


def test_nothing_that_the_exporters_say_is_lost(demo: Demo) -> None:
    names = ("node_name", "device_uuid", "namespace", "pod", "container")

    def rows(url: str) -> set[tuple[str, ...]]:
        return {tuple(row[name] for name in names) for row in json.loads(get(f"{url}/container/metrics"))}

    for _ in range(20):
        of_nodes = set().union(*map(rows, demo.nodes.values()))
        if rows(demo.cluster) == of_nodes:
            break
        time.sleep(0.5)
    assert rows(demo.cluster) == of_nodes


# issue 12, "Must show" 2
def test_top_shows_every_node_and_every_gpu(demo: Demo) -> None:
    for url, nodes in ((demo.cluster, NODES), (demo.nodes["gpu-node-1"], 1)):
        command = [sys.executable, "-m", "exporter", "top", "--once", "--url", url]
        ended = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=30, stdin=subprocess.DEVNULL
        )
        about, up, *lines = ended.stdout.splitlines()
        (at,) = (number for number, line in enumerate(lines) if "UTIL" in line)
        rows = lines[at + 1 :]
        assert f"{nodes * 8} GPUs" in about
        assert (up.partition(" ")[0], "NODE" in lines[at]) == ("up", nodes > 1)
        named = {name for name in demo.nodes if any(line.startswith(name) for line in rows)}
        assert named == ({*demo.nodes} if nodes > 1 else set())
        assert len(rows) == nodes * 8


def test_it_ends_cleanly(demo: Demo) -> None:
    demo.process.send_signal(signal.SIGINT)
    _, rest = demo.process.communicate(timeout=20)
    assert demo.process.returncode == 0
    assert "Traceback" not in rest
