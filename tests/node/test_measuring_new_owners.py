"""Owners that come between two readings of the driver."""

import asyncio
import time
import uuid
from collections.abc import Callable

from exporter.model.devices import DeviceKey, Holder, Inventory, InventoryGpu, Owners
from exporter.model.driver import DriverReading, GpuProcess
from exporter.model.measured import HostProcesses, Process, ProcessPlace
from exporter.model.pods import Owner, PodInfo
from exporter.model.snapshot import Health
from exporter.node.measuring import Measuring
from exporter.sources.node_inventory import NoInventory
from exporter.usage.process_owners import Containers
from exporter.usage.sm_times import SmTimes


class Driver(NoInventory):
    """NVML that says what a test puts here."""

    reading: DriverReading | None = None

    def __init__(self) -> None:
        super().__init__()
        self.followers: list[Callable[[DriverReading], None]] = []


class Kubelet:
    """The kubelet's source, once it has answered."""

    health = Health(up=True)
    age_seconds = 0.0
    outside = ()


class Told:
    """Sources that were read: of processes, and of containers."""

    task = None
    containers = Containers()

    def __init__(self, processes: HostProcesses | None = None) -> None:
        self.processes = processes

    def want(self, *_: object) -> None:
        """It knows."""

    look_after = want

    def begin(self) -> None:
        """It was read."""


async def test_new_owners_are_measured_by_processes_looked_up_for_the_reading() -> None:
    a, b = (Owner(namespace="ml", pod=pod, container="main") for pod in "ab")
    gpu = DeviceKey(uuid="GPU-1")

    def held_by(*owners: Owner) -> Owners:
        return Owners(holders={gpu: tuple(Holder(owner=each, resource="x", shared=True) for each in owners)})

    def seen(pid: int, at: float) -> HostProcesses:
        place = ProcessPlace(container_id="f" * 64, pod_uid=str(uuid.UUID(int=1)))
        return HostProcesses(
            by_pid={pid: Process(pid=pid, started_at=1.0, place=place)}, asked_for=frozenset({pid}), read_at=at
        )

    process = GpuProcess(pid=7, device=gpu, memory_bytes=5, sm_ratio=0.5, kinds=frozenset({"compute"}))
    driver = Driver()
    driver.reading = DriverReading(
        inventory=Inventory(gpus=(InventoryGpu(uuid="GPU-1"),)), processes=(process,), read_at=time.monotonic()
    )
    pod = PodInfo(
        namespace="ml", name="a", uid=str(uuid.UUID(int=1)), labels={}, container_ids={"main": f"x://{'f' * 64}"}
    )
    measures = Measuring(nvml=driver, root="/", is_missed=False, on_health=lambda *_: None)
    processes, logs = Told(seen(7, driver.reading.read_at)), Told()
    measures._times, measures._sources = SmTimes(), (processes, logs)  # type: ignore[assignment] # they are read
    pods = {("ml", "a"): pod}
    assert measures.measured_for(held_by(a), pods, Kubelet()) is None  # type: ignore[arg-type]
    await asyncio.sleep(0)
    while measures._task is not None and not measures._task.done():
        await asyncio.sleep(0)
    # the next reading's process is another one, and is being looked for
    processes.processes = seen(8, time.monotonic())
    known = measures.measured_for(held_by(a, b), pods, Kubelet())  # type: ignore[arg-type]
    assert known is not None
    assert {owner: use.memory_bytes for (_, owner), use in known.uses.items()} == {a: 5, b: 0}
    assert known.sm_ns == {gpu: {a: 0, b: 0, None: 0}}
