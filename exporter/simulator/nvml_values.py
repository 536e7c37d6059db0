"""What NVML reads on a simulated node's hardware, as lines of nvml.c: of the same machine that DCGM reads."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from exporter.simulator.machine import Machine
from exporter.simulator.pages import DRIVER_VERSION
from exporter.simulator.parts import Gpu, bus_id
from exporter.simulator.readings import MOST_BYTES, Reading, most_of, of_instance, of_whole
from exporter.simulator.world import World

_KIB, _MIB = 2**10, 2**20
_MILLI = 1000
_WHOLE = -1
_MOST_XIDS = 200  # that nvml.c takes
_DEV = "DCGM_FI_DEV_"
# The call and its argument (see nvml.c) by DCGM's name of what it tells, where both have one unit.
_CALLS = {
    "SM_CLOCK": ("nvmlDeviceGetClockInfo", 1),
    "MEM_CLOCK": ("nvmlDeviceGetClockInfo", 2),
    "GPU_TEMP": ("nvmlDeviceGetTemperatureV", 0),
    "MEMORY_TEMP": ("nvmlDeviceGetFieldValues", 82),
    "TOTAL_ENERGY_CONSUMPTION": ("nvmlDeviceGetTotalEnergyConsumption", 0),
    "GPU_UTIL": ("nvmlDeviceGetUtilizationRates", 0),
    "MEM_COPY_UTIL": ("nvmlDeviceGetUtilizationRates", 1),
    "ENC_UTIL": ("nvmlDeviceGetEncoderUtilization", 0),
    "DEC_UTIL": ("nvmlDeviceGetDecoderUtilization", 0),
    "CLOCKS_EVENT_REASONS": ("nvmlDeviceGetCurrentClocksEventReasons", 0),
    "POWER_VIOLATION": ("nvmlDeviceGetViolationStatus", 0),
    "THERMAL_VIOLATION": ("nvmlDeviceGetViolationStatus", 1),
    "SYNC_BOOST_VIOLATION": ("nvmlDeviceGetViolationStatus", 2),
    "BOARD_LIMIT_VIOLATION": ("nvmlDeviceGetViolationStatus", 3),
    "LOW_UTIL_VIOLATION": ("nvmlDeviceGetViolationStatus", 4),
    "RELIABILITY_VIOLATION": ("nvmlDeviceGetViolationStatus", 5),
    "PCIE_LINK_GEN": ("nvmlDeviceGetCurrPcieLinkGeneration", 0),
    "PCIE_LINK_WIDTH": ("nvmlDeviceGetCurrPcieLinkWidth", 0),
    "PCIE_REPLAY_COUNTER": ("nvmlDeviceGetPcieReplayCounter", 0),
    "ECC_SBE_VOL_TOTAL": ("nvmlDeviceGetTotalEccErrors", 0),
    "ECC_DBE_VOL_TOTAL": ("nvmlDeviceGetTotalEccErrors", 1),
    "CORRECTABLE_REMAPPED_ROWS": ("nvmlDeviceGetRemappedRows", 0),
    "UNCORRECTABLE_REMAPPED_ROWS": ("nvmlDeviceGetRemappedRows", 1),
    "ROW_REMAP_PENDING": ("nvmlDeviceGetRemappedRows", 2),
    "ROW_REMAP_FAILURE": ("nvmlDeviceGetRemappedRows", 3),
    "VGPU_LICENSE_STATUS": ("nvmlDeviceGetGridLicensableFeatures_v4", 0),
}
_MILLIWATTS = {"POWER_USAGE": "nvmlDeviceGetPowerUsage", "ENFORCED_POWER_LIMIT": "nvmlDeviceGetEnforcedPowerLimit"}
_SENT, _RECEIVED = (("nvmlDeviceGetFieldValues", field) for field in (138, 139))  # over all NVLinks, in KiB


# Profiling counters by DCGM's name: the metric. The first are ratios, which NVML has in percent, the others bytes a
# second, in MiB.
_RATIOS = {
    "GR_ENGINE_ACTIVE": 1,
    "SM_ACTIVE": 2,
    "SM_OCCUPANCY": 3,
    "PIPE_INT_ACTIVE": 4,
    "PIPE_TENSOR_ACTIVE": 5,
    "DRAM_ACTIVE": 10,
    "PIPE_FP64_ACTIVE": 11,
    "PIPE_FP32_ACTIVE": 12,
    "PIPE_FP16_ACTIVE": 13,
}
_RATES = {"PCIE_TX_BYTES": 20, "PCIE_RX_BYTES": 21, "NVLINK_RX_BYTES": 60, "NVLINK_TX_BYTES": 61}


class NvmlValues:
    """The lines of a world's hardware; of what has gone over NVLinks it keeps the sums, which DCGM has no need of."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sent: defaultdict[str, float] = defaultdict(float)  # bytes in one direction, by the GPU's UUID
        self._at_ns = world.machine.clock()

    def lines(self) -> Iterator[str]:
        """All of it, as it is now."""
        machine = self._world.machine
        later_ns = machine.advance()
        now = machine.clock()
        seconds, self._at_ns = (now - self._at_ns) / 1e9, now
        held = _in_processes(self._world)
        yield f"text -1 nvmlSystemGetDriverVersion {DRIVER_VERSION}"
        for gpu in self._world.gpus:
            of_instances = 0
            for mig in gpu.instances:
                readings: Mapping[str, Reading] = of_instance(machine, mig)
                of_instances += (used := _used(readings, held[mig.device_id]))
                yield _memory(gpu, mig.instance_id, readings, used)
                yield from _profiled(gpu, mig.instance_id, readings, _RATIOS)
            readings = of_whole(machine, gpu, later_ns)
            yield _memory(gpu, _WHOLE, readings, of_instances if gpu.instances else _used(readings, held[gpu.uuid]))
            yield from _profiled(gpu, _WHOLE, readings, _RATES if gpu.instances else _RATIOS | _RATES)
            self._sent[gpu.uuid] += _number(readings, "DCGM_FI_PROF_NVLINK_TX_BYTES") * seconds
            yield from _values(gpu, readings, int(self._sent[gpu.uuid] / _KIB))
        yield from _xids(machine)


