"""Energy: the growth of a GPU's counter, or else its power times time, divided among the GPU's holders.

A counter's growth is divided by time among all who held the GPU since the counter grew last. While nobody held the GPU,
it drew the least power that is known of its model. On MIG the page repeats the GPU's value on each instance's row: the
value is counted once, and divided among the instances by activity and slices. Rows that differ are the instances' own
values. A holder of a shared device gets its kernels' part of the time if NVML measures it, else what it was granted
where an allocator says that of all holders, else an equal part.

Tests: tests/accounts/test_energy.py, tests/accounts/test_ledger.py, tests/accounts/test_two_hours.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from exporter.accounts.entries import MICROJOULES, AmountFamily, Entry
from exporter.accounts.gpu import WHOLE, GpuAtLook
from exporter.accounts.holdings import Device
from exporter.accounts.idle_power import IdlePower
from exporter.accounts.kernels import Ran
from exporter.accounts.loads import Loads
from exporter.accounts.stretches import CountersAtLook, Stretch
from exporter.dividing.instances import apportion, is_repeated

ENERGY = "energy_uj"
FAMILIES = (AmountFamily("pod_gpu_energy_joules_total", ENERGY, MICROJOULES),)
_PER_MICROJOULE = 1_000_000_000  # microwatts times nanoseconds
_SEVERAL = 2
# Microjoules by GPU_I_ID. The key "" is the whole GPU.
_Microjoules = Mapping[str, int]


@dataclass(slots=True, eq=False)
class Energy:
    """The energy of a GPU. `counters` are by GPU_I_ID ("" for the GPU's own).

    `rows_are_own` says that the rows of MIG instances are the instances' own, and not the GPU's repeated.
    """

    counters: CountersAtLook | None = None
    rows_are_own: bool = False

    def count(self, gpu: GpuAtLook) -> None:
        """Count a GPU's energy since its last look: by its counter, even if the page lacks it now, else by power."""
        rows = gpu.samples.of("energy")
        if gpu.is_other and (self.counters is not None or rows or gpu.samples.of("power")):
            gpu.start((ENERGY, ""))
            gpu.start_nobodys(ENERGY)
        if self.counters is not None and not rows and gpu.at_ns - self.counters.at_ns >= gpu.keep_ns:
            self.counters = None
        if self.counters is None:
            _count_power(gpu)
        if rows:
            self._count_counters(gpu, rows)

    def _count_counters(self, gpu: GpuAtLook, rows: _Microjoules) -> None:
        """Count the growth of this page's counters. A counter that is read for the first time begins here."""
        self.rows_are_own = _are_own(rows, was=self.rows_are_own)
        values = {**rows, "": _of_gpu(rows)}
        counters = self.counters
        waiting = gpu.waiting.energy.get("")
        if counters is None:
            self.counters = gpu.first_read(values)
            if waiting is not None:
                waiting.take()
            return
        gpu.reach(counters)
        names = [instance for instance in rows if instance] if self.rows_are_own else [""]
        is_whole = all(counters.values.get(name, 0) <= values[name] for name in names)
        grown = {name: counters.grow_to(name, values[name]) for name in names}
        is_new = counters.has_moved or counters.is_old
        ran = waiting.take() if is_new and waiting is not None else None
        total = sum(grown.values())
        if total:
            _count_growth(gpu, counters.stretches, grown, total, ran, is_whole=is_whole)
        for name in names:
            values[name] = counters.values[name]
        counters.values = values
        if is_new:
            counters.renew()


def _count_growth(
    gpu: GpuAtLook, window: Sequence[Stretch], grown: _Microjoules, total: int, ran: Ran | None, *, is_whole: bool
) -> None:
    """Divide the counters' growth over a window. `is_whole`: no counter restarted in it. `ran` are its kernels."""
    all_ns = sum(stretch.ns for stretch in window)
    edges = gpu.edges(window)
    loads = Loads(window, gpu.samples, edges)
    if not _give_by_ran(gpu, window, loads, total, ran):
        by = _parts(loads, total, all_ns, gpu.idle_power)
        parts = {name: apportion(amount, by) for name, amount in grown.items() if amount}
        for number, piece in enumerate(loads.pieces):
            _give(gpu, piece, {name: part[number] for name, part in parts.items()}, loads)
    # the first look comes at any time after a read, so growth up to the second look may cover more than this window
    is_first = gpu.state.holders_before is None
    if is_whole and all_ns and not is_first:
        is_nobodys = edges == (None, None) and not any(stretch.held.holders for stretch in window)
        gpu.idle_power.note((total, all_ns), is_nobodys=is_nobodys)
        # with the same holders all the time the GPU does not rest; the line is made only of windows like those that
        # need it
        active_ns = _active_ns(gpu, window, all_ns) if len(loads.pieces) > 1 else None
        if active_ns is not None:
            gpu.idle_power.note_active((total, all_ns), active_ns)


def _give_by_ran(gpu: GpuAtLook, window: Sequence[Stretch], loads: Loads, total: int, ran: Ran | None) -> bool:
    """Count the growth of a GPU that is not cut: the power at rest to its holders, the rest by the kernels that `ran`.

    False if the holders are the same all the time, or if the power at rest or the kernels are not known.
    """
    least = gpu.idle_power.power
    is_seen = all(stretch.is_seen for stretch in window)
    if ran is None or least is None or not is_seen or len(loads.pieces) == 1:
        return False
    if gpu.holders_now.is_cut or any(piece.held.is_cut for piece in loads.pieces):
        return False
    by_time = [piece.ns for piece in loads.pieces]
    at_rest = _at_rest(by_time, least, total, sum(by_time))
    for piece, amount in zip(loads.pieces, at_rest, strict=True):
        _give(gpu, piece, {"": amount}, loads)
    for entry, part in zip(ran, apportion(total - sum(at_rest), [*ran.values()]), strict=True):
        taker = gpu.nobody(gpu.holders_now.key) if entry is None or entry.is_dropped else entry
        taker.add(ENERGY, part)
    return True


def _active_ns(gpu: GpuAtLook, window: Sequence[Stretch], all_ns: int) -> int | None:
    """The time for which the GPU was active in a window, with its instances weighted by slices; None if not known."""
    rows = gpu.samples.of("activity")
    held = gpu.holders_now
    parts = [(device, rows.get(device.key.instance)) for device in held.devices if device.is_sampled]
    if not parts or not all(stretch.is_seen for stretch in window):
        return None
    active = 0
    for device, activity in parts:
        if activity is None:
            return None
        active += min(activity, WHOLE) * device.part
    return active * all_ns // (held.whole * WHOLE)


def _parts(loads: Loads, total: int, all_ns: int, idle_power: IdlePower) -> Sequence[int]:
    """The weights by which all energy is divided among the pieces.

    Every stretch gets the energy that a GPU draws at rest, but no more than its part by time. The remainder is divided
    by loads. If no load is known, it is divided by the time in which anybody held the GPU. If no look saw a holder, it
    is divided among the holders at the edges.
    """
    by_time = [piece.ns for piece in loads.pieces]
    if len(by_time) == 1:
        return [1]
    takers = loads.of_pieces()
    if not any(takers):
        takers = [piece.ns if piece.held.holders else 0 for piece in loads.pieces]
    if not any(takers):
        takers = [1 if piece.held.holders else 0 for piece in loads.pieces]
    least = idle_power.power if any(takers) else None
    if least is not None:
        at_rest = _at_rest(by_time, least, total, all_ns)
        rest = apportion(total - sum(at_rest), takers)
        return [one + other for one, other in zip(at_rest, rest, strict=True)]
    if any(by_time):
        return by_time
    return [*[0] * (len(by_time) - 1), 1]


def _at_rest(by_time: Sequence[int], least: tuple[int, int], total: int, all_ns: int) -> Sequence[int]:
    """The energy that a GPU draws at rest in each of these times, but no more than the time's part of the total."""
    if not all_ns:
        return [0] * len(by_time)
    uj, in_ns = least
    return [min(ns * uj // in_ns, ns * total // all_ns) for ns in by_time]


def _count_power(gpu: GpuAtLook) -> None:
    """Count power times time, for a GPU without a counter."""
    window = [stretch for stretch, _ in gpu.described]
    for stretch, samples in gpu.described:
        rows = samples.of("power")
        if not rows or not stretch.ns:
            continue
        if _are_own(rows, was=False):
            watts = {instance: value for instance, value in rows.items() if instance}
        else:
            watts = {"": _of_gpu(rows)}
        amounts = {instance: value * stretch.ns // _PER_MICROJOULE for instance, value in watts.items()}
        of_page = window if samples is gpu.samples else [stretch]
        _give(gpu, stretch, amounts, Loads(of_page, samples, gpu.edges(of_page)))


def _are_own(rows: _Microjoules, *, was: bool) -> bool:
    """Whether the rows are the instances' own values.

    A single row cannot tell: then `was`, of the look before, counts.
    """
    own = [value for instance, value in rows.items() if instance]
    if len(own) >= _SEVERAL:
        return not is_repeated(own)
    return was and bool(own)


def _of_gpu(rows: _Microjoules) -> int:
    """The GPU's value among the rows that repeat it: the GPU's own row, else the largest."""
    return rows[""] if "" in rows else max(rows.values())


def _give(gpu: GpuAtLook, stretch: Stretch, amounts: _Microjoules, loads: Loads) -> None:
    """Count each device's part to its holders, or to nobody if nobody holds the device."""
    for device, amount in _divide(stretch, amounts, loads):
        if device is None or not device.holders:
            gpu.nobody(stretch.held.key if device is None else device.key).add(ENERGY, amount)
            continue
        by = stretch.kernels.get(device.key.instance, ())
        if not any(by):
            by = [part for _, part in device.holders] if device.is_granted else [1] * len(device.holders)
        parts = apportion(amount, by)
        for (entry, _), part in zip(device.holders, parts, strict=False):
            taker = gpu.nobody(device.key) if entry.is_dropped else entry
            taker.add(ENERGY, part)
        if len(parts) > len(device.holders):
            gpu.nobody(device.key).add(ENERGY, parts[-1])


def _divide(stretch: Stretch, amounts: _Microjoules, loads: Loads) -> Iterable[tuple[Device[Entry] | None, int]]:
    """The part of each device. None stands for a GPU that is cut into instances of which the page has no rows."""
    held = stretch.held
    if not held.is_cut:
        yield held.devices[0], sum(amounts.values())
        return
    whole = amounts.get("", 0)
    if whole:
        sampled = [device for device in held.devices if device.is_sampled]
        if sampled:
            yield from zip(sampled, apportion(whole, loads.of_devices(stretch, sampled)), strict=True)
        else:
            yield None, whole
    of_instances = {device.key.instance: device for device in held.devices}
    for instance, amount in amounts.items():
        if instance and amount:
            yield of_instances.get(instance), amount
