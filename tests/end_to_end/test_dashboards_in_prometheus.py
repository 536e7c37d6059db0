"""Every query of the dashboards in a real Prometheus, with its variables filled in as Grafana does: it returns data.

A node behind an exporter for each `--sharing` mode and for `--labels.owners off`, with older names of dcgm-exporter's
fields, and the demo, with those of DCGM 4.9, `--sharing split`, and measured use of its GPUs.
"""

import math
import re
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.grafana.generator import promql
from exporter.simulator.simulated_links import BadLink
from tests.end_to_end.accounted import Held, held_in
from tests.end_to_end.clusters import MODES, NODE, SCRAPES_APART, SETTLED, WINDOW, Target, jobs, of_each_mode, quick
from tests.rules.shipped import metrics
from tests.support.background import Background
from tests.support.components import free_port, real
from tests.support.grafana import ALL, Chosen, Model, dashboard, filled, options, panels, variables
from tests.support.places import ROOT
from tests.support.prometheus import Answers, Prometheus, prometheus
from tests.support.simulated import GPU_RESOURCE, Container, Pod, SimulatedNode, World
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

# the dashboard of what is idle comes last, since it is idle for a while only then
FILES = sorted((ROOT / "deploy" / "grafana").glob("*.json"), key=lambda path: (path.stem == "idle", path.stem))
OF_A_PROGRAM, OF_A_DEAD_GPU = 31, 79  # XIDs
DEMO = "demo"
EACH = "each"  # all that a variable offers, one by one
SPAN_SECONDS, STEP_SECONDS = 60.0, 5
LINK, REPLAYS_AN_HOUR = 5, 36_000.0
LATE_SECONDS = 120.0  # a busy machine's scrapes
BUILTIN = {
    "__rate_interval": WINDOW,
    "__interval": SCRAPES_APART,
    "__range": f"{SPAN_SECONDS:g}s",
}


@dataclass
class Watched:
    """The server, and the dashboards with what their variables offer."""

    server: Prometheus
    node: SimulatedNode
    held: Collection[Held]

    def choices(self, model: Model, given: Chosen) -> dict[str, str | list[str]]:
        """A value for each variable: the given ones, else all or the first that is offered."""
        chosen: dict[str, str | list[str]] = {}
        for name, variable in variables(model).items():
            if variable["type"] == "datasource":
                chosen[name] = "prometheus"
            elif variable["type"] == "textbox":
                chosen[name] = variable["query"]
            else:
                query = filled(variable["query"]["query"], model, chosen, BUILTIN)
                wanted = given.get(name, ())
                offered = self.offered(variable, query, {wanted} if isinstance(wanted, str) else {*wanted})
                if not wanted:
                    wanted = ALL if variable["includeAll"] else offered[0]
                chosen[name] = offered if wanted == EACH else wanted if isinstance(wanted, str) else [*wanted]
        return chosen

    def offered(self, variable: Model, query: str, wanted: Collection[str]) -> list[str]:
        """What a variable offers, once that is something and what is wanted: a scrape may be late."""
        offered: list[str] = []

        def is_there() -> bool:
            offered[:] = options(self.server, variable, query, SPAN_SECONDS)
            return bool(offered) and {*wanted} <= {*offered, ALL, EACH}

        wait_until(is_there, why=lambda: (query, wanted, offered))
        return offered

    def rows(self, query: str, *, instant: bool) -> list[dict[str, str]]:
        """The labels of what a query answers with a number, about now or about a span."""
        if instant:
            return [labels for labels, value in self.server.query(query) if math.isfinite(value)]
        now = time.time()
        asked = {"query": query, "start": now - SPAN_SECONDS, "end": now, "step": STEP_SECONDS}
        found = self.server.ask(f"query_range?{urllib.parse.urlencode(asked)}")["result"]
        return [row["metric"] for row in found if any(math.isfinite(float(value)) for _, value in row["values"])]


@contextmanager
def demo(port: int) -> Iterator[None]:
    """The demo as a user starts it. For its first 50 seconds no pod comes or goes."""
    real("gcc")
    arguments = [
        "demo", "--generation", "4.9", "--counters", "full", "--collect-interval", "0",
        "--seed", "1", "--speed", "0.1",
        "--sharing", "split", "--workload.labels", "app.kubernetes.io/name", "--accounting.interval", "500ms",
        "--web.listen-address", f"127.0.0.1:{port}",
    ]  # fmt: skip
    process = subprocess.Popen([sys.executable, "-m", "exporter", *arguments], stderr=subprocess.DEVNULL, cwd=ROOT)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


def free_in(world: World, held: Collection[Held]) -> Sequence[str]:
    """The whole GPUs that nobody holds."""
    in_use = {each.uuid for each in held}
    return [gpu.uuid for gpu in world.gpus if gpu.uuid not in in_use and not gpu.instances]


def add_xids(node: SimulatedNode, free: Sequence[str]) -> None:
    """Report an XID of each GPU. The first free GPU dies of it."""
    for gpu in node.world.gpus:
        node.world.machine.add_xid(gpu.uuid, OF_A_DEAD_GPU if gpu.uuid == free[0] else OF_A_PROGRAM)


