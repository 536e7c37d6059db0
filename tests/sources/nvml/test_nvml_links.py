"""The links of GPUs as NVML says them, on the simulator's stand-in for the library, and how many calls that takes."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.model.gpu_links import Fabric, GpuLinks, PcieLink
from exporter.simulator.nvml import SimulatedNvml
from exporter.simulator.parts import SimulatedGpu
from exporter.sources.nvml.library import GPU_IS_LOST, Library
from exporter.sources.nvml.nvml_links import LINKS_SECONDS
from exporter.sources.nvml.nvml_reader import NvmlReader
from tests.support.nvml import GPU, stand_in, whole_and_cut

FIELDS = "nvmlDeviceGetFieldValues"
GPUS = tuple(SimulatedGpu(index=index, uuid=GPU(index)) for index in range(2))
ADDRESSES = ("00000000:19:00.0", "00000000:2B:00.0")


def values(gpu: int, *lines: str) -> Iterator[str]:
    yield f"text {gpu} nvmlDeviceGetPciInfo_v3 {ADDRESSES[gpu]}"
    yield from (f"value {gpu} {line}" for line in lines)


def of_link(number: int, link: int, value: int) -> str:
    """A numbered field whose scope is the link, as nvml.c has it."""
    return f"{FIELDS} {number + 1000 * link} {value}"


# GPU 0: link 0 leads to GPU 1, link 1 to a switch, link 2 is down
HOPPER = (
    *values(
        0,
        f"{FIELDS} 91 3",
        *(of_link(165, link, state) for link, state in enumerate((1, 1, 0))),
        *(of_link(161, link, replays) for link, replays in enumerate((4, 0, 7))),
        "nvmlDeviceGetNvLinkRemoteDeviceType 0 0",
        "nvmlDeviceGetNvLinkRemoteDeviceType 1 2",
        "nvmlDeviceGetNvLinkRemotePciInfo_v2 0 1",
        "nvmlDeviceGetMaxPcieLinkWidth 0 16",
        "nvmlDeviceGetCurrPcieLinkWidth 0 8",
        "nvmlDeviceGetMaxPcieLinkGeneration 0 4",
        "nvmlDeviceGetCurrPcieLinkGeneration 0 1",
        "nvmlDeviceGetGpuMaxPcieLinkGeneration 0 5",
        "nvmlDeviceGetGpuFabricInfoV 0 3",
        "nvmlDeviceGetGpuFabricInfoV 2 1",
        "nvmlDeviceGetGpuFabricInfoV 3 3",
    ),
    *values(1),
)


class Readings:
    """A reader of the stand-in, and the calls that it made, by their names in the bindings."""

    def __init__(self, nvml: SimulatedNvml, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: Counter[str] = Counter()
        self.library = Library(str(nvml.library))
        call = self.library.call

        def counted(name: str, *arguments: object) -> Any:
            self.calls[name] += 1
            return call(name, *arguments)

        monkeypatch.setattr(self.library, "call", counted)
        self.reader = NvmlReader(self.library)

    def links(self, at: float) -> dict[str, GpuLinks]:
        self.calls.clear()
        return dict(self.reader.read(at).links)


@pytest.fixture
def nvml(tmp_path: Path) -> SimulatedNvml:
    return stand_in(tmp_path, GPUS, HOPPER)


@pytest.fixture
def readings(nvml: SimulatedNvml, monkeypatch: pytest.MonkeyPatch) -> Iterator[Readings]:
    made = Readings(nvml, monkeypatch)
    yield made
    made.reader.close()


def test_all_that_nvml_says_of_links(readings: Readings) -> None:
    assert readings.links(0.0) == {
        GPU(0): GpuLinks(
            states={"0": 1, "1": 1, "2": 0},
            counters={"replay/0": 4, "replay/1": 0, "replay/2": 7},
            peers={"0": "GPU 1", "1": "the NVSwitch"},
            pcie=PcieLink(lanes=8, most_lanes=16, generation=1, highest_generation=4, generation_of_card=5),
            fabric=Fabric(manager=3, mask=1, summary=3),
        ),
        GPU(1): GpuLinks(),
    }


def test_links_are_read_once_a_minute_and_lacking_ones_never_again(readings: Readings) -> None:
    readings.links(0.0)
    first = readings.calls.copy()
    of_links = ("PciInfo", "Pcie", "NvLink", "Fabric", "FieldValues")
    assert sum(count for name, count in first.items() if any(word in name for word in of_links)) == 21
    readings.links(LINKS_SECONDS - 1)
    assert not [name for name in readings.calls if any(word in name for word in of_links)]
    readings.links(LINKS_SECONDS)
    again = {name: count for name, count in readings.calls.items() if any(word in name for word in of_links)}
    # GPU 0 has two calls for PCIe, two for its links, one for the fabric and its struct; GPU 1 lacks all of them
    assert again == {
        "nvmlDeviceGetCurrPcieLinkWidth": 1,
        "nvmlDeviceGetCurrPcieLinkGeneration": 1,
        FIELDS: 2,
        "nvmlDeviceGetGpuFabricInfoV": 1,
        "c_nvmlGpuFabricInfo_v3_t": 1,
    }


def test_an_older_driver_says_states_link_by_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = values(0, f"{FIELDS} 91 2", "nvmlDeviceGetNvLinkState 0 1", "nvmlDeviceGetNvLinkState 1 0")
    made = Readings(stand_in(tmp_path, GPUS[:1], lines), monkeypatch)
    assert made.links(0.0)[GPU(0)].states == {"0": 1, "1": 0}
    made.links(LINKS_SECONDS)
    assert (made.calls["nvmlDeviceGetNvLinkState"], made.calls[FIELDS]) == (2, 0)
    made.reader.close()


@pytest.mark.parametrize(("version", "summary"), [("c_nvmlGpuFabricInfo_v3_t", 2), ("c_nvmlGpuFabricInfo_v2_t", None)])
def test_a_fabric_that_failed_is_known_by_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, summary: int | None
) -> None:
    fabric = ("nvmlDeviceGetGpuFabricInfoV 0 3", "nvmlDeviceGetGpuFabricInfoV 1 999", "nvmlDeviceGetGpuFabricInfoV 3 2")
    made = Readings(stand_in(tmp_path, GPUS[:1], values(0, f"{FIELDS} 91 1", *fabric)), monkeypatch)
    monkeypatch.setattr("exporter.sources.nvml.nvml_links._FABRIC_VERSIONS", (version,))
    assert made.links(0.0)[GPU(0)].fabric == Fabric(manager=4, mask=0, summary=summary)
    made.reader.close()


def test_the_links_of_a_gpu_that_is_cut_are_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line for gpu in (0, 1) for line in values(gpu, f"{FIELDS} 91 1", of_link(165, 0, 1))]
    made = Readings(stand_in(tmp_path, whole_and_cut(), lines), monkeypatch)
    assert {uuid: dict(links.states) for uuid, links in made.links(0.0).items()} == {GPU(0): {"0": 1}, GPU(1): {}}
    made.reader.close()


@pytest.mark.parametrize(
    "call",
    [
        "nvmlDeviceGetPciInfo_v3",
        FIELDS,
        "nvmlDeviceGetMaxPcieLinkWidth",
        "nvmlDeviceGetCurrPcieLinkGeneration",
        "nvmlDeviceGetNvLinkRemoteDeviceType",
        "nvmlDeviceGetNvLinkRemotePciInfo_v2",
        "nvmlDeviceGetGpuFabricInfoV",
    ],
)
def test_a_gpu_that_is_lost_meanwhile_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    made = Readings(stand_in(tmp_path, GPUS, (*HOPPER, f"fail {call} {GPU_IS_LOST} 0")), monkeypatch)
    reading = made.reader.read(0.0)
    assert (set(reading.lost), set(reading.links)) == ({GPU(0)}, {GPU(1)})
    made.reader.close()
