"""The page that NVML fills in dcgm-exporter's place, on the simulator's stand-in for the library."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.exposition.lines import SampleLine, read_line
from exporter.simulator.nvml import SimulatedNvml
from exporter.simulator.parts import SimulatedGpu
from exporter.sources.nvml import nvml_reader as of_reader
from exporter.sources.nvml.library import (
    DRIVER_NOT_LOADED,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNKNOWN,
    Failed,
    Library,
)
from exporter.sources.nvml.nvml_page import FAMILIES, PageMaker
from exporter.sources.nvml.nvml_reader import LOST_SECONDS, NvmlReader
from tests.support.nvml import GPU, MIG, stand_in, whole_and_cut

# The calls by their names in the library: the value of each argument, and what they make of families (without
# DCGM_FI_DEV_).
CALLS: dict[str, tuple[dict[int, int], dict[str, str]]] = {
    "nvmlDeviceGetClockInfo": ({1: 1980, 2: 2619}, {"SM_CLOCK": "1980", "MEM_CLOCK": "2619"}),
    "nvmlDeviceGetTemperatureV": ({0: 61}, {"GPU_TEMP": "61"}),
    "nvmlDeviceGetPowerUsage": ({0: 628_045}, {"POWER_USAGE": "628.045"}),
    "nvmlDeviceGetEnforcedPowerLimit": ({0: 700_000}, {"ENFORCED_POWER_LIMIT": "700.000"}),
    "nvmlDeviceGetTotalEnergyConsumption": ({0: 5_000_000_000}, {"TOTAL_ENERGY_CONSUMPTION": "5000000000"}),
    "nvmlDeviceGetPcieReplayCounter": ({0: 3}, {"PCIE_REPLAY_COUNTER": "3"}),
    "nvmlDeviceGetCurrPcieLinkGeneration": ({0: 5}, {"PCIE_LINK_GEN": "5"}),
    "nvmlDeviceGetCurrPcieLinkWidth": ({0: 16}, {"PCIE_LINK_WIDTH": "16"}),
    "nvmlDeviceGetUtilizationRates": ({0: 90, 1: 40}, {"GPU_UTIL": "90", "MEM_COPY_UTIL": "40"}),
    "nvmlDeviceGetEncoderUtilization": ({0: 7}, {"ENC_UTIL": "7"}),
    "nvmlDeviceGetDecoderUtilization": ({0: 8}, {"DEC_UTIL": "8"}),
    "nvmlDeviceGetCurrentClocksEventReasons": ({0: 4}, {"CLOCKS_EVENT_REASONS": "4"}),
    "nvmlDeviceGetViolationStatus": (
        {0: 10, 1: 11, 2: 12, 3: 13, 4: 14, 5: 15},
        {
            "POWER_VIOLATION": "10",
            "THERMAL_VIOLATION": "11",
            "SYNC_BOOST_VIOLATION": "12",
            "BOARD_LIMIT_VIOLATION": "13",
            "LOW_UTIL_VIOLATION": "14",
            "RELIABILITY_VIOLATION": "15",
        },
    ),
    "nvmlDeviceGetTotalEccErrors": ({0: 2, 1: 1}, {"ECC_SBE_VOL_TOTAL": "2", "ECC_DBE_VOL_TOTAL": "1"}),
    "nvmlDeviceGetRemappedRows": (
        {0: 4, 1: 5, 2: 1, 3: 0},
        {
            "CORRECTABLE_REMAPPED_ROWS": "4",
            "UNCORRECTABLE_REMAPPED_ROWS": "5",
            "ROW_REMAP_PENDING": "1",
            "ROW_REMAP_FAILURE": "0",
        },
    ),
    "nvmlDeviceGetGridLicensableFeatures_v4": ({0: 0}, {"VGPU_LICENSE_STATUS": "0"}),
    "nvmlDeviceGetFieldValues": (
        {82: 70, 138: 1_000_000, 139: 500_000, 38: 21, 45: 22, 52: 23, 59: 24, 31: 1, 161: 25, 162: 26, 163: 27},
        {
            "MEMORY_TEMP": "70",
            "NVLINK_BANDWIDTH_TOTAL": "0",
            "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "21",
            "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": "22",
            "NVLINK_REPLAY_ERROR_COUNT_TOTAL": "23",
            "NVLINK_RECOVERY_ERROR_COUNT_TOTAL": "24",
            "NVLINK_ERROR_DL_REPLAY": "25",
            "NVLINK_ERROR_DL_RECOVERY": "26",
            "NVLINK_ERROR_DL_CRC": "27",
            "RETIRED_PENDING": "1",
        },
    ),
}
# Profiling counters: percent, and MiB a second.
GPM = {1: 90.5, 2: 80, 3: 40, 4: 12, 5: 60.25, 10: 55, 11: 0, 12: 20, 13: 6, 20: 100, 21: 50.5, 60: 7, 61: 8}
RATIOS = {
    "GR_ENGINE_ACTIVE": "0.905000",
    "SM_ACTIVE": "0.800000",
    "SM_OCCUPANCY": "0.400000",
    "PIPE_INT_ACTIVE": "0.120000",
    "PIPE_TENSOR_ACTIVE": "0.602500",
    "DRAM_ACTIVE": "0.550000",
    "PIPE_FP64_ACTIVE": "0.000000",
    "PIPE_FP32_ACTIVE": "0.200000",
    "PIPE_FP16_ACTIVE": "0.060000",
}
RATES = {"PCIE_TX_BYTES": "104857600", "PCIE_RX_BYTES": "52953088"}
RATES |= {"NVLINK_RX_BYTES": "7340032", "NVLINK_TX_BYTES": "8388608"}
MIB = 1024 * 1024
MEMORY = (
    f"memory 0 -1 {81_559 * MIB} {559 * MIB} {1_000 * MIB + 17}",
    f"memory 1 -1 {81_559 * MIB} {559 * MIB} {30 * MIB}",
    f"memory 1 1 {40_192 * MIB} {21 * MIB} {20 * MIB}",
    f"memory 1 2 {40_192 * MIB} {21 * MIB} {10 * MIB}",
)
OF_MEMORY = {"FB_TOTAL": "81559", "FB_USED": "1000", "FB_FREE": "79999", "FB_RESERVED": "559"}
TEXTS = ("text -1 nvmlSystemGetDriverVersion 580.105.08", "text 0 nvmlDeviceGetPciInfo_v3 00000000:19:00.0")
LABELS = (
    f'gpu="0",UUID="{GPU(0)}",pci_bus_id="00000000:19:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",'
    'hostname="node-1",DCGM_FI_DRIVER_VERSION="580.105.08"'
)
Rows = dict[tuple[str, str], dict[str, str]]


def values(gpu: int) -> list[str]:
    return [f"value {gpu} {call} {of} {number}" for call, (told, _) in CALLS.items() for of, number in told.items()]


def profiled(gpu: int, instance: int = -1) -> list[str]:
    return [f"gpm {gpu} {instance} {metric} {value}" for metric, value in GPM.items()]


def everything(*more: str) -> list[str]:
    return [*values(0), *values(1), *profiled(0), *profiled(1), *profiled(1, 1), *MEMORY, *TEXTS, *more]


@pytest.fixture
def nvml(tmp_path: Path) -> SimulatedNvml:
    return stand_in(tmp_path, more=everything())


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in needs no time between two samples."""
    monkeypatch.setattr(of_reader, "SAMPLE_SECONDS", 0.0)


