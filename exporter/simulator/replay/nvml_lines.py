"""NVML's answers in a bundle, as lines of the stand-in's file (nvml.c describes them).

An answer stays in force until the same question is answered otherwise: an exporter asks some questions once a minute,
and others at each look. If the driver has no newer sample of processes, the sample before stays in force for as long
as the exporter counts it.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from exporter.bundle.recording import RecordedCall
from exporter.simulator.replay.nvml_values import (
    FIELD_VALUES,
    line,
    lines_of,
    member,
    number_of,
    text_of,
    word_of,
)
from exporter.sources.nvml.gpus import MOST_PERCENT, NO_SAMPLE, STANDS_SECONDS

# Handles, as a bundle has them: the calls that returned them.
_GPU = re.compile(r"nvmlDeviceGetHandleByIndex\((\d+)\)")
_MIG = re.compile(r"nvmlDeviceGetMigDeviceHandleByIndex\(nvmlDeviceGetHandleByIndex\((\d+)\),(\d+)\)")
_SAMPLE = re.compile(r"nvmlGpm(Mig)?SampleGet\((nvmlDeviceGetHandleByIndex\(\d+\)),(?:(\d+),)?")

# Functions by their names in NVIDIA's bindings.
_BY_INDEX = "nvmlDeviceGetHandleByIndex"
_COUNT = "nvmlDeviceGetCount"
_DRIVER = "nvmlSystemGetDriverVersion"
_EVENT_TYPES = "nvmlDeviceGetSupportedEventTypes"
_MEMORY = "nvmlDeviceGetMemoryInfo"
_METRICS = "nvmlGpmMetricsGet"
_MIG_BY_INDEX = "nvmlDeviceGetMigDeviceHandleByIndex"
_MIG_MODE = "nvmlDeviceGetMigMode"
_PROFILE = "nvmlDeviceGetGpuInstanceProfileInfo"
_RATES = "nvmlDeviceGetUtilizationRates"
_SAMPLES = "nvmlDeviceGetProcessUtilization"
_WAIT = "nvmlEventSetWait_v2"
_LISTS = {
    "nvmlDeviceGetComputeRunningProcesses": "c",
    "nvmlDeviceGetGraphicsRunningProcesses": "g",
    "nvmlDeviceGetMPSComputeRunningProcesses": "m",
}

# Functions whose answers are in lines of a kind of their own.
_OTHER_LINES = frozenset(
    {
        _COUNT,
        _METRICS,
        _WAIT,
        "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetMinorNumber",
        "nvmlDeviceRegisterEvents",
    }
)
# The library's own names of functions that the bindings call otherwise.
_IN_LIBRARY = {
    _BY_INDEX: "nvmlDeviceGetHandleByIndex_v2",
    _COUNT: "nvmlDeviceGetCount_v2",
    _PROFILE: "nvmlDeviceGetGpuInstanceProfileInfoV",
}

# nvmlReturn_t, where the stand-in returns it by itself: no event has come, no sample is new, a place is empty.
_NOT_FOUND = 6
_TIMEOUT = 10
_USUAL_CODES = {
    _MIG_BY_INDEX: _NOT_FOUND,
    _SAMPLES: _NOT_FOUND,
    _WAIT: _TIMEOUT,
}

_MIG_CHANGE = 0x100  # nvmlEventMigConfigChange
_XID = 0x8  # nvmlEventTypeXidCriticalError
_MOST_XIDS = 200  # nvml.c takes 256
_MOST_GPUS = 64  # as nvml.c

_WHOLE = -1
_NO_INSTANCE = 0xFFFFFFFF
_MIG_IS_ON = 1
_SIZES_OF_MEMORY = ("total", "reserved", "used", "free")
_SIZES_OF_MIG = ("gpuInstanceSliceCount", "computeInstanceSliceCount", "memorySizeMB")


class NvmlDevice(NamedTuple):
    """A GPU by its index, or the MIG device at a place of it; `place` is -1 for the GPU itself."""

    gpu: int
    place: int = _WHOLE


class NvmlQuestion(NamedTuple):
    """A function, the device that it is about (None: it is about none), and its other arguments."""

    function: str
    device: NvmlDevice | None = None
    arguments: tuple[Any, ...] = ()


class NvmlState:
    """What NVML says, after the calls of one moment after another."""

    def __init__(self) -> None:
        self._answers: dict[NvmlQuestion, RecordedCall] = {}
        self._samples_at: dict[NvmlDevice | None, float] = {}  # the moment of the samples in force
        self._xids: list[tuple[int, int]] = []  # a GPU's index, and the error
        self._changes = 0
        self._steady: list[str] | None = None  # the lines without samples; None: to be made

    @property
    def is_empty(self) -> bool:
        """Whether NVML was never called: there was no library, or nobody asked it."""
        return not self._answers

    def take(self, calls: Iterable[RecordedCall], at_seconds: float) -> None:
        """Note the calls of a moment, in their order. `at_seconds` is its time."""
        self._steady = None
        for call in calls:
            if call.function == _WAIT and call.result:
                self._take_event(call.result)
            question = _question_of(call)
            if call.function == _SAMPLES:
                if self._last_sample_counts(call, question.device, at_seconds):
                    continue
                self._samples_at[question.device] = at_seconds
            self._answers[question] = call

    def _last_sample_counts(self, call: RecordedCall, device: NvmlDevice | None, at_seconds: float) -> bool:
        """Whether the exporter goes by the samples before, as `gpus.busy` does: there is no new one of a working GPU.

        A bundle has the time of a moment, and not of each call: a second reading in the same look counts as prompt.
        """
        has_new = call.code not in NO_SAMPLE or bool(call.result)
        works = 0 < number_of(member(self._result(_RATES, device), "gpu")) <= MOST_PERCENT
        age_seconds = at_seconds - self._samples_at.get(device, -math.inf)
        return not has_new and works and age_seconds < STANDS_SECONDS

    def _take_event(self, event: object) -> None:
        """Note a change of MIG instances, or an error."""
        kind = number_of(member(event, "eventType"))
        device = device_of(member(event, "device"))
        if kind & _MIG_CHANGE:
            self._changes += 1
        if kind & _XID and device:
            xid = number_of(member(event, "eventData"))
            self._xids.append((device.gpu, xid))

    def lines(self, now_us: int, speed: float = 1.0) -> list[str]:
        """The lines of the present state.

        Args:
            now_us: the time of each GPU's newest sample of its processes, in microseconds.
            speed: by how much samples are closer together than they were.
        """
        if self._steady is None:
            self._steady = [
                *self._gpus(),
                *self._failures(),
                *self._values(),
                *self._devices(),
                *self._metrics(),
                *self._events(),
            ]
        return [*self._steady, *self._samples(now_us, speed)]

    def inventory(self) -> tuple[str, ...]:
        """The lines that say which devices there are, which fail, and what happened to them."""
        return (*self._gpus(), *self._failures(), *self._events())

    def _result(self, function: str, device: NvmlDevice | None = None) -> Any:  # noqa: ANN401 - JSON's values
        """The answer to a question without further arguments; None if it failed or was not asked."""
        call = self._answers.get(NvmlQuestion(function, device))
        return call.result if call and call.code == 0 else None

    def _results(self, function: str) -> Iterator[tuple[NvmlQuestion, Any]]:
        """The answers of a function that succeeded, to all its questions."""
        for question, call in self._answers.items():
            if question.function == function and call.code == 0:
                yield question, call.result

    def _gpus(self) -> Iterator[str]:
        """A line for each GPU, also for one that cannot be asked, with its MIG devices."""
        count = min(number_of(self._result(_COUNT)), _MOST_GPUS)
        for index in range(count):
            gpu = NvmlDevice(index)
            minor = self._result("nvmlDeviceGetMinorNumber", gpu)
            mode = self._result(_MIG_MODE, gpu)
            yield line(
                "gpu",
                index,
                index if minor is None else minor,
                mode[0] if mode else -1,
                number_of(member(self._memory(gpu), "total")),
                word_of(self._result("nvmlDeviceGetUUID", gpu)),
            )
            yield from self._slices(gpu)
            for mig in self._migs(index):
                yield self._mig(mig)

    def _slices(self, gpu: NvmlDevice) -> Iterator[str]:
        """The line of the largest profile that a GPU can be cut into, if it was asked for."""
        profiles = [
            number_of(member(profile, "sliceCount"))
            for question, profile in self._results(_PROFILE)
            if question.device == gpu
        ]
        if profiles:
            yield line("slices", gpu.gpu, max(profiles))

    def _migs(self, gpu: int) -> Sequence[NvmlDevice]:
        """The MIG devices that a GPU has now."""
        mode = self._result(_MIG_MODE, NvmlDevice(gpu))
        if not mode or mode[0] != _MIG_IS_ON:
            return ()
        places = [
            question.arguments[0] for question, _ in self._results(_MIG_BY_INDEX) if question.device == (gpu, _WHOLE)
        ]
        return [NvmlDevice(gpu, place) for place in sorted(places)]

    def _mig(self, mig: NvmlDevice) -> str:
        """The line of a MIG device. Its sizes were only asked for if its name does not say them."""
        sizes = self._result("nvmlDeviceGetAttributes_v2", mig)
        name = self._result("nvmlDeviceGetName", mig)
        return line(
            "mig",
            mig.gpu,
            mig.place,
            self._instance(mig),
            self._part(mig),
            *(number_of(member(sizes, size)) for size in _SIZES_OF_MIG),
            word_of(self._result("nvmlDeviceGetUUID", mig)),
            text_of(name or ""),
        )

    def _instance(self, device: NvmlDevice) -> int:
        """The GPU instance of a MIG device; -1 of a whole GPU."""
        if device.place == _WHOLE:
            return _WHOLE
        return number_of(self._result("nvmlDeviceGetGpuInstanceId", device))

    def _part(self, mig: NvmlDevice) -> int:
        """The compute instance of a MIG device.

        The exporter does not ask for it, and only processes tell it. Without one, the MIG devices of an instance are
        counted in their order.
        """
        for _, process in self._listed(mig):
            return number_of(member(process, "computeInstanceId"))
        instance = self._instance(mig)
        before = [other for other in self._migs(mig.gpu) if other.place < mig.place]
        return sum(self._instance(other) == instance for other in before)

    def _memory(self, device: NvmlDevice) -> object:
        """The memory of a device in the driver's newest form; None if it is not known."""
        of_version = [
            memory for question, memory in self._results(_MEMORY) if question.device == device and question.arguments
        ]
        return of_version[-1] if of_version else self._result(_MEMORY, device)

    def _listed(self, device: NvmlDevice) -> Iterator[tuple[str, object]]:
        """The processes of a device, each with the letter of its list."""
        for function, letter in _LISTS.items():
            newest = self._answers.get(NvmlQuestion(f"{function}_v3", device))
            is_there = newest is not None and newest.code == 0
            processes = newest.result if newest and is_there else self._result(f"{function}_v2", device)
            if isinstance(processes, list):
                yield from ((letter, process) for process in processes)

    def _devices(self) -> Iterator[str]:
        """The lines of the memory and the processes of each device. MIG devices of an earlier cut have none."""
        devices = dict.fromkeys(question.device for question in self._answers)
        migs = {gpu: self._migs(gpu) for gpu in {device.gpu for device in devices if device}}
        for device in devices:
            if device is None:
                continue
            if device.place != _WHOLE and device not in migs[device.gpu]:
                continue
            memory = self._memory(device)
            if memory:
                sizes = (number_of(member(memory, size)) for size in _SIZES_OF_MEMORY)
                yield line("memory", device.gpu, self._instance(device), *sizes)
            yield from self._processes(device)

    def _processes(self, device: NvmlDevice) -> Iterator[str]:
        """The lines of a device's processes. Memory that the driver does not tell is -1."""
        for letter, process in self._listed(device):
            of_mig = (self._instance(device), self._part(device))
            place = _place_of(process) if device.place == _WHOLE else of_mig
            used = member(process, "usedGpuMemory")
            yield line(
                "process",
                device.gpu,
                *place,
                number_of(member(process, "pid")),
                letter,
                -1 if used is None else used,
            )

    def _samples(self, now_us: int, speed: float) -> Iterator[str]:
        """The lines of the samples of processes' activity. They are as far apart as they were, at this speed."""
        for question, samples in self._results(_SAMPLES):
            if not question.device or not isinstance(samples, list):
                continue
            times = [number_of(member(sample, "timeStamp")) for sample in samples]
            newest = max(times, default=0)
            for sample, time_us in zip(samples, times, strict=True):
                yield line(
                    "sample",
                    question.device.gpu,
                    number_of(member(sample, "pid")),
                    now_us - round((newest - time_us) / speed),
                    number_of(member(sample, "smUtil")),
                )

    def _values(self) -> Iterator[str]:
        """The lines of answers that are numbers and texts."""
        for question, call in self._answers.items():
            function, device, arguments = question
            if call.code != 0 or not device or device.place != _WHOLE or function in _OTHER_LINES:
                continue
            name = _IN_LIBRARY.get(function, function)
            yield from lines_of(device.gpu, name, arguments, call.result)
        driver = self._result(_DRIVER)
        if driver:
            yield line("text", _WHOLE, _DRIVER, text_of(driver))

    def _metrics(self) -> Iterator[str]:
        """The lines of profiling counters, of GPUs and of their instances."""
        for question, answer in self._results(_METRICS):
            if not question.device:
                continue
            for metric in member(answer, "metrics") or ():
                value = member(metric, "value")
                is_valid = member(metric, "nvmlReturn") == 0 and isinstance(value, int | float)
                if is_valid:
                    number = number_of(member(metric, "metricId"))
                    yield line("gpm", question.device.gpu, question.arguments[0], number, value)

    def _events(self) -> Iterator[str]:
        """The lines of errors, of the number of changes, and of whether the driver reports changes."""
        numbered = [*enumerate(self._xids, 1)]
        for number, (index, xid) in numbered[-_MOST_XIDS:]:
            yield line("xid", index, xid, number)
        types = [number_of(types) for _, types in self._results(_EVENT_TYPES)]
        tells_changes = any(kinds & _MIG_CHANGE for kinds in types)
        yield line("events", int(tells_changes), self._changes)

    def _failures(self) -> Iterator[str]:
        """A line for each function that always fails for a device, and otherwise than without a line."""
        codes: defaultdict[tuple[str, NvmlDevice | None], set[int]] = defaultdict(set)
        for question, call in self._answers.items():
            codes[_name_in_library(question), question.device].add(call.code)
        for (name, device), of_device in codes.items():
            code = next(iter(of_device))
            is_usual = len(of_device) > 1 or code in (0, _USUAL_CODES.get(name))
            if is_usual:
                continue
            if device is None:
                yield line("fail", name, code, _WHOLE)
            else:
                yield line("fail", name, code, device.gpu, device.place + 1)


