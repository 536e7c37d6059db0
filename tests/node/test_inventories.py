"""MIG instances that nobody wrote down: the inventory by itself, over the sockets and files of a simulated node."""

import json
import logging
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from exporter.config.named_files import NodeFiles
from exporter.node.build import make_node
from exporter.simulator import demo
from exporter.sources.cdi.cdi_source import CdiInventory
from exporter.sources.driver_inventory import DriverInventory
from tests.support.exporter import Exporter, Start, config_of
from tests.support.node_parts import source_of
from tests.support.simulated import Container, Pod, SimulatedNode
from tests.support.waiting import until

CUT = ["3g.40gb", "2g.20gb", "1g.10gb"]
LABEL = re.compile(r'(\w+)="([^"]*)"')


def held(simulated: SimulatedNode) -> dict[tuple[str, str], str]:
    """The world's truth: which pod holds which MIG instance."""
    places = {one.device_id: (gpu.uuid, str(one.instance_id)) for gpu in simulated.world.gpus for one in gpu.instances}
    return {places[device]: pod.name for pod in simulated.world.pods for device in pod.devices if device in places}


async def mig_rows(exporter: Exporter) -> dict[tuple[str, str], str]:
    """What the page says: the pod of each MIG instance, "" for none."""
    rows = [dict(LABEL.findall(line)) for line in (await exporter.page()).splitlines() if "GPU_I_ID=" in line]
    return {(row["UUID"], row["GPU_I_ID"]): row["pod"] for row in rows}


async def mapping(exporter: Exporter) -> Any:
    return json.loads((await exporter.get("/debug/mapping"))[1])


def hold_all(simulated: SimulatedNode) -> None:
    """A pod for every device of the node."""
    simulated.world.pods = tuple(
        Pod(namespace="ml", name=f"pod-{number}", containers=(Container(name="main", devices=(slot,)),))
        for number, slot in enumerate(slot for gpu in simulated.world.gpus for slot in gpu.slots)
    )


def put(root: Path, name: str, **instances: tuple[int, int]) -> None:
    """A spec in /etc/cdi that gives MIG instances, by their UUIDs, these device minors and capabilities."""
    devices = [
        {
            "name": uuid.replace("_", "-"),
            "containerEdits": {
                "deviceNodes": [{"path": f"/dev/nvidia{minor}"}, {"path": f"/dev/nvidia-caps/nvidia-cap{cap}"}]
            },
        }
        for uuid, (minor, cap) in instances.items()
    ]
    folder = root / "etc" / "cdi"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps({"kind": "nvidia.com/gpu", "devices": devices}))


# issue 10, "Must show" 1
async def test_every_mig_row_has_its_owner_through_cdi_alone(start: Start, simulated: SimulatedNode) -> None:
    hold_all(simulated)
    blind = await start()
    assert set((await mig_rows(blind)).values()) == {""}
    exporter = await start(root=str(simulated.root))
    owned = held(simulated)
    assert len(owned) == 7
    assert await mig_rows(exporter) == owned, "from the first page on"
    shown = await mapping(exporter)
    of_mig = [row for row in shown["seen"] if row["gpu_i_id"]]
    assert [row["known_by"] for row in of_mig] == [["cdi"]] * 7
    assert [row["known_by"] for row in shown["seen"] if not row["gpu_i_id"]] == [["driver", "cdi"]] * 3
    (parent,) = [gpu for gpu in shown["inventory"]["gpus"] if gpu["mig"]]
    assert (parent["known_by"], len(parent["mig"])) == (["driver"], 7), "a spec does not name a GPU that is cut"
    assert (shown["sources"]["cdi"]["up"], shown["sources"]["driver"]["up"]) == (True, True)
    assert shown["doctor"]["summary"] == "13 of 13 devices attributed"
    assert shown["inventory"]["doubts"] == []
    # the driver's list knows no numbers, but the rows of its instances do
    rows = json.loads((await exporter.get("/container/metrics"))[1])
    assert {(row["entity"], row["device_id"]) for row in rows if row["entity"] != "gpu"} == {
        ("mig-parent", "3"),
        ("mig", "3"),
    }


# issue 10, "Must show" 1
async def test_a_gpu_that_is_cut_anew_is_followed_by_itself(start: Start, simulated: SimulatedNode) -> None:
    exporter = await start(root=str(simulated.root))
    await mig_rows(exporter)
    cdi = source_of(exporter.service._role, CdiInventory)
    simulated.recut(simulated.world.gpus[3], CUT)
    hold_all(simulated)
    owned = held(simulated)
    assert len(owned) == len(CUT)
    # nobody scrapes meanwhile, and then the first scrape is right
    await until(lambda: [len(gpu.mig) for gpu in cdi.inventory.gpus if gpu.mig] == [len(CUT)])
    assert await mig_rows(exporter) == owned


async def test_no_scrape_waits_for_a_spec_that_has_changed(
    start: Start, simulated: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CdiInventory, "patience_seconds", 90.0)  # longer than a test may take
    exporter = await start(root=str(simulated.root))
    before = await mig_rows(exporter)
    looking, ends = threading.Event(), threading.Event()

    def hang(source: CdiInventory) -> None:
        looking.set()
        ends.wait(90)

    monkeypatch.setattr(CdiInventory, "_read", hang)
    try:
        await until(looking.is_set)
        assert await mig_rows(exporter) == before
        assert not ends.is_set()
    finally:
        ends.set()


