"""One GPU at one look: who holds it, what was remembered of it, and what the look says. What counts is given this."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.accounting.entries import Entry
from exporter.accounting.held import HeldGpu
from exporter.accounting.observation import Seen
from exporter.accounting.stretches import NO_KERNELS, Kernels, Reading, Stretch
from exporter.model.devices import DeviceKey

WHOLE = 1_000_000  # activity in millionths
Power = tuple[int, int]  # microjoules in nanoseconds, exactly


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

    `page` is the time since anything changed that the page says of the GPU (it has no values). `steady` held the GPU
    for all the time that the last page describes; None where it changed hands meanwhile. `before` held it at the look
    before that page was new. `carried` is active time (ns) by GPU_I_ID that the last page told of nobody, and whoever
    came with it may have had.
    `energy` are counters by GPU_I_ID ("" for the GPU's); `rows_are_own` says that they are the instances' own.
    `violations` are counters by reason. `xids` is None before the first look at the GPU.
    `begun` is what rows were begun for.
    """

    look: int = -1
    seen: Seen = field(default_factory=Seen)
    page: Reading | None = None
    steady: HeldGpu | None = None
    before: HeldGpu | None = None
    carried: dict[str, int] = field(default_factory=dict)
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

    `is_away`: its page is away, and `seen` is empty. `kernels` are those since the last look. `nobody` finds nobody's
    entry of a device; a counter that is not on the page for `keep_ns` is forgotten. `least` is the lowest power of the
    GPUs of a model: a GPU that is always busy never shows what it draws while nobody holds it. `begin` works out the
    rest: `told` are times with what the page says of them, which is to be counted now; `is_new` says that the page was
    read anew since the last look; `page` has the time since then.
    """

    look: int
    at_ns: int
    keep_ns: int
    interval: Interval | None
    before: HeldGpu | None
    held: HeldGpu
    seen: Seen
    state: GpuState
    model: str
    least: dict[str, Power]
    nobody: Callable[[DeviceKey], Entry]
    kernels: Kernels = field(default_factory=lambda: NO_KERNELS)
    is_away: bool = False
    told: Sequence[tuple[Stretch, Seen]] = ()
    is_new: bool = True

    def begin(self) -> Reading:
        """Find out whether the page was read anew, and of which times it tells. Returns the state's `page`.

        A page describes the time since it was read before. Whoever held the GPU for all of that goes on as it says,
        until it is read anew. For all others, the next page tells.
        """
        state = self.state
        page = state.page
        if page is None:
            state.page, state.steady = self.read({}), self.held
            return state.page
        is_steady = page.held is state.steady
        last = self.reach(page)
        told = [(last, state.seen)] if is_steady and last.is_seen else []
        self.is_new = self.seen.differs_from(state.seen) or page.is_old
        if self.is_new:
            told += [(stretch, self.seen) for stretch in page.described if stretch.held is not state.steady]
        self.told = told
        return page

    def seen_in(self, stretch: Stretch) -> Seen:
        """What the page says of a time since it was read anew before: nothing of what it did not see."""
        if not stretch.is_seen:
            return Seen()
        return self.state.seen if stretch.held is self.state.steady else self.seen

    def edges(self, window: Sequence[Stretch], *, is_whole: bool = True) -> tuple[HeldGpu | None, HeldGpu | None]:
        """Who left at the beginning of the time that a page describes, and who came at its end; None for nobody new.

        dcgm-exporter reads the GPU, and containers come and go, at any time between two looks. So a part of what the
        page describes may be theirs, although no look saw them in it.
        """
        before = self.state.before if is_whole else None
        if before is not None and any(entry.is_dropped for _, entry in before.holders):
            before = None
        return (
            before if before is not window[0].held else None,
            self.held if self.held is not window[-1].held else None,
        )

    def end(self, page: Reading) -> None:
        """All is counted: leave what this look has seen to the next one."""
        if self.is_new and page.stretches:
            is_steady = all(stretch.held is self.held and not stretch.is_gap for stretch in page.stretches)
            self.state.steady = self.held if is_steady else None
            self.state.before = page.stretches[-1].held
            page.renew()
        self.state.look, self.state.seen = self.look, self.seen

    def pass_by(self) -> None:
        """The page is away: remember who holds the GPU meanwhile."""
        for reading in (self.state.page, self.state.energy, self.state.violations):
            if reading is not None:
                self.reach(reading)

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
            is_blind = reading.is_away or self.is_away
            stretch = Stretch(reading.held, ns, kernels=self.kernels, is_blind=is_blind)
        reading.add(stretch)
        reading.held, reading.look, reading.at_ns, reading.is_away = self.held, self.look, self.at_ns, self.is_away
        return stretch
