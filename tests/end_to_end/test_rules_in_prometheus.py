"""The shipped rules in a real Prometheus that scrapes as shipped: they evaluate, they are right, and none cries wolf.

One simulated node behind an exporter for each `--sharing` mode, and one for `--labels.owners off`; each is a cluster of
its own for one Prometheus.
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from exporter.simulator.simulated_links import BadLink
from tests.end_to_end.accounted import ALLOCATED, Held, held_in
from tests.end_to_end.clusters import (
    MODES,
    NODE,
    SCRAPES_APART,
    SETTLED,
    Target,
    in_short,
    jobs,
    of_each_mode,
    quick,
    recorded_and_direct,
)
from tests.rules.opencost import OF_OPENCOST
from tests.rules.shipped import FILES, PROMETHEUS, alerts, of_group, records, run
from tests.support import quick_yaml
from tests.support.background import Background
from tests.support.prometheus import Prometheus, prometheus
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

XID = 79
XIDS = "xid:pod_gpu_xid_errors:new15m"
# of GPUs that fail; the second goes on from what it recorded itself
WORST, FIRST_HOLDERS = "gpu:pod_gpu_device_verdict:worst", "gpu:pod_gpu_device_verdict:first_holders"
LINK_ERRORS = "link:pod_gpu_link_errors:new1d"  # of links that count errors
LINK, REPLAYS_AN_HOUR = 5, 36_000.0
MODEL = "NVIDIA H100 80GB HBM3"
# An event loop and sources that are late: one that runs many tests has them.
OF_A_BUSY_MACHINE = {("of", "cpu"), ("problem", "slow")}
# of model servers, which this node has none of
OF_TOKENS = {name for name in records() if "tokens" in name or name.startswith("served_model:")}
OF_TROUBLE = {XIDS, WORST, FIRST_HOLDERS, LINK_ERRORS}
# test_queues_in_prometheus.py has them, whose pods are in queues
OF_QUEUES = of_group("gpu-queue-records")


@dataclass
class Watched:
    """The server, the node behind it, and a loop to change things in."""

    server: Prometheus
    node: SimulatedNode
    held: dict[Held, float]

    def active(self) -> dict[str, list[dict[str, str]]]:
        """The labels of alerts that fire or will, by name, but for those of a busy machine."""
        found = defaultdict(list)
        for alert in self.server.ask("alerts")["alerts"]:
            if not alert["labels"].items() & OF_A_BUSY_MACHINE:
                found[alert["labels"]["alertname"]].append(alert["labels"])
        return found

    def wait_until_active_are(self, names: set[str]) -> None:
        """Until these alerts and no others are active: a scrape that comes late on a busy machine is no false alarm."""
        wait_until(lambda: self.active().keys() == names, why=self.active)

    def wait_for(self, name: str, count: int) -> list[dict[str, str]]:
        """The labels of so many alerts of a name."""
        wait_until(lambda: len(self.active()[name]) == count, why=self.active)
        return self.active()[name]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    background = Background()
    # pods of this node stay
    node = SimulatedNode(World(gpus=8, shared=2, mig=1, seed=4), NODE, counters="full")
    stack = AsyncExitStack()

    targets = background.run(of_each_mode(node, stack))
    folder = tmp_path_factory.mktemp("prometheus")
    try:
        with prometheus(folder, list(jobs(targets)), SCRAPES_APART, quick(folder)) as server:
            server.wait_for_scrapes(2 * len(MODES))
            time.sleep(SETTLED)
            yield Watched(server, node, dict(held_in(node.world)))
    finally:
        background.run(stack.aclose())
        background.close()


def test_the_scrape_configs_are_what_promtool_takes(promtool: Path, tmp_path: Path) -> None:
    static = quick_yaml.load((PROMETHEUS / "scrape-config.yaml").read_text())["scrape_configs"]
    for number, found in enumerate((static, [*jobs([Target("a", "localhost:9400")])])):
        config = tmp_path / f"{number}.yaml"
        config.write_text(json.dumps({"rule_files": [f"{PROMETHEUS}/rules/*.yaml"], "scrape_configs": found}))
        assert f"{len(FILES)} rule files found" in run(promtool, "check", "config", config)


# issue 11, "Must show" 3
def test_every_rule_evaluates(watched: Watched) -> None:
    found = [rule for group in watched.server.ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in found} == alerts().keys() | records().keys()
    assert {rule["name"]: rule.get("lastError", "") for rule in found if rule["health"] != "ok"} == {}
    log = watched.server.ask("status/runtimeinfo")
    assert log["corruptionCount"] == 0


# issue 11, "Must show" 3
# not those of model servers, which this node has none of, nor of OpenCost, which nothing here scrapes
@pytest.mark.parametrize("name", sorted(records().keys() - OF_TROUBLE - OF_QUEUES - OF_TOKENS - OF_OPENCOST))
def test_what_is_recorded_is_what_a_direct_query_answers(watched: Watched, name: str) -> None:
    agree(watched, name)


def agree(watched: Watched, name: str) -> None:
    """What a rule records is the same as what its expression answers, and is there for every mode."""
    expression = in_short(records()[name])
    found: list[dict[Any, float]] = []

    def do_agree() -> bool:
        found[:] = recorded, direct = recorded_and_direct(watched.server, name, expression)
        # a series may be missing while a scrape is late
        is_whole = {dict(row)["cluster"] for row in recorded} == set(MODES)
        return is_whole and recorded == pytest.approx(direct, rel=1e-9)

    # a scrape of before the evaluation may be stored after it
    wait_until(do_agree, why=lambda: found)


def summed(watched: Watched, by: Callable[[Held], str]) -> dict[str, float]:
    """GPUs held, by a label."""
    sums = defaultdict[str, float](float)
    for held in watched.held:
        sums[by(held)] += float(held.ratio)
    return dict(sums)


# issue 11, "Must show" 3
@pytest.mark.parametrize("mode", MODES)
def test_the_records_say_what_is_held_whatever_sharing_says(watched: Watched, mode: str) -> None:
    def level(name: str, label: str) -> dict[str, float]:
        rows = watched.server.query(f'sum by ({label}) ({name}{{cluster="{mode}"}})')
        return {row.get(label, ""): value for row, value in rows if value}

    metric = f"{ALLOCATED.removesuffix('_total')}:rate5m"
    for name, by in (
        ("pod", lambda held: held.pod),
        ("workload", lambda held: held.workload),
        ("namespace", lambda held: held.namespace),
        ("model", lambda _: MODEL),
        ("node", lambda _: NODE),
        ("cluster", lambda _: mode),
    ):
        label = {"workload": "workload_name"}.get(name, name)
        held = summed(watched, by)

        def levels(record: str = f"{name}:{metric}", label: str = label) -> dict[str, float]:
            return level(record, label)

        # a rate is low where a scrape came late
        wait_until(lambda levels=levels, held=held: levels() == pytest.approx(held, rel=0.15), why=levels)  # type: ignore[misc]
    total = sum(summed(watched, lambda _: "").values())
    for name in ("node", "model", "cluster"):
        assert level(f"{name}:node_gpu_capacity:sum", "cluster") == {mode: 8}
        full = level(f"{name}:node_gpu_allocated_per_node_gpu_capacity:ratio", "cluster")
        assert full == pytest.approx({mode: total / 8})


def test_a_healthy_node_raises_no_alert(watched: Watched) -> None:
    """Neither one that fires nor one that would, if things stayed so."""
    watched.wait_until_active_are(set())


# issue 11, "Must show" 3
def test_a_page_that_fails_raises_its_alerts_once(watched: Watched) -> None:
    watched.node.dcgm.failure = lambda _: web.Response(status=503)
    for name in ("PodGpuExporterNoGpuMetrics", "PodGpuExporterSourceTrouble"):
        assert {labels["cluster"] for labels in watched.wait_for(name, len(MODES))} == set(MODES)
    watched.node.dcgm.failure = None
    watched.wait_until_active_are(set())


# issue 11, "Must show" 3; issue 30, "Must show" 4
def test_trouble_raises_alerts_once(watched: Watched) -> None:
    """In every --sharing mode, for a GPU that several containers hold or that is cut, one alert."""
    world = watched.node.world
    shared = next(gpu for gpu in world.gpus if gpu.shared and sum(held.uuid == gpu.uuid for held in watched.held) > 1)
    world.machine.add_xid(shared.uuid, XID)
    holders = {held.pod for held in watched.held if held.uuid == shared.uuid}
    failing = watched.wait_for("GpuFailing", len(MODES))
    assert {(labels["cluster"], labels["UUID"]) for labels in failing} == {(mode, shared.uuid) for mode in MODES}
    watched.wait_for("GpuHeldWhileFailing", len(MODES) * len(holders))
    found = watched.wait_for("GpuXid", len(MODES))
    assert {labels["cluster"] for labels in found} == set(MODES)
    assert {(labels["UUID"], labels["xid"], labels.get("pod", "")) for labels in found} == {(shared.uuid, str(XID), "")}
    watched.wait_until_active_are({"GpuFailing", "GpuHeldWhileFailing", "GpuXid"})
    agree(watched, XIDS)
    other = next(gpu for gpu in world.gpus if not gpu.shared and any(held.uuid == gpu.uuid for held in watched.held))
    world.machine.links[other.uuid].bad[LINK] = BadLink(world.machine.seconds, per_hour=REPLAYS_AN_HOUR)
    agree(watched, LINK_ERRORS)
    # dcgm-exporter dies with it: that wakes nobody again
    watched.node.dcgm.failure = lambda _: web.Response(status=503)
    watched.wait_for("PodGpuExporterSourceTrouble", len(MODES))
    wait_until(lambda: len(watched.server.query('up{metrics_path="/gpu/metrics"} == 0')) == len(MODES))
    time.sleep(SETTLED)
    assert "PodGpuExporterNoGpuMetrics" not in watched.active()
