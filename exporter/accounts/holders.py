"""The holders of GPUs, as entries of the ledger. Every look brings them up to date; mostly nothing has changed.

Tests: tests/accounts/test_holders.py, tests/accounts/test_histories.py, tests/accounts/test_state.py.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from exporter.accounts.device_values import FAMILIES_OF_MEMORY, DeviceValues
from exporter.accounts.entries import Entries, Entry
from exporter.accounts.holdings import Device, Gpu, Gpus, gpus_of
from exporter.dividing.granted_parts import devices_with_memory
from exporter.dividing.instances import apportion
from exporter.model.devices import AddedLabels, DeviceKey
from exporter.model.memo import Memo
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.model.slices import Work
from exporter.model.snapshot import Snapshot

# The most GPUs that are remembered. GPUs that are gone make room for new ones.
MOST_GPUS = 1_024
_GPUS_A_SLICE = 100
_MOST_MOVED = 0.01
_UID = "pod_uid"
_WORKLOAD = ("workload_name", "workload_kind")
# The entry in place of a holder that must get no amounts. Its part goes to nobody.
NO_ENTRY = Entry(None, "", DeviceKey(uuid=""))
NO_ENTRY.is_dropped = True


@dataclass(frozen=True, slots=True, eq=False)
class HeldGpu:
    """A GPU at one look: its devices with their holders, whose parts are parts of `whole`.

    Together the parts may be more than `whole`: then the GPU is over-committed. Each holder still gets its part of a
    time, so that its seconds do not depend on its neighbours, and all holders together get more than the time.

    While the same containers hold it in the same way, all looks have the same object. `holders` are the holders of all
    devices, each with its device.
    """

    key: DeviceKey
    whole: int
    devices: Sequence[Device[Entry]]
    holders: Sequence[tuple[Device[Entry], Entry]] = field(init=False)
    _parts: Sequence[int] = field(init=False)
    _given: int = field(init=False)
    _times: list[tuple[int, list[int]]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        holders: list[tuple[Device[Entry], Entry]] = []
        parts: list[int] = []
        for device in self.devices:
            for entry, part in device.holders:
                holders.append((device, entry))
                parts.append(part)
        given = max(self.whole, sum(parts))
        object.__setattr__(self, "holders", holders)
        object.__setattr__(self, "_parts", [*parts, given - sum(parts)])
        object.__setattr__(self, "_given", given)

    @property
    def is_cut(self) -> bool:
        """Whether its devices are MIG instances."""
        return bool(self.devices[0].key.instance)

    def holders_of(self, instance: str) -> list[Entry]:
        """The holders of the device with this GPU_I_ID."""
        return [entry for device, entry in self.holders if device.key.instance == instance]

    def times(self, ns: int) -> Sequence[int]:
        """The parts of a time of the GPU: one for each of `holders`, and last the part that nobody held."""
        # a look asks for the same time more than once
        if not self._times or self._times[0][0] != ns:
            self._times[:] = [(ns, apportion(ns * self._given // self.whole, self._parts))]
        return self._times[0][1]

    def without(self, is_other: Callable[[Entry], bool]) -> "HeldGpu":
        """The same GPU without some holders. Their parts are then nobody's."""
        if not any(is_other(entry) for _, entry in self.holders):
            return self
        devices = []
        for device in self.devices:
            holders = [(NO_ENTRY if is_other(entry) else entry, part) for entry, part in device.holders]
            devices.append(replace(device, holders=tuple(holders)))
        return HeldGpu(self.key, self.whole, tuple(devices))

    def by_unknown(self) -> "HeldGpu":
        """The same GPU, held as a whole by an unknown container."""
        whole = Device(self.key, 1, is_sampled=True, holders=((NO_ENTRY, 1),), part=1)
        return HeldGpu(self.key, 1, (whole,))


