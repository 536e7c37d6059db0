"""`demo --nodes 5`: five node exporters and the cluster role, as a process; its answers against the exporters' own."""

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose
from typing import Any

import pytest

from tests.support.command import run_here
from tests.support.waiting import wait_until

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
    """What is answered, whatever the status: 503 where a node is late, as it may be on a busy machine."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            text: str = answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.read().decode()
    return text


def rows(url: str) -> list[dict[str, Any]]:
    """The objects; none where there is no list of them."""
    answer = json.loads(get(f"{url}/container/metrics"))
    return answer if isinstance(answer, list) else []


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
        for row in rows(url):
            if (row["namespace"], row.get("workload_name")) == (namespace, workload):
                values[row["pod"]].append(row[metric])
    return sum(sum(of_pod) / len(of_pod) for of_pod in values.values()), len(values)


# issue 11, "Must show" 1
def test_metrics_nodes_lists_every_node_as_its_own_exporter_does(demo: Demo) -> None:
    assert len(demo.nodes) == NODES
    text = ""

    def are_the_same() -> bool:
        nonlocal text
        of_nodes = {line for url in demo.nodes.values() for line in get(f"{url}/metrics/nodes").splitlines()}
        text = get(f"{demo.cluster}/metrics/nodes")
        return set(text.splitlines()) == of_nodes

    wait_until(are_the_same, why=lambda: text)
    families = re.findall(r"^# TYPE (\w+) gauge$", text, re.MULTILINE)
    assert families == [f"gpu_node_{number + 1}_info" for number in range(NODES)]
    assert {re.findall('node="([^"]*)"', line)[0] for line in text.splitlines() if line[0] != "#"} == {*demo.nodes}


# issue 11, "Must show" 1
def test_the_page_shows_every_node_and_every_gpu(demo: Demo) -> None:
    all_answered = f"{NODES} nodes: {NODES} have answered, 0 are missing."
    wait_until(lambda: all_answered in get(f"{demo.cluster}/"))
    page = get(f"{demo.cluster}/")
    for name, url in demo.nodes.items():
        assert f'<a href="?node={name}"><bdi>{name}</bdi></a>' in page
        uuids = {row["device_uuid"] for row in rows(url)}
        assert len(uuids) == 8
        assert all(uuid in page for uuid in uuids)


# issue 11, "Must show" 1
@pytest.mark.parametrize("metric", METRICS)
def test_the_answer_to_an_autoscaler_is_the_sum_that_a_script_computes(demo: Demo, metric: str) -> None:
    """Values move: at some moment the exporters say the same before and after the cluster role is asked."""
    seen: list[Any] = []
    said: dict[str, Any] = {}

    def is_the_sum() -> bool:
        nonlocal said
        before = plain_sum(demo, "chat", "chat-8b", metric)
        said = json.loads(get(f"{demo.cluster}/autoscale/chat/chat-8b/{metric}"))
        after = plain_sum(demo, "chat", "chat-8b", metric)
        seen.append((before, said, after))
        if before != after or said.get("error") or said["missing_nodes"]:
            return False
        value, pods = before
        return pods == said["pods"] and isclose(value, said["value"], rel_tol=1e-12)

    wait_until(is_the_sum, why=lambda: seen[-3:])
    assert said["pods"] >= 2
    assert len(said["nodes"]) >= 2
    assert said["value"] > 0


def test_nothing_that_the_exporters_say_is_lost(demo: Demo) -> None:
    names = ("node_name", "device_uuid", "namespace", "pod", "container")

    def named(url: str) -> set[tuple[str, ...]]:
        return {tuple(row[name] for name in names) for row in rows(url)}

    def differences() -> set[tuple[str, ...]]:
        return named(demo.cluster) ^ set().union(*map(named, demo.nodes.values()))

    wait_until(lambda: not differences(), why=differences)


# issue 12, "Must show" 2
def test_top_shows_every_node_and_every_gpu(demo: Demo) -> None:
    for url, nodes in ((demo.cluster, NODES), (demo.nodes["gpu-node-1"], 1)):
        wait_until(lambda url=url, nodes=nodes: len({row["node_name"] for row in rows(url)}) == nodes)  # type: ignore[misc]
        ended = run_here("top", "--once", "--url", url)
        about, up, *lines = ended.stdout.splitlines()
        (at,) = (number for number, line in enumerate(lines) if "UTIL" in line)
        shown = lines[at + 1 :]
        assert f"{nodes * 8} GPUs" in about
        assert (up.partition(" ")[0], "NODE" in lines[at]) == ("up", nodes > 1)
        named = {name for name in demo.nodes if any(line.startswith(name) for line in shown)}
        assert named == ({*demo.nodes} if nodes > 1 else set())
        assert len(shown) == nodes * 8


def test_it_ends_cleanly(demo: Demo) -> None:
    demo.process.send_signal(signal.SIGINT)
    _, rest = demo.process.communicate(timeout=30)
    assert demo.process.returncode == 0
    assert "Traceback" not in rest
