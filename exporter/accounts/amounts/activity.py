"""Activity: the parts of the time in which containers held a device and used it, or left it idle.

GR_ENGINE_ACTIVE is the mean since dcgm-exporter's previous read of the GPU. A device that nobody holds is not active,
so all of its activity belongs to the containers that held it since that read.

If NVML measures the kernels of a device, an owner gets the part of the active time that its kernels have, which may be
more than its share of the device. If the holders changed in the time that a page describes, and all that ran in it is
known, all of that time is divided at once. Without NVML every owner is as active as the device.

The moment since when an owner is idle follows from these amounts: idle time sets it, other time clears it. Time that
nobody saw changes nothing, up to --accounting.keep, so that it survives a restart of the exporter.

Tests: tests/accounts/test_activity.py, tests/accounts/test_idle_since.py, tests/accounts/test_kernels.py.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.accounts.entries import NANOSECONDS, AmountFamily, Entry
from exporter.accounts.gpu import WHOLE, GpuAtLook
from exporter.accounts.holders import HeldGpu
from exporter.accounts.holdings import Device
from exporter.accounts.idleness import NO_VERDICTS, Verdicts, verdicts
from exporter.accounts.kernels import Ran
from exporter.accounts.loads import Part, spread
from exporter.accounts.observation import GpuSamples
from exporter.accounts.stretches import FAINT_NS, Stretch
from exporter.dividing.instances import apportion

ACTIVE = "active_ns"
IDLE = "idle_ns"
IDLE_UNKNOWN = "idle_unknown_ns"
OBSERVED = "observed_ns"
FAMILIES = (
    AmountFamily("pod_gpu_active_seconds_total", ACTIVE, NANOSECONDS),
    AmountFamily("pod_gpu_observed_seconds_total", OBSERVED, NANOSECONDS),
    AmountFamily("pod_gpu_idle_seconds_total", IDLE, NANOSECONDS),
    AmountFamily("pod_gpu_idle_unknown_seconds_total", IDLE_UNKNOWN, NANOSECONDS),
)
# The most that the traces of a stretch's looks can be together. NVML measures no time so short.
_MOST_FAINT_NS = 1_000 * FAINT_NS
# By GPU_I_ID and number of holders.
_Shared = Mapping[str, Mapping[int, Part]]
_NOTHING: _Shared = {}


class _PageOfWindow(NamedTuple):
    """The activity of each device in a stretch, in millionths, and by the number of its holders, as a page tells them.

    `window` are the stretches that the page describes together, if their holders are not all the same. `divided` are
    the GPU_I_IDs of devices whose active time is not to be counted by stretches.
    """

    rows: Mapping[str, int]
    least: int
    shared: _Shared = _NOTHING
    verdicts: Verdicts = NO_VERDICTS
    window: Sequence[Stretch] = ()
    divided: AbstractSet[str] = frozenset()

    def part(self, device: Device[Entry]) -> Part:
        """The part of the time in which a device was active."""
        shared = self.shared.get(device.key.instance) if self.shared else None
        if shared is not None and len(device.holders) in shared:
            return shared[len(device.holders)]
        return min(self.rows[device.key.instance], WHOLE), WHOLE

    def verdict(self, device: Device[Entry], entry: Entry, stretch: Stretch) -> bool | None:
        """Whether a holder was idle; None if that is not known."""
        instance = device.key.instance
        if self.verdicts and (instance, entry) in self.verdicts:
            is_idle = self.verdicts[instance, entry]
            return self.by_kernels(device, entry, stretch) if is_idle is None else is_idle
        if self.rows[instance] < self.least:
            return True
        return False if len(device.holders) == 1 else None

    def by_kernels(self, device: Device[Entry], entry: Entry, stretch: Stretch) -> bool | None:
        """Whether a holder was idle by NVML, if the page cannot tell; None unless NVML saw kernels in the window."""
        instance = device.key.instance
        ran_ns = stretch.kernels.get(instance)
        if ran_ns is None:
            return None
        is_proportion = 0 < sum(ran_ns) <= _MOST_FAINT_NS
        has_seen = any(any(of_window.kernels.get(instance, ())) for of_window in self.window)
        if is_proportion or not has_seen:
            return None
        holders = [holder for holder, _ in device.holders]
        own_ns = ran_ns[holders.index(entry)]
        return own_ns * WHOLE < self.least * stretch.ns


@dataclass(slots=True, eq=False)
class Activity:
    """The activity of a GPU.

    `carried` is active time (ns) by GPU_I_ID that the last page described, although no look saw a holder then: it may
    belong to containers that came just as that page was read.
    """

    carried: dict[str, int] = field(default_factory=dict)

    def count(self, gpu: GpuAtLook) -> None:
        """Count the times that this look's page describes."""
        if gpu.is_other:
            sampled = set(_rows(gpu.samples))
            gpu.start((ACTIVE, ""), (IDLE, ""), (IDLE_UNKNOWN, ""), (OBSERVED, ""), instances=sampled)
            gpu.start_nobodys(ACTIVE, sampled.intersection(gpu.kernels))
        least = round(gpu.idle_below * WHOLE)
        late = self._leave_to_page(gpu)
        new = self._new(gpu, least) if gpu.is_new else None
        begin_ns = gpu.at_ns - sum(stretch.ns for stretch, _ in gpu.described)
        for stretch, samples in gpu.described:
            page = _PageOfWindow(_rows(samples), least)
            if new is not None and samples is gpu.samples:
                page = new
            elif samples is gpu.state.samples:
                page = page._replace(divided=late)
            _count_stretch(gpu, stretch, page, begin_ns)
            begin_ns += stretch.ns
        _note_seen(gpu, least)

    def _leave_to_page(self, gpu: GpuAtLook) -> AbstractSet[str]:
        """The GPU_I_IDs of devices that a holder has left since the last look.

        The next page divides their active time by the kernels. For the other devices the last page tells this time,
        except for containers that came in it.
        """
        late = set()
        for stretch, samples in gpu.described[:1]:
            if samples is not gpu.state.samples:
                break
            for instance, waiting in gpu.waiting.activity.items():
                holders = stretch.held.holders_of(instance)
                has_left = any(entry.gone_at_ns is not None for entry in holders)
                has_run = any(gpu.waiting.ran.get(instance, {}).values())
                if not (has_left and has_run):
                    waiting.skip((*holders, None))
                    continue
                before = min(samples.activity_of(instance) or 0, WHOLE)
                active_ns = stretch.ns * before // WHOLE
                self.carried[instance] = self.carried.get(instance, 0) + active_ns
                late.add(instance)
        return late

    def _new(self, gpu: GpuAtLook, least: int) -> _PageOfWindow:
        """The activity of stretches that the page describes beside the time of one steady set of holders."""
        state = gpu.state
        rows = _rows(gpu.samples)
        window = state.page.described if state.page is not None else ()
        carried = self.carried
        self.carried = {}
        ran = {instance: waiting.take() for instance, waiting in gpu.waiting.activity.items()}
        if gpu.holders_now is state.steady and all(stretch.held is state.steady for stretch in window):
            return _PageOfWindow(rows, least)  # the usual case: all is counted
        if not window:
            return _PageOfWindow(rows, least)
        is_whole = state.page is not None and len(window) == len(state.page.stretches)
        shared, divided = self._shared(gpu, window, carried, ran if is_whole else {})
        return _PageOfWindow(rows, least, shared, verdicts(gpu, window, rows, least), window, divided)

    def _shared(
        self, gpu: GpuAtLook, window: Sequence[Stretch], carried: Mapping[str, int], ran: Mapping[str, Ran | None]
    ) -> tuple[_Shared, AbstractSet[str]]:
        """The activity of each held device, in stretches that nobody could count before this read.

        Also the GPU_I_IDs of devices whose active time in these stretches is divided by what `ran` in them.
        """
        state = gpu.state
        shared: dict[str, Mapping[int, Part]] = {}
        divided = set()
        for instance, activity in gpu.samples.of("activity").items():
            before = state.samples.activity_of(instance) or 0
            left_ns = carried.get(instance, 0)
            held_ns: Counter[int] = Counter()
            for stretch in window:
                left_ns += stretch.ns * min(activity, WHOLE) // WHOLE
                holders = len(stretch.held.holders_of(instance))
                if holders and stretch.held is state.steady:
                    left_ns -= stretch.ns * min(before, WHOLE) // WHOLE
                elif holders:
                    held_ns[holders] += stretch.ns
            if self._divide(gpu, instance, left_ns, held_ns.total(), ran.get(instance)):
                divided.add(instance)
                continue
            if held_ns:
                shared[instance] = spread(max(0, left_ns), held_ns)
            over_ns = left_ns - held_ns.total()
            if over_ns > 0:
                self._share_out(gpu, window, instance, over_ns)
        return shared, divided

    def _divide(self, gpu: GpuAtLook, instance: str, left_ns: int, held_ns: int, ran: Ran | None) -> bool:
        """Divide a device's remaining active time by the kernels that `ran`; False if they are not known.

        At most the time in which looks saw a holder (`held_ns`), and one look more, can be active. If looks have
        counted more than the page says, the next page counts less by that, at most by a look's time.
        """
        device = next((device for device in gpu.holders_now.devices if device.key.instance == instance), None)
        if device is None or ran is None:
            return False
        step_ns = gpu.interval.ns if gpu.interval else 0
        if left_ns < 0:
            self.carried[instance] = max(left_ns, -step_ns)
        active_ns = min(max(0, left_ns), held_ns + step_ns)
        device_ns = active_ns * device.part // gpu.holders_now.whole
        for entry, part in zip(ran, apportion(device_ns, [*ran.values()]), strict=True):
            if entry is None or entry.is_dropped:
                gpu.nobody(device.key).add(ACTIVE, part)
            else:
                entry.add(ACTIVE, part)
                entry.add(OBSERVED, 0)
        return True

    def _share_out(self, gpu: GpuAtLook, window: Sequence[Stretch], instance: str, ns: int) -> None:
        """Give active time in which no look saw a holder to the holders just before the window and just after it."""
        is_whole = gpu.state.page is not None and len(window) == len(gpu.state.page.stretches)
        before, after = gpu.edges(window, is_whole=is_whole)
        has_left = before is not None and bool(before.holders_of(instance))
        has_come = after is not None and bool(after.holders_of(instance))
        part = ns // 2 if has_left and has_come else ns
        part = min(part, gpu.interval.ns if gpu.interval else 0)
        if not has_left and not has_come and gpu.holders_now is window[-1].held:
            # the holders came a little before a look saw them, and still hold it
            has_come = bool(gpu.holders_now.holders_of(instance))
        if has_come:
            self.carried[instance] = part
        if before is not None and has_left:
            _give_active(before, instance, part)


