"""What is read of NVML, on the simulator's stand-in for the library."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.model.devices import DeviceKey, InventoryGpu, MigInstance
from exporter.model.driver import DriverReading
from exporter.simulator.nvml import SimulatedNvml
from exporter.sources.nvml import nvml_reader as of_reader
from exporter.sources.nvml.library import (
    DRIVER_NOT_LOADED,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNINITIALIZED,
    UNKNOWN,
    VERSION_MISMATCH,
    Failed,
    Library,
    NotThere,
)
from exporter.sources.nvml.nvml_reader import INVENTORY_SECONDS, LOST_SECONDS, UNTOLD_SECONDS, NvmlReader
from tests.support.nvml import GPU, MIG, NEEDED, OF_GPU, OF_MIG, OPTIONAL, stand_in, whole_and_cut
from tests.support.simulated import SimulatedGpu

WHOLE = InventoryGpu(uuid=GPU(0), index="0", device="nvidia0")
CUT = InventoryGpu(
    uuid=GPU(1),
    index="1",
    device="nvidia1",
    mig=tuple(MigInstance(uuid=MIG(number), instance_id=str(1 + number), profile="3g.40gb") for number in range(2)),
    slices=7,
)
PROCESSES = (
    "process 0 -1 -1 100 c 5000",
    "process 0 -1 -1 100 g 5000",
    "process 0 -1 -1 101 m -1",
    "process 1 1 0 100 c 10",
    "process 1 2 0 200 c 7",
    "sample 0 100 1000 40",
    "sample 0 100 2000 60",
    "sample 0 100 3000 4294967295",
)


@pytest.fixture
def nvml(tmp_path: Path) -> SimulatedNvml:
    return stand_in(tmp_path, more=PROCESSES)


@pytest.fixture
def new_reader(nvml: SimulatedNvml) -> Iterator[Callable[[], NvmlReader]]:
    readers = []

    def make() -> NvmlReader:
        readers.append(NvmlReader(Library(str(nvml.library))))
        return readers[-1]

    yield make
    for reader in readers:
        reader.library.close()


def of(reading: DriverReading) -> dict[tuple[int, int, str], tuple[int | None, float | None, str]]:
    """By pid, GPU and instance: memory, part of the time, and the first letters of the kinds."""
    return {
        (one.pid, int(one.device.uuid[4:12]), one.device.instance): (
            one.memory_bytes,
            one.sm_ratio,
            "".join(sorted(kind[0] for kind in one.kinds)),
        )
        for one in reading.processes or ()
    }


def test_gpus_instances_and_processes(new_reader: Callable[[], NvmlReader]) -> None:
    reader = new_reader()
    reading = reader.read(7.0)
    assert (reading.inventory.gpus, reading.read_at, reading.unknown) == ((WHOLE, CUT), 7.0, frozenset())
    assert of(reading) == {
        (100, 0, ""): (5000, 0.5, "cg"),  # one memory, though two lists name it; rubbish is no sample
        (101, 0, ""): (None, 0.0, "m"),
        (100, 1, "1"): (10, None, "c"),
        (200, 1, "2"): (7, None, "c"),
    }
    assert [one.device for one in reading.processes or ()] == sorted(one.device for one in reading.processes or ())
    assert reader.trouble is None


def test_a_gpu_that_is_not_cut_has_no_instance_0(nvml: SimulatedNvml, new_reader: Callable[[], NvmlReader]) -> None:
    nvml.write(whole_and_cut(), ["process 0 0 0 41 c 4823449600", "process 0 0 0 41 g 5"])
    assert of(new_reader().read(0)) == {(41, 0, ""): (4823449600, 0.0, "cg")}


def test_each_reader_hears_of_the_time_since_its_own_last_read(
    nvml: SimulatedNvml, new_reader: Callable[[], NvmlReader]
) -> None:
    first, second = new_reader(), new_reader()
    first.read(0)
    assert of(first.read(1))[100, 0, ""][1] == 0.0, "no sample since: it did nothing"
    nvml.write(whole_and_cut(), [*PROCESSES, "sample 0 100 4000 80", "sample 0 101 4000 10"])
    assert of(first.read(2))[100, 0, ""][1] == 0.8
    assert of(first.read(3))[101, 0, ""][1] == 0.0
    assert of(second.read(3))[100, 0, ""][1] == pytest.approx(0.6)


# issue 22, line 39
def test_serial_numbers(nvml: SimulatedNvml, new_reader: Callable[[], NvmlReader]) -> None:
    nvml.write(whole_and_cut(), ["text 1 nvmlDeviceGetSerial 1652923045678"])
    assert [gpu.serial for gpu in new_reader().read(0).inventory.gpus] == ["", "1652923045678"]


# issue 18, line 5
def test_while_a_gpu_works_the_last_sample_stands_until_there_is_a_new_one(
    nvml: SimulatedNvml, new_reader: Callable[[], NvmlReader]
) -> None:
    def works(percent: int) -> list[str]:
        return [*PROCESSES, *(f"value 0 nvmlDeviceGetUtilizationRates {of} {percent}" for of in (0, 1))]

    reader = new_reader()
    assert reader.read(0).busy == {}, "this GPU does not measure it"
    nvml.write(whole_and_cut(), works(85))
    reading = reader.read(1)
    assert (of(reading)[100, 0, ""][1], reading.busy) == (0.5, {DeviceKey(uuid=GPU(0)): 0.85})
    nvml.write(whole_and_cut(), works(60))
    assert reader.read(2).busy == {DeviceKey(uuid=GPU(0)): 0.6}
    assert reader.read(2.9).busy == {DeviceKey(uuid=GPU(0)): 0.6}
    assert of(reader.read(3.0))[100, 0, ""][1] == 0.0, "it is too old"
    nvml.write(whole_and_cut(), [*works(90), "sample 0 100 4000 80"])
    reading = reader.read(4)
    assert (of(reading)[100, 0, ""][1], reading.busy) == (0.8, {DeviceKey(uuid=GPU(0)): 0.6}), "90 % may be a burst"
    nvml.write(whole_and_cut(), works(0))
    assert of(reader.read(5))[100, 0, ""][1] == 0.0, "nothing runs"


def test_compute_instances_of_one_gpu_instance_add_up(
    nvml: SimulatedNvml, new_reader: Callable[[], NvmlReader]
) -> None:
    """A GPU instance that is cut into two compute instances has two MIG devices."""
    parts = [f"mig 1 {place} 5 {part} 3 1 40192 {MIG(place)} MIG 1c.3g.40gb" for place, part in ((3, 0), (4, 1))]
    running = ["process 1 5 0 300 c 10", "process 1 5 1 300 c 7", "process 1 5 1 301 c -1"]
    nvml.write((SimulatedGpu(index=0, uuid=GPU(0)),), [f"gpu 1 1 1 85520809984 {GPU(1)}", *parts, *running])
    reading = new_reader().read(0)
    assert [mig.profile for mig in reading.inventory.gpus[1].mig] == ["1c.3g.40gb"] * 2
    assert {key[0]: memory for key, (memory, _, _) in of(reading).items()} == {300: 17, 301: None}


@pytest.mark.parametrize(
    ("sizes", "profile"),
    [("3 3 40192", "3g.40gb"), ("3 1 40192", "1c.3g.40gb"), ("1 1 9984", "1g.10gb"), ("7 7 80896", "7g.80gb")],
)
def test_an_old_driver_tells_a_profile_by_its_sizes(
    nvml: SimulatedNvml, new_reader: Callable[[], NvmlReader], sizes: str, profile: str
) -> None:
    nvml.write((), [f"gpu 0 0 1 85520809984 {GPU(0)}", f"mig 0 0 5 0 {sizes} {MIG(0)} NVIDIA H100 80GB HBM3"])
    assert [mig.profile for mig in new_reader().read(0).inventory.gpus[0].mig] == [profile]


# issue 10, "Must show" 6
@pytest.mark.parametrize("code", [NOT_SUPPORTED, FUNCTION_NOT_FOUND, UNKNOWN])
@pytest.mark.parametrize("call", OPTIONAL)
def test_a_call_that_is_not_there_costs_what_it_tells_and_no_more(
    nvml: SimulatedNvml, new_reader: Callable[[], NvmlReader], call: str, code: int
) -> None:
    whole = of(new_reader().read(0))
    nvml.write(whole_and_cut(), [*PROCESSES, f"fail {call} {code} -1"])
    reading = new_reader().read(0)
    assert [gpu.uuid for gpu in reading.inventory.gpus] == [GPU(0), GPU(1)]
    assert [mig.instance_id for mig in reading.inventory.gpus[1].mig] == ["1", "2"]
    if call == "nvmlDeviceGetMinorNumber":
        assert [gpu.device for gpu in reading.inventory.gpus] == ["", ""]
    elif call == "nvmlDeviceGetGpuInstanceProfileInfoV":
        assert reading.inventory.gpus == (WHOLE, replace(CUT, slices=None))
    else:
        assert reading.inventory.gpus == (WHOLE, CUT)
    if call == "nvmlDeviceGetComputeRunningProcesses_v3":
        # drivers before R510 have _v2; any other failure leaves the processes unknown, which is not none
        assert of(reading) == (whole if code == FUNCTION_NOT_FOUND else {})
        assert reading.unknown == (set() if code == FUNCTION_NOT_FOUND else {GPU(0), GPU(1)})
    else:
        assert reading.unknown == set()
        assert of(reading).keys() == whole.keys() or "MPS" in call
    if call == "nvmlDeviceGetProcessUtilization":
        assert of(reading)[100, 0, ""] == (5000, None, "cg")


# issue 10, "Must show" 6
@pytest.mark.parametrize("code", [NOT_SUPPORTED, FUNCTION_NOT_FOUND])
@pytest.mark.parametrize("call", OF_MIG)
def test_if_a_call_about_instances_fails_no_instance_is_listed(
    nvml: SimulatedNvml, new_reader: Callable[[], NvmlReader], call: str, code: int
) -> None:
    nvml.write(whole_and_cut(), [f"fail {call} {code} -1"])
    reader = new_reader()
    reading = reader.read(0)
    assert WHOLE in reading.inventory.gpus
    assert not any(gpu.mig for gpu in reading.inventory.gpus)
    told = call in ("nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstanceId")
    assert bool(reader.trouble) is told
    assert not reader.trouble or call.removesuffix("_v2") in reader.trouble.message


# issue 10, "Must show" 6
@pytest.mark.parametrize("call", [*OPTIONAL, *OF_MIG, *OF_GPU])
def test_a_gpu_that_falls_off_the_bus_in_any_call_costs_no_other(
    nvml: SimulatedNvml, new_reader: Callable[[], NvmlReader], call: str
) -> None:
    reader = new_reader()
    reader.read(0)
    nvml.write(whole_and_cut(), [*PROCESSES, f"fail {call} {GPU_IS_LOST} 1"])
    for moment in (1.0, 2.0):
        reading = reader.read(moment)
        assert [gpu.uuid for gpu in reading.inventory.gpus] == [GPU(0), GPU(1)], "its ids mean it and no other"
        assert of(reading)[100, 0, ""][0] == 5000
    asked = call not in ("nvmlDeviceGetAttributes_v2", "nvmlEventSetCreate", "nvmlEventSetWait_v2")
    asked &= call not in ("nvmlDeviceGetProcessUtilization", "nvmlDeviceGetSupportedEventTypes")
    asked &= call != "nvmlDeviceGetUtilizationRates"
    asked &= call != "nvmlDeviceRegisterEvents"
    if asked:
        assert reader.trouble is not None
        assert "off the bus" in reader.trouble.message
        assert "dmesg" in reader.trouble.remedy
        assert reading.unknown == {GPU(1)}
        assert reading.lost == {GPU(1): LOST[GPU_IS_LOST]}
    nvml.write(whole_and_cut(), PROCESSES)
    assert reader.read(3 + LOST_SECONDS + INVENTORY_SECONDS).inventory.gpus == (WHOLE, CUT)
    assert reader.trouble is None


# issue 10, "Must show" 6
@pytest.mark.parametrize(
    ("call", "code"),
    [
        *((call, DRIVER_NOT_LOADED) for call in (*NEEDED, *OF_GPU, *OF_MIG, *OPTIONAL)),
        (NEEDED[-1], UNINITIALIZED),
        (NEEDED[-1], VERSION_MISMATCH),
    ],
)
def test_a_driver_that_went_in_any_call_lets_go_of_the_library(
    nvml: SimulatedNvml, new_reader: Callable[[], NvmlReader], call: str, code: int
) -> None:
    nvml.write(whole_and_cut(), [f"fail {call} {code} -1"])
    reader = new_reader()
    # what it need not ask, and what it asks later
    if call in ("nvmlDeviceGetAttributes_v2", "nvmlEventSetWait_v2", *OPTIONAL[8:11]):
        with suppress(Failed):
            reader.read(0)
    else:
        with pytest.raises(Failed) as raised:
            reader.read(0)
        assert (raised.value.code, reader.library.is_open) == (code, False)
    nvml.write(whole_and_cut())
    assert reader.read(1 + INVENTORY_SECONDS).inventory.gpus == (WHOLE, CUT)


@pytest.mark.parametrize("call", NEEDED)
def test_without_what_it_needs_a_reading_fails(
    nvml: SimulatedNvml, new_reader: Callable[[], NvmlReader], call: str
) -> None:
    nvml.write(whole_and_cut(), [f"fail {call} {UNKNOWN} -1"])
    with pytest.raises(Failed, match=call.removesuffix("_v2")):
        new_reader().read(0)


def test_who_may_not_ask_for_the_processes_of_an_instance_is_told(
    nvml: SimulatedNvml, new_reader: Callable[[], NvmlReader]
) -> None:
    nvml.write(whole_and_cut(), [*PROCESSES, f"fail nvmlDeviceGetComputeRunningProcesses_v3 {NO_PERMISSION} 1"])
    reader = new_reader()
    reading = reader.read(0)
    assert (set(reading.unknown), {key[1] for key in of(reading)}) == ({GPU(1)}, {0})
    assert reader.trouble is not None
    assert (reader.trouble.reason, "NVIDIA_MIG_MONITOR_DEVICES" in reader.trouble.remedy) == ("permission", True)


@pytest.mark.parametrize(("tells", "seconds"), [(True, 0.0), (False, UNTOLD_SECONDS)])
def test_a_gpu_that_is_cut_anew_is_followed(
    nvml: SimulatedNvml, new_reader: Callable[[], NvmlReader], tells: bool, seconds: float
) -> None:
    first, second = whole_and_cut()
    nvml.tells_changes = tells
    nvml.write((first, second))
    reader = new_reader()
    before = reader.read(0).inventory
    assert reader.read(UNTOLD_SECONDS).inventory is before, "the same object as long as nothing changed"
    nvml.write((first, SimulatedGpu(index=1, uuid=GPU(1), instances=second.instances[:1])))
    reading = reader.read(UNTOLD_SECONDS + 0.1 + seconds)
    assert [mig.uuid for mig in reading.inventory.gpus[1].mig] == [MIG(0)]


def test_no_more_than_the_bounds(
    nvml: SimulatedNvml, new_reader: Callable[[], NvmlReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_reader, "MOST_PROCESSES", 2)
    monkeypatch.setattr(of_reader, "MOST_GPUS", 1)
    nvml.write(whole_and_cut(), [f"process 0 -1 -1 {pid} c 1" for pid in range(5)])
    reader = new_reader()
    reading = reader.read(0)
    assert (len(reading.processes or ()), len(reading.inventory.gpus)) == (2, 1)
    assert reader.trouble is not None
    assert reader.trouble.reason == "oversize"


@pytest.mark.parametrize("uuid", ["GPU", "GPU-", "x" * 40, "GPU-\N{LATIN SMALL LETTER E WITH ACUTE}1"])
def test_a_gpu_without_a_uuid_is_told_of(nvml: SimulatedNvml, new_reader: Callable[[], NvmlReader], uuid: str) -> None:
    nvml.write((SimulatedGpu(index=0, uuid=GPU(0)), SimulatedGpu(index=1, uuid=uuid)))
    reader = new_reader()
    assert reader.read(0).inventory.gpus == (WHOLE,)
    assert reader.trouble is not None
    assert "GPU 1 cannot be asked" in reader.trouble.message


def test_the_library_that_takes_the_place_of_another_is_loaded(
    nvml: SimulatedNvml, new_reader: Callable[[], NvmlReader]
) -> None:
    """A driver's upgrade puts another file there. The old one would be loaded for ever if it were not let go of."""
    reader = new_reader()
    reader.read(0)
    replaced = nvml.library.with_suffix(".new")
    replaced.write_bytes(nvml.library.read_bytes())
    old = nvml.library.stat().st_ino
    replaced.replace(nvml.library)
    assert str(old) in inodes(nvml.library)
    nvml.write(whole_and_cut(), [f"fail nvmlDeviceGetUUID {VERSION_MISMATCH} -1"])
    with pytest.raises(Failed):
        reader.read(INVENTORY_SECONDS)
    nvml.write(whole_and_cut())
    assert reader.read(2 * INVENTORY_SECONDS).inventory.gpus == (WHOLE, CUT)
    assert inodes(nvml.library) == {str(nvml.library.stat().st_ino)} != {str(old)}