def trouble(node: SimulatedNode, free: Sequence[str]) -> None:
    """What panels about trouble show: an XID and a bad link of each GPU, one that dies, and an unknown device."""
    add_xids(node, free)
    machine = node.world.machine
    for gpu in node.world.gpus:
        machine.links[gpu.uuid].bad[LINK] = BadLink(machine.seconds, per_hour=REPLAYS_AN_HOUR)
    gone = Container(name="main", devices=((GPU_RESOURCE, "of-no-known-form"),))
    node.world.pods += (Pod(namespace="ml", name="lost", containers=(gone,)),)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    background = Background()
    # pods of this node stay
    node = SimulatedNode(World(gpus=8, shared=2, mig=1, seed=4), NODE, counters="full", with_links=True)
    stack = AsyncExitStack()
    port = free_port()
    folder = tmp_path_factory.mktemp("prometheus")
    with demo(port):
        targets = [
            *background.run(of_each_mode(node, stack)),
            Target(DEMO, f"127.0.0.1:{port}", socket.gethostname()),
        ]
        try:
            with prometheus(folder, list(jobs(targets)), SCRAPES_APART, quick(folder)) as server:
                server.wait_for_scrapes(2 * len(targets))
                held = held_in(node.world)
                trouble(node, free_in(node.world, held))
                time.sleep(SETTLED)
                yield Watched(server, node, held)
        finally:
            background.run(stack.aclose())
            background.close()


# these clusters have no queues: test_queues_in_prometheus.py asks the queries about them
ELSEWHERE = {"queues"}


def test_there_is_a_dashboard_for_each_purpose() -> None:
    assert {path.stem for path in FILES} == {
        "cluster",
        "namespace",
        "workload",
        "node",
        "gpu",
        "idle",
        "shared",
        *ELSEWHERE,
    }


# What a cluster rightly has nothing of: in the simulated node's NVML tells of no processes. While the demo runs for
# seconds no application crashes, no link has errors, and no device is unknown; nor does it measure what links can have.
# Each of these is in the other kind of cluster. No pod of theirs serves a model: test_tokens_in_prometheus.py asks the
# queries about that.
ABSENT: Mapping[str, set[str]] = {
    **{mode: {"pod_gpu_utilization_ratio", "pod_gpu_memory_used_bytes", "pod_gpu_processes"} for mode in MODES},
    DEMO: {
        "xid:pod_gpu_xid_errors:new15m",
        "pod_gpu_xid_errors_total",
        "link:pod_gpu_link_errors:new1d",
        "pod_gpu_link_errors_total",
        "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH",
        "pod_gpu_exporter_unmatched_devices",
    },
}
CHOICES: Mapping[str, Chosen] = {
    **{mode: {"cluster": mode} for mode in MODES},
    DEMO: {"cluster": DEMO},
    "all": {},
    "some": {"cluster": list(MODES), "namespace": EACH, "workload": EACH, "node": NODE},
}
SHORTER = re.compile(r"\b(?:5m|1h|1d)\b")


def asked(expression: str) -> str:
    """What a test can wait for; and a 0 where there is nothing would be an answer, too."""
    return SHORTER.sub(WINDOW, expression.removesuffix(" or vector(0)"))


def absent_of(chosen: Chosen) -> set[str]:
    """What none of the chosen clusters has. Those of the modes have the only node of its name."""
    clusters = chosen["cluster"]
    if chosen.get("node") == NODE:
        clusters = MODES
    elif isinstance(clusters, str):
        clusters = list(ABSENT) if clusters == ALL else [clusters]
    return set.intersection(*(ABSENT[cluster] for cluster in clusters))


# issue 12, "Must show" 3
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("path", [path for path in FILES if path.stem not in ELSEWHERE], ids=lambda path: path.stem)
def test_every_query_returns_data(watched: Watched, path: Path, choice: str) -> None:
    model = dashboard(path)
    # on a busy machine the first ones are from before the span by now
    add_xids(watched.node, free_in(watched.node.world, watched.held))
    chosen = watched.choices(model, CHOICES[choice])
    absent = absent_of(chosen)
    unanswered = []
    for panel in panels(model):
        for target in panel.get("targets", []):
            query = asked(filled(target["expr"], model, chosen, BUILTIN))
            if not metrics(query) & absent and "served_model:" not in query:
                unanswered.append((panel["title"], query, target["instant"]))

    def are_answered() -> bool:
        unanswered[:] = [each for each in unanswered if not watched.rows(each[1], instant=each[2])]
        return not unanswered

    # in windows of seconds a late scrape may hide what is idle all the time
    wait_until(are_answered, LATE_SECONDS, why=lambda: unanswered)


def of_page(page: str, field: str) -> dict[tuple[str, str], float]:
    """What dcgm-exporter's page says of a field, by UUID and MIG instance."""
    found = {}
    for labels, value in re.findall(rf"^{field}{{(.*)}} (\S+)$", page, re.MULTILINE):
        known = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        found[known["UUID"], known.get("GPU_I_ID", "")] = float(value)
    return found


