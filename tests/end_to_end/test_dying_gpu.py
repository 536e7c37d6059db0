"""A GPU dies while a pod holds it: whatever people look at names that pod, and not the one that came after."""

import asyncio
import json
import re
import urllib.error
import urllib.request
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from exporter.model.cluster_view import NodeEvent
from exporter.operator.api.event_writer import Events
from exporter.operator.api.reader import Reader
from exporter.operator.api.writer import Writer
from exporter.operator.objects.kinds import Key
from exporter.operator.pod_events import PodEvents
from exporter.simulator.fail_flag import Fails
from tests.end_to_end.clusters import NODE, SCRAPES_APART, Target, jobs, quick
from tests.operator.looking import OWNER, looking
from tests.operator.made import pod as made_pod
from tests.support.api_server.server import SimulatedApiServer
from tests.support.background import Background
from tests.support.command import run_here
from tests.support.demo import demo
from tests.support.exporter import config_of, running
from tests.support.prometheus import Prometheus, prometheus
from tests.support.simulated import ENDS_STEP, REPAIRED_STEP, RETAKEN_STEP, SimulatedNode, World
from tests.support.waiting import wait_until

T = TypeVar("T")
LOST, RECOVERY = 79, 154


def get(url: str) -> str:
    """An answer, once there is one: the cluster role may be late, as its nodes are."""
    answer = wait_until(lambda: _answer(url))
    assert answer is not None
    return answer


def _answer(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            text: str = answer.read().decode()
            return text
    except urllib.error.HTTPError as refused:
        if refused.code != 503:
            raise
        return None


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
    shown = json.loads(run_here("top", "--json", f"--url={base}").stdout)
    (device,) = [device for device in shown["devices"] if device["uuid"] == uuid]
    return dict(device)


class Dying:
    """A node whose GPU dies when the test says so, and an exporter in front of it."""

    def __init__(self, background: Background, stack: AsyncExitStack) -> None:
        self._background = background
        self.stack = stack
        self.node = SimulatedNode(World(gpus=4, seed=4), NODE, fails=Fails(gpu_seconds=0.0))
        self.base = self.namespace = ""

    async def start(self) -> None:
        await self.node.start()
        self.stack.push_async_callback(self.node.stop)
        settings = {
            "kubelet_socket": str(self.node.socket),
            "kubelet_pods_socket": str(self.node.pods_socket),
            "dcgm_url": self.node.url,
            "labels_pod_uid": "on",
            "kernel_log_mode": "on",
            "accounting_interval": "250ms",
        }
        config = replace(config_of(**settings), root=str(self.node.root))
        self.base = (await self.stack.enter_async_context(running(config))).base

    async def _look(self) -> None:
        self.node.write_processes()
        self.node.failure.look(self.node.processes.pids)
        self.node.write_processes()

    async def _live(self, steps: int) -> None:
        for _ in range(steps):
            self.node.failure.live()
        self.node.write_processes()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What comes of it, in the loop of the node."""
        return self._background.run(work)

    def die(self) -> tuple[str, str]:
        """The GPU is lost now: its UUID, and the pod that holds it."""
        self._background.run(self._look())
        (pod,) = self.node.failure.holders
        self.namespace = pod.namespace
        return self.node.failure.gpu, pod.name

    def live(self, steps: int) -> None:
        """Steps of life of the failure alone: no other pod comes or goes."""
        self._background.run(self._live(steps))


class Team:
    """The API server of the node's cluster with its pods, and the part of the operator that tells these of XIDs."""

    def __init__(self, node: SimulatedNode, stack: AsyncExitStack) -> None:
        self.server = SimulatedApiServer()
        self.answers = 0  # of the exporter, at /events
        self._node = node
        self._stack = stack

    async def start(self, folder: Path, base: str) -> None:
        await self.server.start()
        self._stack.push_async_callback(self.server.stop)
        await self.put_pods()
        (folder / "token").write_text("token-a")
        places = {"token_file": str(folder / "token"), "ca_file": "/nonexistent/ca.crt"}
        writer = Writer(url=self.server.url, **places, on_answer=lambda *_: None, seed=1)
        self._stack.push_async_callback(writer.close)
        tells = PodEvents(Reader(writer), Events(writer, "operator-a"), lambda _: None)
        task = asyncio.create_task(tells.run())
        self._stack.callback(task.cancel)

        def hear(owner: Key, node: str, events: Sequence[NodeEvent]) -> None:
            self.answers += 1
            tells.hear(owner, node, events)

        looks, _ = await self._stack.enter_async_context(looking({NODE: base}, on_events=hear))
        looks.follow(OWNER, [made_pod(NODE)], has_events=True)

    async def put_pods(self) -> None:
        """The API server has the pods of now."""
        for pod in self._node.world.pods:
            self.server.add_namespace(pod.namespace)
            self.server.put(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
                    "spec": {"nodeName": NODE},
                    "status": {"startTime": "2026-01-01T00:00:00Z", "phase": pod.phase},
                }
            )

    def told(self) -> list[tuple[str, str]]:
        """The pods that have events, each with how the event's text begins."""
        return sorted(
            (each["regarding"]["name"], each["note"].partition(" on ")[0]) for each in self.server.all("Event")
        )


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


