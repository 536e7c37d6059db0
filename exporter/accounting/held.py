"""Who held a GPU at one look, as entries of the ledger."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from exporter.accounting.entries import Entry
from exporter.accounting.instances import apportion
from exporter.model.devices import DeviceKey

# In the place of a holder that an amount cannot be given to: what would be its part is nobody's.
NO_ENTRY = Entry(None, "", DeviceKey(uuid=""), is_dropped=True)


@dataclass(frozen=True, slots=True, eq=False)
class HeldDevice:
    """A GPU that is not cut, or a MIG instance, at one look: its holders, each with its part of the GPU's `whole`.

    `part` is all of the device as such a part. `is_shared`: its holders have shares of it, or are several.
    """

    key: DeviceKey
    slices: int
    is_sampled: bool
    holders: Sequence[tuple[Entry, int]]
    part: int = 0
    is_shared: bool = False

    def is_like(self, other: "HeldDevice") -> bool:
        """Whether it is the same device in the same hands."""
        return (
            self.key == other.key
            and self.holders == other.holders
            and (self.slices, self.is_sampled, self.part, self.is_shared)
            == (other.slices, other.is_sampled, other.part, other.is_shared)
        )


@dataclass(frozen=True, slots=True, eq=False)
class HeldGpu:
    """A GPU at one look: its devices, the number that is all of it, and each device's holders.

    As long as the same containers hold it in the same way, all looks have one object.
    """

    key: DeviceKey
    whole: int
    devices: Sequence[HeldDevice]
    holders: Sequence[tuple[HeldDevice, Entry]] = field(init=False)
    _parts: Sequence[int] = field(init=False)
    _times: list[tuple[int, list[int]]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """Work out what each look asks for again."""
        each = [part for device in self.devices for _, part in device.holders]
        object.__setattr__(self, "_parts", (*each, self.whole - sum(each)))
        object.__setattr__(
            self, "holders", tuple((device, entry) for device in self.devices for entry, _ in device.holders)
        )

    @property
    def is_cut(self) -> bool:
        """Whether its devices are MIG instances."""
        return bool(self.devices[0].key.instance)

    def is_like(self, other: "HeldGpu | None") -> bool:
        """Whether it is the same GPU in the same hands."""
        return (
            other is not None
            and (self.key, self.whole, len(self.devices)) == (other.key, other.whole, len(other.devices))
            and all(one.is_like(another) for one, another in zip(self.devices, other.devices, strict=True))
        )

    def times(self, ns: int) -> Sequence[int]:
        """A time of the GPU as what each of `holders` had of it, and at last what nobody had."""
        # each look asks for one time more than once
        if not self._times or self._times[0][0] != ns:
            self._times[:] = [(ns, apportion(ns, self._parts))]
        return self._times[0][1]

    def without_those_gone(self) -> "HeldGpu":
        """The same without the holders that do not hold their device any more."""
        return self.without(lambda entry: entry.gone_at_ns is not None)

    def without(self, is_other: Callable[[Entry], bool]) -> "HeldGpu":
        """The same without some holders: their parts are nobody's."""
        if not any(is_other(entry) for _, entry in self.holders):
            return self
        return HeldGpu(
            self.key,
            self.whole,
            tuple(
                HeldDevice(
                    device.key,
                    device.slices,
                    device.is_sampled,
                    tuple((NO_ENTRY if is_other(entry) else entry, part) for entry, part in device.holders),
                    device.part,
                    device.is_shared,
                )
                for device in self.devices
            ),
        )

    def in_unknown_hands(self) -> "HeldGpu":
        """The GPU as a whole, held by nobody knows whom."""
        return HeldGpu(self.key, 1, (HeldDevice(self.key, 1, True, ((NO_ENTRY, 1),), 1),))
