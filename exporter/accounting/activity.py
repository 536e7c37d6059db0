"""Activity: of the time in which containers held a device, what was used, and what was idle.

Of a shared device whose kernels' time is measured, each owner has its part of the time in which the device was active,
which may be more than its share of the time. Else each owner is as active as the device.
"""

from exporter.accounting.held import HeldDevice
from exporter.accounting.instances import apportion
from exporter.accounting.stretches import Stretch
from exporter.accounting.turn import WHOLE, Turn


def count(turn: Turn, idle_below: float) -> None:
    """Count the times of which this look's page tells. A device is idle below `idle_below` (0 to 1)."""
    least = round(idle_below * WHOLE)
    for stretch, seen in turn.told:
        held, known = stretch.held, {**seen.utilization, **seen.activity}
        # all are 0 where kernels ran for so short a time that nobody saw them
        measured = {instance for instance, times in stretch.kernels.items() if any(times)}
        for (device, entry), ns in zip(held.holders, held.times(stretch.ns), strict=False):
            instance = device.key.instance
            if instance in known and instance not in measured:
                activity = known[instance]
                entry.active_ns = (entry.active_ns or 0) + (ns * activity // WHOLE if activity < WHOLE else ns)
                if activity < least:
                    entry.idle_ns = (entry.idle_ns or 0) + ns
                elif entry.idle_ns is None:
                    entry.idle_ns = 0
        for device in held.devices if measured else ():
            if device.key.instance in known and device.key.instance in measured:
                _count_measured(turn, stretch, device, min(known[device.key.instance], WHOLE), least)


def _count_measured(turn: Turn, stretch: Stretch, device: HeldDevice, activity: int, least: int) -> None:
    """Divide the time in which a device was active by that of each holder's kernels, and of nobody's processes."""
    of_device = stretch.ns * device.part // stretch.held.whole
    *parts, nobodys = apportion(of_device * activity // WHOLE, stretch.kernels[device.key.instance])
    of_holders = zip(stretch.held.holders, stretch.held.times(stretch.ns), strict=False)
    held_ns = [ns for (of, _), ns in of_holders if of is device]
    for (entry, _), ns, part in zip(device.holders, held_ns, parts, strict=True):
        if entry.is_dropped:
            nobodys += part
            continue
        entry.active_ns = (entry.active_ns or 0) + part
        entry.idle_ns = (entry.idle_ns or 0) + (ns if part * WHOLE < least * of_device else 0)
    if nobodys:
        nobody = turn.nobody(device.key)
        nobody.active_ns = (nobody.active_ns or 0) + nobodys