def inodes(library: Path) -> set[str]:
    """Of the files of that name that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if str(library) in line}


def test_one_user_lets_go_and_the_other_goes_on(new_reader: Callable[[], NvmlReader]) -> None:
    one, other = new_reader(), new_reader()
    one.read(0)
    other.read(0)
    one.library.close()
    one.library.close()
    assert other.read(INVENTORY_SECONDS).inventory.gpus == (WHOLE, CUT)
    assert one.read(1).inventory.gpus == (WHOLE, CUT)


def test_where_there_is_no_library() -> None:
    with pytest.raises(NotThere, match="nothere"):
        NvmlReader(Library("libnothere.so.1")).read(0)


MEMORY = ("memory 0 -1 1000 100 250", "memory 1 -1 1000 100 30", "memory 1 1 400 10 20", "memory 1 2 400 10 10")


@pytest.mark.parametrize(
    ("faults", "of_whole", "of_cut"),
    [
        ((), 250, (30, 20, 10)),
        # before R510 what the driver keeps for itself is a part of what is used
        ((f"fail nvmlDeviceGetMemoryInfo_v2 {FUNCTION_NOT_FOUND} -1",), 350, (130, 30, 20)),
        ((f"fail nvmlDeviceGetMemoryInfo_v2 {UNKNOWN} 0",), None, (30, 20, 10)),
    ],
)
def test_the_memory_in_use_of_gpus_and_instances(
    nvml: SimulatedNvml,
    new_reader: Callable[[], NvmlReader],
    faults: tuple[str, ...],
    of_whole: int | None,
    of_cut: tuple[int, ...],
) -> None:
    nvml.write(whole_and_cut(), [*MEMORY, *faults])
    used = dict(zip((DeviceKey(uuid=GPU(1), instance=instance) for instance in ("", "1", "2")), of_cut, strict=True))
    if of_whole is not None:
        used[DeviceKey(uuid=GPU(0))] = of_whole
    assert new_reader().read(0).memory_used == used


def test_compute_instances_of_one_gpu_instance_have_one_memory(
    nvml: SimulatedNvml, new_reader: Callable[[], NvmlReader]
) -> None:
    parts = [f"mig 0 {place} 5 {place} 3 1 40192 {MIG(place)} NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb" for place in (0, 1)]
    nvml.write((), [f"gpu 0 0 1 1000 {GPU(0)}", *parts, "memory 0 5 400 10 20"])
    assert new_reader().read(0).memory_used == {DeviceKey(uuid=GPU(0)): 0, DeviceKey(uuid=GPU(0), instance="5"): 20}


def test_a_device_of_a_process_is_as_samples_name_it(new_reader: Callable[[], NvmlReader]) -> None:
    devices = {one.device for one in new_reader().read(0).processes or ()}
    assert devices == {
        DeviceKey(uuid=GPU(0)),
        DeviceKey(uuid=GPU(1), instance="1"),
        DeviceKey(uuid=GPU(1), instance="2"),
    }
