"""Activity: of the time in which containers held a device, what was used, and what was idle.

GR_ENGINE_ACTIVE is the mean of the time since dcgm-exporter read the GPU before. A device that nobody holds is not
active, so those who held it meanwhile share all of that.

Of a shared device whose kernels' time is measured, each owner has its part of the time in which the device was active,
which may be more than its share of the time. Else each owner is as active as the device.
"""

from collections.abc import Mapping, Sequence

from exporter.accounting.held import HeldDevice, HeldGpu
from exporter.accounting.instances import apportion
from exporter.accounting.stretches import Stretch
from exporter.accounting.turn import WHOLE, Turn

Part = tuple[int, int]  # numerator and denominator: how active a device was
_NOTHING: Mapping[str, Part] = {}


def count(turn: Turn, idle_below: float) -> None:
    """Count the times of which this look's page tells. A device is idle below `idle_below` (0 to 1)."""
    least = round(idle_below * WHOLE)
    shared = _shared(turn) if turn.is_new else _NOTHING
    for stretch, seen in turn.told:
        held = stretch.held
        known = {instance: (min(of, WHOLE), WHOLE) for instance, of in {**seen.utilization, **seen.activity}.items()}
        if seen is turn.seen:
            known |= shared
        # all are 0 where kernels ran for so short a time that nobody saw them
        measured = {instance for instance, times in stretch.kernels.items() if any(times)}
        for (device, entry), ns in zip(held.holders, held.times(stretch.ns), strict=False):
            instance = device.key.instance
            if instance not in known:
                continue
            entry.observed_ns = (entry.observed_ns or 0) + ns
            if instance not in measured:
                active, of = known[instance]
                entry.active_ns = (entry.active_ns or 0) + (ns * active // of)
                entry.idle_ns = (entry.idle_ns or 0) + (ns if active * WHOLE < least * of else 0)
        for device in held.devices if measured else ():
            if device.key.instance in known and device.key.instance in measured:
                _count_measured(turn, stretch, device, known[device.key.instance], least)


def _shared(turn: Turn) -> Mapping[str, Part]:
    """How active each device was while it was held, of those times that are not counted before the page is new."""
    state = turn.state
    window = state.page.described if state.page is not None else ()
    carried, state.carried = state.carried, {}
    if turn.held is state.steady and all(stretch.held is state.steady for stretch in window):
        return _NOTHING  # as mostly: all is counted
    shared: dict[str, Part] = {}
    for instance, activity in turn.seen.activity.items() if window else ():
        before = state.seen.activity_of(instance) or 0
        left_ns, held_ns = carried.get(instance, 0), 0
        for stretch in window:
            left_ns += stretch.ns * min(activity, WHOLE) // WHOLE
            if not _holds(stretch.held, instance):
                continue
            if stretch.held is state.steady:
                left_ns -= stretch.ns * min(before, WHOLE) // WHOLE
            else:
                held_ns += stretch.ns
        if held_ns:
            shared[instance] = (max(0, min(left_ns, held_ns)), held_ns)
        if left_ns > held_ns:
            _share_out(turn, window, instance, left_ns - held_ns)
    return shared


def _share_out(turn: Turn, window: Sequence[Stretch], instance: str, ns: int) -> None:
    """Give active time of which no look saw a holder to who left as it began, and to who came as it ended."""
    is_whole = turn.state.page is not None and len(window) == len(turn.state.page.stretches)
    hands = turn.edges(window, is_whole=is_whole)
    left, came = (held if held is not None and _holds(held, instance) else None for held in hands)
    part = min(ns // (2 if left is not None and came is not None else 1), turn.interval.ns if turn.interval else 0)
    if came is not None:
        turn.state.carried[instance] = part
    if left is not None:
        for (device, entry), of in zip(left.holders, left.times(part), strict=False):
            if device.key.instance == instance and not entry.is_dropped:
                entry.active_ns, entry.observed_ns = (entry.active_ns or 0) + of, entry.observed_ns or 0


def _holds(held: HeldGpu, instance: str) -> bool:
    return any(device.key.instance == instance for device, _ in held.holders)


def _count_measured(turn: Turn, stretch: Stretch, device: HeldDevice, activity: Part, least: int) -> None:
    """Divide the time in which a device was active by that of each holder's kernels, and of nobody's processes."""
    of_device = stretch.ns * device.part // stretch.held.whole
    *parts, nobodys = apportion(of_device * activity[0] // activity[1], stretch.kernels[device.key.instance])
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
