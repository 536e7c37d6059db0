"""The cluster role in front of 500 simulated node exporters, also while 50 of them stall: start, answers, memory."""

import http.client
import json
import re
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.exporters import host_of, name_of
from benchmarks.scrape import Process
from benchmarks.table import Row, at_most, rounds

NODES, STALLED = 500, 50
ANSWERS, ANSWERS_A_SECOND = 1000, 50
# The paths that autoscalers and people ask for in between. The first two answers grow with the number of nodes.
PATHS = (
    "/container/metrics",
    "/metrics/nodes",
    "/container/metrics?namespace=ml",
    "/autoscale/ml/trainer/gpu_utilization",
    "/metrics",
    "/-/ready",
)
_PORT = re.compile(r"^(\d+)$")
_LISTENING = re.compile(r"msg=listening address=127\.0\.0\.1:(\d+)")


@contextmanager
def role(count: int, stalled: int) -> Iterator[tuple[Process, float]]:
    """The role in front of `count` nodes, and the seconds from its start until it showed all nodes that answer."""
    exporters = Process(["benchmarks.exporters", str(count), str(stalled)], _PORT, "/container/metrics")
    cluster = None
    try:
        nodes = [f"--cluster.node={name_of(n)}=http://{host_of(n)}:{exporters.port}" for n in range(count)]
        # nodes are asked more often than usual, so that the answers change
        often = ["--cluster.interval=2s", "--cluster.timeout=1s", "--cluster.max-age=6s"]
        began = time.perf_counter()
        cluster = Process(
            ["exporter", "cluster", "--web.listen-address=127.0.0.1:0", *often, *nodes], _LISTENING, PATHS[0]
        )
        while len({row["node_name"] for row in json.loads(ask(cluster, PATHS[0])[1])}) < count - stalled:
            time.sleep(0.05)
        yield cluster, time.perf_counter() - began
    finally:
        if cluster is not None:
            cluster.end()
        exporters.end()


def ask(process: Process, path: str) -> tuple[float, bytes]:
    """Ask a path. Return the seconds and the body, whatever the status is."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=30)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return time.perf_counter() - began, body


def run(effort: float) -> list[Row]:
    rows = []
    for stalled in (0, STALLED):
        of = f"{NODES} nodes, {stalled} of which stall" if stalled else f"{NODES} nodes"
        with role(NODES, stalled) as (cluster, start):
            answers = rounds(ANSWERS, effort)
            times = []
            cpu = cluster.cpu_seconds()
            for number in range(answers):
                seconds, _ = ask(cluster, PATHS[number % len(PATHS)])
                times.append(seconds)
                time.sleep(max(0.0, 1 / ANSWERS_A_SECOND - seconds))
            cpu = cluster.cpu_seconds() - cpu
            named = json.loads(ask(cluster, PATHS[3])[1])["missing_nodes"]
            memory = cluster.resident_mib()
        if len(named) != stalled:
            raise RuntimeError(f"{len(named)} nodes are named as missing, and {stalled} stall")
        median, tail = statistics.median(times), sorted(times)[int(0.99 * answers)]
        rows += [
            Row(f"cluster, {of}: start until all that answer are shown", f"{start:.2f} s", at_most(2, "s"), start),
            Row(f"cluster, {of}: an answer from what is kept, median", f"{median * 1e3:.1f} ms", None, median),
            Row(f"cluster, {of}: the same, p99", f"{tail * 1e3:.1f} ms", at_most(100, "ms", 1e-3), tail),
            Row(f"cluster, {of}: resident memory (VmRSS)", f"{memory:.1f} MiB", at_most(150, "MiB"), memory),
            Row(
                f"cluster, {of}: CPU a second, asking every 2 s", f"{cpu / answers * ANSWERS_A_SECOND:.2f} s", None, cpu
            ),
        ]
    return rows
