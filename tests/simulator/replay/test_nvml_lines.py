"""NVML's answers come back from a bundle: reading for reading, and page for page."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.bundle.recording import RecordedCall
from exporter.model.driver import DriverReading
from exporter.simulator.gpu_processes import SimulatedProcesses
from exporter.simulator.nvml import NvmlValues, SimulatedNvml
from exporter.simulator.replay.nvml_lines import NvmlState
from exporter.sources.hearing import LISTENER
from exporter.sources.nvml.library import Library
from exporter.sources.nvml.nvml_page import PageMaker
from exporter.sources.nvml.nvml_reader import NvmlReader
from tests.support.bundles import HearsNvml
from tests.support.nvml import GPU, stand_in
from tests.support.simulated import SimulatedGpu, World

FUNCTIONS = (
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceProfileInfo",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlEventSetWait_v2",
    "nvmlGpmMetricsGet",
    "no function\nat all",
)
FIELDS = ("sample2", "metrics", "metricId", "nvmlReturn", "value", "fieldId", "valueType", "eventType", "device", "pid")
Reading = tuple[DriverReading, bytes, object]
NOW_US = 5_000_000


class Exporter:
    """Reads a library, makes its page, and records what it answers."""

    def __init__(self, nvml: SimulatedNvml) -> None:
        self.hears = HearsNvml()
        token = LISTENER.set(self.hears)
        library = Library(str(nvml.library))
        LISTENER.reset(token)
        self._reader = NvmlReader(library, PageMaker(library, "node"))

    def read(self, now: float) -> Reading:
        """The reading, its page, and what is odd about it."""
        reading = self._reader.read(now)
        return replace(reading, read_at=0.0), self._reader.page, self._reader.trouble

    def close(self) -> None:
        self._reader.close()


def recorded_and_replayed(
    folder: Path, lines: Sequence[Sequence[str]], gpus: Sequence[SimulatedGpu] | None = None
) -> tuple[list[Reading], list[Reading]]:
    """The readings of a library that has these lines at one moment after another, and those of its replay."""
    recorded: list[Reading] = []
    moments = []
    first = folder / "first"
    first.mkdir()
    nvml = stand_in(first, gpus, lines[0])
    exporter = Exporter(nvml)
    for number, more in enumerate(lines):
        nvml.write(tuple(gpus) if gpus is not None else _TWO, more, is_recut=False)
        recorded.append(exporter.read(10.0 * number))
        moments.append((*exporter.hears.calls,))
        exporter.hears.calls.clear()
    exporter.close()
    second = folder / "second"
    second.mkdir()
    again = stand_in(second, ())
    state = NvmlState()
    replayed: list[Reading] = []
    exporter = Exporter(again)
    for number, calls in enumerate(moments):
        state.take(calls, 10.0 * number)
        again.write_lines(state.lines(NOW_US * (number + 1)))
        replayed.append(exporter.read(10.0 * number))
    exporter.close()
    return recorded, replayed


_TWO = (SimulatedGpu(index=0, uuid=GPU(0)), SimulatedGpu(index=1, uuid=GPU(1)))


def test_readings_of_a_node_come_back(tmp_path: Path) -> None:
    world = World(gpus=5, mig=2, shared=1, seed=3)
    processes = SimulatedProcesses([tmp_path / "root"])
    values = NvmlValues(world)
    moments = []
    for _ in range(3):
        moments.append([*processes.look(world), *values.lines()])
        world.step()
    recorded, replayed = recorded_and_replayed(tmp_path, moments, world.gpus)
    assert recorded == replayed
    reading, page, _ = recorded[0]
    assert reading.processes
    assert page.count(b"\n") > 100


ODD = [
    ("a GPU falls off the bus", [[], ["fail * 15 1"]]),
    ("a GPU is lost from the start", [["fail nvmlDeviceGetHandleByIndex_v2 15 1"]]),
    ("a GPU is lost by one call", [[], ["fail nvmlDeviceGetUtilizationRates 15 0"], []]),
    ("an old library", [["fail nvmlDeviceGetMemoryInfo_v2 13 -1", "fail nvmlDeviceGetSerial 13 -1"]]),
    ("lists of an old library", [["fail nvmlDeviceGetComputeRunningProcesses_v3 13 -1", "process 0 -1 -1 7 c 5"]]),
    ("no right", [["fail nvmlDeviceGetComputeRunningProcesses_v3 4 -1"]]),
    ("memory that nobody knows", [["process 0 -1 -1 7 c -1", "process 0 -1 -1 8 g 100"]]),
    ("free memory of its own", [["memory 0 -1 1000000000 100000000 300000000 500000000"]]),
    ("a model", [["text 0 nvmlDeviceGetName Tesla T4", "text 1 nvmlDeviceGetSerial 17"]]),
    ("a licence", [[f"value 0 nvmlDeviceGetGridLicensableFeatures_v4 {place} 1" for place in (0, 1, 10, 11)]]),
    ("a temperature that is a double", [["value 0 nvmlDeviceGetFieldValues 82 61 0"]]),
    ("small counters", [["value 0 nvmlDeviceGetFieldValues 38 7 1"]]),
    ("XIDs", [["xid 0 31 1"], ["xid 0 31 1", "xid 1 79 2"], ["xid 0 31 1", "xid 1 79 2"]]),
    ("old events", [["value 0 nvmlDeviceGetSupportedEventTypes 0 8", "value 1 nvmlDeviceGetSupportedEventTypes 0 0"]]),
    ("no events", [["fail nvmlEventSetCreate 3 -1"]]),
    ("a violation", [["value 0 nvmlDeviceGetViolationStatus 2 123456789"]]),
    ("wrong rows", [[f"value 0 nvmlDeviceGetRemappedRows {place} {place}" for place in range(4)]]),
    ("ECC", [["value 0 nvmlDeviceGetTotalEccErrors 1 9", "value 0 nvmlDeviceGetTotalEccErrors 0 8"]]),
]


@pytest.mark.parametrize("lines", [lines for _, lines in ODD], ids=[name for name, _ in ODD])
def test_odd_answers_come_back(tmp_path: Path, lines: list[list[str]]) -> None:
    recorded, replayed = recorded_and_replayed(tmp_path, lines)
    assert recorded == replayed


JSON = st.recursive(
    st.none() | st.integers(-(2**70), 2**70) | st.text(max_size=8) | st.sampled_from(["nvmlDeviceGetHandleByIndex(0)"]),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), values, max_size=3),
    max_leaves=6,
)


@given(
    st.lists(
        st.builds(
            RecordedCall,
            function=st.sampled_from(FUNCTIONS),
            arguments=st.lists(JSON, max_size=3).map(tuple),
            result=JSON,
            code=st.sampled_from([0, 0, 3, 15]),
        ),
        max_size=12,
    )
)
def test_whatever_a_bundle_says_is_lines_or_an_error(calls: list[RecordedCall]) -> None:
    state = NvmlState()
    try:
        state.take(calls, 0.0)
        lines = state.lines(NOW_US)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return  # the replay says that the moment cannot be played
    assert all("\n" not in line for line in lines)
    assert len(lines) < 1_000


def test_samples_are_of_now(tmp_path: Path) -> None:
    nvml = stand_in(tmp_path, _TWO, ["sample 0 7 1000 40", "sample 0 8 3000 20", "process 0 -1 -1 7 c 1"])
    exporter = Exporter(nvml)
    exporter.read(0.0)
    exporter.close()
    state = NvmlState()
    state.take(exporter.hears.calls, 0.0)
    lines = [line for line in state.lines(NOW_US, speed=2.0) if line.startswith("sample")]
    assert lines == [f"sample 0 7 {NOW_US - 1000} 40", f"sample 0 8 {NOW_US} 20"]


def works(percent: int) -> list[str]:
    """A GPU with a process and its only sample. The driver says for how much of the time any kernel runs."""
    rates = [f"value 0 nvmlDeviceGetUtilizationRates {of} {percent}" for of in (0, 1)]
    return ["process 0 -1 -1 7 c 1", "sample 0 7 1000 40", *rates]


def activity(reading: Reading) -> float | None:
    """The activity of a reading's only process."""
    (process,) = reading[0].processes or ()
    return process.sm_ratio


