"""Energy: what a GPU's counter grew by, or else its power times time, divided among those who held it.

A counter's growth is divided by time among all who held the GPU since it grew before; while nobody held it, it drew the
least that it is known to draw. On MIG the page repeats the GPU's
value on each instance's row: it is counted once, and divided among the instances by activity and slices. Where the rows
differ, they are the instances' own. Of a shared device each holder has its part of the kernels' time, as far as that is
measured, else an equal part.
"""

from collections.abc import Iterable, Mapping, Sequence

from exporter.accounting.held import HeldDevice
from exporter.accounting.instances import apportion, is_repeated, weights
from exporter.accounting.observation import Seen
from exporter.accounting.stretches import Stretch
from exporter.accounting.turn import WHOLE, Power, Turn

_PER_MICROJOULE = 1_000_000_000  # microwatts times nanoseconds
_SEVERAL = 2
# Microjoules by GPU_I_ID; those of "" are the whole GPU's.
_Amounts = Mapping[str, int]


def count(turn: Turn) -> None:
    """Count a GPU's energy since its last look. A counter goes before power, also while it is not on the page."""
    state, rows = turn.state, turn.seen.energy
    known = state.energy
    if known is not None and not rows and turn.at_ns - known.at_ns >= turn.keep_ns:
        known = state.energy = None
    if known is None:
        _count_power(turn)
    if not rows:
        return
    state.rows_are_own = _are_own(rows, was=state.rows_are_own)
    values = {**rows, "": _of_gpu(rows)}
    if known is None:
        state.energy = turn.read(values)
        return
    turn.reach(known)
    count = [instance for instance in rows if instance] if state.rows_are_own else [""]
    is_whole = all(known.values.get(instance, 0) <= values[instance] for instance in count)
    grown = {instance: known.grow_to(instance, values[instance]) for instance in count}
    if total := sum(grown.values()):
        _count_growth(turn, known.stretches, grown, total, is_whole=is_whole)
    values.update((instance, known.values[instance]) for instance in count)
    known.values = values
    if known.has_moved or known.is_old:
        known.renew()


def _count_growth(turn: Turn, window: Sequence[Stretch], grown: _Amounts, total: int, *, is_whole: bool) -> None:
    """Divide what the counters grew by in a time; `is_whole`: none of them began anew in it."""
    all_ns = sum(stretch.ns for stretch in window)
    least = turn.least.get(turn.model)
    by = _parts(window, total, all_ns, least)
    parts = {of: apportion(amount, by) for of, amount in grown.items() if amount}
    for number, stretch in enumerate(window):
        _give(turn, stretch, {of: part[number] for of, part in parts.items()}, turn.seen_in(stretch))
    is_nobodys = turn.edges(window) == (None, None) and not any(stretch.held.holders for stretch in window)
    if is_whole and all_ns and (least is None or is_nobodys or total * least[1] < least[0] * all_ns):
        turn.least[turn.model] = (total, all_ns)


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


def _count_power(turn: Turn) -> None:
    for stretch, seen in turn.told:
        rows = seen.power
        if not rows or not stretch.ns:
            continue
        own = _are_own(rows, was=False)
        watts = {instance: value for instance, value in rows.items() if instance} if own else {"": _of_gpu(rows)}
        amounts = {instance: value * stretch.ns // _PER_MICROJOULE for instance, value in watts.items()}
        _give(turn, stretch, amounts, seen)


def _are_own(rows: _Amounts, *, was: bool) -> bool:
    """Whether the rows are the instances' own; `was` of the look before, where one row alone cannot tell."""
    own = [value for instance, value in rows.items() if instance]
    return not is_repeated(own) if len(own) >= _SEVERAL else was and bool(own)


def _of_gpu(rows: _Amounts) -> int:
    """The GPU's value among the rows that repeat it: the GPU's own row, else the largest."""
    return rows[""] if "" in rows else max(rows.values())


def _give(turn: Turn, stretch: Stretch, amounts: _Amounts, seen: Seen) -> None:
    """Count each device's part to its holders, and to nobody what nobody holds."""
    for device, amount in _divide(stretch, amounts, seen):
        if device is None or not device.holders:
            turn.nobody(stretch.held.key if device is None else device.key).add_energy(amount)
            continue
        by = stretch.kernels.get(device.key.instance, ())
        parts = apportion(amount, by if any(by) else [1] * len(device.holders))
        for (entry, _), part in zip(device.holders, parts, strict=False):
            (turn.nobody(device.key) if entry.is_dropped else entry).add_energy(part)
        if len(parts) > len(device.holders):
            turn.nobody(device.key).add_energy(parts[-1])


def _divide(stretch: Stretch, amounts: _Amounts, seen: Seen) -> Iterable[tuple[HeldDevice | None, int]]:
    """Each device's part; None stands for a GPU that is cut into instances of which the page has no rows."""
    held = stretch.held
    if not held.is_cut:
        yield held.devices[0], sum(amounts.values())
        return
    whole = amounts.get("", 0)
    if whole:
        sampled = [device for device in held.devices if device.is_sampled]
        active = [seen.activity_of(device.key.instance) for device in sampled]
        by = weights([device.slices for device in sampled], [None if of is None else of / WHOLE for of in active])
        yield from zip(sampled, apportion(whole, by), strict=True) if sampled else ((None, whole),)
    of_instances = {device.key.instance: device for device in held.devices}
    for instance, amount in amounts.items():
        if instance and amount:
            yield of_instances.get(instance), amount
