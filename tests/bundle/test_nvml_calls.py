"""What a bundle has of NVML's answers: plain values, and handles by the calls that returned them."""

import ctypes
import json
from pathlib import Path

import pytest

from exporter.bundle.nvml_calls import UNKNOWN_HANDLE, CallRecorder
from exporter.bundle.recording import RecordedCall
from exporter.sources.hearing import LISTENER
from exporter.sources.nvml.library import Failed, Library
from tests.support.bundles import HearsNvml
from tests.support.nvml import GPU, MIG, stand_in


def of_a_reading(folder: Path, *calls: tuple[object, ...]) -> list[RecordedCall]:
    """What is recorded of these calls. An argument that is a list stands for the result of an earlier call."""
    hears = HearsNvml()
    token = LISTENER.set(hears)
    try:
        library = Library(str(stand_in(folder, None, _MORE).library))
    finally:
        LISTENER.reset(token)
    library.open()
    results: list[object] = []
    for function, *arguments in calls:
        values = [results[argument[0]] if isinstance(argument, list) else argument for argument in arguments]
        try:
            results.append(library.call(str(function), *values))
        except Failed:
            results.append(None)
    library.close()
    return hears.calls[1:-1]


_MORE = (
    "process 0 -1 -1 4711 c 1024",
    "value 0 nvmlDeviceGetFieldValues 82 61",
    "gpm 0 -1 2 37.5",
    "fail nvmlDeviceGetSerial 999 0",
)
_GPU_0 = "nvmlDeviceGetHandleByIndex(0)"
_MIG_1 = "nvmlDeviceGetMigDeviceHandleByIndex(nvmlDeviceGetHandleByIndex(1),1)"


def test_handles_are_the_calls_that_returned_them(tmp_path: Path) -> None:
    calls = of_a_reading(
        tmp_path,
        ("nvmlDeviceGetHandleByIndex", 0),
        ("nvmlDeviceGetUUID", [0]),
        ("nvmlDeviceGetHandleByIndex", 1),
        ("nvmlDeviceGetMigDeviceHandleByIndex", [2], 1),
        ("nvmlDeviceGetUUID", [3]),
    )
    assert [(call.function, call.arguments, call.result) for call in calls] == [
        ("nvmlDeviceGetHandleByIndex", (0,), _GPU_0),
        ("nvmlDeviceGetUUID", (_GPU_0,), GPU(0)),
        ("nvmlDeviceGetHandleByIndex", (1,), "nvmlDeviceGetHandleByIndex(1)"),
        ("nvmlDeviceGetMigDeviceHandleByIndex", ("nvmlDeviceGetHandleByIndex(1)", 1), _MIG_1),
        ("nvmlDeviceGetUUID", (_MIG_1,), MIG(1)),
    ]


def test_structs_arrays_and_unions_are_plain_values(tmp_path: Path) -> None:
    calls = of_a_reading(
        tmp_path,
        ("nvmlDeviceGetHandleByIndex", 0),
        ("nvmlDeviceGetComputeRunningProcesses_v3", [0]),
        ("nvmlDeviceGetFieldValues", [0], (82, (138, 1))),
        ("nvmlDeviceGetGridLicensableFeatures_v4", [0]),
        ("nvmlDeviceGetMigMode", [0]),
    )
    processes, fields, licences, mode = (call.result for call in calls[1:])
    assert processes == [
        {"pid": 4711, "usedGpuMemory": 1024, "gpuInstanceId": 0xFFFFFFFF, "computeInstanceId": 0xFFFFFFFF}
    ]
    assert isinstance(fields, list)
    assert [(field["fieldId"], field["nvmlReturn"], field["value"]) for field in fields] == [(82, 0, 61), (138, 3, 0)]
    assert licences is None  # the stand-in has none
    assert mode == [0, 0]
    assert json.loads(json.dumps([call.result for call in calls])) == [call.result for call in calls]


def test_a_failure_has_its_code(tmp_path: Path) -> None:
    _, failed, lacking = of_a_reading(
        tmp_path, ("nvmlDeviceGetHandleByIndex", 0), ("nvmlDeviceGetSerial", [0]), ("nvmlSuchACallIsNotThere",)
    )
    assert (failed.code, failed.result) == (999, None)
    assert lacking == RecordedCall(function="nvmlSuchACallIsNotThere", code=13)


def test_a_sample_says_whose_it_is(tmp_path: Path) -> None:
    calls = of_a_reading(
        tmp_path,
        ("nvmlDeviceGetHandleByIndex", 0),
        ("nvmlGpmSampleAlloc",),
        ("nvmlGpmSampleGet", [0], [1]),
        ("nvmlGpmSampleFree", [1]),
    )
    sample = f"nvmlGpmSampleGet({_GPU_0},nvmlGpmSampleAlloc())"
    assert calls[2].result == sample
    assert calls[3].arguments == (sample,)


class _Part(ctypes.Structure):
    _fields_ = (("text", ctypes.c_char * 4), ("number", ctypes.c_double))


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        (_Part(b"\xff", float("nan")), {"text": "\N{REPLACEMENT CHARACTER}", "number": "nan"}),
        ((_Part * 3)(_Part(b"a", 1.5)), [{"text": "a", "number": 1.5}]),
        ((ctypes.c_int * 2)(), []),
        (ctypes.pointer(ctypes.c_int(1)), UNKNOWN_HANDLE),
        (ctypes.POINTER(ctypes.c_int)(), None),
    ],
)
def test_odd_values_are_plain_too(value: object, recorded: object) -> None:
    assert CallRecorder().recorded_call("nvmlOdd", (value,), None, 1).arguments == (recorded,)