def device_of(handle: object) -> NvmlDevice | None:
    """The device of a handle, as a bundle has it; None if it is no device's."""
    text = str(handle)
    mig = _MIG.fullmatch(text)
    if mig:
        return NvmlDevice(int(mig[1]), int(mig[2]))
    gpu = _GPU.fullmatch(text)
    return NvmlDevice(int(gpu[1])) if gpu else None


def _question_of(call: RecordedCall) -> NvmlQuestion:
    """The question of a call: at another moment the same one may have another answer.

    Samples are asked for since a moment, and numbered fields all at once: neither is a part of the question.
    """
    function = call.function
    arguments = call.arguments
    first = arguments[0] if arguments else None
    if function == _BY_INDEX:
        return NvmlQuestion(function, NvmlDevice(number_of(first)))
    if function == _METRICS:
        device, instance = _sampled(member(first, "sample2"))
        return NvmlQuestion(function, device, (instance,))
    device = device_of(first)
    if device is None or function in (_SAMPLES, FIELD_VALUES):
        return NvmlQuestion(function, device)
    return NvmlQuestion(function, device, tuple(map(_as_key, arguments[1:])))


def _sampled(sample: object) -> tuple[NvmlDevice | None, int]:
    """The GPU that a profiling sample is of, and its GPU instance; -1 of the whole GPU."""
    match = _SAMPLE.match(str(sample))
    if not match:
        return None, _WHOLE
    is_of_instance = match[1] and match[3]
    return device_of(match[2]), int(match[3]) if is_of_instance else _WHOLE


def _name_in_library(question: NvmlQuestion) -> str:
    """The name of the library's function that a question goes to."""
    if question.function == _MEMORY and question.arguments:
        return f"{_MEMORY}_v2"
    return _IN_LIBRARY.get(question.function, word_of(question.function))


def _place_of(process: object) -> tuple[int, int]:
    """The GPU instance and the compute instance of a process that a whole GPU lists; -1 if the GPU is not cut."""
    instance = number_of(member(process, "gpuInstanceId"))
    part = number_of(member(process, "computeInstanceId"))
    return (
        _WHOLE if instance == _NO_INSTANCE else instance,
        _WHOLE if part == _NO_INSTANCE else part,
    )


def _as_key(value: object) -> object:
    """A value that can be a part of a key."""
    return repr(value) if isinstance(value, list | dict) else value
