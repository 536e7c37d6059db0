"""One GPU at one look: its holders, its state of the looks before, and its page's samples.

All amounts count from this.

Tests: tests/accounts/test_gpu_at_look.py, tests/accounts/test_state.py, tests/accounts/test_histories.py.
"""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from exporter.accounts.entries import Entry
from exporter.accounts.holders import HeldGpu
from exporter.accounts.idle_power import IdlePower
from exporter.accounts.kernels import NO_KERNELS_OF_GPU, KernelsOfGpu
from exporter.accounts.memory_looks import MemoryAtLook
from exporter.accounts.observation import GpuSamples
from exporter.accounts.stretches import CountersAtLook, Kernels, Stretch
from exporter.model.devices import DeviceKey
from exporter.model.nothing import nothing

WHOLE = 1_000_000  # activity in millionths


class AmountOfGpu(Protocol):
    """The state of one amount for one GPU, from look to look.

    It is a dataclass, and the state file keeps its fields.
    """

    def count(self, gpu: "GpuAtLook", /) -> None:
        """Count the amount since the GPU's last look. Start it at 0 if the page has values for it."""


@dataclass(slots=True, eq=False)
class GpuState:
    """The state of a GPU after the last look that saw it. `look` is its number, `samples` are the samples that it saw.

    `page` is the stretch since the page was new, without values. `steady` are the holders for all the time that a page
    describes, and at the look before it; None if the holders changed meanwhile. `holders_before` are the holders at the
    look before the page was new. `amounts` are by the amount's name. `shape` is the holders together with the kinds and
    devices of the page's values. `xids` has the moment at which each XID was last counted by this process.
    """

    look: int = -1
    samples: GpuSamples = field(default_factory=GpuSamples)
    page: CountersAtLook | None = None
    steady: HeldGpu | None = None
    holders_before: HeldGpu | None = None
    amounts: dict[str, AmountOfGpu] = field(default_factory=dict)
    shape: tuple[object, ...] = field(default=(), init=False)
    xids: dict[int, int] = field(default_factory=dict, init=False)

    @property
    def counters(self) -> Iterable[CountersAtLook]:
        """The page's time, and the counters of every amount that has some."""
        for counters in (self.page, *(getattr(amount, "counters", None) for amount in self.amounts.values())):
            if counters is not None:
                yield counters


class Interval(NamedTuple):
    """The time between the last two looks that count, and whether it is a gap."""

    ns: int
    is_gap: bool