def _give_active(held: HeldGpu, instance: str, ns: int) -> None:
    """Count active time of a device to its holders."""
    for (device, entry), part_ns in zip(held.holders, held.times(ns), strict=False):
        if device.key.instance == instance and not entry.is_dropped:
            entry.add(ACTIVE, part_ns)
            entry.add(OBSERVED, 0)


def _rows(samples: GpuSamples) -> Mapping[str, int]:
    """The activity of each device, by GPU_I_ID: GR_ENGINE_ACTIVE, else GPU_UTIL."""
    return {**samples.of("utilization"), **samples.of("activity")}


def _count_stretch(gpu: GpuAtLook, stretch: Stretch, page: _PageOfWindow, begin_ns: int) -> None:
    """Count a stretch, which has the same holders from `begin_ns` on."""
    held = stretch.held
    # all times are 0 if kernels ran for so short a time that nobody saw them
    measured = {instance for instance, times in stretch.kernels.items() if any(times)}
    for (device, entry), ns in zip(held.holders, held.times(stretch.ns), strict=False):
        instance = device.key.instance
        if instance not in page.rows:
            continue
        amounts = entry.amounts  # not by add(): each look comes here for each device
        amounts[OBSERVED] = amounts.get(OBSERVED, 0) + ns
        if instance in measured:
            continue
        if instance not in page.divided:
            active, of_all = page.part(device) if page.window else (min(page.rows[instance], WHOLE), WHOLE)
            amounts[ACTIVE] = amounts.get(ACTIVE, 0) + ns * active // of_all
        is_idle = page.verdict(device, entry, stretch)
        if is_idle:
            amounts[IDLE] = amounts.get(IDLE, 0) + ns
        elif is_idle is None:
            amounts[IDLE_UNKNOWN] = amounts.get(IDLE_UNKNOWN, 0) + ns
        if bool(is_idle) is (entry.idle_since_at_ns is None):
            _note(entry, begin_ns if is_idle else None)
    for device in held.devices if measured else ():
        if device.key.instance in page.rows and device.key.instance in measured:
            _count_measured(gpu, stretch, device, page, begin_ns)


