"""One GPU at one look: who holds it, what was remembered of it, and what the look says. What counts is given this."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.accounting.entries import Entry
from exporter.accounting.held import HeldGpu
from exporter.accounting.observation import Seen
from exporter.accounting.stretches import NO_KERNELS, Kernels, Reading, Stretch
from exporter.model.devices import DeviceKey

WHOLE = 1_000_000  # activity in millionths


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

    `page` is the time since anything changed that the page says of the GPU (it has no values). `first` held the GPU
    when the page was read anew and at the look before; None where it changed hands between them. `before` held it at
    that look before.
    `energy` are counters by GPU_I_ID ("" for the GPU's); `rows_are_own` says that they are the instances' own.
    `violations` are counters by reason. `xids` is None before the first look at the GPU.
    `begun` is what rows were begun for.
    """

    look: int = -1
    seen: Seen = field(default_factory=Seen)
    page: Reading | None = None
    first: HeldGpu | None = None
    before: HeldGpu | None = None
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

    `kernels` are those since the last look. `nobody` finds nobody's entry of a device; a counter that is not on the
    page for `keep_ns` is forgotten. `begin` works out the rest: `told` are times with what the page says of them, which
    is to be counted now; `is_new` says that the page was read anew since the last look; `page` has the time since then.
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
    kernels: Kernels = field(default_factory=lambda: NO_KERNELS)
    told: Sequence[tuple[Stretch, Seen]] = ()
    is_new: bool = True

    def begin(self) -> Reading:
        """Find out whether the page was read anew, and of which times it tells. Returns the state's `page`.

        What a page says holds until it is read anew, for those who held the GPU before it was read already. What it
        says of a GPU that has changed hands is of the hands before: for those who came, the next page tells.
        """
        state = self.state
        page = state.page
        if page is None:
            state.page, state.first = self.read({}), self.held
            return state.page
        before = page.held
        last = self.reach(page)
        told = [] if last.is_gap or state.first is not before else [(last, state.seen)]
        self.is_new = self.seen.differs_from(state.seen) or page.is_old
        if self.is_new:
            told += [
                (stretch, self.seen)
                for stretch in page.stretches
                if not stretch.is_gap and stretch.held is not state.first
            ]
        self.told = told
        return page

    def seen_in(self, stretch: Stretch) -> Seen:
        """What the page says of a time since it was read anew before: nothing of a gap."""
        if stretch.is_gap:
            return Seen()
        return self.state.seen if stretch.held is self.state.first else self.seen

    def end(self, page: Reading) -> None:
        """All is counted: leave what this look has seen to the next one."""
        if self.is_new and page.stretches:
            self.state.first = self.held if self.held is self.before else None
            self.state.before = page.stretches[-1].held
            page.renew()
        self.state.look, self.state.seen = self.look, self.seen

    def read(self, values: dict[str, int]) -> Reading:
        """These values, as read at this look for the first time."""
        return Reading(self.held, self.look, self.at_ns, values)

    def reach(self, reading: Reading) -> Stretch:
        """Bring a reading up to this look. Returns the time since its last one, which it now includes.

        There is a gap where the look before did not read it: nobody saw who held the GPU when.
        """
        ns = max(0, self.at_ns - reading.at_ns)
        if self.interval is None or self.interval.is_gap or reading.look != self.look - 1:
            stretch = Stretch(reading.held.without_those_gone(), ns, is_gap=True)
        else:
            stretch = Stretch(reading.held, ns, kernels=self.kernels)
        reading.add(stretch)
        reading.held, reading.look, reading.at_ns = self.held, self.look, self.at_ns
        return stretch