def _values(gpu: Gpu, readings: Mapping[str, Reading], sent_kib: int) -> Iterator[str]:
    yield f"text {gpu.index} nvmlDeviceGetPciInfo_v3 {bus_id(gpu.index)}"
    values = [(call, _number(readings, _DEV + name)) for name, call in _CALLS.items() if _DEV + name in readings]
    values += (((call, 0), _number(readings, _DEV + name) * _MILLI) for name, call in _MILLIWATTS.items())
    values += ((_SENT, sent_kib), (_RECEIVED, sent_kib))
    for (call, of), number in values:
        yield f"value {gpu.index} {call} {of} {round(number)}"


def _profiled(gpu: Gpu, instance: int, readings: Mapping[str, Reading], metrics: Mapping[str, int]) -> Iterator[str]:
    for name, metric in metrics.items():
        value = _number(readings, f"DCGM_FI_PROF_{name}")
        yield f"gpm {gpu.index} {instance} {metric} {value * 100 if name in _RATIOS else value / _MIB!r}"


def _xids(machine: Machine) -> Iterator[str]:
    index = {gpu.uuid: gpu.index for gpu in machine.gpus}
    errors = sorted((error.at_ns, index[uuid], error.xid) for uuid in index for error in machine.xids.get(uuid, ()))
    for number, (_, gpu, xid) in [*enumerate(errors, 1)][-_MOST_XIDS:]:
        yield f"xid {gpu} {xid} {number}"


def _memory(gpu: Gpu, instance: int, readings: Mapping[str, Reading], used: int) -> str:
    total, reserved = (round(_number(readings, f"{_DEV}FB_{of}")) * _MIB for of in ("TOTAL", "RESERVED"))
    return f"memory {gpu.index} {instance} {total} {reserved} {used}"


def _used(readings: Mapping[str, Reading], in_processes: int) -> int:
    """What DCGM says in whole MiB, and at least what the processes have."""
    return max(round(_number(readings, f"{_DEV}FB_USED")) * _MIB, in_processes)


def _number(readings: Mapping[str, Reading], name: str) -> float:
    reading = readings[name]
    assert isinstance(reading, int | float), "one number"  # noqa: S101 - a fault of this program
    return reading


def _in_processes(world: World) -> Mapping[str, int]:
    """The bytes that the processes on a device have together."""
    most = {gpu.uuid: MOST_BYTES for gpu in world.gpus}
    most |= {mig.device_id: most_of(mig) for gpu in world.gpus for mig in gpu.instances}
    found: defaultdict[str, int] = defaultdict(int)
    for each in world.machine.running():
        found[each.device_id] += int(each.memory * most.get(each.device_id, 0))
    return found