@pytest.fixture
def reader(nvml: SimulatedNvml) -> Iterator[NvmlReader]:
    library = Library(str(nvml.library))
    yield NvmlReader(library, PageMaker(library, "node-1"))
    library.close()


def rows(page: bytes) -> Rows:
    """The values by family (without DCGM_FI_…_), by the index and the instance of the device."""
    found: Rows = {}
    for line in page.splitlines():
        if line.startswith(b"#"):
            continue
        sample = read_line(line)
        assert isinstance(sample, SampleLine)
        name, labels, value = re.fullmatch(r"DCGM_FI_(?:DEV|PROF)_(\w+)\{(.*)\} (\S+)", line.decode()).groups()  # type: ignore[union-attr]
        of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        found.setdefault((of["gpu"], of.get("GPU_I_ID", "")), {})[name] = value
    return found


def all_of_whole() -> dict[str, str]:
    of_calls = {name: value for _, told in CALLS.values() for name, value in told.items()}
    return of_calls | OF_MEMORY | RATIOS | RATES | {"XID_ERRORS": "0"}


def test_all_that_nvml_knows_of_a_whole_gpu_and_of_instances(reader: NvmlReader) -> None:
    reader.read(0)
    found = rows(reader.page)
    assert found["0", ""] == all_of_whole()
    asked_for = {re.sub("DCGM_FI_(DEV|PROF)_", "", name) for name in FAMILIES}
    assert all_of_whole().keys() == asked_for, "each family is asked for here"
    # no row of a GPU that is cut, which is repeated on its instances' rows, but for their own memory
    assert found.keys() == {("0", ""), ("1", "1"), ("1", "2")}
    of_instance = {"FB_TOTAL": "40192", "FB_USED": "20", "FB_FREE": "40151", "FB_RESERVED": "21"}
    assert found["1", "1"] == all_of_whole() | of_instance
    # nobody tells of this one's activity, but what goes over the bus is the whole GPU's
    assert all_of_whole().keys() - found["1", "2"].keys() == RATIOS.keys()
    assert (found["1", "2"]["FB_USED"], found["1", "2"]["POWER_USAGE"]) == ("10", "628.045")