class Holders:
    """The GPUs of the last look that counted, by UUID, and the entries of their holders.

    `subjects` are the subjects of that look's pages, and of the last page of a source that is away. `models` has GPUs'
    models by UUID, and `memory_mib` the memory of devices of which an allocator granted some. By model, `capacity`
    counts GPUs, and `allocated` is the part of them that containers hold: an over-committed GPU counts as one, since
    nothing of the others is less free for it.
    """

    def __init__(self, entries: Entries) -> None:
        self.held: Mapping[str, HeldGpu] = {}
        self.models: dict[str, str] = {}
        self.capacity: Mapping[str, int] = {}
        self.allocated: Mapping[str, float] = {}
        self.subjects: Mapping[Subject, int] = {}
        self.memory_mib: Mapping[DeviceKey, float] = {}
        self._gpus: Memo[Gpus] = Memo({})
        self._with_memory: Memo[frozenset[DeviceKey]] = Memo(frozenset())
        self._entries = entries
        self._live: set[Entry] = set()
        self._named_by: tuple[object, ...] = ()

    @property
    def owners(self) -> Mapping[DeviceKey, tuple[Owner, ...]]:
        """The holders of each device at the last look."""
        owners: dict[DeviceKey, tuple[Owner, ...]] = {}
        for held in self.held.values():
            for device in held.devices:
                owners[device.key] = tuple(entry.owner for entry, _ in device.holders if entry.owner)
        return owners

    def knows_devices(self, snapshot: Snapshot) -> bool:
        """Whether a page, of this look or an earlier look, or the inventory has named the GPUs.

        Neither ever names the GPUs of virtual machines, and a node may have no other GPUs.
        """
        if snapshot.joined is not None or self.subjects or snapshot.inventory.gpus:
            return True
        return any(match.ref is not None and match.ref.is_vfio for match in snapshot.owners.matches)

    def update(self, snapshot: Snapshot, at_ns: int) -> Work[None]:
        """Read the holders at this look. Entries of containers that no longer hold the device are gone from here on."""
        self.subjects = self._subjects_of(snapshot)
        yield from self._read_memory(snapshot)
        made_of = (snapshot.owners, self.subjects, snapshot.inventory)
        named_by = (snapshot.pod_labels, snapshot.workloads)
        is_same = self._gpus.is_of(*made_of, self.memory_mib)
        if is_same and named_by == self._named_by:
            return
        if not is_same:
            gpus = yield from gpus_of(*made_of, self.models, self.memory_mib)
            self._gpus.keep(gpus, *made_of, self.memory_mib)
            self._sum_up()
        self._named_by = named_by
        live: set[Entry] = set()
        held: dict[str, HeldGpu] = {}
        for number, (uuid, gpu) in enumerate(self._gpus.value.items(), start=1):
            if not number % _GPUS_A_SLICE:
                yield
            held[uuid] = self._held_gpu(gpu, snapshot, live)
        self.held = held
        self._live = live
        self._entries.note_held(live, at_ns)

    def _held_gpu(self, gpu: Gpu, snapshot: Snapshot, live: set[Entry]) -> HeldGpu:
        """A GPU with the entries of its holders, which are added to `live`.

        The last look's object if nothing changed.
        """
        key = DeviceKey(uuid=gpu.uuid)
        devices = []
        for device in gpu.devices:
            holders = []
            for owner, part in device.holders:
                entry = self._entry_of(owner, device.key, snapshot)
                entry.ratio = part / gpu.whole
                holders.append((entry, part))
                live.add(entry)
            live.add(self._entries.of(None, device.key))
            devices.append(
                Device(
                    device.key,
                    device.slices,
                    device.is_sampled,
                    tuple(holders),
                    device.part,
                    device.is_shared,
                    device.is_granted,
                )
            )
        if self._entries.has_nobodys(key):
            live.add(self._entries.of(None, key))
        before = self.held.get(gpu.uuid)
        if before is not None and before.whole == gpu.whole and before.devices == tuple(devices):
            return before
        return HeldGpu(key, gpu.whole, tuple(devices))

    def _read_memory(self, snapshot: Snapshot) -> Work[None]:
        """Read the memory of devices of which an allocator granted an amount. What is known stays without a page.

        dcgm-exporter reads used and free memory one after the other, so their sum moves a little; that is no change.
        """
        devices = self._with_memory.of(devices_with_memory, snapshot.owners.holders)
        if not devices or snapshot.joined is None:
            return
        values = DeviceValues()
        yield from values.read(snapshot.joined.readings(FAMILIES_OF_MEMORY))
        memory_mib = {key: mib for key, mib in self.memory_mib.items() if key in devices}
        for key in devices:
            mib = values.all_memory_of(key)
            if mib and abs(mib - memory_mib.get(key, 0.0)) > mib * _MOST_MOVED:
                memory_mib[key] = mib
        if memory_mib != self.memory_mib:
            self.memory_mib = memory_mib

    def _subjects_of(self, snapshot: Snapshot) -> Mapping[Subject, int]:
        """The subjects of this look's page.

        While a source is away, earlier subjects of GPUs that the page lacks stay.
        """
        if snapshot.joined is None:
            return self.subjects
        subjects = snapshot.joined.subjects
        if not self.subjects or not snapshot.is_page_away:
            return subjects
        gpus = {subject.gpu for subject in subjects}
        kept = {subject: count for subject, count in self.subjects.items() if subject.gpu not in gpus}
        return {**kept, **subjects}

    def _sum_up(self) -> None:
        """Count the GPUs of each model, and the part of them that containers hold."""
        gpus = [gpu for gpu in self._gpus.value.values() if gpu.is_physical]
        self.models.update({gpu.uuid: gpu.model for gpu in gpus})
        while len(self.models) > max(MOST_GPUS, len(gpus)):
            del self.models[next(iter(self.models))]
        capacity = Counter(gpu.model for gpu in gpus)
        held = dict.fromkeys(capacity, 0.0)
        for gpu in gpus:
            held[gpu.model] += gpu.held
        # if the node has several models, it is not known which one these are, so every model gets its part of them
        unnamed = sum(gpu.held for gpu in self._gpus.value.values() if gpu.is_unnamed)
        for model, count in capacity.items():
            held[model] += unnamed * count / len(gpus)
            held[model] = min(1.0, held[model] / count)
        self.capacity = MappingProxyType(dict(capacity))
        self.allocated = MappingProxyType(held)

    def nobody(self, device: DeviceKey, at_ns: int) -> Entry:
        """Nobody's entry of a device. If the device is no longer there, the entry is gone from the start."""
        entry = self._entries.of(None, device)
        if entry not in self._live:
            held = self.held.get(device.uuid)
            if held is not None and device == held.key:
                self._live.add(entry)
            elif entry.gone_at_ns is None:
                self._entries.note_gone(entry, at_ns)
        return entry

    def _entry_of(self, owner: Owner, device: DeviceKey, snapshot: Snapshot) -> Entry:
        pod = owner.pod_key
        of_pod = snapshot.pod_labels.get(pod)
        workload = snapshot.workloads.get(pod)
        entry = self._entries.of(owner, device, _uid_among(of_pod or ()))
        if of_pod is not None or workload is not None:
            labels = _labels(entry.labels, of_pod, workload)
            if labels != entry.labels and entry.began_at_ns != self._entries.at_ns:
                entry.began_at_ns = None
            entry.labels = labels
        return entry


def _uid_among(labels: AddedLabels) -> str:
    return next((value for name, value in labels if name == _UID), "")


def _labels(old: AddedLabels, of_pod: AddedLabels | None, workload: tuple[str, str] | None) -> AddedLabels:
    """A pod's labels, brought up to date. Labels that the snapshot does not tell stay as they were."""
    kept = of_pod if of_pod is not None else tuple(label for label in old if label[0] not in _WORKLOAD)
    if workload is None:
        return (*kept, *(label for label in old if label[0] in _WORKLOAD))
    return (*kept, *zip(_WORKLOAD, workload, strict=True))
