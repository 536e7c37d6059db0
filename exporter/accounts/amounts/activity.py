"""Activity: for how much of the time that containers held a device it was used, and for how much it was idle.

GR_ENGINE_ACTIVE is the mean since dcgm-exporter read the GPU before. A device that nobody holds is not active, so those
who held it since share all of its activity.

If the kernels of a shared device are measured, each owner has their part of the time in which the device was active,
which may be more than its share of the time. Otherwise each owner is as active as the device.

Since when an owner is idle follows from what is counted here: idle time begins it, other time ends it. Time that nobody
saw does neither, up to --accounting.keep, so that a restart of the exporter does not begin it anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from exporter.accounts.entries import NANOSECONDS, AmountFamily, Entry
from exporter.accounts.gpu import WHOLE, GpuAtLook
from exporter.accounts.holders import HeldGpu
from exporter.accounts.holdings import Device
from exporter.accounts.stretches import Stretch
from exporter.dividing.instances import apportion

ACTIVE, IDLE, OBSERVED = "active_ns", "idle_ns", "observed_ns"
FAMILIES = (
    AmountFamily("pod_gpu_active_seconds_total", ACTIVE, NANOSECONDS),
    AmountFamily("pod_gpu_observed_seconds_total", OBSERVED, NANOSECONDS),
    AmountFamily("pod_gpu_idle_seconds_total", IDLE, NANOSECONDS),
)
Part = tuple[int, int]  # numerator and denominator: how active a device was
_NOTHING: Mapping[str, Part] = {}


@dataclass(slots=True, eq=False)
class Activity:
    """The activity of a GPU.

    `carried` is active time (ns) by GPU_I_ID that the last page described while no look saw a holder: it may be of
    those who came with that page.
    """

    carried: dict[str, int] = field(default_factory=dict)

    def count(self, gpu: GpuAtLook) -> None:
        """Count the times that this look's page describes."""
        if gpu.is_other:
            sampled = {*gpu.samples.of("activity"), *gpu.samples.of("utilization")}
            gpu.start((ACTIVE, ""), (IDLE, ""), (OBSERVED, ""), instances=sampled)
            gpu.start_nobodys(ACTIVE, sampled.intersection(gpu.kernels))
        least = round(gpu.idle_below * WHOLE)
        shared = self._shared(gpu) if gpu.is_new else _NOTHING
        begin_ns = gpu.at_ns - sum(stretch.ns for stretch, _ in gpu.described)
        for stretch, samples in gpu.described:
            held = stretch.held
            rows = {**samples.of("utilization"), **samples.of("activity")}
            activities = {instance: (min(activity, WHOLE), WHOLE) for instance, activity in rows.items()}
            if samples is gpu.samples:
                activities |= shared
            # all are 0 where kernels ran for so short a time that nobody saw them
            measured = {instance for instance, times in stretch.kernels.items() if any(times)}
            for (device, entry), ns in zip(held.holders, held.times(stretch.ns), strict=False):
                instance = device.key.instance
                if instance not in activities:
                    continue
                amounts = entry.amounts  # not by add(): each look comes here for each device
                amounts[OBSERVED] = amounts.get(OBSERVED, 0) + ns
                if instance not in measured:
                    active, of_all = activities[instance]
                    is_idle = active * WHOLE < least * of_all
                    amounts[ACTIVE] = amounts.get(ACTIVE, 0) + ns * active // of_all
                    amounts[IDLE] = amounts.get(IDLE, 0) + (ns if is_idle else 0)
                    if is_idle is (entry.idle_since_at_ns is None):
                        _note(entry, begin_ns if is_idle else None)
            for device in held.devices if measured else ():
                if device.key.instance in activities and device.key.instance in measured:
                    _count_measured(gpu, stretch, device, activities[device.key.instance], (begin_ns, least))
            begin_ns += stretch.ns
        _note_seen(gpu, least)

    def _shared(self, gpu: GpuAtLook) -> Mapping[str, Part]:
        """How active each device was while it was held, in the times that could not be counted before this read."""
        state = gpu.state
        window = state.page.described if state.page is not None else ()
        carried, self.carried = self.carried, {}
        if gpu.holders_now is state.steady and all(stretch.held is state.steady for stretch in window):
            return _NOTHING  # as mostly: all is counted
        shared: dict[str, Part] = {}
        for instance, activity in gpu.samples.of("activity").items() if window else ():
            before = state.samples.activity_of(instance) or 0
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
                self._share_out(gpu, window, instance, left_ns - held_ns)
        return shared

    def _share_out(self, gpu: GpuAtLook, window: Sequence[Stretch], instance: str, ns: int) -> None:
        """Give active time in which no look saw a holder to those who left as it began, and who came as it ended."""
        is_whole = gpu.state.page is not None and len(window) == len(gpu.state.page.stretches)
        edges = gpu.edges(window, is_whole=is_whole)
        left, came = (held if held is not None and _holds(held, instance) else None for held in edges)
        part = min(ns // (2 if left is not None and came is not None else 1), gpu.interval.ns if gpu.interval else 0)
        if came is not None:
            self.carried[instance] = part
        if left is not None:
            for (device, entry), part_ns in zip(left.holders, left.times(part), strict=False):
                if device.key.instance == instance and not entry.is_dropped:
                    entry.add(ACTIVE, part_ns)
                    entry.add(OBSERVED, 0)


def _holds(held: HeldGpu, instance: str) -> bool:
    return any(device.key.instance == instance for device, _ in held.holders)


def _note(entry: Entry, idle_since_ns: int | None) -> None:
    """Note that a holder was idle from a moment on, or that it was not, or has let go of the device since."""
    if idle_since_ns is None or entry.gone_at_ns is not None:
        entry.idle_since_at_ns = None
    elif entry.idle_since_at_ns is None:
        entry.idle_since_at_ns = entry.idle_seen_at_ns = idle_since_ns


def _note_seen(gpu: GpuAtLook, least: int) -> None:
    """Note who is still idle by this look's page, and forget since when of those whom none has shown for too long."""
    rows = {**gpu.samples.of("utilization"), **gpu.samples.of("activity")}
    unseen_ns = gpu.interval.ns if gpu.interval and not gpu.interval.is_gap else 0
    oldest_ns = gpu.at_ns - max(gpu.keep_ns, unseen_ns)
    for device in gpu.holders_now.devices:
        instance = device.key.instance
        # what its kernels do is in none of the rows
        is_idle = instance in rows and (rows[instance] < least or instance in gpu.kernels)
        for entry, _ in device.holders:
            if entry.idle_seen_at_ns < oldest_ns:
                entry.idle_since_at_ns = None
            elif is_idle and entry.idle_since_at_ns is not None:
                entry.idle_seen_at_ns = gpu.at_ns


def _count_measured(
    gpu: GpuAtLook, stretch: Stretch, device: Device[Entry], activity: Part, limits: tuple[int, int]
) -> None:
    """Divide the time in which a device was active by that of each holder's kernels, and of nobody's processes.

    `limits` are the stretch's begin (ns) and the activity below which a holder is idle.
    """
    begin_ns, least = limits
    device_ns = stretch.ns * device.part // stretch.held.whole
    ran_ns = stretch.kernels[device.key.instance]
    *parts, nobodys = apportion(device_ns * activity[0] // activity[1], ran_ns)
    times = zip(stretch.held.holders, stretch.held.times(stretch.ns), strict=False)
    held_ns = [ns for (its_device, _), ns in times if its_device is device]
    for (entry, _), ns, part, own_ns in zip(device.holders, held_ns, parts, ran_ns, strict=False):
        if entry.is_dropped:
            nobodys += part
            continue
        is_idle = part * WHOLE < least * device_ns
        entry.add(ACTIVE, part)
        entry.add(IDLE, ns if is_idle else 0)
        # a page with GPU_UTIL alone is of the last second before dcgm-exporter's read: it misses bursts of kernels
        _note(entry, begin_ns if is_idle and own_ns * WHOLE < least * stretch.ns else None)
    if nobodys:
        gpu.nobody(device.key).add(ACTIVE, nobodys)
