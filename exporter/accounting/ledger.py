"""The ledger: what each container has had of each device, look by look. Pure, except for what it remembers.

Who holds what at a look holds it until the next one: the time between is theirs. The page may be read from the GPUs
less often than that: what its counters grew by belongs to all who held the GPU since they grew before, by time. In a
gap nobody saw who held what. Time and counters then go to those who hold a device at both ends of the gap; what would
be others' is nobody's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from exporter.accounting import activity, energy, errors, throttling
from exporter.accounting.entries import Entries
from exporter.accounting.gaps import Gaps
from exporter.accounting.held import HeldGpu
from exporter.accounting.holders import MOST_GPUS, Holders
from exporter.accounting.kernels import KernelTimes, SmNs
from exporter.accounting.observation import PageReader, Seen, is_away
from exporter.accounting.stretches import NO_KERNELS
from exporter.accounting.turn import GpuState, Interval, Power, Turn
from exporter.model.accounts import Accounts
from exporter.model.slices import Work, at_once
from exporter.model.snapshot import Snapshot

_NOT_MEASURED: SmNs = {}
_GPUS_A_SLICE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How accounts are kept, as the settings of --accounting say.

    A device is idle below `idle_below` (0 to 1). Looks are `interval_ns` apart. The account of a container that is gone
    ends after `keep_ns`.
    """

    idle_below: float = 0.05
    interval_ns: int = 10_000_000_000
    keep_ns: int = 300_000_000_000


class Ledger:
    """Keeps the accounts. Only the looks of the service's own pulse are noted: scrapes change nothing.

    `look` is the number of the last look that counted, `counted_at_ns` its moment; `states` are by the GPU's UUID,
    `least` the lowest power that GPUs drew from one state of a counter to the next, by model.
    """

    def __init__(self) -> None:
        self.accounts = Accounts()
        self.entries = Entries()
        self.gaps = Gaps()
        self.holders = Holders(self.entries)
        self._pages = PageReader()
        self._kernels = KernelTimes()
        self.states: dict[str, GpuState] = {}
        self.least: dict[str, Power] = {}
        self.look = 0
        self.counted_at_ns: int | None = None

    @property
    def rows(self) -> int:
        """How many accounts are remembered; at most MOST_ACCOUNTS."""
        return len(self.entries)

    def note_shown(self) -> None:
        """Somebody was shown the accounts: those of containers that are gone are to be shown twice."""
        self.entries.shown += 1

    def note(self, snapshot: Snapshot, at_ns: int, rules: Rules) -> None:
        """A look of the pulse, at a moment of a clock that never steps back; `accounts` is then a new object."""
        at_once(self.work_for(snapshot, at_ns, rules))

    def work_for(self, snapshot: Snapshot, at_ns: int, rules: Rules) -> Work[None]:
        """The same in slices. It has to be done to its end: a half of it is no state of the accounts."""
        if self.gaps.note(snapshot, at_ns, rules.interval_ns):
            if self.holders.knows_devices(snapshot):
                yield from self._count(snapshot, at_ns, rules)
            else:
                self.gaps.is_gap = True
        self.publish()

    def _count(self, snapshot: Snapshot, at_ns: int, rules: Rules) -> Work[None]:
        before, interval = self.holders.held, None
        if self.counted_at_ns is not None:
            interval = Interval(max(0, at_ns - self.counted_at_ns), self.gaps.is_gap)
        self.gaps.is_gap, self.counted_at_ns = False, at_ns
        self.look += 1
        yield from self.holders.update(snapshot, at_ns)
        seen = (yield from self._pages.read(snapshot.joined)) if snapshot.joined is not None else {}
        away = self.states.keys() - seen.keys() if is_away(snapshot) else ()
        measured = snapshot.measured.sm_ns if snapshot.measured is not None else _NOT_MEASURED
        kernels = self._kernels.since_last(measured, {} if interval is None or interval.is_gap else before, at_ns)
        if interval is not None:
            _count_time(before, interval)
        for number, uuid in enumerate((*seen, *away)):
            if number % _GPUS_A_SLICE == _GPUS_A_SLICE - 1:
                yield
            held = self.holders.held.get(uuid)
            if held is None:
                continue  # no GPU's
            turn = Turn(
                look=self.look,
                at_ns=at_ns,
                keep_ns=rules.keep_ns,
                interval=interval,
                before=before.get(uuid),
                held=held,
                seen=seen.get(uuid) or Seen(),
                state=self.states.setdefault(uuid, GpuState()),
                model=self.holders.models.get(uuid, ""),
                least=self.least,
                nobody=partial(self.holders.nobody, at_ns=at_ns),
                kernels=kernels.get(uuid, NO_KERNELS),
                is_away=uuid not in seen,
            )
            if turn.is_away:
                turn.pass_by()
                continue
            page = turn.begin()
            activity.count(turn, rules.idle_below)
            energy.count(turn)
            errors.count(turn)
            throttling.count(turn)
            _begin_rows(turn)
            turn.end(page)
        too_many = len(self.states) - max(MOST_GPUS, len(seen))
        if too_many > 0:
            for uuid in sorted(self.states, key=lambda uuid: self.states[uuid].look)[:too_many]:
                del self.states[uuid]
        self.entries.forget(at_ns - rules.keep_ns)

    def publish(self) -> None:
        """Make the accounts of this moment."""
        self.accounts = Accounts(
            rows=tuple([entry.account() for entry in self.entries]),
            gap_ns=MappingProxyType(dict(self.gaps.ns)),
            capacity=self.holders.capacity,
            allocated=self.holders.allocated,
        )


def _count_time(before: Mapping[str, HeldGpu], interval: Interval) -> None:
    """Count the time since the last look to those who held a GPU then; in a gap, if they hold it still."""
    for held in before.values():
        for (_, entry), ns in zip(held.holders, held.times(interval.ns), strict=False):
            if not entry.is_dropped and not (interval.is_gap and entry.gone_at_ns is not None):
                entry.allocated_ns = (entry.allocated_ns or 0) + ns


def _begin_rows(turn: Turn) -> None:
    """Let what the page tells begin at 0: a counter that appears with its first amount hides it from increase()."""
    has_energy = turn.state.energy is not None or bool(turn.seen.power)
    reasons = throttling.told(turn)
    begun = (turn.held, has_energy, reasons, turn.seen.activity.keys(), turn.seen.utilization.keys(), *turn.kernels)
    if begun == turn.state.begun:
        return
    turn.state.begun = begun
    for device in turn.held.devices:
        has_activity = turn.seen.activity_of(device.key.instance) is not None
        for entry, _ in device.holders:
            if has_activity and entry.active_ns is None:
                entry.active_ns = entry.idle_ns = entry.observed_ns = 0
            if has_energy and entry.energy_uj is None:
                entry.energy_uj = 0
            if not reasons <= entry.throttled_ns.keys():
                entry.throttled_ns.update(dict.fromkeys(reasons - entry.throttled_ns.keys(), 0))
        if has_energy or device.key.instance in turn.kernels:
            nobody = turn.nobody(device.key)
            if has_energy and nobody.energy_uj is None:
                nobody.energy_uj = 0
            if has_activity and device.key.instance in turn.kernels and nobody.active_ns is None:
                nobody.active_ns = 0
