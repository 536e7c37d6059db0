"""What is remembered between two states of a counter: for how long who held the GPU meanwhile.

dcgm-exporter reads its GPUs every 30 s by default, and looks are more frequent. What has grown when its page changes
grew since it changed before, and belongs to all who held the GPU since then.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from exporter.accounting.held import HeldGpu
from exporter.accounting.instances import apportion

# A page that has stood still for so long was read anew, and says the same again.
MOST_UNREAD_NS = 120_000_000_000
# Stretches that are remembered. What is older is of unknown hands.
MOST_STRETCHES = 64

# By GPU_I_ID for how long kernels ran (ns): those of each holder of a shared device, in the order of its holders, and
# at last those of processes that count for none. A device of which that is not known is left out.
Kernels = Mapping[str, Sequence[int]]
NO_KERNELS: Kernels = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """A time in which a GPU was in the same hands. `is_gap`: nobody saw it; its hands are those of both its ends.

    `is_blind`: the kubelet told the hands, but the GPU's page was away at its beginning or at its end.
    """

    held: HeldGpu
    ns: int
    is_gap: bool = False
    kernels: Kernels = field(default_factory=lambda: NO_KERNELS)
    is_blind: bool = False

    @property
    def is_seen(self) -> bool:
        """Whether both the hands and the page were seen."""
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
class Reading:
    """Values that a page says of a GPU, the last look that read them, and the time since they changed.

    `held` is who held the GPU at that look, `look` its number, `at_ns` its moment. `is_away`: the page was away at it.
    `stretches` go from the look at which the values were new to the last one.
    """

    held: HeldGpu
    look: int
    at_ns: int
    values: dict[str, int] = field(default_factory=dict)
    stretches: list[Stretch] = field(default_factory=list)
    has_moved: bool = False
    is_away: bool = False

    @property
    def described(self) -> Sequence[Stretch]:
        """The stretches that a page tells of which is read now: those since it was away, or nobody saw the hands."""
        unseen = [number for number, stretch in enumerate(self.stretches, 1) if not stretch.is_seen]
        return self.stretches[max(unseen, default=0) :]

    @property
    def is_old(self) -> bool:
        """Whether the values have stood for so long that they must have been read anew."""
        return sum(stretch.ns for stretch in self.stretches) >= MOST_UNREAD_NS

    def add(self, stretch: Stretch) -> None:
        """The time since the last look."""
        known = self.stretches
        merged = known[-1].and_then(stretch) if known else None
        if merged is not None:
            known[-1] = merged
            return
        known.append(stretch)
        if len(known) > MOST_STRETCHES:
            oldest, next_one = known[:2]
            known[:2] = [Stretch(oldest.held.in_unknown_hands(), oldest.ns + next_one.ns, is_gap=True)]

    def renew(self) -> None:
        """The values are new at the last look."""
        self.has_moved = False
        self.stretches.clear()

    def grow_to(self, of: str, now: int) -> int:
        """How much a counter grew since the last look that read it; 0 for a counter that is new.

        A fall to less than half is a start from 0. A smaller one is another reader's delay: the larger value stays.
        """
        before = self.values.setdefault(of, now)
        if now == before or now < before <= 2 * now:
            return 0
        self.values[of], self.has_moved = now, True
        return now - before if now > before else now

    def divide(self, amounts: Mapping[str, int]) -> Iterable[tuple[Stretch, Mapping[str, int]]]:
        """What has grown since the values were new, in parts for each stretch, by time."""
        if len(self.stretches) == 1:
            yield self.stretches[0], amounts
            return
        by = [stretch.ns for stretch in self.stretches]
        if not any(by):
            by[-1] = 1
        parts = {of: apportion(amount, by) for of, amount in amounts.items() if amount}
        for number, stretch in enumerate(self.stretches):
            yield stretch, {of: part[number] for of, part in parts.items()}
