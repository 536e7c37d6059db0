"""NVML as tests have it: the simulator's stand-in for NVIDIA's library, in a folder of the test's own."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from exporter.simulator.nvml import SimulatedNvml
from exporter.sources.nvml import library
from tests.support.components import real
from tests.support.simulated import Instance, SimulatedGpu
from tests.support.waiting import until

GPU = "GPU-{:08d}-1111-2222-3333-444455556666".format
MIG = "MIG-{:08d}-1111-2222-3333-444455556666".format
# every call that the exporter makes, by its name in the library
OPTIONAL = (
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetName",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetAttributes_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlEventSetCreate",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetWait_v2",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetGpuInstanceProfileInfoV",
)
OF_MIG = (
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
)
OF_GPU = ("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID")
NEEDED = ("nvmlInitWithFlags", "nvmlDeviceGetCount_v2")


def whole_and_cut() -> tuple[SimulatedGpu, SimulatedGpu]:
    """GPU 0 is whole, GPU 1 is cut into two instances."""
    cut = tuple(Instance(device_id=MIG(number), instance_id=1 + number, profile="3g.40gb") for number in range(2))
    return SimulatedGpu(index=0, uuid=GPU(0)), SimulatedGpu(index=1, uuid=GPU(1), instances=cut)


def stand_in(folder: Path, gpus: Iterable[SimulatedGpu] | None = None, more: Iterable[str] = ()) -> SimulatedNvml:
    """A library that can be loaded. It takes gcc to build it."""
    real("gcc")
    nvml = SimulatedNvml(folder / "nvml")
    assert nvml.build()
    nvml.write(whole_and_cut() if gpus is None else tuple(gpus), more)
    return nvml


async def until_nobody_uses_it() -> None:
    """Until every call into the library has come back: whoever hangs there has it for the whole process."""
    await until(lambda: not library.Library.users)


def loads(monkeypatch: pytest.MonkeyPatch, nvml: SimulatedNvml) -> None:
    """From here on the exporter's sources of NVML load this one."""
    monkeypatch.setattr(library, "NAME", str(nvml.library))
