"""Who holds what, as entries of the ledger: brought up to date at each look, where mostly nothing has changed."""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from exporter.accounting.entries import Entries, Entry
from exporter.accounting.held import HeldDevice, HeldGpu
from exporter.accounting.holdings import Gpus, gpus_of
from exporter.accounting.observation import is_away
from exporter.model.devices import AddedLabels, DeviceKey
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.model.slices import Work
from exporter.model.snapshot import Snapshot

# GPUs that are remembered. One that is not there any more is forgotten after this many others.
MOST_GPUS = 1_024
_GPUS_A_SLICE = 100
_UID = "pod_uid"
_WORKLOAD = ("workload_name", "workload_kind")


class Holders:
    """The GPUs of the last look that counted, by UUID, and the entries of those who hold them.

    `subjects` are what its pages are about; of a page that is away, what it was about before. `models` are those of
    GPUs, by UUID; by model, `capacity` counts GPUs and `allocated` is the part that is held.
    """

    def __init__(self, entries: Entries) -> None:
        self.held: Mapping[str, HeldGpu] = {}
        self.models: dict[str, str] = {}
        self.capacity: Mapping[str, int] = {}
        self.allocated: Mapping[str, float] = {}
        self.subjects: Mapping[Subject, int] = {}
        self._gpus: Gpus = {}
        self._entries = entries
        self._live: set[Entry] = set()
        self._made_from: tuple[object, ...] = ()
        self._named_by: tuple[object, ...] = ()

    def knows_devices(self, snapshot: Snapshot) -> bool:
        """Whether a page has told of the GPUs, this look's or one before, or else the inventory."""
        return snapshot.joined is not None or bool(self.subjects or snapshot.inventory.gpus)

    def update(self, snapshot: Snapshot, at_ns: int) -> Work[None]:
        """Turn to the look of this moment. Entries of those who hold nothing any more are gone from here on."""
        self.subjects = self._subjects_of(snapshot)
        made_from = (snapshot.owners, self.subjects, snapshot.inventory)
        named_by = (snapshot.pod_labels, snapshot.workloads)
        # by identity, since comparing what they hold would cost every look
        is_known = bool(self._made_from) and all(a is b for a, b in zip(self._made_from, made_from, strict=True))
        if is_known and named_by == self._named_by:
            return
        if not is_known:
            self._gpus = yield from gpus_of(snapshot.owners, self.subjects, snapshot.inventory, self.models)
            self._sum_up()
        self._made_from, self._named_by = made_from, named_by
        live: set[Entry] = set()
        held: dict[str, HeldGpu] = {}
        for number, (uuid, gpu) in enumerate(self._gpus.items(), start=1):
            if not number % _GPUS_A_SLICE:
                yield
            of_gpu = DeviceKey(uuid=uuid)
            devices = []
            for device in gpu.devices:
                holders = []
                for owner, part in device.parts:
                    entry = self._entry_of(owner, device.key, snapshot)
                    entry.ratio = part / gpu.whole
                    holders.append((entry, part))
                    live.add(entry)
                live.add(self._entries.of(None, device.key))
                devices.append(
                    HeldDevice(
                        device.key, device.slices, device.is_sampled, tuple(holders), device.part, device.is_shared
                    )
                )
            if self._entries.has_nobodys(of_gpu):
                live.add(self._entries.of(None, of_gpu))
            new, known = HeldGpu(of_gpu, gpu.whole, tuple(devices)), self.held.get(uuid)
            held[uuid] = known if known is not None and new.is_like(known) else new
        self.held, self._live = held, live
        self._entries.note_held(live, at_ns)

    def _subjects_of(self, snapshot: Snapshot) -> Mapping[Subject, int]:
        """Of a page that is away, those of before stay."""
        if snapshot.joined is None:
            return self.subjects
        subjects = snapshot.joined.subjects
        if not self.subjects or not is_away(snapshot):
            return subjects
        gpus = {subject.gpu for subject in subjects}
        return {**{subject: count for subject, count in self.subjects.items() if subject.gpu not in gpus}, **subjects}

    def resume(
        self,
        held: Iterable[HeldGpu],
        models: Mapping[str, str],
        capacity: Mapping[str, int],
        allocated: Mapping[str, float],
    ) -> None:
        """Go on with what the last look of another ledger saw, whose entries are taken in already."""
        self.held = {of_gpu.key.uuid: of_gpu for of_gpu in held}
        self.models, self.capacity, self.allocated = dict(models), capacity, allocated

    def _sum_up(self) -> None:
        gpus = [gpu for gpu in self._gpus.values() if gpu.is_physical]
        self.models.update({gpu.uuid: gpu.model for gpu in gpus})
        while len(self.models) > max(MOST_GPUS, len(gpus)):
            del self.models[next(iter(self.models))]
        capacity = Counter(gpu.model for gpu in gpus)
        held = dict.fromkeys(capacity, 0.0)
        for gpu in gpus:
            held[gpu.model] += gpu.held / gpu.whole
        self.capacity = MappingProxyType(dict(capacity))
        self.allocated = MappingProxyType({model: min(1.0, held[model] / of) for model, of in capacity.items()})

    def nobody(self, device: DeviceKey, at_ns: int) -> Entry:
        """Nobody's entry of a device. Of one that is not there any more it is gone from the start."""
        entry = self._entries.of(None, device)
        if entry not in self._live:
            held = self.held.get(device.uuid)
            if held is not None and device == held.key:
                self._live.add(entry)
            elif entry.gone_at_ns is None:
                self._entries.note_gone(entry, at_ns)
        return entry

    def _entry_of(self, owner: Owner, device: DeviceKey, snapshot: Snapshot) -> Entry:
        pod = (owner.namespace, owner.pod)
        of_pod, workload = snapshot.pod_labels.get(pod), snapshot.workloads.get(pod)
        entry = self._entries.of(owner, device, next((value for name, value in of_pod or () if name == _UID), ""))
        if of_pod is not None or workload is not None:
            entry.labels = _labels(entry.labels, of_pod, workload)
        return entry


def _labels(old: AddedLabels, of_pod: AddedLabels | None, workload: tuple[str, str] | None) -> AddedLabels:
    """A pod's labels, with what is new of them: what is not known any more stays as it was."""
    kept = of_pod if of_pod is not None else tuple(label for label in old if label[0] not in _WORKLOAD)
    if workload is None:
        return (*kept, *(label for label in old if label[0] in _WORKLOAD))
    return (*kept, *zip(_WORKLOAD, workload, strict=True))