def test_the_text(reader: NvmlReader) -> None:
    reader.read(0)
    lines = reader.page.decode().splitlines()
    assert f"DCGM_FI_DEV_POWER_USAGE{{{LABELS}}} 628.045" in lines
    assert f'DCGM_FI_DEV_XID_ERRORS{{{LABELS},err_code="0",err_msg="No Error"}} 0' in lines
    instance = LABELS.replace('"0"', '"1"').replace(GPU(0), GPU(1)).replace("00000000:19:00.0", "")
    instance = instance.replace("nvidia0", "nvidia1").replace(
        "hostname", 'GPU_I_PROFILE="3g.40gb",GPU_I_ID="2",hostname'
    )
    assert f"DCGM_FI_DEV_FB_USED{{{instance}}} 10" in lines
    types = [line.split()[2:] for line in lines if line.startswith("# TYPE")]
    assert types == sorted(types)
    assert types == [[name, FAMILIES[name].kind] for name in sorted(FAMILIES)]


# issue 10, "Must show" 5
@pytest.mark.parametrize("code", [NOT_SUPPORTED, FUNCTION_NOT_FOUND, NO_PERMISSION, UNKNOWN])
@pytest.mark.parametrize("call", CALLS)
def test_what_a_call_does_not_tell_is_left_out_and_nothing_else(
    nvml: SimulatedNvml, reader: NvmlReader, call: str, code: int
) -> None:
    nvml.write(whole_and_cut(), everything(f"fail {call} {code} 0"))
    reader.read(0)
    found = rows(reader.page)
    lost = CALLS[call][1]
    assert found["0", ""] == {name: value for name, value in all_of_whole().items() if name not in lost}
    assert found["1", "1"].keys() == all_of_whole().keys(), "of the other GPU nothing is missing"
    assert reader.trouble is None, "nothing is wrong with it"


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("nvmlDeviceGetUtilizationRates 0 101", {"GPU_UTIL"}),
        ("nvmlDeviceGetEncoderUtilization 0 400", {"ENC_UTIL"}),
        ("nvmlDeviceGetFieldValues 82 255", {"MEMORY_TEMP"}),
        ("nvmlDeviceGetPowerUsage 0 4294967295", {"POWER_USAGE"}),
        ("nvmlDeviceGetPcieReplayCounter 0 4294967295", {"PCIE_REPLAY_COUNTER"}),
        ("nvmlDeviceGetTotalEnergyConsumption 0 18446744073709551615", {"TOTAL_ENERGY_CONSUMPTION"}),
    ],
)
def test_rubbish_is_left_out(nvml: SimulatedNvml, reader: NvmlReader, line: str, lost: set[str]) -> None:
    # of two lines the first counts
    nvml.write(whole_and_cut(), [f"value 0 {line}", *everything()])
    reader.read(0)
    assert all_of_whole().keys() - rows(reader.page)["0", ""].keys() == lost