# issue 27: on a busy machine a look may read NVML a second time, before the driver has a newer sample
@pytest.mark.parametrize(
    ("percents", "expected"),
    [
        ({0.0: 50, 1.0: 60}, 0.4),
        ({0.0: 50, 2.9: 60}, 0.4),
        ({0.0: 50, 3.0: 60}, 0.0),
        ({0.0: 50, 1.0: 0}, 0.0),
        ({0.0: 50, 1.0: 101}, 0.0),
        ({0.0: 50, 1.0: 60, 2.0: 60, 3.0: 60}, 0.0),
        ({0.0: 50, 1.0: 0, 2.0: 60}, 0.0),
    ],
)
def test_the_last_sample_comes_back_for_as_long_as_the_exporter_counts_it(
    tmp_path: Path, percents: Mapping[float, int], expected: float
) -> None:
    """`percents`: how busy the driver calls the GPU, by the seconds of each reading."""
    nvml = stand_in(tmp_path, _TWO)
    exporter = Exporter(nvml)
    state = NvmlState()
    for seconds, percent in percents.items():
        nvml.write(_TWO, works(percent), is_recut=False)
        recorded = exporter.read(seconds)
        state.take(exporter.hears.calls, seconds)
        exporter.hears.calls.clear()
    exporter.close()
    (tmp_path / "again").mkdir()
    again = stand_in(tmp_path / "again", ())
    again.write_lines(state.lines(NOW_US))
    new = Exporter(again)
    replayed = new.read(0.0)
    new.close()
    assert activity(recorded) == activity(replayed) == expected
