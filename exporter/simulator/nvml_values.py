"""What NVML reads on a simulated node's hardware, as lines of nvml.c: of the same machine that DCGM reads."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from exporter.simulator.parts import Gpu
from exporter.simulator.readings import MOST_BYTES, Reading, most_of, of_instance, of_whole
from exporter.simulator.world import World

_MIB = 2**20
_WHOLE = -1
_FB = "DCGM_FI_DEV_FB_{}".format


def lines(world: World) -> Iterator[str]:
    """All of it, as it is now."""
    machine = world.machine
    later_ns = machine.advance()
    held = _in_processes(world)
    for gpu in world.gpus:
        of_instances = 0
        for mig in gpu.instances:
            readings = of_instance(machine, mig)
            of_instances += (used := _used(readings, held[mig.device_id]))
            yield _memory(gpu, mig.instance_id, readings, used)
        readings = of_whole(machine, gpu, later_ns)
        yield _memory(gpu, _WHOLE, readings, of_instances if gpu.instances else _used(readings, held[gpu.uuid]))


def _memory(gpu: Gpu, instance: int, readings: Mapping[str, Reading], used: int) -> str:
    total, reserved = _mib(readings, "TOTAL") * _MIB, _mib(readings, "RESERVED") * _MIB
    return f"memory {gpu.index} {instance} {total} {reserved} {used}"


def _used(readings: Mapping[str, Reading], in_processes: int) -> int:
    """What DCGM says in whole MiB, and at least what the processes have."""
    return max(_mib(readings, "USED") * _MIB, in_processes)


def _mib(readings: Mapping[str, Reading], of: str) -> int:
    reading = readings[_FB(of)]
    assert isinstance(reading, int), "memory is one number of whole MiB"  # noqa: S101 - a fault of this program
    return reading


def _in_processes(world: World) -> Mapping[str, int]:
    """The bytes that the processes on a device have together."""
    most = {gpu.uuid: MOST_BYTES for gpu in world.gpus}
    most |= {mig.device_id: most_of(mig) for gpu in world.gpus for mig in gpu.instances}
    found: defaultdict[str, int] = defaultdict(int)
    for each in world.machine.running():
        found[each.device_id] += int(each.memory * most.get(each.device_id, 0))
    return found
