"""NVML of a simulated node: a stand-in for libnvidia-ml.so.1, and the file beside it that has its answers.

The machine's gcc builds it of nvml.c, which describes the file's lines. It is loaded exactly as the real library.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from exporter.dcgm.fields import NVML
from exporter.dcgm.table import EVENTS, FIELD_VALUES, GPM_METRICS, MEMORY_INFO, DcgmField, Unit
from exporter.simulator.dcgm_pages import DRIVER_VERSION, NVLINK
from exporter.simulator.machine import Machine
from exporter.simulator.parts import PROFILES, SimulatedGpu, bus_id
from exporter.simulator.readings import Reading, most_bytes, of_instance, of_whole
from exporter.simulator.world import World

LIBRARY = "libnvidia-ml.so.1"
_SOURCE = Path(__file__).with_name("nvml.c")
_MIB = 1024**2


class SimulatedNvml:
    """The library and its file, in a folder of their own. `loaded` is the library after `load`; None if that failed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.tells_changes = True
        self.library = folder / LIBRARY
        self._answers = folder / "nvml.txt"
        self._changes = 0
        self.loaded: ctypes.CDLL | None = None

    def load(self) -> None:
        """Load the library, if it can be built. From then on this process gets it by the library's name."""
        if self.build():
            self.loaded = ctypes.CDLL(str(self.library))

    def build(self) -> bool:
        """Put the library into the folder. Returns False if this machine cannot build it."""
        return _build(self.library)

    def write(self, gpus: Sequence[SimulatedGpu], more: Iterable[str] = (), *, is_recut: bool = True) -> None:
        """Let the library know these GPUs from now on. `more` are further lines, as nvml.c describes them.

        Each call counts as a change of MIG instances, unless `is_recut` is off. With `tells_changes` the driver reports
        it.
        """
        self._changes += is_recut
        self.write_lines([*_lines(gpus), f"events {int(self.tells_changes)} {self._changes}", *more])

    def write_lines(self, lines: Iterable[str]) -> None:
        """Let the library answer by these lines from now on."""
        new = self._answers.with_suffix(".new")
        new.write_text("\n".join(lines) + "\n")
        new.replace(self._answers)


def _lines(gpus: Sequence[SimulatedGpu]) -> Iterator[str]:
    for gpu in gpus:
        yield f"gpu {gpu.index} {gpu.index} {int(bool(gpu.instances))} {gpu.card.memory * _MIB} {gpu.uuid}"
        if gpu.instances:
            yield f"slices {gpu.index} {gpu.card.slices}"
        for place, mig in enumerate(gpu.instances):
            sizes = PROFILES[mig.profile]
            yield (
                f"mig {gpu.index} {place} {mig.instance_id} 0 {sizes.slices} {sizes.slices} {sizes.memory}"
                f" {mig.device_id} {gpu.card.model} MIG {mig.profile}"
            )


def _build(library: Path) -> bool:
    """Whether the stand-in is at `library` now. Without gcc it cannot be compiled; one compiled before is copied."""
    gcc = shutil.which("gcc")
    if gcc is None:
        return False
    version = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pod-gpu-metrics-exporter" / version
    try:
        if not (kept / LIBRARY).exists():
            kept.mkdir(parents=True, exist_ok=True)
            if not _compile(gcc, kept / LIBRARY):
                return False
        # a copy, since the dynamic loader loads a file once, and each node has answers of its own
        shutil.copy(kept / LIBRARY, library)
    except OSError:  # there is no such folder, or nobody may write to it
        return _compile(gcc, library)
    return True


def _compile(gcc: str, library: Path) -> bool:
    new = library.with_name(f"{LIBRARY}.{os.getpid()}")  # a gcc that fails leaves no file
    # the name by which the exporter loads it
    flags = ("-shared", "-fPIC", "-O1", f"-Wl,-soname,{LIBRARY}")
    command = [gcc, *flags, "-o", str(new), str(_SOURCE), "-ldl", "-lpthread"]
    if subprocess.run(command, check=False, capture_output=True).returncode:  # noqa: S603 - a compiler, our own file
        return False
    new.replace(library)
    return True


_KIB = 2**10
_MILLI = 1000
_WHOLE = -1
_MOST_XIDS = 200  # the most that nvml.c takes
_FIRST_SERIAL = 1_652_923_045_678
_GPU_IS_LOST = 15  # NVML_ERROR_GPU_IS_LOST
_SENT_AND_RECEIVED = (138, 139)  # the fields of what went over all NVLinks, in KiB
# The fields that nvml.c answers by a call and an argument.
_CALLS = tuple(
    (call, row)
    for function, calls in NVML.items()
    if function not in {EVENTS, GPM_METRICS, MEMORY_INFO}
    for call, row in calls
    if row.family != NVLINK
)
_RATIOS = tuple((call.arguments[0], row) for call, row in NVML[GPM_METRICS] if row.unit is Unit.RATIO)
_RATES = tuple((call.arguments[0], row) for call, row in NVML[GPM_METRICS] if row.unit is not Unit.RATIO)


