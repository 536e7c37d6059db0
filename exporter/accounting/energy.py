"""Energy: what a GPU's counter grew by, or else its power times time, divided among those who held it.

On MIG the page repeats the GPU's value on each instance's row: it is counted once, and divided among the instances by
activity and slices. Where the rows differ, they are the instances' own.
"""

from collections.abc import Iterable, Mapping

from exporter.accounting.instances import apportion, is_repeated, weights
from exporter.accounting.observation import Seen
from exporter.accounting.turn import WHOLE, HeldDevice, HeldGpu, Turn

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
    if known is not None:
        count = [instance for instance in rows if instance] if state.rows_are_own else [""]
        grown = {instance: known.grow_to(instance, values[instance]) for instance in count}
        _give(turn, known.held, grown, stayed=turn.is_gap_since(known))
        values.update((instance, known.values[instance]) for instance in count)
    state.energy = turn.read(values)


def _count_power(turn: Turn) -> None:
    rows, for_ns = turn.state.seen.power, turn.seen_for_ns
    if not rows or not for_ns or turn.before is None:
        return
    own = _are_own(rows, was=False)
    watts = {instance: value for instance, value in rows.items() if instance} if own else {"": _of_gpu(rows)}
    amounts = {instance: value * for_ns // _PER_MICROJOULE for instance, value in watts.items()}
    _give(turn, turn.before, amounts, stayed=False)


def _are_own(rows: _Amounts, *, was: bool) -> bool:
    """Whether the rows are the instances' own; `was` of the look before, where one row alone cannot tell."""
    own = [value for instance, value in rows.items() if instance]
    return not is_repeated(own) if len(own) >= _SEVERAL else was and bool(own)


def _of_gpu(rows: _Amounts) -> int:
    """The GPU's value among the rows that repeat it: the GPU's own row, else the largest."""
    return rows[""] if "" in rows else max(rows.values())


def _give(turn: Turn, held: HeldGpu, amounts: _Amounts, *, stayed: bool) -> None:
    """Count each device's part to its holders, equally, and to nobody what nobody holds.

    With `stayed` holders that do not hold the device now are given nothing: it is nobody's.
    """
    # how active an instance was in a gap nobody saw
    for device, amount in _divide(held, amounts, Seen() if stayed else turn.state.seen):
        if device is None or not device.holders:
            turn.nobody(held.key if device is None else device.key).add_energy(amount)
            continue
        for (entry, _), part in zip(device.holders, apportion(amount, [1] * len(device.holders)), strict=True):
            has_left = entry.is_dropped or (stayed and entry.gone_at_ns is not None)
            (turn.nobody(device.key) if has_left else entry).add_energy(part)


def _divide(held: HeldGpu, amounts: _Amounts, seen: Seen) -> Iterable[tuple[HeldDevice | None, int]]:
    """Each device's part; None stands for a GPU that is cut into instances of which the page has no rows."""
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
