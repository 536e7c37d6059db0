"""A node whose GPUs gpu-manager hands out in units: the kubelet's ids by the hundred tell no GPU, the processes do."""

import asyncio
import json
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator

import pytest

from exporter.model.devices import CORES, MEMORY
from exporter.sources.nvml import nvml_source
from tests.support.components import real
from tests.support.exporter import Exporter, config_of, running
from tests.support.nvml import loads, until_nobody_uses_it
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import until

_SAMPLE = re.compile(r'^(container_\w+){pod_name="([^"]*)".*,\w+="([^"]*)"} (\S+)$', re.MULTILINE)


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimulatedNode]:
    """Four GPUs, three of them in units; each pod on those has some hundred ids in no order."""
    simulated = SimulatedNode(World(gpus=4, units=3, seed=5))
    real("gcc")
    assert simulated.nvml.build()
    loads(monkeypatch, simulated.nvml)
    monkeypatch.setattr(nvml_source, "AGAIN_SECONDS", 0.2)
    await simulated.start()
    yield simulated
    await until_nobody_uses_it()
    await simulated.stop()


def of_node(node: SimulatedNode, **more: str) -> dict[str, str]:
    return {"kubelet_socket": str(node.socket), "dcgm_url": node.url, "root": str(node.root), **more}


def chosen(node: SimulatedNode) -> dict[str, set[str]]:
    """The GPUs that gpu-manager chose, by pod."""
    parts = {
        pod.name: {part.partition("::")[0] for container in pod.containers for part in container.chosen}
        for pod in node.world.listed
    }
    return {pod: of for pod, of in parts.items() if of}


async def told(exporter: Exporter) -> dict[str, dict[str, dict[str, float]]]:
    """By family, pod and last label."""
    found: defaultdict[str, dict[str, dict[str, float]]] = defaultdict(dict)
    for family, pod, label, value in _SAMPLE.findall((await exporter.get("/metric"))[1]):
        found[family].setdefault(pod, {})[label] = float(value)
    return found


def ids_of(node: SimulatedNode) -> dict[str, Counter[str]]:
    return {
        pod.name: Counter(resource for container in pod.containers for resource, _ in container.devices)
        for pod in node.world.listed
        if pod.name in chosen(node)
    }


# issue 10, B: tencent.com/vcuda-core and tencent.com/vcuda-memory count as resources
async def test_requested_units_are_counted_beside_what_processes_use(node: SimulatedNode) -> None:
    ids, index_of = ids_of(node), {gpu.uuid: f"gpu{gpu.index}" for gpu in node.world.gpus}
    assert max(of[CORES] + of[MEMORY] for of in ids.values()) >= 200, "as unkind as the real thing"
    async with running(config_of(**of_node(node, nvml_mode="on"))) as exporter:

        async def are_told() -> bool:
            return ids.keys() <= (await told(exporter))["container_gpu_memory_total"].keys()

        await until(are_told)
        found = await told(exporter)
        for pod, of in ids.items():
            assert found["container_request_gpu_utilization"][pod] == {"total": of[CORES] / 100}
            assert found["container_request_gpu_memory"][pod] == {"total": of[MEMORY] * 256}
            cards = {index_of[uuid] for uuid in chosen(node)[pod]}
            for family in ("container_gpu_memory_total", "container_gpu_utilization"):
                assert found[family][pod].keys() == {*cards, "total"}
                parts = {label: value for label, value in found[family][pod].items() if label != "total"}
                assert found[family][pod]["total"] == pytest.approx(sum(parts.values()))
        metrics = (await exporter.get("/metrics"))[1]
        for line in (await exporter.get("/metric"))[1].splitlines():
            assert line.startswith("#") or line.rpartition(" ")[0] in metrics
        for resource in (CORES, MEMORY):
            count = sum(of[resource] for of in ids.values())
            assert f'pod_gpu_exporter_assignments{{resource="{resource}"}} {count}\n' in metrics
        assert 'pod_gpu_exporter_unmatched_devices{reason="unknown_id"}' not in metrics
        mapping = json.loads((await exporter.get("/debug/mapping"))[1])
        in_units = [each for each in mapping["assigned"] if each["reason"] == "units"]
        assert len(in_units) == 2 * len(ids), "one for a container and resource, and not one for each id"
        assert {each["units"] for each in in_units} == {count for of in ids.values() for count in of.values()}
        assert mapping["processes_of_nobody"]["processes"] == []
        assert {finding["level"] for finding in mapping["doctor"]["findings"]} == {"ok"}


async def test_without_nvml_use_is_unknown_and_said_to_be(node: SimulatedNode) -> None:
    async with running(config_of(**of_node(node, nvml_mode="off"))) as exporter:
        page = await exporter.page()
        found = await told(exporter)
        assert found["container_request_gpu_utilization"].keys() >= ids_of(node).keys()
        assert not found["container_gpu_memory_total"].keys() & ids_of(node).keys()
        for uuid in {uuid for of in chosen(node).values() for uuid in of}:
            assert not re.search(rf'^DCGM_FI_DEV_FB_USED{{.*UUID="{uuid}".*pod="[^"]', page, re.MULTILINE)
        mapping = json.loads((await exporter.get("/debug/mapping"))[1])
        (finding,) = [each for each in mapping["doctor"]["findings"] if "units" in each["says"]]
        assert finding["level"] == "warning"
        assert "--nvml.mode" in finding["remedy"]


async def test_units_outlast_a_kubelets_start_and_go_with_their_pod(node: SimulatedNode) -> None:
    asked = "container_request_gpu_utilization"
    async with running(config_of(**of_node(node, nvml_mode="off", kubelet_max_age="0s"))) as exporter:
        before = (await told(exporter))[asked]
        await node.restart_kubelet(down_seconds=0.1, empty_seconds=0.5)
        for _ in range(6):
            assert (await told(exporter))[asked] == before, "nobody lost anything"
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.5)
        await told(exporter)
        gone = next(pod for pod in node.world.pods if pod.name in chosen(node))
        node.world.remove(gone)
        await exporter.page()
        assert gone.name not in (await told(exporter))[asked]


async def test_a_container_that_does_not_look_at_gpus_is_not_there(node: SimulatedNode) -> None:
    async with running(config_of(**of_node(node, nvml_mode="off", resources="nvidia.com/*"))) as exporter:
        found = await told(exporter)
        assert not found["container_request_gpu_utilization"].keys() & ids_of(node).keys()
