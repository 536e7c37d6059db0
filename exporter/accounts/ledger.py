"""The ledger: the amounts that each container has had of each device, look by look. Pure, except for what it remembers.

A container that holds a device at a look holds it until the next look, and gets the time between them. dcgm-exporter
may read the GPUs less often than the exporter looks: a counter's growth is then divided, by time, among all who held
the GPU since the counter grew last. A gap is a time in which nobody saw who held what. A container that holds the
device before and after the gap gets its time and counters. The rest is booked to nobody.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from exporter.accounts.amounts import allocated, new_amounts, xids
from exporter.accounts.amounts.memory_ends import MemoryEnds
from exporter.accounts.entries import Entries
from exporter.accounts.gpu import GpuAtLook, GpuState, Interval
from exporter.accounts.holders import MOST_GPUS, Holders
from exporter.accounts.idle_power import IdlePower
from exporter.accounts.kernels import KernelTimes
from exporter.accounts.memory_looks import Ends, MemoryLooks, newest_of
from exporter.accounts.observation import GpuSamples, ObservationReader
from exporter.accounts.stretches import NO_KERNELS, NOT_MEASURED
from exporter.model.accounts import GAPS, Accounts, Gap, SuspectedOutOfMemory
from exporter.model.kernel import XidCounts
from exporter.model.slices import Work
from exporter.model.snapshot import KUBELET, Snapshot

_GPUS_A_SLICE = 100
_HOLDERS_UNKNOWN = ("exporter", "kubelet")
# Looks further apart than this many intervals have a gap between them.
_LATE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of accounting, from the settings of --accounting.

    A device is idle below `idle_below` (0 to 1). Looks are `interval_ns` apart. The account of a container that is gone
    stays for `keep_ns`.
    """

    idle_below: float = 0.05
    interval_ns: int = 10_000_000_000
    keep_ns: int = 300_000_000_000


class Gaps:
    """The time for which nothing could be seen, by the source that was missing (`ns`).

    `noted_at_ns` is the last look's moment, even if it failed. `failing` is the source that this look lacked. `is_gap`:
    there was a gap since the last look that counted.
    """

    def __init__(self) -> None:
        self.ns: dict[str, int] = dict.fromkeys(GAPS, 0)
        self.noted_at_ns: int | None = None
        self.failing: Gap | None = None
        self.is_gap = False

    def note(self, snapshot: Snapshot, at_ns: int, interval_ns: int) -> bool:
        """Count the time since the last look as a gap if nothing was seen in it. Returns whether this look counts.

        A look without a page counts: the kubelet names the holders, and only the values of pages are missing.
        """
        kubelet = snapshot.health.get(KUBELET)
        failing: Gap | None = "page" if snapshot.joined is None else None
        if kubelet is None or not kubelet.up:
            failing = "kubelet"
        since = at_ns - self.noted_at_ns if self.noted_at_ns is not None else 0
        reason = "exporter" if since > _LATE * interval_ns else failing or self.failing
        if reason in _HOLDERS_UNKNOWN or self.failing == "kubelet":
            self.is_gap = True
        elif reason is None and snapshot.is_page_away:
            reason = "page"  # the page of some devices; the others were seen
        if reason is not None and since > 0:
            self.ns[reason] += since
        self.noted_at_ns = at_ns
        self.failing = failing
        return failing != "kubelet"


