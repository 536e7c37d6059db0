"""The driver's list of GPUs in /proc."""

import asyncio
import json
from pathlib import Path

import pytest

from exporter.model.devices import InventoryGpu
from exporter.model.snapshot import Health
from exporter.sources import driver_inventory
from exporter.sources.driver_inventory import AGAIN_SECONDS, DriverInventory, parse, read
from exporter.sources.source import is_absent
from tests.support.clock import Clock
from tests.support.exporter import config_of, running
from tests.support.simulated import Container, Pod, SimulatedNode

UUID = "GPU-82523fd8-3897-f599-d088-ccd04ae45ec1"
# as drivers 460 to 590 write it: blanks and tabs, other keys before and after
FILE = """Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 42
GPU UUID: \t {uuid}
Video BIOS: \t 96.00.74.00.01
Bus Location: \t 0000:19:00.0
Device Minor: \t {minor}
GPU Excluded:\t No
"""


@pytest.mark.parametrize(
    ("uuid", "minor", "gpu"),
    [
        (UUID, "3", InventoryGpu(uuid=UUID, device="nvidia3")),
        (UUID, "03", InventoryGpu(uuid=UUID, device="nvidia3")),
        (UUID, "", InventoryGpu(uuid=UUID)),
        (UUID, "\N{ARABIC-INDIC DIGIT THREE}", InventoryGpu(uuid=UUID)),
        ("GPU-????????-????-????-????-????????????", "0", None),
        ("", "0", None),
    ],
)
def test_a_gpus_file(uuid: str, minor: str, gpu: InventoryGpu | None) -> None:
    assert parse(FILE.format(uuid=uuid, minor=minor)) == gpu


def test_what_is_no_such_file() -> None:
    assert parse("") is None
    assert parse("\0\n:\nGPU UUID\n") is None


def put(folder: Path, location: str, uuid: str, minor: int) -> None:
    (folder / location).mkdir(parents=True, exist_ok=True)
    (folder / location / "information").write_text(FILE.format(uuid=uuid, minor=minor))


def test_all_gpus_by_their_place_on_the_bus(tmp_path: Path) -> None:
    assert read(tmp_path / "none") is None
    assert read(tmp_path) == ()
    other = UUID.replace("8", "9")
    put(tmp_path, "0000:3b:00.0", other, 1)
    put(tmp_path, "0000:19:00.0", UUID, 0)
    (tmp_path / "0000:ff:00.0").mkdir()  # it fell off the bus
    found = read(tmp_path)
    assert found is not None
    assert [gpu.device for gpu in found] == ["nvidia0", "nvidia1"]


def test_no_more_gpus_and_bytes_than_the_bounds_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_inventory, "MOST_GPUS", 2)
    monkeypatch.setattr(driver_inventory, "MOST_BYTES", 500)
    for number in range(3):
        put(tmp_path, f"0000:1{number}:00.0", UUID, number)
    assert len(read(tmp_path) or ()) == 2
    (tmp_path / "0000:10:00.0" / "information").write_text("x" * 500 + "\n" + FILE.format(uuid=UUID, minor=0))
    (tmp_path / "0000:11:00.0" / "information").write_text("x" * 500 + "\n" + FILE.format(uuid=UUID, minor=0))
    (tmp_path / "0000:12:00.0" / "information").write_text("x" * 500 + "\n" + FILE.format(uuid=UUID, minor=0))
    assert read(tmp_path) == ()


async def test_it_is_read_again_after_a_while_and_kept_while_it_cannot_be(tmp_path: Path) -> None:
    clock, folder = Clock(), tmp_path / "gpus"
    healths: list[Health] = []
    source = DriverInventory(folder=str(folder), on_health=lambda _, health: healths.append(health), clock=clock)
    first = source.begin()
    assert first is not None
    await first
    assert (is_absent(source.health), source.inventory.gpus, healths) == (True, (), [])
    put(folder, "0000:19:00.0", UUID, 0)
    assert source.begin() is None
    clock.ahead = AGAIN_SECONDS
    assert source.begin() is None, "only the first read is worth waiting for"
    while not source.inventory.gpus:
        await asyncio.sleep(0)
    assert (source.health.up, len(healths)) == (True, 1)
    known = source.inventory
    clock.ahead = 2 * AGAIN_SECONDS
    source.begin()
    while len(healths) < 2:
        await asyncio.sleep(0)
    assert source.inventory is known, "the same object as long as nothing changed"
    (folder / "0000:19:00.0" / "information").unlink()
    (folder / "0000:19:00.0" / "information").mkdir()
    clock.ahead = 3 * AGAIN_SECONDS
    source.begin()
    while len(healths) < 3:
        await asyncio.sleep(0)
    assert (source.health.up, source.health.reason) == (False, "permission")
    assert source.inventory is known
    await source.close()


async def test_the_first_page_knows_it(tmp_path: Path, simulated: SimulatedNode) -> None:
    """A GPU that is handed out by its number, and that no sample speaks of."""
    put(tmp_path / driver_inventory.FOLDER.lstrip("/"), "0000:f1:00.0", UUID, 77)
    main = Container(name="main", devices=(("nvidia.com/gpu", "nvidia77"),))
    simulated.world.pods = (Pod(namespace="ml", name="train", containers=(main,)),)
    given = {"kubelet_socket": str(simulated.socket), "dcgm_url": simulated.url, "root": str(tmp_path)}
    config = config_of(**given)
    async with running(config) as exporter:
        rows = json.loads((await exporter.get("/container/metrics?pod=train"))[1])
        assert [row["device_uuid"] for row in rows] == [UUID]
        assert 'source_up{source="driver"} 1\n' in (await exporter.get("/metrics"))[1]
    async with running(config_of(**given, inventory="off")) as off:
        assert 'source="driver"' not in (await off.get("/metrics"))[1]