def alerts(server: Prometheus, uuid: str) -> dict[str, str]:
    """What is active about a GPU: labels and annotations by the alert's name."""
    active = server.ask("alerts")["alerts"]
    return {
        each["labels"]["alertname"]: json.dumps([each["labels"], each["annotations"]])
        for each in active
        if each["labels"].get("UUID") == uuid
    }


# issue 30, "Must show" 3
@pytest.mark.real
def test_alerts_name_who_held_the_gpu_then(dying: Dying, tmp_path: Path) -> None:
    base = dying.base
    with prometheus(tmp_path, list(jobs([Target("a", base[7:])])), SCRAPES_APART, quick(tmp_path)) as server:
        server.wait_for_scrapes(2)
        wait_until(lambda: server.query('pod_gpu_device_verdict{namespace!=""}'))
        uuid, pod = dying.die()
        says = f'{uuid} on {NODE} is gone; held by {dying.namespace}/{pod}"'
        wait_until(lambda: says in alerts(server, uuid).get("GpuFailing", ""), why=lambda: alerts(server, uuid))
        wait_until(lambda: f'"pod": "{pod}"' in alerts(server, uuid).get("GpuXid", ""))
        dying.live(ENDS_STEP)
        wait_until(lambda: healths(base, uuid) == {("", "gone")}, why=lambda: healths(base, uuid))
        wait_until(lambda: not server.query(f'pod_gpu_device_verdict{{UUID="{uuid}",namespace!=""}}'))
        assert says in alerts(server, uuid)["GpuFailing"]
        dying.live(REPAIRED_STEP - ENDS_STEP)
        wait_until(lambda: healths(base, uuid) == {("", "ok")}, why=lambda: healths(base, uuid))
        dying.live(RETAKEN_STEP - REPAIRED_STEP)
        wait_until(lambda: holders(base, uuid).isdisjoint({"", pod}), why=lambda: holders(base, uuid))
        (after,) = holders(base, uuid)
        wait_until(lambda: server.query(f'pod_gpu_device_verdict{{UUID="{uuid}",pod="{after}"}}'))
        wait_until(lambda: "GpuFailing" not in alerts(server, uuid), why=lambda: alerts(server, uuid))
        assert after not in json.dumps(alerts(server, uuid))
        assert not server.query(f'count_over_time(ALERTS{{pod="{after}"}}[1h])')