class Ledger:
    """The keeper of the accounts. It only notes the looks of the service's own pulse; scrapes change nothing.

    `look` is the number of the last look that counted, `counted_at_ns` its moment, and `began_at_ns` the moment of the
    first look. `clock_set_ns` is by how much the machine's clock was set since the process started. `states` are by the
    GPU's UUID; `idle_powers` are the powers of GPUs at rest, by model. `kernel_sequence` is the number of the last
    record of the kernel's log whose XIDs are counted; None if the XIDs of pages count.
    """

    def __init__(self) -> None:
        self.accounts = Accounts()
        self.entries = Entries()
        self.gaps = Gaps()
        self.holders = Holders(self.entries)
        self._pages = ObservationReader()
        self._kernels = KernelTimes()
        self._memory = MemoryLooks()
        self._suspicions: tuple[SuspectedOutOfMemory, ...] = ()
        self.states: dict[str, GpuState] = {}
        self.idle_powers: defaultdict[str, IdlePower] = defaultdict(IdlePower)
        self.look = 0
        self.counted_at_ns: int | None = None
        self.began_at_ns: int | None = None
        self.clock_set_ns = 0
        self.kernel_sequence: int | None = None

    @property
    def rows(self) -> int:
        """The number of accounts that are remembered; at most MOST_ACCOUNTS."""
        return len(self.entries)

    def note_shown(self) -> None:
        """Note that the accounts were shown: the account of a container that is gone is shown at least twice."""
        self.entries.shown += 1

    def note_kernel_log(self, new: XidCounts, sequence: int, at_ns: int) -> None:
        """Count XIDs of the kernel's log up to the record `sequence`. From here on the XIDs of pages are not counted.

        The driver prints every XID there, and dcgm-exporter's pages have only some of them.
        """
        self.kernel_sequence = sequence
        for (device, owner, xid), number in new.items():
            entry = self.entries.of(owner, device) if owner else self.holders.nobody(device, at_ns)
            xids.add(entry, {xid: number})
            if device.uuid in self.states:
                self.states[device.uuid].xids[xid] = at_ns

    def work_for(self, snapshot: Snapshot, at_ns: int, rules: Rules, ends: Ends | None = None) -> Work[None]:
        """Note a look of the pulse, at a moment of a clock that never steps back; `accounts` is then a new object.

        `ends` are the last ends of containers; None if nobody reads pods.
        The caller must do all slices: before the last one the accounts are wrong.
        """
        if self.gaps.noted_at_ns is None:
            self.began_at_ns = at_ns
        if self.gaps.note(snapshot, at_ns, rules.interval_ns):
            if self.holders.knows_devices(snapshot):
                yield from self._count(snapshot, at_ns, rules, ends)
            else:
                self.gaps.is_gap = True
        self.publish()

    def _count(self, snapshot: Snapshot, at_ns: int, rules: Rules, ends: Ends | None) -> Work[None]:
        """Count a look, GPU by GPU, and forget accounts that nobody has held for `rules.keep_ns`."""
        held_before = self.holders.held
        interval = self._begin_look(at_ns)
        yield from self.holders.update(snapshot, at_ns)
        samples = (yield from self._pages.read(snapshot.joined)) if snapshot.joined is not None else {}
        away = self.states.keys() - samples.keys() if snapshot.is_page_away else ()
        measured = snapshot.measured.sm_ns if snapshot.measured is not None else NOT_MEASURED
        step_ns = None if interval is None or interval.is_gap else interval.ns
        kernels = self._kernels.since_last(measured, held_before, self.holders.held, at_ns, step_ns)
        memory = yield from self._memory.read(snapshot, ends, at_ns, self.clock_set_ns)
        allocated.count(held_before.values(), self.holders.held.values(), interval)
        for number, uuid in enumerate((*samples, *away)):
            if number % _GPUS_A_SLICE == _GPUS_A_SLICE - 1:
                yield
            holders_now = self.holders.held.get(uuid)
            if holders_now is None:
                continue  # the page's samples belong to no GPU
            gpu = GpuAtLook(
                look=self.look,
                at_ns=at_ns,
                keep_ns=rules.keep_ns,
                idle_below=rules.idle_below,
                interval=interval,
                holders_now=holders_now,
                samples=samples.get(uuid) or GpuSamples(),
                state=self._state_of(uuid),
                idle_power=self.idle_powers[self.holders.models.get(uuid, "")],
                nobody=partial(self.holders.nobody, at_ns=at_ns),
                kernels=kernels.get(uuid, NO_KERNELS),
                waiting=self._kernels.of_gpu(uuid),
                is_away=uuid not in samples,
                counts_xids=self.kernel_sequence is None,
                memory=memory,
            )
            gpu.count()
        if memory is not None and memory.settle():
            self.note_suspicions()
        self._forget_states(max(MOST_GPUS, len(samples)))
        self.entries.forget(at_ns - rules.keep_ns)

    def _begin_look(self, at_ns: int) -> Interval | None:
        """Begin a look that counts. Returns the time since the last such look; None if there was none."""
        interval = None
        if self.counted_at_ns is not None:
            interval = Interval(max(0, at_ns - self.counted_at_ns), self.gaps.is_gap)
        self.gaps.is_gap = False
        self.counted_at_ns = at_ns
        self.entries.at_ns = at_ns
        self.look += 1
        return interval

    def _state_of(self, uuid: str) -> GpuState:
        state = self.states.get(uuid)
        if state is None:
            state = self.states[uuid] = GpuState(amounts=new_amounts())
        return state

    def _forget_states(self, most: int) -> None:
        """Keep the states of at most `most` GPUs: those that were seen last."""
        too_many = len(self.states) - most
        if too_many > 0:
            oldest_first = sorted(self.states, key=lambda uuid: self.states[uuid].look)
            for uuid in oldest_first[:too_many]:
                del self.states[uuid]

    def note_suspicions(self) -> None:
        """Gather the suspicions of all GPUs, of which some is new."""
        of_gpus = (state.amounts.get("memory_ends") for state in self.states.values())
        self._suspicions = newest_of(of_gpu.suspected for of_gpu in of_gpus if isinstance(of_gpu, MemoryEnds))

    def publish(self) -> None:
        """Make the accounts of this moment."""
        self.accounts = Accounts(
            rows=tuple([entry.account(self.clock_set_ns, self.gaps.noted_at_ns) for entry in self.entries]),
            gap_ns=MappingProxyType(dict(self.gaps.ns)),
            capacity=self.holders.capacity,
            allocated=self.holders.allocated,
            began_ns=None if self.began_at_ns is None else self.began_at_ns + self.clock_set_ns,
            suspicions=self._suspicions,
        )
