"""Energy: what a GPU's counter grew by, or its power times time, divided among those who held it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from exporter.accounting.entries import Entry
from exporter.accounting.instances import apportion, is_repeated, weights
from exporter.model.devices import DeviceKey

WHOLE = 1_000_000  # activity in millionths
_PER_MICROJOULE = 1_000_000_000  # microwatts times nanoseconds


@dataclass(frozen=True, slots=True, eq=False)
class HeldDevice:
    """A GPU that is not cut, or a MIG instance, at one look: its holders, each with its part of the GPU's `whole`."""

    key: DeviceKey
    slices: int
    is_sampled: bool
    holders: Sequence[tuple[Entry, int]]

    @property
    def instance(self) -> str:
        """Its GPU_I_ID; "" for a GPU."""
        return self.key.instance


@dataclass(frozen=True, slots=True, eq=False)
class HeldGpu:
    """A GPU at one look: its devices, and the number that is all of it."""

    key: DeviceKey
    whole: int
    devices: Sequence[HeldDevice]
    is_sampled: bool

    @property
    def is_cut(self) -> bool:
        """Whether its devices are MIG instances."""
        return bool(self.devices[0].instance)


@dataclass(slots=True, eq=False)
class Counter:
    """A counter of a GPU: its value, and who held the GPU at the look at which it was read last."""

    value: int
    held: HeldGpu
    look: int
    at_ns: int

    def grow_to(self, now: int) -> int:
        """How much it grew. A fall to less than half is a start from 0; a smaller one is another reader's delay."""
        before = self.value
        if now < before <= 2 * now:
            return 0
        self.value = now
        return now - before if now >= before else now


def per_device(held: HeldGpu, rows: Mapping[str, int], amounts: Mapping[str, int], of_gpu: int) -> dict[str, int]:
    """`amounts` by GPU_I_ID where the rows of a GPU's instances are their own; else `of_gpu`, which is to be divided.

    The key "" means the whole GPU. A row of the parent beside rows of instances is not one of theirs.
    """
    own = [rows[device.instance] for device in held.devices if device.instance in rows]
    if held.is_cut and not is_repeated(own):
        return {device.instance: amounts.get(device.instance, 0) for device in held.devices}
    return {"": of_gpu}


def value_of_gpu(rows: Mapping[str, int]) -> int:
    """The GPU's value among the rows that repeat it: the GPU's own row, else the largest."""
    return rows[""] if "" in rows else max(rows.values())


def divide(
    held: HeldGpu, by_device: Mapping[str, int], activity: Mapping[str, int | None]
) -> Iterable[tuple[HeldDevice | None, int]]:
    """Energy by GPU_I_ID as each device's part; None stands for a GPU that is cut into instances nobody knows.

    What is of the whole GPU ("") is divided among its instances by activity and slices.
    """
    if not held.is_cut:
        yield held.devices[0], by_device.get("", 0)
        return
    whole = by_device.get("", 0)
    if whole:
        sampled = [device for device in held.devices if device.is_sampled]
        active = [activity.get(device.instance) for device in sampled]
        by = weights([device.slices for device in sampled], [None if of is None else of / WHOLE for of in active])
        yield from zip(sampled, apportion(whole, by), strict=True) if sampled else ((None, whole),)
    for device in held.devices:
        if by_device.get(device.instance):
            yield device, by_device[device.instance]


def give(
    parts: Iterable[tuple[HeldDevice | None, int]], gpu: DeviceKey, nobody: Callable[[DeviceKey], Entry], *, both: bool
) -> None:
    """Count each device's microjoules to its holders, equally, and to nobody what nobody holds.

    With `both` only holders that hold the device now, too, are given anything: what would be others' is nobody's.
    """
    for device, amount in parts:
        if not amount:
            continue
        if device is None or not device.holders:
            nobody(gpu if device is None else device.key).add_energy(amount)
            continue
        for (entry, _), part in zip(device.holders, apportion(amount, [1] * len(device.holders)), strict=True):
            if entry.is_dropped or (both and entry.gone_at_ns is not None):
                nobody(device.key).add_energy(part)
            else:
                entry.add_energy(part)


def of_power(power_uw: int, for_ns: int) -> int:
    """The microjoules of a power for a time, rounded down."""
    return power_uw * for_ns // _PER_MICROJOULE
