"""`demo --fail`: a GPU falls off the bus, and every part of the simulated node shows it as a real one does."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.simulator import driver_files
from exporter.simulator.allocators import Hami
from exporter.simulator.kernel_log import DEVICE, SimulatedKernelLog
from exporter.simulator.parts import Container, Pod, SimulatedGpu
from exporter.simulator.pods_api import described
from exporter.simulator.world import ids_of
from exporter.sources.kernel_log.kernel_lines import EventReader, read_record
from tests.simulator.test_node import Time
from tests.support.simulated import ENDS_STEP, RETAKEN_STEP, GpuFailure, World

AFTER = 60.0


class Dying:
    """A world whose failure is due after AFTER seconds of a clock that stands, and the kernel's log of it."""

    def __init__(self, folder: Path, **gpus: Any) -> None:
        self.time = Time()
        self.world = World(seed=2, clock=self.time, **gpus)
        self.log = SimulatedKernelLog((folder,))
        self.failure = GpuFailure(self.world, self.log, after_seconds=AFTER)
        self.pipe = os.open(folder / DEVICE, os.O_RDONLY | os.O_NONBLOCK)

    def die(self, pid: int | None = None) -> SimulatedGpu:
        """The GPU that dies when it is time; `pid` is of each process on a GPU."""
        self.time.sleep(AFTER)
        processes = [(pod.uid, device) for pod in self.world.pods for device in pod.devices]
        self.failure.look(dict.fromkeys(processes, pid) if pid else {})
        (lost,) = (gpu for gpu in self.world.gpus if gpu.is_lost)
        return lost

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self.failure.live()

    def read(self) -> str:
        return os.read(self.pipe, 65536).decode()


@pytest.fixture
def dying(tmp_path: Path) -> Callable[..., Dying]:
    return lambda **gpus: Dying(tmp_path, **gpus)


def holders(world: World, gpu: SimulatedGpu) -> list[Pod]:
    return [pod for pod in world.pods if not pod.has_ended and not ids_of(gpu).isdisjoint(pod.devices)]


def words_of(container: Container) -> list[tuple[str, str, str]]:
    """What the kubelet says of a container's devices that device plugins gave it."""
    (status,) = described(Pod(namespace="", name="", containers=(container,)))["status"]["containerStatuses"]
    return [
        (word["resourceID"], word["health"], word.get("message", ""))
        for allocated in status["allocatedResourcesStatus"]
        for word in allocated["resources"]
        if not allocated["name"].startswith("claim:")
    ]


KINDS = (
    {"gpus": 4},
    {"gpus": 2, "shared": 2},
    {"gpus": 2, "mig": 2},
    {"gpus": 2, "claims": 2},
    {"gpus": 2, "units": 2},
    {"gpus": 8, "shared": 2, "mig": 1, "claims": 3, "units": 1},
)


@pytest.mark.parametrize("gpus", KINDS, ids=str)
def test_a_gpu_that_somebody_holds_is_lost_and_well_again_later(
    gpus: dict[str, int], dying: Callable[..., Dying]
) -> None:
    node = dying(**gpus)
    node.failure.look({})
    assert not any(gpu.is_lost for gpu in node.world.gpus)  # it is not due
    lost = node.die()
    held = holders(node.world, lost)
    assert held
    assert lost.uuid == node.failure.gpu
    assert [pod.name for pod in held] == [pod.name for pod in node.failure.holders]
    assert lost.offers == ()
    assert lost.uuid not in dict(node.world.free())
    of_plugins = {one for pod in held for container in pod.containers for one in words_of(container)}
    assert of_plugins == {
        (device_id, "Unhealthy" if device_id in ids_of(lost) else "Healthy", "")
        for pod in held
        for container in pod.containers
        for _, device_id in container.devices
    }
    node.live(ENDS_STEP)
    assert holders(node.world, lost) == []
    assert {pod.phase for pod in node.world.pods if pod.name in {one.name for one in held}} == {"Failed"}
    node.live(RETAKEN_STEP - ENDS_STEP)
    (well,) = (gpu for gpu in node.world.gpus if gpu.uuid == lost.uuid)
    assert not well.is_lost
    after = holders(node.world, well)
    assert after
    assert {pod.name for pod in after}.isdisjoint(pod.name for pod in held)


