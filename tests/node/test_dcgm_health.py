"""DCGM's own verdict on GPUs, from the page of a simulated dcgm-exporter to all that people look at."""

import json
import re
from collections.abc import AsyncIterator

import pytest

from exporter.simulator.dcgm_pages import SimulatedFamily, families_of
from tests.support.exporter import Exporter, config_of, running
from tests.support.simulated import GPU_RESOURCE, Container, Pod, SimulatedNode, World
from tests.support.waiting import until

STATUS = "DCGM_EXP_GPU_HEALTH_STATUS"
# as dcgm-exporter's own list of counters has it, commented out
FAMILY = SimulatedFamily(name=STATUS, help="DCGM reported health status", kind="counter")
VERDICT = re.compile(r"^pod_gpu_device_verdict\{(.*)\} 1$", re.MULTILINE)


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    """A pod holds the first GPU, another the first instance of the last one, which is cut."""
    world = World(gpus=3, mig=1, cut=("3g.40gb", "1g.10gb"), seed=7)
    simulated = SimulatedNode(world, generation="4.8")
    # without the last XID, of which the exporter makes its own verdict
    families = [family for family in families_of("4.8") if "XID" not in family.name]
    simulated.dcgm.families = (*families, FAMILY)
    held = {"train-0": (GPU_RESOURCE, world.gpus[0].uuid), "serve-0": world.gpus[2].slots[0]}
    world.pods = tuple(
        Pod(namespace="ml", name=name, uid=f"uid-{name}", containers=(Container(name="main", devices=(device,)),))
        for name, device in held.items()
    )
    await simulated.start()
    yield simulated
    await simulated.stop()


@pytest.fixture
async def exporter(node: SimulatedNode) -> AsyncIterator[Exporter]:
    settings = {"kubelet_socket": str(node.socket), "dcgm_url": node.url, "kernel_log_mode": "off"}
    async with running(config_of(**settings, inventory_file=str(node.inventory_file))) as started:
        yield started


async def verdicts(exporter: Exporter) -> dict[tuple[str, str], tuple[str, str, str]]:
    """Pod, verdict and reason, by UUID and GPU_I_ID."""
    rows = [dict(re.findall(r'(\w+)="([^"]*)"', row)) for row in VERDICT.findall((await exporter.get("/metrics"))[1])]
    return {(row["UUID"], row["GPU_I_ID"]): (row["pod"], row["verdict"], row["reason"]) for row in rows}


# issue 22, line 33
async def test_what_dcgm_finds_is_in_all_that_people_look_at(node: SimulatedNode, exporter: Exporter) -> None:
    first, second, cut = node.world.gpus
    well = {(first.uuid, ""), (second.uuid, ""), (cut.uuid, ""), (cut.uuid, "1"), (cut.uuid, "7")}

    async def all_are_well() -> bool:
        return {key: word for key, (_, word, _) in (await verdicts(exporter)).items()} == dict.fromkeys(well, "ok")

    await until(all_are_well)
    node.world.machine.add_xid(first.uuid, 95)
    node.world.machine.add_xid(second.uuid, 31)
    node.world.machine.add_xid(cut.uuid, 64)
    wanted = {
        (first.uuid, ""): ("train-0", "failing", "dcgm-uncontained-error"),
        (second.uuid, ""): ("", "degraded", "dcgm-xid-error"),
        (cut.uuid, ""): ("", "failing", "dcgm-row-remap-failure"),
        (cut.uuid, "1"): ("serve-0", "failing", "dcgm-row-remap-failure"),
        (cut.uuid, "7"): ("", "failing", "dcgm-row-remap-failure"),
    }

    async def are_as_dcgm_finds() -> bool:
        seen.update(await verdicts(exporter))
        return seen == wanted

    seen: dict[tuple[str, str], tuple[str, str, str]] = {}

    await until(are_as_dcgm_finds, why=lambda: seen)
    objects = json.loads((await exporter.get("/container/metrics"))[1])
    reasons = {(each["device_uuid"], each.get("mig_instance_id", "")): each["health_reasons"] for each in objects}
    assert any(
        "DCGM finds a failure of the whole GPU: an uncontained memory error" in why for why in reasons[first.uuid, ""]
    )
    assert reasons[cut.uuid, "1"] == reasons[cut.uuid, "7"]
    page = (await exporter.get("/"))[1]
    assert "DCGM finds a failure of memory: a row of memory could not be remapped" in page
    assert "DCGM warns of memory: an XID that DCGM watches" in page
    doctor = (await exporter.get("/debug/mapping"))[1]
    assert "DCGM warns of memory" in doctor
    # the rows go out as they came, with the GPU's holder
    samples = [line for line in (await exporter.get("/gpu/metrics"))[1].splitlines() if line.startswith(f"{STATUS}{{")]
    assert len(samples) == 3 * 11
    own_labels = 'health_error_code="DCGM_FR_UNCONTAINED_ERROR",health_watch="ALL",pod="train-0"'
    assert any(own_labels in line for line in samples)
    # DCGM forgets what it has seen as it starts anew
    node.dcgm.begin_anew()

    async def dcgm_is_quiet() -> bool:
        return not any(reason.startswith("dcgm") for _, _, reason in (await verdicts(exporter)).values())

    await until(dcgm_is_quiet)
