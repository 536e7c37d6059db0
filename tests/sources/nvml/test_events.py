"""What the driver tells of without being asked, on the simulator's stand-in for the library."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from exporter.simulator.nvml import SimulatedNvml
from exporter.sources.nvml.library import (
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    NOT_SUPPORTED,
    UNINITIALIZED,
    UNKNOWN,
    Failed,
    Library,
)
from exporter.sources.nvml.nvml_reader import INVENTORY_SECONDS, LOST_SECONDS, MOST_EVENTS, UNTOLD_SECONDS, NvmlReader
from tests.support.nvml import GPU, stand_in, whole_and_cut
from tests.support.simulated import SimulatedGpu

CALLS = (
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlEventSetCreate",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetWait_v2",
)


@pytest.fixture
def nvml(tmp_path: Path) -> SimulatedNvml:
    return stand_in(tmp_path)


@pytest.fixture
def reader(nvml: SimulatedNvml) -> Iterator[NvmlReader]:
    made = NvmlReader(Library(str(nvml.library)))
    yield made
    nvml.write(whole_and_cut())
    made.library.close()


def happen(nvml: SimulatedNvml, *more: str) -> None:
    nvml.write(whole_and_cut(), more, is_recut=False)


def recut(nvml: SimulatedNvml, *more: str, instances: int = 1) -> None:
    first, second = whole_and_cut()
    nvml.write((first, SimulatedGpu(index=1, uuid=GPU(1), instances=second.instances[:instances])), more)


def instances(reader: NvmlReader, now: float) -> int:
    return len(reader.read(now).inventory.gpus[1].mig)


def test_the_last_error_of_each_gpu_is_known_from_the_first_reading_on(nvml: SimulatedNvml, reader: NvmlReader) -> None:
    happen(nvml, "xid 0 31 1")
    reader.read(0)
    assert reader.events.last_xids == {GPU(0): 0, GPU(1): 0}, "what came before is not told"
    happen(nvml, "xid 0 31 1", "xid 1 63 2", "xid 0 13 3", "xid 0 79 4")
    reader.read(1)
    assert reader.events.last_xids == {GPU(0): 79, GPU(1): 63}
    happen(nvml)
    reader.read(INVENTORY_SECONDS + 2)
    assert reader.events.last_xids == {GPU(0): 79, GPU(1): 63}


def test_a_flood_of_errors_is_taken_piece_by_piece(nvml: SimulatedNvml, reader: NvmlReader) -> None:
    reader.read(0)
    happen(nvml, *(f"xid 0 {number} {number}" for number in range(1, MOST_EVENTS + 11)))
    reader.read(1)
    assert reader.events.last_xids[GPU(0)] == MOST_EVENTS
    reader.read(2)
    assert reader.events.last_xids[GPU(0)] == MOST_EVENTS + 10


def test_where_changes_are_not_told_errors_are(nvml: SimulatedNvml, reader: NvmlReader) -> None:
    nvml.tells_changes = False
    nvml.write(whole_and_cut())
    reader.read(0)
    nvml.write(whole_and_cut(), ["xid 1 48 1"])
    reader.read(1)
    assert reader.events.last_xids == {GPU(0): 0, GPU(1): 48}


def test_a_change_between_the_first_reading_and_the_second_is_seen(nvml: SimulatedNvml, reader: NvmlReader) -> None:
    """The driver begins to tell of changes after the GPUs were read."""
    assert instances(reader, 0) == 2
    first, second = whole_and_cut()
    nvml.write((first, SimulatedGpu(index=1, uuid=GPU(1), instances=second.instances[:1])), is_recut=False)
    assert instances(reader, 1) == 1
    nvml.write((first, second), is_recut=False)
    assert instances(reader, 2) == 1, "from then on the driver is trusted"
    nvml.write((first, second))
    assert instances(reader, 3) == 2


# issue 10, "Must show" 6
@pytest.mark.parametrize("code", [NOT_SUPPORTED, FUNCTION_NOT_FOUND, UNKNOWN, GPU_IS_LOST])
@pytest.mark.parametrize("call", CALLS)
def test_without_a_call_about_events_the_gpus_are_read_often(
    nvml: SimulatedNvml, reader: NvmlReader, call: str, code: int
) -> None:
    fault = f"fail {call} {code} 1"
    recut(nvml, fault, instances=2)
    assert instances(reader, 0) == 2
    recut(nvml, fault)
    assert instances(reader, UNTOLD_SECONDS) == 1
    recut(nvml, instances=2)
    assert instances(reader, 2 * UNTOLD_SECONDS + LOST_SECONDS) == 2


def test_a_gpu_that_comes_back_is_told_of_again(nvml: SimulatedNvml, reader: NvmlReader) -> None:
    reader.read(0)
    happen(nvml, f"fail nvmlDeviceGetComputeRunningProcesses_v3 {GPU_IS_LOST} 1", "xid 1 79 1")
    reader.read(1)
    assert reader.events.last_xids[GPU(1)] == 79
    happen(nvml, f"fail nvmlDeviceGetHandleByIndex_v2 {GPU_IS_LOST} 1")
    reader.read(1 + INVENTORY_SECONDS)
    assert reader.events.last_xids == {GPU(0): 0}, "nobody can tell of it"
    happen(nvml)
    reader.read(2 + INVENTORY_SECONDS + LOST_SECONDS)
    assert reader.events.last_xids == {GPU(0): 0, GPU(1): 79}
    recut(nvml)
    assert instances(reader, 3 + INVENTORY_SECONDS + LOST_SECONDS) == 1


def test_a_library_that_is_loaded_anew_has_a_set_of_its_own(nvml: SimulatedNvml, reader: NvmlReader) -> None:
    reader.read(0)
    happen(nvml, "xid 0 31 1", f"fail nvmlDeviceGetComputeRunningProcesses_v3 {UNINITIALIZED} -1")
    with suppress(Failed):
        reader.read(1)
    assert not reader.library.is_open
    happen(nvml, "xid 0 31 1")
    reader.read(2)
    assert reader.events.last_xids[GPU(0)] == 31
    happen(nvml, "xid 0 31 1", "xid 0 45 2")
    reader.read(3)
    assert reader.events.last_xids[GPU(0)] == 45
