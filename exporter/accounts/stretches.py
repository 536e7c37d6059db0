"""What is remembered between two reads of a GPU: who held it for how long, and for how long whose kernels ran.

dcgm-exporter reads its GPUs every 30 s by default; the exporter looks at its page more often. When a page changes, a
counter's growth covers the time since the last change. It is divided among all who held the GPU in that time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from exporter.accounts.entries import Entry
from exporter.accounts.holders import HeldGpu
from exporter.accounts.holdings import Device
from exporter.dividing.instances import apportion
from exporter.model.devices import DeviceKey
from exporter.model.pods import Owner

# dcgm-exporter must have read the GPU anew within this time, even if the page still has the same values.
MOST_UNREAD_NS = 120_000_000_000
# Stretches that are remembered. Of the time before them, the holders are unknown.
MOST_STRETCHES = 64
# All traces of a device together: they are a proportion, and no time.
FAINT_NS = 1_000

# By GPU_I_ID for how long kernels ran (ns): those of each holder of a device, in the order of its holders, and at last
# those of processes of no holder. A device for which that is unknown is left out.
Kernels = Mapping[str, Sequence[int]]
NO_KERNELS: Kernels = MappingProxyType({})
_Times = Mapping[Owner | None, int]
SmNs = Mapping[DeviceKey, _Times]
NOT_MEASURED: SmNs = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """A time in which the same containers held a GPU.

    `is_gap`: no look saw who held it; `held` has those who held it at both ends. `is_blind`: the kubelet told who held
    it, but the GPU's page was away at the beginning or at the end.
    """

    held: HeldGpu
    ns: int
    is_gap: bool = False
    kernels: Kernels = field(default_factory=lambda: NO_KERNELS)
    is_blind: bool = False

    @property
    def is_seen(self) -> bool:
        """Whether both the holders and the page were seen."""
        return not (self.is_gap or self.is_blind)

    def and_then(self, after: "Stretch") -> "Stretch | None":
        """Both as one; None where they differ in more than their lengths."""
        if self.held is not after.held or self.is_gap or after.is_gap or self.is_blind is not after.is_blind:
            return None
        kernels = self.kernels or after.kernels
        if self.kernels and after.kernels:
            kernels = {**self.kernels, **after.kernels}
            for instance in self.kernels.keys() & after.kernels.keys():
                both = zip(self.kernels[instance], after.kernels[instance], strict=True)
                kernels[instance] = [one + another for one, another in both]
        return Stretch(self.held, self.ns + after.ns, kernels=kernels, is_blind=self.is_blind)


# not frozen: each look brings it up to date
@dataclass(slots=True, eq=False)
class CountersAtLook:
    """Counters that a page shows of a GPU, by name, and the time since the page was read with these values.

    `look` is the number of the last look that read them, `at_ns` its moment, `held` who held the GPU then; `is_away`:
    the page was away at that look. `stretches` go from the look that saw the values first to the last one.
    """

    held: HeldGpu
    look: int
    at_ns: int
    values: dict[str, int] = field(default_factory=dict)
    stretches: list[Stretch] = field(default_factory=list)
    is_away: bool = False
    has_moved: bool = field(default=False, init=False)

    @property
    def described(self) -> Sequence[Stretch]:
        """The stretches that a page describes if it was read just now: those after the last one that nobody saw."""
        unseen = [number for number, stretch in enumerate(self.stretches, 1) if not stretch.is_seen]
        return self.stretches[max(unseen, default=0) :]

    @property
    def is_old(self) -> bool:
        """Whether dcgm-exporter must have read the GPU again since, although the values are the same."""
        return sum(stretch.ns for stretch in self.stretches) >= MOST_UNREAD_NS

    def add(self, stretch: Stretch) -> None:
        """Add the time since the last look."""
        stretches = self.stretches
        merged = stretches[-1].and_then(stretch) if stretches else None
        if merged is not None:
            stretches[-1] = merged
            return
        stretches.append(stretch)
        if len(stretches) > MOST_STRETCHES:
            oldest, next_one = stretches[:2]
            stretches[:2] = [Stretch(oldest.held.by_unknown(), oldest.ns + next_one.ns, is_gap=True)]

    def renew(self) -> None:
        """The values are new at the last look."""
        self.has_moved = False
        self.stretches.clear()

    def grow_to(self, name: str, now: int) -> int:
        """How much a counter grew since the last look that read it; 0 for a counter that is new.

        A fall to less than half is a restart from 0. On a smaller fall the larger value stays: one of two pages is
        late.
        """
        before = self.values.setdefault(name, now)
        if now == before or now < before <= 2 * now:
            return 0
        self.values[name], self.has_moved = now, True
        return now - before if now > before else now

    def divide(self, amounts: Mapping[str, int]) -> Iterable[tuple[Stretch, Mapping[str, int]]]:
        """Divide what has grown since the values were new among the stretches, by time."""
        if len(self.stretches) == 1:
            yield self.stretches[0], amounts
            return
        by = [stretch.ns for stretch in self.stretches]
        if not any(by):
            by[-1] = 1
        parts = {name: apportion(amount, by) for name, amount in amounts.items() if amount}
        for number, stretch in enumerate(self.stretches):
            yield stretch, {name: part[number] for name, part in parts.items()}


class KernelTimes:
    """Remembers what NVML measured at the last look: `Measured.sm_ns`, which begins at 0 with each process.

    NVML may have no new sample since the last look. For two minutes the proportion of the last sample then stays.
    """

    def __init__(self) -> None:
        self._last = NOT_MEASURED
        self._newest: dict[DeviceKey, tuple[int, Sequence[object], list[int]]] = {}

    def since_last(self, now: SmNs, holders_before: Mapping[str, HeldGpu], at_ns: int) -> Mapping[str, Kernels]:
        """For how long kernels of those who held a GPU at the last look ran since, by GPU.

        `now` is measured at this look, at `at_ns`; it is empty where nobody measures.
        """
        last, self._last = self._last, now
        if not last or not now:
            self._newest.clear()
            return {}
        times_of: dict[str, dict[str, list[int]]] = {}
        for key in now.keys() & last.keys():
            held = holders_before.get(key.uuid)
            for device in held.devices if held is not None else ():
                if device.key == key and device.holders and (times := _grown(device, last[key], now[key])):
                    # the same part of another whole is another share
                    shares = device.part, device.holders
                    times_of.setdefault(key.uuid, {})[key.instance] = self._with_newest(key, shares, times, at_ns)
        return times_of

    def _with_newest(self, key: DeviceKey, shares: Sequence[object], times: list[int], at_ns: int) -> list[int]:
        """The times. Without a new sample: traces of time in the last one's proportion, which any new one outweighs."""
        if any(times):
            self._newest[key] = at_ns, shares, times
            return times
        since_ns, holders, newest = self._newest.get(key, (at_ns, (), times))
        if holders != shares or at_ns - since_ns >= MOST_UNREAD_NS:
            return times
        return [time * FAINT_NS // sum(newest) for time in newest]


def _grown(device: Device[Entry], last: _Times, now: _Times) -> list[int]:
    """The holders' times, and at last nobody's; [] where one of them is unknown."""
    owners = [entry.owner for entry, _ in device.holders]
    if any(owner not in last or owner not in now for owner in owners):
        return []
    times = [now.get(owner, 0) - last.get(owner, 0) for owner in (*owners, None)]
    return times if min(times) >= 0 else []
