"""One GPU at one look: who holds it, what was remembered of it, and what the look says. What counts is given this."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.accounting.entries import Entry
from exporter.accounting.instances import apportion
from exporter.accounting.observation import Seen
from exporter.model.devices import DeviceKey

WHOLE = 1_000_000  # activity in millionths


@dataclass(frozen=True, slots=True, eq=False)
class HeldDevice:
    """A GPU that is not cut, or a MIG instance, at one look: its holders, each with its part of the GPU's `whole`."""

    key: DeviceKey
    slices: int
    is_sampled: bool
    holders: Sequence[tuple[Entry, int]]


@dataclass(frozen=True, slots=True, eq=False)
class HeldGpu:
    """A GPU at one look: its devices, the number that is all of it, and each device's holders."""

    key: DeviceKey
    whole: int
    devices: Sequence[HeldDevice]
    holders: Sequence[tuple[HeldDevice, Entry]] = field(init=False)
    _parts: Sequence[int] = field(init=False)

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

    def times(self, ns: int) -> list[int]:
        """A time of the GPU as what each of `holders` had of it, and at last what nobody had."""
        return apportion(ns, self._parts)


@dataclass(slots=True, eq=False)
class Reading:
    """Values of counters, and the look at which they were read last: its number, its moment, and who held the GPU."""

    held: HeldGpu
    look: int
    at_ns: int
    values: dict[str, int] = field(default_factory=dict)

    def grow_to(self, of: str, now: int) -> int:
        """How much a counter grew since the last look that read it; 0 for a counter that is new.

        A fall to less than half is a start from 0. A smaller one is another reader's delay: the larger value stays.
        """
        before = self.values.setdefault(of, now)
        if now < before <= 2 * now:
            return 0
        self.values[of] = now
        return now - before if now >= before else now


@dataclass(slots=True, eq=False)
class LastXids:
    """The XIDs that a GPU's last look told: the values of the field, and the counts by XID.

    `counted` is the XID that was last counted by its value, and when: its count may come a little later.
    """

    values: frozenset[int] = frozenset()
    counts: Mapping[int, int] | None = None
    totals: Mapping[int, int] | None = None
    counted: tuple[int, int] | None = None

    @property
    def has_counts(self) -> bool:
        """Whether the page counted them."""
        return self.counts is not None or self.totals is not None


@dataclass(slots=True, eq=False)
class GpuState:
    """What is remembered of a GPU: what the last look that saw it said, and the number of that look.

    `energy` are counters by GPU_I_ID ("" for the GPU's); `rows_are_own` says that they are the instances' own.
    `violations` are counters by reason. `xids` is None before the first look at the GPU.
    `begun` is what rows were begun for.
    """

    look: int = -1
    seen: Seen = field(default_factory=Seen)
    energy: Reading | None = None
    rows_are_own: bool = False
    violations: Reading | None = None
    xids: LastXids | None = None
    begun: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """The time between the last two looks that count: how long it was, and whether it is a gap."""

    ns: int
    is_gap: bool


# not frozen: each look makes one for every GPU
@dataclass(slots=True, eq=False)
class Turn:
    """A GPU that a look sees. `before` is who held it at the last look that counted, `held` who holds it now.

    `nobody` finds nobody's entry of a device; a counter that is not on the page for `keep_ns` is forgotten.
    """

    look: int
    at_ns: int
    keep_ns: int
    interval: Interval | None
    before: HeldGpu | None
    held: HeldGpu
    seen: Seen
    state: GpuState
    nobody: Callable[[DeviceKey], Entry]

    @property
    def seen_for_ns(self) -> int:
        """For how long what the last look saw has held: since that look, or 0 where there was none, or a gap."""
        interval = self.interval
        if interval is None or interval.is_gap or self.before is None or self.state.look != self.look - 1:
            return 0
        return interval.ns

    def is_gap_since(self, reading: Reading) -> bool:
        """Whether what was read last was read before a gap, or several looks ago."""
        return self.interval is None or self.interval.is_gap or reading.look != self.look - 1

    def read(self, values: dict[str, int]) -> Reading:
        """These values, as read at this look."""
        return Reading(self.held, self.look, self.at_ns, values)