def test_the_pod_s_controller_makes_another_on_another_gpu(dying: Callable[..., Dying]) -> None:
    node = dying(gpus=8)
    lost = node.die()
    (failed,) = holders(node.world, lost)
    node.live(ENDS_STEP)
    new = node.world.pods[-1]
    assert (new.namespace, new.owner) == (failed.namespace, failed.owner)
    assert new.name != failed.name
    assert len(new.devices) == len(failed.devices)
    assert lost.uuid not in new.devices
    assert all(container.ailing == () for container in new.containers)


def test_the_kernel_s_log_has_what_the_driver_writes(dying: Callable[..., Dying], tmp_path: Path) -> None:
    node = dying(gpus=20)
    lost = node.die(4711)
    reader = EventReader()
    records = [read_record(line.encode()) for line in node.read().splitlines()]
    events = [event for record in records if record and (event := reader.read(record))]
    assert [(event.code, event.pid) for event in events] == [(79, 4711), (154, 4711)]
    assert {event.address for event in events} == {"0000:19:00.0"}
    assert lost.index == 0
    container = Container(name="main", devices=node.world.gpus[19].slots)
    pod = node.world.make.pod("ml", "render", (container,))
    node.world.pods = (pod,)  # on the bus of a second domain
    node.world.crash(pod, 31)
    node.log.write_new(node.world.machine, {})
    (line,) = node.read().splitlines()
    crashed = next(gpu for gpu in node.world.gpus if gpu.uuid in pod.devices)
    (address,) = re.findall(r"PCI:([0-9a-f:]+)\)", line)
    driver_files.write(tmp_path, node.world.gpus)
    assert crashed.uuid in (tmp_path / f"proc/driver/nvidia/gpus/{address}.0/information").read_text()
    node.log.write_new(node.world.machine, {})
    with pytest.raises(BlockingIOError):
        node.read()


# issue 24, part 6: the device plugin reports its tokens of the lost GPU, whoever has them
def test_the_kubelet_reports_every_pod_with_a_token_of_the_lost_gpu(dying: Callable[..., Dying]) -> None:
    died = dying(gpus=4, allocator=Hami())
    lost = died.die()
    tokens = {token for _, token in lost.tokens}
    ailing = {device for pod in died.world.pods for container in pod.containers for device, _, _ in container.ailing}
    assert ailing == tokens & {
        device
        for pod in died.world.pods
        if not pod.has_ended
        for container in pod.containers
        for _, device in container.devices
    }
    assert ailing
    assert {offer for gpu in died.world.gpus for _, offer in gpu.offers}.isdisjoint(tokens)
    died.failure.end_holders()
    died.failure.repair()
    assert not any(container.ailing for pod in died.world.pods for container in pod.containers)


class TestEnds:
    """How containers end, as the kubelet says it."""

    @staticmethod
    def ends(world: World, **of_end: Any) -> dict[str, Any]:
        pod = next(pod for pod in world.pods if pod.devices)
        (status, *_) = described(world.fall(pod, **of_end))["status"]["containerStatuses"]
        return dict(status)

    def test_a_job_ends_for_good(self) -> None:
        world = World(gpus=1, seed=1)
        gpu = world.gpus[0].uuid
        main = Container(name="main", devices=(("nvidia.com/gpu", gpu),))
        world.pods = (Pod(namespace="ml", name="job", uid="1", containers=(main,), work=("batch", "x")),)
        status = self.ends(world)
        assert (status["state"]["terminated"]["exitCode"], status["lastState"]) == (1, {})
        assert status["state"]["terminated"]["containerID"] == status["containerID"]

    def test_a_service_waits_and_starts_anew_with_another_id(self) -> None:
        world = World(gpus=1, seed=1)
        main = Container(name="main", devices=(("nvidia.com/gpu", world.gpus[0].uuid),))
        world.pods = (Pod(namespace="ml", name="chat", uid="1", containers=(main,), work=("serving", "x")),)
        status = self.ends(world, exit_code=137, reason="OOMKilled")
        assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert status["lastState"]["terminated"]["reason"] == "OOMKilled"
        assert (status["restartCount"], status["lastState"]["terminated"]["containerID"]) == (0, status["containerID"])
        world.recover()
        (again,) = described(world.pods[0])["status"]["containerStatuses"]
        assert (again["restartCount"], again["state"], again["lastState"]) == (1, {"running": {}}, status["lastState"])
        assert again["containerID"] != status["containerID"]