class NvmlValues:
    """The lines of a world's hardware. It sums up the traffic over NVLinks, which DCGM shows as a rate."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sent: defaultdict[str, float] = defaultdict(float)  # bytes in one direction, by the GPU's UUID
        self._at_ns = world.machine.clock()

    def lines(self) -> Iterator[str]:
        """The lines of the present state."""
        machine = self._world.machine
        later_ns = machine.advance()
        now = machine.clock()
        seconds = (now - self._at_ns) / 1e9
        self._at_ns = now
        held = _in_processes(self._world)
        yield f"text -1 nvmlSystemGetDriverVersion {DRIVER_VERSION}"
        for gpu in self._world.gpus:
            if gpu.is_lost:
                yield f"fail * {_GPU_IS_LOST} {gpu.index}"
            used_of_instances = 0
            for mig in gpu.instances:
                readings: Mapping[str, Reading] = of_instance(machine, mig)
                used = _used(readings, held[mig.device_id])
                used_of_instances += used
                yield _memory(gpu, mig.instance_id, readings, used)
                yield from _profiled(gpu, mig.instance_id, readings, _RATIOS)
            readings = of_whole(machine, gpu, later_ns)
            if gpu.instances:
                yield _memory(gpu, _WHOLE, readings, used_of_instances)
            else:
                yield _memory(gpu, _WHOLE, readings, _used(readings, held[gpu.uuid]))
                yield from _profiled(gpu, _WHOLE, readings, _RATIOS)
            yield from _profiled(gpu, _WHOLE, readings, _RATES)
            self._sent[gpu.uuid] += _number(readings, "DCGM_FI_PROF_NVLINK_TX_BYTES") * seconds
            yield from _values(gpu, readings, int(self._sent[gpu.uuid] / _KIB))
        yield from _xids(machine)


def _values(gpu: SimulatedGpu, readings: Mapping[str, Reading], sent_kib: int) -> Iterator[str]:
    yield f"text {gpu.index} nvmlDeviceGetPciInfo_v3 {bus_id(gpu.index)}"
    yield f"text {gpu.index} nvmlDeviceGetSerial {_FIRST_SERIAL + gpu.index}"
    for call, row in _CALLS:
        if row.family in readings:
            argument = call.arguments[0] if call.arguments else call.take or 0
            number = _number(readings, row.family)
            if row.unit is Unit.WATTS:
                number *= _MILLI
            yield f"value {gpu.index} {call.function} {argument} {round(number)}"
    for field in _SENT_AND_RECEIVED:
        yield f"value {gpu.index} {FIELD_VALUES} {field} {sent_kib}"


def _profiled(
    gpu: SimulatedGpu, instance: int, readings: Mapping[str, Reading], metrics: Iterable[tuple[int, DcgmField]]
) -> Iterator[str]:
    for metric, row in metrics:
        number = _number(readings, row.family)
        if row.unit is Unit.RATIO:
            number *= 100
        else:
            number /= _MIB
        yield f"gpm {gpu.index} {instance} {metric} {number!r}"


def _xids(machine: Machine) -> Iterator[str]:
    errors: list[tuple[int, int, int]] = []
    for gpu in machine.gpus:
        errors += ((error.at_ns, gpu.index, error.xid) for error in machine.xids.get(gpu.uuid, ()))
    for number, (_, index, xid) in [*enumerate(sorted(errors), 1)][-_MOST_XIDS:]:
        yield f"xid {index} {xid} {number}"


def _memory(gpu: SimulatedGpu, instance: int, readings: Mapping[str, Reading], used: int) -> str:
    total = _bytes(readings, "FB_TOTAL")
    reserved = _bytes(readings, "FB_RESERVED")
    return f"memory {gpu.index} {instance} {total} {reserved} {used}"


def _used(readings: Mapping[str, Reading], in_processes: int) -> int:
    """The used memory in bytes: DCGM's value in whole MiB, but at least that of the processes."""
    return max(_bytes(readings, "FB_USED"), in_processes)


def _bytes(readings: Mapping[str, Reading], name: str) -> int:
    return round(_number(readings, f"DCGM_FI_DEV_{name}")) * _MIB


def _number(readings: Mapping[str, Reading], name: str) -> float:
    reading = readings[name]
    assert isinstance(reading, int | float), "one number"  # noqa: S101 - a fault of this program
    return reading


def _in_processes(world: World) -> Mapping[str, int]:
    """The memory in bytes of all processes on a device, by device."""
    most = most_bytes(world.gpus)
    bytes_of: defaultdict[str, int] = defaultdict(int)
    for pod in world.machine.running():
        bytes_of[pod.device_id] += int(pod.memory * most.get(pod.device_id, 0))
    return bytes_of