def of_gpus(values: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Of fields that are the GPU's, and that each MIG instance's row repeats."""
    return {(uuid, ""): value for (uuid, _), value in values.items()}


def truths(page: str) -> dict[str, dict[tuple[str, str], float]]:
    """What a query of one device should say, by the query."""
    free, total = of_page(page, "DCGM_FI_DEV_FB_FREE"), of_page(page, "DCGM_FI_DEV_FB_TOTAL")
    of = promql.CLUSTER
    return {
        promql.ratio("activity", of): of_page(page, "DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
        promql.ratio("tensor", of): of_page(page, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
        promql.memory(of): {device: 1 - free[device] / total[device] for device in total},
        promql.flow("pcie received", of): of_gpus(of_page(page, "DCGM_FI_PROF_PCIE_RX_BYTES")),
        promql.flow("nvlink sent", of): of_gpus(of_page(page, "DCGM_FI_PROF_NVLINK_TX_BYTES")),
        promql.level("temperature", of, promql.OF_GPU): of_gpus(of_page(page, "DCGM_FI_DEV_GPU_TEMP")),
        promql.watts(of, promql.OF_GPU): of_gpus(of_page(page, "DCGM_FI_DEV_POWER_USAGE")),
    }


# issue 12, "Must show" 3
@pytest.mark.parametrize("mode", MODES)
def test_what_a_device_does_is_counted_once_in_every_mode(watched: Watched, mode: str) -> None:
    """Shared, cut or whole. What is counted twice, or divided, is off by much more than what a second changes."""
    model = dashboard(FILES[0])
    wrong: dict[str, object] = {}

    def is_right() -> bool:
        wrong.clear()
        for query, expected in truths(watched.node.dcgm.page()).items():
            text = filled(query, model, {"cluster": mode}, BUILTIN)
            found = {(row["UUID"], row.get("GPU_I_ID", "")): value for row, value in watched.server.query(text)}
            if found != pytest.approx(expected, rel=0.2, abs=1e-3):
                wrong[text] = (found, expected)
        return not wrong

    # the work of a pod changes from one moment to the next, and is scraped each second
    wait_until(is_right, LATE_SECONDS, why=lambda: wrong)


def test_where_use_is_measured_the_parts_of_owners_are_put_together(watched: Watched) -> None:
    """The demo's rows of a shared GPU with `split` are parts of it."""
    of = f'cluster="{DEMO}"'
    rows = f"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO{{{of}}}"
    server = watched.server

    def parted() -> Answers:
        server.at_seconds = time.time()
        return server.query(f'count by (UUID) ({rows} > 0 and {rows[:-1]}, gpu_shared="true"}}) > 1')

    parts = wait_until(parted)
    found = {(row["UUID"], row.get("GPU_I_ID", "")): value for row, value in server.query(promql.ratio("activity", of))}
    sums, largest = ({row["UUID"]: value for row, value in server.query(f"{sum_or_max} by (UUID) ({rows})")}
                     for sum_or_max in ("sum", "max"))  # fmt: skip
    server.at_seconds = None
    assert len(found) == 7 + 7
    assert all(0 <= value <= 1.01 for value in found.values())
    for row, _ in parts:
        assert found[row["UUID"], ""] == pytest.approx(sums[row["UUID"]])
        assert largest[row["UUID"]] < sums[row["UUID"]]


# issue 12, "Must show" 3
@pytest.mark.parametrize("mode", MODES)
def test_the_sums_at_the_top_are_those_of_the_world(watched: Watched, mode: str) -> None:
    model = dashboard(ROOT / "deploy" / "grafana" / "cluster.json")
    by_title = {panel["title"]: panel for panel in panels(model) if panel["type"] == "stat"}

    def numbers(title: str) -> list[float]:
        (target,) = by_title[title]["targets"]
        query = asked(filled(target["expr"], model, {"cluster": mode}, BUILTIN))
        return [value for _, value in watched.server.query(query)]

    world, gpus = watched.node.world, len(watched.node.world.gpus)
    held = float(sum(found.ratio for found in watched.held))

    def expected() -> dict[str, float]:
        return {
            "GPUs": gpus,
            "Held": held / gpus,
            "Free, whole": len(free_in(world, watched.held)) - 1,  # the dead one is not free
            "New XIDs": gpus,
            "Exporters down": 0,
            "Power": sum(of_gpus(of_page(watched.node.dcgm.page(), "DCGM_FI_DEV_POWER_USAGE")).values()),
        }

    # The power is that of now, and of the mean of seconds: in between a pod may begin to work. The others may be late.
    shown: dict[str, list[float]] = {}
    tolerances = {"Power": 0.15}

    def is_right() -> bool:
        add_xids(watched.node, free_in(world, watched.held))
        shown.update({title: numbers(title) for title in expected()})
        return all(
            shown[title] == [pytest.approx(value, rel=tolerances.get(title))] for title, value in expected().items()
        )

    wait_until(is_right, LATE_SECONDS, why=lambda: (shown, expected()))