# issue 10, "Must show" 1
async def test_contradictions_are_told_and_leave_a_device_without_an_owner(
    start: Start, simulated: SimulatedNode, caplog: pytest.LogCaptureFixture
) -> None:
    hold_all(simulated)
    owned = held(simulated)
    gpu = simulated.world.gpus[3]
    first = gpu.instances[0]
    # the first instance is somewhere else by a second spec: gpu0/gi7
    put(simulated.root, "old.json", **{first.device_id.replace("-", "_"): (0, 66)})
    caplog.set_level(logging.WARNING)
    exporter = await start(root=str(simulated.root))
    del owned[gpu.uuid, str(first.instance_id)]
    for _ in range(3):
        assert await mig_rows(exporter) == owned | {(gpu.uuid, str(first.instance_id)): ""}
    assert [record.message for record in caplog.records].count("the inventory is in doubt") == 1
    shown = await mapping(exporter)
    (doubt,) = shown["inventory"]["doubts"]
    old, new = simulated.root / "etc/cdi/old.json", simulated.root / "var/run/cdi/nvidia.yaml"
    assert doubt["says"] == (
        f"{first.device_id}: {old} says it is GPU instance 7 of nvidia0, {new} says it is GPU instance 7 of nvidia3"
    )
    assert doubt["leaves_out"] == [first.device_id]
    (row,) = [row for row in shown["assigned"] if row["device_id"] == first.device_id]
    assert (row["matched"], row["reason"]) == (False, "mig_unresolved")
    assert row["explanation"].startswith(f"the inventory leaves this MIG instance out: {doubt['says']}: have the CDI")
    findings = [(one["level"], one["about"]) for one in shown["doctor"]["findings"] if doubt["says"] in one["says"]]
    assert findings[0] == ("warning", "inventory")
    assert [level for level, _ in findings[1:]] == ["problem"]
    # it is logged once, whatever else comes
    put(simulated.root, "more.json", MIG_00000000_a75d_5afc_978f_d2f1294409fd=(0, 75))

    async def has_instances() -> bool:
        return bool((await mapping(exporter))["inventory"]["gpus"][0]["mig"])

    await until(has_instances)
    assert [record.message for record in caplog.records].count("the inventory is in doubt") == 1


# issue 10, "Must show" 1
async def test_the_users_file_wins_where_it_speaks(start: Start, simulated: SimulatedNode, tmp_path: Path) -> None:
    hold_all(simulated)
    owned = held(simulated)
    gpu = simulated.world.gpus[3]
    first, second, *_ = gpu.instances
    # it says that the two are each other
    mig = [
        {"uuid": one.device_id, "instance_id": other.instance_id} for one, other in ((first, second), (second, first))
    ]
    file = tmp_path / "inventory.json"
    file.write_text(json.dumps({"gpus": [{"uuid": gpu.uuid, "mig": mig}]}))
    places = [(gpu.uuid, str(one.instance_id)) for one in (first, second)]
    exporter = await start(root=str(simulated.root), inventory_file=str(file))
    swapped = owned | {places[0]: owned[places[1]], places[1]: owned[places[0]]}
    assert await mig_rows(exporter) == swapped
    shown = (await mapping(exporter))["inventory"]
    known = {one["uuid"]: one["known_by"] for one in shown["gpus"][0]["mig"]}
    assert {*map(tuple, known.values())} == {(f"file:{file}",), ("cdi",)}
    assert (known[first.device_id], known[second.device_id]) == ([f"file:{file}"], [f"file:{file}"])
    assert [doubt["leaves_out"] for doubt in shown["doubts"]] == [[], []], "it is told all the same"
    alone = await start(root=str(simulated.root), inventory_file=str(file), inventory="file")
    assert await mig_rows(alone) == {place: swapped[place] if place in places else "" for place in owned}
    assert {"cdi", "driver"}.isdisjoint((await mapping(alone))["sources"])


async def test_an_instance_of_a_gpu_that_nothing_names_stays_without_an_owner(
    start: Start, simulated: SimulatedNode
) -> None:
    """Something is mounted over /proc/driver/nvidia."""
    hold_all(simulated)
    shutil.rmtree(simulated.root / "proc/driver/nvidia")
    exporter = await start(root=str(simulated.root))
    assert set((await mig_rows(exporter)).values()) == {""}
    (doubt,) = (await mapping(exporter))["inventory"]["doubts"]
    assert doubt["says"].startswith("which GPU nvidia3 is, is not known for sure: 7 MIG instances")
    assert len(doubt["leaves_out"]) == 7


async def test_after_a_reload_the_source_goes_on_and_off_means_off(simulated: SimulatedNode) -> None:
    given = {"kubelet_socket": str(simulated.socket), "dcgm_url": simulated.url, "root": str(simulated.root)}
    first = make_node(config_of(**given), NodeFiles())
    await first.look(None)
    second = make_node(config_of(**given, sharing="split"), NodeFiles(), handover=first.handover)
    for kind in (CdiInventory, DriverInventory):
        assert source_of(second, kind) is source_of(first, kind)
    assert (await second.look(0)).inventory.gpus
    off = make_node(config_of(**given, inventory="off"), NodeFiles(), handover=second.handover)
    snapshot = await off.look(None)
    assert (snapshot.inventory.gpus, {"cdi", "driver"} & snapshot.health.keys()) == ((), set())
    await second.give_way(off)
    await off.close()


# issue 10, "Must show" 1
async def test_the_demo_names_no_inventory_file(simulated: SimulatedNode) -> None:
    config = demo._config(simulated, {"config_file": None})
    assert (config.devices.inventory_file, config.devices.inventory) == (None, "auto")
    assert config.root == str(simulated.root)