# issue 30, "Must show" 3
def test_what_people_look_at_names_who_held_the_gpu_then(dying: Dying, tmp_path: Path) -> None:
    base = dying.base
    team = Team(dying.node, dying.stack)
    dying.run(team.start(tmp_path, base))
    wait_until(lambda: 'source="kernel-log"} 1' in get(f"{base}/metrics"))
    wait_until(lambda: any(holders(base, gpu.uuid) - {""} for gpu in dying.node.world.gpus))
    uuid, pod = dying.die()
    wait_until(lambda: [event["code"] for event in events(base)] == [RECOVERY, LOST], why=lambda: events(base))
    assert {one["pod"] for event in events(base) for one in event["holders"]} == {pod}
    wait_until(lambda: healths(base, uuid) == {(pod, "gone")}, why=lambda: healths(base, uuid))
    assert f'pod="{pod}"' in verdict(base, uuid)
    shown = top(base, uuid)
    assert ([owner["pod"] for owner in shown["owners"]], shown["health"], shown["xid"]) == ([pod], "gone", LOST)
    assert {row["last_xid"] for row in rows_of(base) if row["device_uuid"] == uuid} == {LOST}
    assert f'<summary><bdi>gone:</bdi> <span class="xid">XID {LOST}</span></summary>' in get(f"{base}/")
    wait_until(lambda: team.told() == [(pod, f"Xid {LOST}")], why=team.told)
    dying.live(ENDS_STEP)
    wait_until(lambda: healths(base, uuid) == {("", "gone")}, why=lambda: healths(base, uuid))
    assert [row["state"] for row in rows_of(base) if row["device_uuid"] == uuid] == ["failing"]
    shown = top(base, uuid)
    assert (shown["state"], shown["held"], shown["health"]) == ("failing", "failing", "gone")
    assert '<dd id="figure-failing">1</dd>' in get(f"{base}/")
    dying.live(REPAIRED_STEP - ENDS_STEP)
    wait_until(lambda: healths(base, uuid) == {("", "ok")}, why=lambda: healths(base, uuid))
    assert '<dd id="figure-failing">0</dd>' in get(f"{base}/")
    dying.live(RETAKEN_STEP - REPAIRED_STEP)
    wait_until(lambda: holders(base, uuid).isdisjoint({"", pod}), why=lambda: holders(base, uuid))
    ((after, health),) = healths(base, uuid)
    assert health == "ok"
    assert [owner["pod"] for owner in top(base, uuid)["owners"]] == [after]
    dying.run(team.put_pods())
    answers = team.answers
    wait_until(lambda: team.answers > answers + 2)
    assert team.told() == [(pod, f"Xid {LOST}")]
    (row,) = [row for row in get(f"{base}/").split("<tr") if f"XID {LOST} " in row]
    assert f"<bdi>{dying.namespace}/{pod}</bdi>" in row
    held_then = [(event["code"], [one["pod"] for one in event["holders"]]) for event in events(base)]
    assert held_then == [(RECOVERY, []), (RECOVERY, [pod]), (LOST, [pod])]
    rows = re.findall(
        r'^pod_gpu_xid_errors_total\{xid="79",.*pod="([^"]*)".* (\S+)$', get(f"{base}/metrics"), re.MULTILINE
    )
    assert rows == [(pod, "1")]


# issue 30, "Must show" 3
def test_demo_fail_shows_it_by_itself() -> None:
    with demo("--fail=10", "--gpus=4", "--speed=0.1", "--collect-interval=1") as base:
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
    with demo("--fail=10", "--nodes=2", "--gpus=2", "--speed=0.1") as base:
        wait_until(lambda: any(row["health"] == "gone" for row in rows_of(base)), why=lambda: rows_of(base))
        (lost,) = {row["device_uuid"] for row in rows_of(base) if row["health"] == "gone"}
        assert {row["node_name"] for row in rows_of(base) if row["device_uuid"] == lost} == {"gpu-node-1"}
        (pod,) = holders(base, lost)
        wait_until(lambda: [event["code"] for event in events(base)] == [RECOVERY, LOST], why=lambda: events(base))
        shown = {(event["node_name"], each["pod"]) for event in events(base) for each in event["holders"]}
        assert shown == {("gpu-node-1", pod)}
