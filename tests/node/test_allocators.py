"""HAMi and gpushare through the whole node role: a token on two GPUs has no owner, says why, and leaves no GPU free."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.exporter import Exporter, config_of, running
from tests.support.simulated import Container, Pod, SimulatedNode, World
from tests.support.waiting import until

GPU, ALIYUN = "nvidia.com/gpu", "aliyun.com/gpu-mem"


@pytest.fixture(params=[1, 2, 8])
async def node(request: pytest.FixtureRequest) -> AsyncIterator[SimulatedNode]:
    """As many GPUs, and no pod yet; the allocator's plugin offers ten tokens of each."""
    simulated = SimulatedNode(World(gpus=request.param, seed=5))
    simulated.world.pods = ()
    uuids = [gpu.uuid for gpu in simulated.world.gpus]
    simulated.kubelet.offers = lambda: [(GPU, f"{uuid}-{n}") for uuid in uuids for n in range(10)]
    await simulated.start()
    yield simulated
    await simulated.stop()


def a_pod(name: str, *devices: tuple[str, str]) -> Pod:
    return Pod(namespace="ml", name=name, containers=(Container(name="main", devices=devices),))


async def report(exporter: Exporter) -> dict[str, Any]:
    mapping: dict[str, Any] = json.loads((await exporter.get("/debug/mapping"))[1])
    return mapping


# issue 22, line 1
@pytest.mark.parametrize("is_gpushare", [False, True])
async def test_a_token_has_an_owner_only_where_the_node_has_one_gpu(node: SimulatedNode, *, is_gpushare: bool) -> None:
    uuid = node.world.gpus[0].uuid
    if is_gpushare:
        # a pod with 8 GiB has eight ids, of several GPUs mostly
        some = [gpu.uuid for gpu in node.world.gpus] * 8
        devices = tuple((ALIYUN, f"{of}-_-{n}") for n, of in enumerate(some[:8]))
    else:
        devices = ((GPU, f"{uuid}-4"),)
    node.world.pods = (a_pod("trainer", *devices), a_pod("other", (devices[0][0], f"{uuid}{'-_' * is_gpushare}-9")))
    given = {"kubelet_socket": str(node.socket), "dcgm_url": node.url, "kubelet_max_age": "0s"}
    async with running(config_of(resources=devices[0][0], **given)) as exporter:
        page = await exporter.page()
        rows = json.loads((await exporter.get("/container/metrics"))[1])
        mapping = await report(exporter)
        if len(node.world.gpus) == 1:
            assert 'pod="trainer"' in page
            assert {(row["pod"], row["gpu_shared"]) for row in rows} == {("trainer", True), ("other", True)}
            assert "attributed" in mapping["doctor"]["summary"]
            return
        assert 'pod="trainer"' not in page
        assert {(row["pod"], row["state"]) for row in rows} == {("", "unknown")}
        assert all("scheduler chose" in row["state_reason"] for row in rows)
        assert len(rows) == len(node.world.gpus), "a token adds no device"
        assert {each["reason"] for each in mapping["assigned"]} == {"allocator"}
        assert mapping["doctor"]["summary"].startswith("0 of ")
        problems = [each for each in mapping["doctor"]["findings"] if each["level"] == "problem"]
        name = "gpushare" if is_gpushare else "HAMi"
        assert [each["says"].partition(" (")[0] for each in problems] == [
            f"{name}'s scheduler chose the GPU and wrote it on the pod"
        ]
        assert "--nvml.mode" in problems[0]["remedy"]

        async def counts() -> bool:
            metrics = (await exporter.get("/metrics"))[1]
            return f'pod_gpu_exporter_unmatched_devices{{reason="allocator"}} {len(devices) + 1}\n' in metrics

        assert await until(counts)