def _note(entry: Entry, idle_since_ns: int | None) -> None:
    """Note since when a holder is idle; None: it is not idle.

    A holder that has given the device back is not, either.
    """
    if idle_since_ns is None or entry.gone_at_ns is not None:
        entry.idle_since_at_ns = None
    elif entry.idle_since_at_ns is None:
        entry.idle_since_at_ns = entry.idle_seen_at_ns = idle_since_ns


def _note_seen(gpu: GpuAtLook, least: int) -> None:
    """Note the holders that are still idle by this page.

    Forget the idle time of holders that no page has shown for long.
    """
    rows = _rows(gpu.samples)
    unseen_ns = gpu.interval.ns if gpu.interval and not gpu.interval.is_gap else 0
    oldest_ns = gpu.at_ns - max(gpu.keep_ns, unseen_ns)
    for device in gpu.holders_now.devices:
        instance = device.key.instance
        # no row has the activity of a holder's own kernels
        is_idle = instance in rows and (rows[instance] < least or instance in gpu.kernels)
        for entry, _ in device.holders:
            if entry.idle_seen_at_ns < oldest_ns:
                entry.idle_since_at_ns = None
            elif is_idle and entry.idle_since_at_ns is not None:
                entry.idle_seen_at_ns = gpu.at_ns