@pytest.mark.parametrize(
    ("newer", "older", "family"),
    [
        ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", "GPU_TEMP"),
        (
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
            "CLOCKS_EVENT_REASONS",
        ),
    ],
)
def test_an_older_driver_is_asked_by_an_older_call(
    nvml: SimulatedNvml, reader: NvmlReader, newer: str, older: str, family: str
) -> None:
    nvml.write(whole_and_cut(), everything(f"fail {newer} {FUNCTION_NOT_FOUND} -1", f"value 0 {older} 0 33"))
    reader.read(0)
    assert rows(reader.page)["0", ""][family] == "33"


def test_what_goes_over_nvlink_is_told_in_mb_a_second(nvml: SimulatedNvml, reader: NvmlReader) -> None:
    def told(kib: int, now: float) -> str:
        links = [f"value 0 nvmlDeviceGetFieldValues {field} {kib}" for field in (138, 139)]
        nvml.write(whole_and_cut(), [*links, *everything()], is_recut=False)
        reader.read(now)
        return rows(reader.page)["0", ""]["NVLINK_BANDWIDTH_TOTAL"]

    assert told(1_000_000, 0.0) == "0", "of the first reading it is not known"
    assert told(2_000_000, 2.0) == "1000", "a MB of DCGM is 1,000 KiB"
    assert told(2_000_000, 3.0) == "0"
    assert told(5, 4.0) == "0", "the driver was loaded anew"


def test_the_last_error_of_a_gpu_has_its_meaning(nvml: SimulatedNvml, reader: NvmlReader) -> None:
    reader.read(0)
    nvml.write(whole_and_cut(), everything("xid 0 31 1", "xid 1 79 2", "xid 0 999 3"), is_recut=False)
    reader.read(1)
    page = reader.page.decode()
    assert f'{{{LABELS},err_code="999",err_msg="Unknown Error"}} 999\n' in page
    assert page.count('err_code="79",err_msg="GPU has fallen off the bus"} 79\n') == 2, "on each instance's row"


def test_without_events_nobody_says_that_there_was_no_error(nvml: SimulatedNvml, reader: NvmlReader) -> None:
    nvml.write(whole_and_cut(), everything(f"fail nvmlDeviceGetSupportedEventTypes {NOT_SUPPORTED} -1"))
    reader.read(0)
    assert "XID_ERRORS" not in rows(reader.page)["0", ""]


def test_compute_instances_of_one_gpu_instance_have_one_row(nvml: SimulatedNvml, reader: NvmlReader) -> None:
    """dcgm-exporter watches GPU instances; their profile is not that of the compute instances in them."""
    parts = [f"mig 0 {place} 5 {place} 3 1 40192 {MIG(place)} NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb" for place in (0, 1)]
    nvml.write((), [f"gpu 0 0 1 1000 {GPU(0)}", *parts, *everything()])
    reader.read(0)
    assert reader.page.count(b"DCGM_FI_DEV_POWER_USAGE{") == 1
    assert b'GPU_I_PROFILE="3g.40gb",GPU_I_ID="5"' in reader.page


def test_a_gpu_to_be_cut_without_an_instance_yet_has_a_row_of_its_own(nvml: SimulatedNvml, reader: NvmlReader) -> None:
    nvml.write((), [f"gpu 0 0 1 1000 {GPU(0)}", *everything()])
    reader.read(0)
    assert rows(reader.page).keys() == {("0", "")}


@pytest.mark.parametrize("code", [NOT_SUPPORTED, FUNCTION_NOT_FOUND, NO_PERMISSION, UNKNOWN])
@pytest.mark.parametrize(
    "call", ["nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlGpmMetricsGet"]
)
def test_without_profiling_counters_all_else_is_there(
    nvml: SimulatedNvml, reader: NvmlReader, call: str, code: int
) -> None:
    nvml.write(whole_and_cut(), everything(f"fail {call} {code} -1"))
    for moment in (0.0, 1.0):
        reader.read(moment)
        found = rows(reader.page)
        assert all_of_whole().keys() - found["0", ""].keys() == RATIOS.keys() | RATES.keys()
        of_instance = found["1", "1"].keys() & RATIOS.keys()
        assert bool(of_instance) is (call == "nvmlGpmSampleGet"), "an instance is sampled by another call"
    nvml.write(whole_and_cut(), everything())
    reader.read(2.0)
    assert rows(reader.page)["0", ""] == all_of_whole()


