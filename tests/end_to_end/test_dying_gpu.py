"""A GPU dies while a pod holds it: whatever people look at names that pod, and not the one that came after."""

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from exporter.simulator.failure import ENDS_STEP, REPAIRED_STEP, RETAKEN_STEP
from tests.end_to_end.clusters import NODE
from tests.support.background import Background
from tests.support.demo import demo
from tests.support.exporter import config_of, running
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import wait_until

LOST, RECOVERY = 79, 154


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def events(base: str) -> list[dict[str, Any]]:
    """The errors of lost GPUs alone: pods of a demo crash now and then."""
    shown: list[dict[str, Any]] = json.loads(get(f"{base}/events"))
    return [event for event in shown if event["code"] in (LOST, RECOVERY)]


def holders(base: str, uuid: str) -> set[str]:
    """The pods that hold a GPU, by the JSON of containers."""
    return {row["pod"] for row in rows_of(base) if row["device_uuid"] == uuid}


def healths(base: str, uuid: str) -> set[tuple[str, str]]:
    """A GPU's holders, each with the GPU's verdict."""
    return {(row["pod"], row["health"]) for row in rows_of(base) if row["device_uuid"] == uuid}


def verdict(base: str, uuid: str) -> str:
    """The row of a GPU that one pod holds, or nobody."""
    lines = get(f"{base}/metrics").splitlines()
    (line,) = [line for line in lines if line.startswith("pod_gpu_device_verdict{") and uuid in line]
    return line


def rows_of(base: str) -> list[dict[str, Any]]:
    """The objects of /container/metrics."""
    return list(json.loads(get(f"{base}/container/metrics")))


def top(base: str, uuid: str) -> dict[str, Any]:
    """What `top` shows of a GPU."""
    command = [sys.executable, "-m", "exporter", "top", "--json", f"--url={base}"]
    shown = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
    (device,) = [device for device in shown["devices"] if device["uuid"] == uuid]
    return dict(device)


class Dying:
    """A node whose GPU dies when the test says so, and an exporter in front of it."""

    def __init__(self, background: Background, stack: AsyncExitStack) -> None:
        self._background = background
        self._stack = stack
        self.node = SimulatedNode(World(gpus=4, seed=4), NODE, fails_after_seconds=0.0)
        self.base = ""

    async def start(self) -> None:
        await self.node.start()
        self._stack.push_async_callback(self.node.stop)
        settings = {
            "kubelet_socket": str(self.node.socket),
            "kubelet_pods_socket": str(self.node.pods_socket),
            "dcgm_url": self.node.url,
            "labels_pod_uid": "on",
            "kernel_log_mode": "on",
            "accounting_interval": "250ms",
        }
        config = replace(config_of(**settings), root=str(self.node.root))
        self.base = (await self._stack.enter_async_context(running(config))).base

    async def _look(self) -> None:
        assert self.node.failure
        self.node.write_processes()
        self.node.failure.look(self.node.processes.pids)
        self.node.write_processes()

    async def _live(self, steps: int) -> None:
        assert self.node.failure
        for _ in range(steps):
            self.node.failure.live()
        self.node.write_processes()

    def die(self) -> tuple[str, str]:
        """The GPU is lost now: its UUID, and the pod that holds it."""
        self._background.run(self._look())
        assert self.node.failure
        (pod,) = self.node.failure.holders
        return self.node.failure.gpu, pod.name

    def live(self, steps: int) -> None:
        """Steps of life of the failure alone: no other pod comes or goes."""
        self._background.run(self._live(steps))


@pytest.fixture
def dying() -> Iterator[Dying]:
    background, stack = Background(), AsyncExitStack()
    node = Dying(background, stack)
    try:
        background.run(node.start())
        yield node
    finally:
        background.run(stack.aclose())
        background.close()


# issue 30, "Must show" 3
def test_what_people_look_at_names_who_held_the_gpu_then(dying: Dying) -> None:
    base = dying.base
    wait_until(lambda: 'source="kernel-log"} 1' in get(f"{base}/metrics"))
    wait_until(lambda: any(holders(base, gpu.uuid) - {""} for gpu in dying.node.world.gpus))
    uuid, pod = dying.die()
    wait_until(lambda: [event["code"] for event in events(base)] == [RECOVERY, LOST], why=lambda: events(base))
    assert {one["pod"] for event in events(base) for one in event["holders"]} == {pod}
    wait_until(lambda: healths(base, uuid) == {(pod, "gone")}, why=lambda: healths(base, uuid))
    assert f'pod="{pod}"' in verdict(base, uuid)
    dying.live(ENDS_STEP)
    wait_until(lambda: healths(base, uuid) == {("", "gone")}, why=lambda: healths(base, uuid))
    dying.live(REPAIRED_STEP - ENDS_STEP)
    wait_until(lambda: healths(base, uuid) == {("", "ok")}, why=lambda: healths(base, uuid))
    dying.live(RETAKEN_STEP - REPAIRED_STEP)
    wait_until(lambda: holders(base, uuid).isdisjoint({"", pod}), why=lambda: holders(base, uuid))
    ((after, health),) = healths(base, uuid)
    assert health == "ok"
    assert [owner["pod"] for owner in top(base, uuid)["owners"]] == [after]
    held_then = [(event["code"], [one["pod"] for one in event["holders"]]) for event in events(base)]
    assert held_then == [(RECOVERY, []), (RECOVERY, [pod]), (LOST, [pod])]
    rows = re.findall(
        r'^pod_gpu_xid_errors_total\{xid="79",.*pod="([^"]*)".* (\S+)$', get(f"{base}/metrics"), re.MULTILINE
    )
    assert rows == [(pod, "1")]


# issue 30, "Must show" 3
def test_demo_fail_shows_it_by_itself() -> None:
    with demo("--fail=4", "--gpus=4", "--speed=0.1", "--collect-interval=1") as base:
        before = {gpu: holders(base, gpu) for gpu in {row["device_uuid"] for row in rows_of(base)}}
        wait_until(lambda: [event["code"] for event in events(base)] == [RECOVERY, LOST], why=lambda: events(base))
        lost, *_ = events(base)
        uuid = lost["device_uuid"]
        assert {one["pod"] for one in lost["holders"]} == before[uuid] - {""}
        assert lost["holders"]

        def shows_nothing_but_xids() -> bool:
            rows = [line for line in get(f"{base}/gpu/metrics").splitlines() if f'UUID="{uuid}"' in line]
            return {row.partition("{")[0] for row in rows} == {"DCGM_FI_DEV_XID_ERRORS"}

        wait_until(shows_nothing_but_xids)
        wait_until(lambda: "the GPU is lost" in get(f"{base}/debug/mapping"))


# issue 30, "Must show" 3
def test_demo_fail_with_several_nodes_has_one_gpu_of_one_node_die() -> None:
    with demo("--fail=4", "--nodes=2", "--gpus=2", "--speed=0.1") as base:
        wait_until(lambda: any(row["health"] == "gone" for row in rows_of(base)), why=lambda: rows_of(base))
        (lost,) = {row["device_uuid"] for row in rows_of(base) if row["health"] == "gone"}
        assert {row["node_name"] for row in rows_of(base) if row["device_uuid"] == lost} == {"gpu-node-1"}
        assert holders(base, lost) != {""}
