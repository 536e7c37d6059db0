"""The stretches between two reads of a GPU: its holders and their times, and the times of their kernels.

dcgm-exporter reads its GPUs every 30 s by default; the exporter looks at its page more often. When a page changes, a
counter's growth covers the time since the last change. It is divided among all who held the GPU in that time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.accounts.holders import HeldGpu
from exporter.dividing.instances import apportion
from exporter.model.devices import DeviceKey
from exporter.model.nothing import NOTHING, nothing
from exporter.model.pods import Owner

# dcgm-exporter must have read the GPU anew within this time, even if the page still has the same values.
MOST_UNREAD_NS = 120_000_000_000
# The most stretches that are remembered. The holders of the time before them are unknown.
MOST_STRETCHES = 64
# The sum of a device's traces, which stand for a proportion and not for a time.
FAINT_NS = 1_000

# By GPU_I_ID, the times (ns) for which kernels ran: one for each holder of the device, in the order of its holders, and
# last the time of processes of no holder. A device with an unknown time is left out.
Kernels = Mapping[str, Sequence[int]]
NO_KERNELS: Kernels = NOTHING
Times = Mapping[Owner | None, int]
SmNs = Mapping[DeviceKey, Times]
NOT_MEASURED: SmNs = NOTHING


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """A time in which the same containers held a GPU.

    `is_gap`: no look saw who held it; `held` then has the containers that held it before and after. `is_blind`: the
    kubelet named the holders, but the GPU's page was away at the beginning or at the end.
    """

    held: HeldGpu
    ns: int
    is_gap: bool = False
    kernels: Kernels = field(default_factory=nothing)
    is_blind: bool = False

    @property
    def is_seen(self) -> bool:
        """Whether looks saw both the holders and the page."""
        return not (self.is_gap or self.is_blind)

    def and_then(self, after: "Stretch") -> "Stretch | None":
        """Both stretches as one; None if they differ in more than their lengths."""
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

    `look` is the number of the last look that read them, `at_ns` its moment, `held` the holders then. `is_away`: the
    page was away at that look. `stretches` go from the first look that saw these values to the last look.
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
        """The stretches that a page read just now describes: all after the last stretch that no look saw."""
        unseen = [number for number, stretch in enumerate(self.stretches, 1) if not stretch.is_seen]
        return self.stretches[max(unseen, default=0) :]

    @property
    def is_old(self) -> bool:
        """Whether dcgm-exporter must have read the GPU again by now, although the values are the same."""
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
        """Note that the last look saw new values."""
        self.has_moved = False
        self.stretches.clear()

    def grow_to(self, name: str, now: int) -> int:
        """The growth of a counter since the last look that read it; 0 for a new counter.

        A fall to less than half is a restart from 0. After a smaller fall the larger value stays, since one of two
        pages is late.
        """
        before = self.values.setdefault(name, now)
        if now == before or now < before <= 2 * now:
            return 0
        self.values[name], self.has_moved = now, True
        return now - before if now > before else now

    def divide(self, amounts: Mapping[str, int]) -> Iterable[tuple[Stretch, Mapping[str, int]]]:
        """Divide the growth since the values were new among the stretches, by time."""
        if len(self.stretches) == 1:
            yield self.stretches[0], amounts
            return
        by = [stretch.ns for stretch in self.stretches]
        if not any(by):
            by[-1] = 1
        parts = {name: apportion(amount, by) for name, amount in amounts.items() if amount}
        for number, stretch in enumerate(self.stretches):
            yield stretch, {name: part[number] for name, part in parts.items()}