def _count_measured(
    gpu: GpuAtLook, stretch: Stretch, device: Device[Entry], page: _PageOfWindow, begin_ns: int
) -> None:
    """Divide a device's active time in proportion to the kernels' times of each holder and of nobody's processes."""
    device_ns = stretch.ns * device.part // stretch.held.whole
    ran_ns = stretch.kernels[device.key.instance]
    parts = _parts(stretch, device, page, ran_ns)
    if device.key.instance not in page.divided:
        _add_active(gpu, device, parts)
    times = zip(stretch.held.holders, stretch.held.times(stretch.ns), strict=False)
    held_ns = [ns for (its_device, _), ns in times if its_device is device]
    for (entry, _), ns, part, own_ns in zip(device.holders, held_ns, parts, ran_ns, strict=False):
        if entry.is_dropped:
            continue
        is_idle: bool | None = part * WHOLE < page.least * device_ns
        if page.verdicts and page.verdicts.get((device.key.instance, entry), is_idle) is None:
            is_idle = page.by_kernels(device, entry, stretch)
        if is_idle is None:
            entry.add(IDLE_UNKNOWN, ns)
        elif is_idle:
            entry.add(IDLE, ns)
        # GPU_UTIL covers only the last second before dcgm-exporter's read, so a page without GR_ENGINE_ACTIVE misses
        # bursts
        _note(entry, begin_ns if is_idle and own_ns * WHOLE < page.least * stretch.ns else None)


def _parts(stretch: Stretch, device: Device[Entry], page: _PageOfWindow, ran_ns: Sequence[int]) -> Sequence[int]:
    """The holders' parts, and last nobody's, of a device's active time in a stretch."""
    active, of_all = page.part(device)
    device_ns = stretch.ns * device.part // stretch.held.whole
    return apportion(device_ns * active // of_all, ran_ns)


def _add_active(gpu: GpuAtLook, device: Device[Entry], parts: Sequence[int]) -> None:
    *of_holders, nobodys = parts
    for (entry, _), part in zip(device.holders, of_holders, strict=True):
        if entry.is_dropped:
            nobodys += part
        else:
            entry.add(ACTIVE, part)
    if nobodys:
        gpu.nobody(device.key).add(ACTIVE, nobodys)
