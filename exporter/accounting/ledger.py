"""The ledger: what each container has had of each device, look by look. Pure, except for what it remembers.

What a look sees holds until the next one: the time between belongs to those who held a device at the first of the two,
and so does what a counter grew by. In a gap nobody saw who held what. Time and counters then go to those who hold a
device at both ends of the gap; what would be others' is nobody's.
"""

from collections import Counter as Counts
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from exporter.accounting import energy
from exporter.accounting.energy import Counter, HeldDevice, HeldGpu
from exporter.accounting.entries import Entries, Entry
from exporter.accounting.holdings import Gpus, gpus_of
from exporter.accounting.instances import apportion
from exporter.accounting.observation import Seen, lacks_a_page, read, why_failed
from exporter.model.accounts import GAPS, Accounts, Gap
from exporter.model.devices import AddedLabels, DeviceKey
from exporter.model.pods import Owner
from exporter.model.snapshot import Snapshot

UID_LABEL = "pod_uid"
# Looks further apart than this many intervals have a gap between them.
_LATE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How accounts are kept, as the settings of --accounting say.

    A device is idle below `idle_below` (0 to 1). Looks are `interval_ns` apart. The account of a container that is gone
    ends after `keep_ns`.
    """

    idle_below: float = 0.05
    interval_ns: int = 10_000_000_000
    keep_ns: int = 300_000_000_000


@dataclass(slots=True, eq=False)
class _Interval:
    """The time between the last two looks that count: how long it was, and whether it is a gap."""

    ns: int
    is_gap: bool


@dataclass(slots=True, eq=False)
class GpuState:
    """What is remembered of a GPU: its counters, and what the last look that saw it said.

    `counters` are of energy, by GPU_I_ID ("" for the GPU's).
    """

    look: int = -1
    seen: Seen = field(default_factory=Seen)
    counters: dict[str, Counter] = field(default_factory=dict)


class Ledger:
    """Keeps the accounts. Only the looks of the service's own pulse are noted: scrapes change nothing."""

    def __init__(self) -> None:
        self.accounts = Accounts()
        self._entries = Entries()
        self._gap_ns: dict[Gap, int] = dict.fromkeys(GAPS, 0)
        self._look = 0  # number of the last look that counted
        self._noted_at_ns: int | None = None
        self._counted_at_ns: int | None = None
        self._failing: Gap | None = None
        self._is_gap = False
        self._gpus: Gpus = {}
        self._made_from: tuple[object, ...] = ()
        self._named_by: tuple[object, ...] = ()
        self._held: Mapping[str, HeldGpu] = {}
        self._live: set[Entry] = set()
        self._states: dict[str, GpuState] = {}

    @property
    def rows(self) -> int:
        """How many accounts are remembered; at most MOST_ACCOUNTS."""
        return len(self._entries)

    def note_shown(self) -> None:
        """Somebody was shown the accounts: those of containers that are gone are to be shown twice."""
        self._entries.shown += 1

    def note(self, snapshot: Snapshot, at_ns: int, rules: Rules) -> None:
        """A look of the pulse, at a moment of a clock that never steps back; `accounts` is then a new object."""
        failing = self._note_gap(snapshot, at_ns, rules)
        if failing is None and snapshot.joined is not None:
            before, interval = self._held, self._interval(at_ns)
            self._hold(snapshot, at_ns)
            seen = read(snapshot.joined)
            if interval is not None:
                self._allocate(before, seen, interval, rules)
            for uuid, of_gpu in seen.items():
                held = self._held.get(uuid)
                if held is not None:
                    self._count_energy(before.get(uuid), held, of_gpu, interval, at_ns, rules.keep_ns)
            self._remember(seen)
            self._entries.forget(at_ns - rules.keep_ns)
            self._counted_at_ns = at_ns
        self._publish()

    def _note_gap(self, snapshot: Snapshot, at_ns: int, rules: Rules) -> Gap | None:
        """Count the time since the last look where nothing was seen in it; why this look does not count, or None."""
        failing = why_failed(snapshot)
        since = at_ns - self._noted_at_ns if self._noted_at_ns is not None else 0
        reason = "exporter" if since > _LATE * rules.interval_ns else failing or self._failing
        if reason is not None:
            self._is_gap = True
        elif lacks_a_page(snapshot):
            reason = "page"  # of some devices: the others were seen
        if reason is not None and since > 0:
            self._gap_ns[reason] += since
        self._noted_at_ns, self._failing = at_ns, failing
        return failing

    def _interval(self, at_ns: int) -> _Interval | None:
        """The time since the last look that counted, and begin another."""
        is_gap, self._is_gap = self._is_gap, False
        self._look += 1
        return None if self._counted_at_ns is None else _Interval(max(0, at_ns - self._counted_at_ns), is_gap)

    def _hold(self, snapshot: Snapshot, at_ns: int) -> None:
        """Bring up to date who holds what. Mostly nothing has changed since the last look."""
        joined = snapshot.joined
        subjects = joined.subjects if joined is not None else {}
        made_from = (snapshot.owners, subjects, snapshot.inventory)
        if len(self._made_from) != len(made_from) or any(
            a is not b for a, b in zip(self._made_from, made_from, strict=True)
        ):
            self._gpus = gpus_of(snapshot.owners, subjects, snapshot.inventory)
            self._made_from = made_from
        elif self._named_by == (snapshot.pod_labels, snapshot.workloads):
            return
        self._named_by = (snapshot.pod_labels, snapshot.workloads)
        live: set[Entry] = set()
        held: dict[str, HeldGpu] = {}
        for uuid, gpu in self._gpus.items():
            devices = []
            for device in gpu.devices:
                holders = []
                for owner, part in device.parts:
                    entry = self._entry_of(owner, device.key, snapshot)
                    entry.ratio = part / gpu.whole
                    holders.append((entry, part))
                    live.add(entry)
                live.add(self._entries.of(None, device.key))
                devices.append(HeldDevice(device.key, device.slices, device.is_sampled, tuple(holders)))
            held[uuid] = HeldGpu(DeviceKey(uuid=uuid), gpu.whole, devices, gpu.is_sampled)
        self._held, self._live = held, live
        self._entries.note_held(live, at_ns)

    def _entry_of(self, owner: Owner, device: DeviceKey, snapshot: Snapshot) -> Entry:
        pod = (owner.namespace, owner.pod)
        of_pod, workload = snapshot.pod_labels.get(pod), snapshot.workloads.get(pod)
        uid = next((value for name, value in of_pod or () if name == UID_LABEL), "")
        entry = self._entries.of(owner, device, uid)
        if of_pod is not None or workload is not None:
            entry.labels = _labels(entry.labels, of_pod, workload)
        return entry

    def _allocate(
        self, before: Mapping[str, HeldGpu], seen: Mapping[str, Seen], interval: _Interval, rules: Rules
    ) -> None:
        """Count the time since the last look to those who held each GPU then."""
        idle_below = round(rules.idle_below * energy.WHOLE)
        for uuid, held in before.items():
            parts = [(device, entry, part) for device in held.devices for entry, part in device.holders]
            if not parts:
                continue
            each = [part for _, _, part in parts]
            times = apportion(interval.ns, [*each, held.whole - sum(each)])
            state = self._states.get(uuid)
            was_seen = state is not None and state.look == self._look - 1 and uuid in seen and not interval.is_gap
            for (device, entry, _), ns in zip(parts, times[:-1], strict=True):
                if entry.is_dropped or (interval.is_gap and entry.gone_at_ns is not None):
                    continue
                entry.allocated_ns = (entry.allocated_ns or 0) + ns
                activity = state.seen.activity_of(device.instance) if was_seen and state is not None else None
                if activity is not None:
                    entry.active_ns = (entry.active_ns or 0) + ns * min(activity, energy.WHOLE) // energy.WHOLE
                    entry.idle_ns = (entry.idle_ns or 0) + (ns if activity < idle_below else 0)

    def _count_energy(
        self, before: HeldGpu | None, held: HeldGpu, seen: Seen, interval: _Interval | None, at_ns: int, keep_ns: int
    ) -> None:
        """Count what a GPU's energy counter grew by, or else its power for the time since the last look."""
        state = self._states.setdefault(held.key.uuid, GpuState())
        counter = state.counters.get("")
        if counter is not None and not seen.energy and at_ns - counter.at_ns >= keep_ns:
            state.counters.clear()  # the page has it no longer
        activity = {device.instance: state.seen.activity_of(device.instance) for device in (before or held).devices}
        was_seen = interval is not None and not interval.is_gap and state.look == self._look - 1
        if not state.counters:
            if before is not None and interval is not None and was_seen and state.seen.power:
                rows = state.seen.power
                each = {instance: energy.of_power(value, interval.ns) for instance, value in rows.items()}
                whole = energy.of_power(energy.value_of_gpu(rows), interval.ns)
                parts = energy.divide(before, energy.per_device(before, rows, each, whole), activity)
                energy.give(parts, held.key, self._nobody, both=False)
        elif counter is not None and seen.energy:
            grown = {of: state.counters[of].grow_to(v) for of, v in seen.energy.items() if of in state.counters}
            whole = counter.grow_to(energy.value_of_gpu(seen.energy)) if "" not in seen.energy else grown[""]
            by_device = energy.per_device(counter.held, seen.energy, grown, whole)
            both = not was_seen or counter.look != self._look - 1
            energy.give(energy.divide(counter.held, by_device, activity), held.key, self._nobody, both=both)
        if seen.energy:
            for instance, value in {"": energy.value_of_gpu(seen.energy), **seen.energy}.items():
                known = state.counters.get(instance)
                known_value = value if known is None else known.value
                state.counters[instance] = Counter(known_value, held, self._look, at_ns)

    def _remember(self, seen: Mapping[str, Seen]) -> None:
        """What this look saw holds until the next."""
        for uuid, of_gpu in seen.items():
            state = self._states.get(uuid)
            if state is None or uuid not in self._held:
                continue
            state.look, state.seen = self._look, of_gpu
            for device in self._held[uuid].devices:
                entries = [entry for entry, _ in device.holders]
                if of_gpu.activity_of(device.instance) is not None:
                    for entry in entries:
                        if entry.active_ns is None:
                            entry.active_ns = entry.idle_ns = 0
                if state.counters or of_gpu.power:
                    for entry in (*entries, self._entries.of(None, device.key)):
                        if entry.energy_uj is None:
                            entry.energy_uj = 0

    def _nobody(self, device: DeviceKey) -> Entry:
        """Nobody's entry of a device, which may be gone by now."""
        entry = self._entries.of(None, device)
        if entry.gone_at_ns is None and entry not in self._live:
            entry.gone_at_ns, entry.shown_before = self._noted_at_ns, self._entries.shown
        return entry

    def _publish(self) -> None:
        """Make the accounts of this moment."""
        held: dict[str, float] = {}
        capacity = Counts(gpu.model for gpu in self._gpus.values() if gpu.is_physical)
        for gpu in self._gpus.values():
            held[gpu.model] = held.get(gpu.model, 0.0) + gpu.held / gpu.whole
        self.accounts = Accounts(
            rows=tuple([entry.account() for entry in self._entries]),
            gap_ns=MappingProxyType({str(reason): ns for reason, ns in self._gap_ns.items()}),
            capacity=MappingProxyType(dict(capacity)),
            allocated=MappingProxyType({model: min(1.0, held[model] / count) for model, count in capacity.items()}),
        )


def _labels(old: AddedLabels, of_pod: AddedLabels | None, workload: tuple[str, str] | None) -> AddedLabels:
    """The labels of a pod, where something new is known of it: what is not known any more stays as it was."""
    is_workload = ("workload_name", "workload_kind")
    kept = of_pod if of_pod is not None else tuple(label for label in old if label[0] not in is_workload)
    if workload is None:
        return (*kept, *(label for label in old if label[0] in is_workload))
    return (*kept, *zip(is_workload, workload, strict=True))