@pytest.mark.parametrize("value", ["nan", "inf", "-1"])
def test_a_profiling_counter_that_is_no_number_is_left_out(nvml: SimulatedNvml, reader: NvmlReader, value: str) -> None:
    nvml.write(whole_and_cut(), [f"gpm 0 -1 1 {value}", "gpm 0 -1 2 100.4", *everything()])
    reader.read(0)
    found = rows(reader.page)["0", ""]
    assert all_of_whole().keys() - found.keys() == {"GR_ENGINE_ACTIVE"}
    assert found["SM_ACTIVE"] == "1.000000"


def test_samples_of_instances_that_went_are_given_back(
    nvml: SimulatedNvml, reader: NvmlReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is memory of the driver's library."""
    count = {"nvmlGpmSampleAlloc": 0, "nvmlGpmSampleFree": 0}
    original = reader.library.call

    def call(name: str, *arguments: object) -> Any:
        result = original(name, *arguments)
        if name in count:
            count[name] += 1
        return result

    monkeypatch.setattr(reader.library, "call", call)
    for moment in range(3):
        reader.read(moment)
    whole, cut = whole_and_cut()
    nvml.write((whole, SimulatedGpu(index=1, uuid=cut.uuid, instances=cut.instances[1:])), everything())
    reader.read(3)
    assert count["nvmlGpmSampleAlloc"] - count["nvmlGpmSampleFree"] == 2, "of the two GPUs"
    reader.close()
    assert count["nvmlGpmSampleAlloc"] == count["nvmlGpmSampleFree"] > 6


# issue 10, "Must show" 6
@pytest.mark.parametrize(
    "call",
    [*CALLS, "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetMemoryInfo_v2", "nvmlGpmSampleGet", "nvmlGpmMigSampleGet"],
)
def test_a_gpu_that_falls_off_the_bus_leaves_the_page_and_comes_back(
    nvml: SimulatedNvml, reader: NvmlReader, call: str
) -> None:
    nvml.write(whole_and_cut(), everything(f"fail {call} {GPU_IS_LOST} 1"))
    reader.read(0)
    assert rows(reader.page) == {("0", ""): all_of_whole()}
    assert reader.trouble is not None
    assert "off the bus" in reader.trouble.message
    nvml.write(whole_and_cut(), everything())
    reader.read(1 + LOST_SECONDS)
    assert len(rows(reader.page)) == 3


# issue 10, "Must show" 6
@pytest.mark.parametrize(
    "call", [*CALLS, "nvmlDeviceGetPciInfo_v3", "nvmlSystemGetDriverVersion", "nvmlGpmSampleGet", "nvmlGpmMetricsGet"]
)
def test_a_driver_that_went_in_any_call_lets_go_of_the_library(
    nvml: SimulatedNvml, reader: NvmlReader, call: str
) -> None:
    nvml.write(whole_and_cut(), everything(f"fail {call} {DRIVER_NOT_LOADED} -1"))
    with pytest.raises(Failed):
        reader.read(0)
    assert not reader.library.is_open
    nvml.write(whole_and_cut(), everything())
    reader.read(1)
    assert len(rows(reader.page)) == 3


@pytest.mark.parametrize(
    ("call", "label"),
    [
        ("nvmlDeviceGetPciInfo_v3", "pci_bus_id"),
        ("nvmlDeviceGetName", "modelName"),
        ("nvmlSystemGetDriverVersion", "DCGM_FI_DRIVER_VERSION"),
    ],
)
def test_a_label_that_is_not_told_is_empty_until_it_is(
    nvml: SimulatedNvml, reader: NvmlReader, call: str, label: str
) -> None:
    """To Prometheus an empty label is none; the series is another one once it is known."""
    nvml.write(whole_and_cut(), everything(f"fail {call} {UNKNOWN} -1"))
    reader.read(0)
    assert f'{label}=""'.encode() in reader.page
    assert rows(reader.page)["0", ""] == all_of_whole()
    nvml.write(whole_and_cut(), everything(*(f"text 1 {call} x" for _ in range(call == "nvmlDeviceGetPciInfo_v3"))))
    reader.read(1)
    assert f'{label}=""'.encode() not in reader.page


def test_a_reader_of_which_no_page_is_asked_makes_none(nvml: SimulatedNvml) -> None:
    library = Library(str(nvml.library))
    reader = NvmlReader(library)
    reader.read(0)
    library.close()
    assert reader.page == b""
