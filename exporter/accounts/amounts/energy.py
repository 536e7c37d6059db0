"""Energy: what a GPU's counter grew by, or else its power times time, divided among those who held it.

A counter's growth is divided by time among all who held the GPU since it grew before; while nobody held the GPU, it
drew the least power that is known of its model. On MIG the page repeats the GPU's value on each instance's row: it is
counted once, and divided among the instances by activity and slices. Where the rows differ, they are the instances'
own. Each holder of a shared device has its kernels' part of the time, if that is measured, else an equal part.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from exporter.accounts.entries import MICROJOULES, AmountFamily, Entry
from exporter.accounts.gpu import WHOLE, GpuAtLook, Power
from exporter.accounts.holdings import Device
from exporter.accounts.observation import GpuSamples
from exporter.accounts.stretches import CountersAtLook, Stretch
from exporter.dividing.instances import apportion, is_repeated, weights

ENERGY = "energy_uj"
FAMILIES = (AmountFamily("pod_gpu_energy_joules_total", ENERGY, MICROJOULES),)
_PER_MICROJOULE = 1_000_000_000  # microwatts times nanoseconds
_SEVERAL = 2
# Microjoules by GPU_I_ID; those of "" are the whole GPU's.
_Microjoules = Mapping[str, int]


@dataclass(slots=True, eq=False)
class Energy:
    """The energy of a GPU; `counters` are by GPU_I_ID ("" for the GPU's).

    `rows_are_own` says that the rows of MIG instances are the instances' own, and not the GPU's repeated.
    """

    counters: CountersAtLook | None = None
    rows_are_own: bool = False

    def count(self, gpu: GpuAtLook) -> None:
        """Count a GPU's energy since its last look: by its counter, even if the page lacks it now, else by power."""
        counters, rows = self.counters, gpu.samples.of("energy")
        if gpu.is_other and (counters is not None or rows or gpu.samples.of("power")):
            gpu.start((ENERGY, ""))
            gpu.start_nobodys(ENERGY)
        if counters is not None and not rows and gpu.at_ns - counters.at_ns >= gpu.keep_ns:
            counters = self.counters = None
        if counters is None:
            _count_power(gpu)
        if not rows:
            return
        self.rows_are_own = _are_own(rows, was=self.rows_are_own)
        values = {**rows, "": _of_gpu(rows)}
        if counters is None:
            self.counters = gpu.first_read(values)
            return
        gpu.reach(counters)
        names = [instance for instance in rows if instance] if self.rows_are_own else [""]
        is_whole = all(counters.values.get(name, 0) <= values[name] for name in names)
        grown = {name: counters.grow_to(name, values[name]) for name in names}
        if total := sum(grown.values()):
            _count_growth(gpu, counters.stretches, grown, total, is_whole=is_whole)
        values.update((name, counters.values[name]) for name in names)
        counters.values = values
        if counters.has_moved or counters.is_old:
            counters.renew()


def _count_growth(
    gpu: GpuAtLook, window: Sequence[Stretch], grown: _Microjoules, total: int, *, is_whole: bool
) -> None:
    """Divide what the counters grew by in a time; `is_whole`: none of them restarted in it."""
    all_ns = sum(stretch.ns for stretch in window)
    least = gpu.least.get(gpu.model)
    by = _parts(window, total, all_ns, least)
    parts = {name: apportion(amount, by) for name, amount in grown.items() if amount}
    for number, stretch in enumerate(window):
        _give(gpu, stretch, {name: part[number] for name, part in parts.items()}, gpu.samples_of(stretch))
    is_nobodys = gpu.edges(window) == (None, None) and not any(stretch.held.holders for stretch in window)
    if is_whole and all_ns and (least is None or is_nobodys or total * least[1] < least[0] * all_ns):
        gpu.least[gpu.model] = (total, all_ns)


def _parts(window: Sequence[Stretch], total: int, all_ns: int, least: Power | None) -> Sequence[int]:
    """Each stretch's part of all energy: what nobody's stretches leave is divided by time."""
    held = [stretch.ns if stretch.held.holders else 0 for stretch in window]
    if least is None or not any(held):
        by = [stretch.ns for stretch in window]
        return by if any(by) else [*[0] * (len(by) - 1), 1]
    free = [
        0 if stretch.held.holders else min(stretch.ns * least[0] // least[1], stretch.ns * total // all_ns)
        for stretch in window
    ]
    return [one + other for one, other in zip(free, apportion(total - sum(free), held), strict=True)]


def _count_power(gpu: GpuAtLook) -> None:
    for stretch, samples in gpu.described:
        rows = samples.of("power")
        if not rows or not stretch.ns:
            continue
        own = _are_own(rows, was=False)
        watts = {instance: value for instance, value in rows.items() if instance} if own else {"": _of_gpu(rows)}
        amounts = {instance: value * stretch.ns // _PER_MICROJOULE for instance, value in watts.items()}
        _give(gpu, stretch, amounts, samples)


def _are_own(rows: _Microjoules, *, was: bool) -> bool:
    """Whether the rows are the instances' own; `was` of the look before, where one row alone cannot tell."""
    own = [value for instance, value in rows.items() if instance]
    return not is_repeated(own) if len(own) >= _SEVERAL else was and bool(own)


def _of_gpu(rows: _Microjoules) -> int:
    """The GPU's value among the rows that repeat it: the GPU's own row, else the largest."""
    return rows[""] if "" in rows else max(rows.values())


def _give(gpu: GpuAtLook, stretch: Stretch, amounts: _Microjoules, samples: GpuSamples) -> None:
    """Count each device's part to its holders, and to nobody what nobody holds."""
    for device, amount in _divide(stretch, amounts, samples):
        if device is None or not device.holders:
            gpu.nobody(stretch.held.key if device is None else device.key).add(ENERGY, amount)
            continue
        by = stretch.kernels.get(device.key.instance, ())
        parts = apportion(amount, by if any(by) else [1] * len(device.holders))
        for (entry, _), part in zip(device.holders, parts, strict=False):
            (gpu.nobody(device.key) if entry.is_dropped else entry).add(ENERGY, part)
        if len(parts) > len(device.holders):
            gpu.nobody(device.key).add(ENERGY, parts[-1])


def _divide(stretch: Stretch, amounts: _Microjoules, samples: GpuSamples) -> Iterable[tuple[Device[Entry] | None, int]]:
    """Each device's part; None stands for a GPU that is cut into instances of which the page has no rows."""
    held = stretch.held
    if not held.is_cut:
        yield held.devices[0], sum(amounts.values())
        return
    whole = amounts.get("", 0)
    if whole:
        sampled = [device for device in held.devices if device.is_sampled]
        millionths = [samples.activity_of(device.key.instance) for device in sampled]
        activities = [None if activity is None else activity / WHOLE for activity in millionths]
        by = weights([device.slices for device in sampled], activities)
        yield from zip(sampled, apportion(whole, by), strict=True) if sampled else ((None, whole),)
    of_instances = {device.key.instance: device for device in held.devices}
    for instance, amount in amounts.items():
        if instance and amount:
            yield of_instances.get(instance), amount