# not frozen: each look makes one for every GPU
@dataclass(slots=True, eq=False)
class GpuAtLook:
    """A GPU at a look. A counter that the page lacks for `keep_ns` is forgotten.

    A device is idle below `idle_below` (0 to 1). `kernels` are the kernels' times since the last look, and `waiting`
    kernels that no page covers yet. `nobody` finds nobody's entry of a device. `idle_power` is the power that GPUs of
    its model draw while nobody holds them. `is_away`: the GPU's page is away, and `samples` are empty. `counts_xids` is
    off if XIDs come from the kernel's log. `memory` is what the look saw of all devices' memory; None without pods.

    `begin` works out the other fields. `described` has the stretches to count now, with the samples that describe them.
    `is_new`: dcgm-exporter has read the GPU since the last look. `is_other`: the GPU has other holders than at the last
    look, or the page has values of other fields or devices, so that counters may have to start.
    """

    look: int
    at_ns: int
    keep_ns: int
    idle_below: float
    interval: Interval | None
    holders_now: HeldGpu
    samples: GpuSamples
    state: GpuState
    idle_power: IdlePower
    nobody: Callable[[DeviceKey], Entry]
    kernels: Kernels = field(default_factory=nothing)
    waiting: KernelsOfGpu = field(default_factory=lambda: NO_KERNELS_OF_GPU)
    is_away: bool = False
    counts_xids: bool = True
    memory: MemoryAtLook | None = None
    described: Sequence[tuple[Stretch, GpuSamples]] = ()
    is_new: bool = True
    is_other: bool = True

    def count(self) -> None:
        """Count all amounts since the GPU's last look, and remember this look.

        If the page is away, only note the holders.
        """
        if self.is_away:
            for counters in self.state.counters:
                self.reach(counters)
            self.waiting.lose()
            return
        page = self.begin()
        for amount in self.state.amounts.values():
            amount.count(self)
        self._end(page)

    def begin(self) -> CountersAtLook:
        """Find out whether dcgm-exporter has read the GPU since the last look, and which stretches its page describes.

        dcgm-exporter reads the GPU every 30 s, so a page describes the past. If the holders did not change since the
        last read, this page also stands for their time until the next read. If they changed, only the next page
        describes that time.
        """
        state = self.state
        rows = [(kind, *of_kind) for kind, of_kind in self.samples.rows.items()]
        shape = (self.holders_now, rows, *self.kernels)
        self.is_other = shape != state.shape
        state.shape = shape
        page = state.page
        if page is None:
            state.page = self.first_read({})
            state.steady = self.holders_now
            return state.page
        is_steady = page.held is state.steady
        last = self.reach(page)
        described = [(last, state.samples)] if is_steady and last.is_seen else []
        self.is_new = self.samples.differs_from(state.samples) or page.is_old
        if self.is_new:
            described += [(stretch, self.samples) for stretch in page.described if stretch.held is not state.steady]
        self.described = described
        return page

    def samples_of(self, stretch: Stretch) -> GpuSamples:
        """The samples that describe a stretch since the last read; none if nobody saw the stretch."""
        if not stretch.is_seen:
            return GpuSamples()
        return self.state.samples if stretch.held is self.state.steady else self.samples

    def edges(self, window: Sequence[Stretch], *, is_whole: bool = True) -> tuple[HeldGpu | None, HeldGpu | None]:
        """The holders before and after the period that a page describes; None if they are the holders within it.

        dcgm-exporter reads the GPU at any time between two looks, and containers come and go at any time. So the
        previous holders and the next holders may have a part of the period, although no look saw them in it.
        """
        before = self.state.holders_before if is_whole else None
        if before is not None and any(entry.is_dropped for _, entry in before.holders):
            before = None
        return (
            before if before is not window[0].held else None,
            self.holders_now if self.holders_now is not window[-1].held else None,
        )

    def give(self, held: HeldGpu, name: str, ns: int, label: str = "") -> None:
        """Divide a time of the GPU among its holders, by their parts, and count it to them."""
        if not ns:
            return
        *parts, nobodys = held.times(ns)
        for (_, entry), part in zip(held.holders, parts, strict=True):
            if entry.is_dropped:
                nobodys += part
            else:
                entry.add(name, part, label)
        if nobodys:
            self.nobody(held.key).add(name, nobodys, label)

    def start(self, *amounts: tuple[str, str], instances: AbstractSet[str] | None = None) -> None:
        """Start amounts (name and label) at 0 for all holders of the GPU, or of its devices with these GPU_I_IDs.

        Prometheus' increase() ignores a counter's first sample, so a counter that starts at its first amount loses it.
        """
        for device in self.holders_now.devices:
            if instances is None or device.key.instance in instances:
                for entry, _ in device.holders:
                    for name, label in amounts:
                        entry.add(name, 0, label)

    def start_nobodys(self, name: str, instances: AbstractSet[str] | None = None) -> None:
        """Start nobody's amount at 0, for the same choice of devices as in `start`."""
        for device in self.holders_now.devices:
            if instances is None or device.key.instance in instances:
                self.nobody(device.key).add(name, 0)

    def first_read(self, values: dict[str, int]) -> CountersAtLook:
        """Counters that this look reads for the first time."""
        return CountersAtLook(self.holders_now, self.look, self.at_ns, values)

    def reach(self, counters: CountersAtLook) -> Stretch:
        """Add the time since their last look to counters. Returns this stretch.

        It is a gap if the last look did not read the counters: nobody saw who held the GPU in it.
        """
        ns = max(0, self.at_ns - counters.at_ns)
        if self.interval is None or self.interval.is_gap or counters.look != self.look - 1:
            still_there = counters.held.without(lambda entry: entry.gone_at_ns is not None)
            stretch = Stretch(still_there, ns, is_gap=True)
        else:
            stretch = Stretch(counters.held, ns, kernels=self.kernels, is_blind=counters.is_away or self.is_away)
        counters.add(stretch)
        counters.held = self.holders_now
        counters.look = self.look
        counters.at_ns = self.at_ns
        counters.is_away = self.is_away
        return stretch

    def _end(self, page: CountersAtLook) -> None:
        """Keep what this look has seen for the next look."""
        state = self.state
        if self.is_new and page.stretches:
            # holders that came just before the page's time are not steady, since a part of it may be somebody else's
            came = state.holders_before not in (None, self.holders_now)
            is_steady = all(stretch.held is self.holders_now and not stretch.is_gap for stretch in page.stretches)
            is_steady = is_steady and not came
            state.steady = self.holders_now if is_steady else None
            state.holders_before = page.stretches[-1].held
            page.renew()
        state.look = self.look
        state.samples = self.samples
