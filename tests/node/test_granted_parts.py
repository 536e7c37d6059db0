"""What allocators granted, through the whole node role: JSON, ratios and seconds are the simulated node's own."""

import json
import re

import pytest

from exporter.simulator.allocators import Hami, Kai, SimulatedAllocator, Volcano
from exporter.simulator.parts import H100
from tests.support.allocators import allocated_node, given_to
from tests.support.exporter import config_of, running
from tests.support.waiting import until

RATIO = re.compile(
    r'^pod_gpu_allocated_ratio\{namespace="([^"]*)",pod="([^"]*)",container="([^"]*)",UUID="([^"]*)".*\} (\S+)$',
    re.MULTILINE,
)
Place = tuple[str, str, str, str]  # namespace, pod, container, GPU


# issue 24, part 5
@pytest.mark.parametrize("kind", [Hami, Volcano, Kai], ids=lambda kind: kind.__name__)
async def test_ratios_and_json_have_what_the_allocator_granted(kind: type[SimulatedAllocator]) -> None:
    node = allocated_node(kind())
    await node.start()
    parts = {
        (owner.namespace, owner.pod, owner.container, part.uuid): part
        for owner, parts in given_to(node.world).items()
        for part in parts
    }
    assert len(parts) > 5
    pods = {"kubelet_pods_socket": str(node.pods_socket), "kubernetes_url": node.api_url}
    settings = {"kubelet_socket": str(node.socket), "dcgm_url": node.url, **pods}
    try:
        async with running(config_of(accounting_interval="100ms", **settings)) as exporter:

            async def ratios() -> bool:
                text = (await exporter.get("/metrics"))[1]
                shown = {(*place,): float(value) for *place, value in RATIO.findall(text)}
                return shown == pytest.approx(
                    {place: 1.0 if part.cores_percent == 100 else part.of_memory for place, part in parts.items()},
                    rel=0.01,
                )

            assert await until(ratios), await exporter.get("/debug/mapping")
            rows = json.loads((await exporter.get("/container/metrics"))[1])
            held = {
                (row["namespace"], row["pod"], row["container"], row["device_uuid"]): row for row in rows if row["pod"]
            }
            assert held.keys() == parts.keys()
            for place, part in parts.items():
                row = held[place]
                memory = row.get("requested_memory_mib", row.get("requested_fraction", 1) * H100.memory)
                assert memory == pytest.approx(part.of_memory * H100.memory, rel=0.01)
                assert row.get("requested_cores_percent") in (part.cores_percent or None, None)
    finally:
        await node.stop()
