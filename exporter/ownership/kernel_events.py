"""The GPUs of errors in the kernel's log, and their holders: PCI address → GPU → the containers that held it then.

The exporter hears of an event within milliseconds, and asks the kubelet at once: the containers that the kubelet lists
then held the GPU. The look before may be ten seconds old. It counts only if it agrees, or if it is not older than a
second, since a pod may be gone with its GPU. Otherwise the holder is unknown. If there are several holders, the error
belongs to the holder of the process, if the exporter measures whose processes run on the GPU.

A driver prints several lines for one error, and many for one crash. So lines with the same number, GPU and process
within a second are one event. Pure, except for what it remembers.
"""

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from exporter.dcgm.xids import OTHER_XID, XIDS, is_error, verdict_of
from exporter.model.devices import DeviceKey, Holder, Inventory, InventoryGpu, Owners
from exporter.model.health import HealthReason
from exporter.model.kernel import DeviceEvent, KernelEvent, XidCounts, pci_address
from exporter.model.nothing import NOTHING
from exporter.model.pages import Subject
from exporter.model.pods import Owner, PodName, PodsByName
from exporter.ownership.owners import Unmatched

if TYPE_CHECKING:
    from exporter.model.measured import Measured

MOST_EVENTS = 100
MOST_WAITING = 500
ONE_ERROR_US = 1_000_000
# An answer that the kubelet was asked for so soon after an event is as of the event's moment.
AT_ONCE_SECONDS = 0.5
# A pod that a look saw so shortly before an event, and that is gone now, may have failed with its GPU.
JUST_BEFORE_SECONDS = 1.0
# After this time without an answer of the kubelet, the holders before the event count.
MOST_WAIT_SECONDS = 30.0
# Only one line in the log says that a GPU is well again: a recovery action that becomes None (XID 154, drivers since
# R555). An error that makes a GPU failing counts until this line, until the GPU's counters begin anew, or for a day; by
# then somebody has mended it unseen. An error that only degrades a GPU counts for an hour. A restart of the machine
# ends all errors, with the log.
FAILING_SECONDS = 86_400.0
DEGRADED_SECONDS = 3_600.0
RECOVERY_CHANGED = 154
MOST_STANDING = 256
_ACTION = re.compile(r" to 0x([0-9a-f]{1,8})\b", re.IGNORECASE)
_SLOT = "look at the kernel's log (dmesg | grep AER); if it comes back, have the GPU and its slot checked"
OF_KIND = {
    ("lost", ""): HealthReason("fell-off-bus", "fallen off the bus", XIDS[79].remedy, "gone"),
    ("pcie", "fatal"): HealthReason("pcie", "fatal error of PCI Express", _SLOT, "failing"),
    ("pcie", "nonfatal"): HealthReason("pcie", "error of PCI Express", _SLOT, "degraded"),
}
_NO_GPU = InventoryGpu(uuid="")


# the owner and the device of each process, by its pid and GPU
_HoldersOfProcesses = Mapping[tuple[int, str], tuple[Owner, DeviceKey]]
HoldersOf = Callable[[Owners, InventoryGpu, str], Mapping[Owner, DeviceKey]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SeenAtLook:
    """The owners at a look. `asked_at` is when the kubelet was asked for them; None: not known, or it was not asked."""

    owners: Owners
    pods: PodsByName
    asked_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _WaitingEvent:
    event: DeviceEvent
    before: _SeenAtLook | None
    heard_at: float
    is_new: bool

    @property
    def is_just_after(self) -> bool:
        """Whether the event came just after the look before it."""
        asked_at = self.before.asked_at if self.before else None
        return asked_at is not None and self.heard_at - asked_at <= JUST_BEFORE_SECONDS


class _HoldersAtEvent(NamedTuple):
    """The holders of a GPU at an event, each with a device that it held; None if nobody can say who they are."""

    devices: Mapping[Owner, DeviceKey] | None
    uids: Mapping[PodName, str] = NOTHING


class KernelEvents:
    """The `newest` events, the `standing` errors, which still count, and events that wait for their GPU's holders."""

    def __init__(self) -> None:
        self.newest: tuple[DeviceEvent, ...] = ()
        self.standing: tuple[DeviceEvent, ...] = ()
        self._recalled: tuple[DeviceEvent, ...] = ()  # their `uuid` is the GPU's address
        self._waiting: deque[_WaitingEvent] = deque()
        self._counts: Counter[tuple[DeviceKey, Owner | None, int]] = Counter()
        self._errors: dict[tuple[object, ...], int] = {}  # error → the moment of its first line
        self._before: _SeenAtLook | None = None
        self._measured: Measured | None = None
        self._inventory = Inventory()
        self._gpus: dict[str, InventoryGpu] = {}  # by address, from the driver and the log
        self._subjects: Iterable[Subject] = ()
        self._gpus_of_pages: dict[str, InventoryGpu] = {}
        self._processes: _HoldersOfProcesses = {}

    def resume(self, holders: Mapping[DeviceKey, Iterable[Owner]]) -> None:
        """Go on from the holders that another process saw last."""
        held: dict[DeviceKey, tuple[Holder, ...]] = {}
        for key, owners in holders.items():
            held[key] = tuple(Holder(owner=owner, resource="", shared=False) for owner in owners)
        self._before = _SeenAtLook(owners=Owners(holders=held), pods={}, asked_at=None)

    @property
    def is_waiting(self) -> bool:
        """Whether an event waits until it is clear who held its GPU."""
        return bool(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether no more events can wait."""
        return len(self._waiting) >= MOST_WAITING

    def hear(
        self, event: KernelEvent, uuids: Mapping[str, str], *, at_seconds: float, heard_at: float, is_new: bool
    ) -> bool:
        """Take an event in. Returns whether it is a new one.

        `uuids` are the GPUs' UUIDs by address, as far as the log has them. It happened at `at_seconds` since 1970.
        `heard_at` is a moment of the looks' clock. `is_new`: the event happened when it was heard.
        """
        error = (event.kind, event.address, event.instance, event.code, event.pid)
        since = event.booted_us - self._errors.get(error, -ONE_ERROR_US)
        if 0 <= since < ONE_ERROR_US:
            return False
        if len(self._errors) >= MOST_WAITING:
            self._errors.clear()
        self._errors[error] = event.booted_us
        for address, uuid in uuids.items():
            self._gpus.setdefault(address, InventoryGpu(uuid=uuid))
        heard = DeviceEvent(event=event, at_seconds=at_seconds)
        self._waiting.append(_WaitingEvent(event=heard, before=self._before, heard_at=heard_at, is_new=is_new))
        return True

    def recall(self, event: KernelEvent, uuids: Mapping[str, str], at_seconds: float) -> None:
        """Take in an earlier error.

        Nobody asks who held the GPU then, but the error still counts for the GPU's health.
        """
        for address, uuid in uuids.items():
            self._gpus.setdefault(address, InventoryGpu(uuid=uuid))
        recalled = DeviceEvent(event=event, at_seconds=at_seconds, uuid=event.address)
        self._recalled = still_standing(self._recalled, recalled)

    def look(
        self,
        owners: Owners,
        inventory: Inventory,
        subjects: Iterable[Subject] = (),
        *,
        pods: PodsByName = NOTHING,
        measured: "Measured | None" = None,
        asked_at: float | None,
        now: float,
    ) -> None:
        """Take in a look: its owners, by the answer that the kubelet was asked for at `asked_at` (None: no answer).

        `pods` are the pods that the owners' names mean; none if the exporter does not read pods.
        """
        seen = _SeenAtLook(owners=owners, pods=pods, asked_at=asked_at)
        self._note_gpus(owners, inventory, subjects)
        self._place_recalled()
        settled: list[DeviceEvent] = []
        holders_of = cache(_holders_of)  # in a flood many events concern the same GPU
        events = self._waiting
        self._waiting = deque()
        if events:
            # a process may be gone by now, although it was there at the look before
            self._processes = {**_processes(measured), **_processes(self._measured)}
        for waiting in events:
            delay = None if asked_at is None else asked_at - waiting.heard_at
            if (delay is None or delay < 0) and now - waiting.heard_at < MOST_WAIT_SECONDS:
                self._waiting.append(waiting)
                continue
            event = self._settled(waiting, seen, delay, holders_of)
            if event is not None:
                settled.append(event)
        if settled:
            self._note_events(settled, subjects)
        self._before = seen
        self._measured = measured

    def _note_events(self, events: Iterable[DeviceEvent], subjects: Iterable[Subject]) -> None:
        """Note events whose holders became clear, the oldest first."""
        # the index is noted now, since a lost GPU has no samples later on
        index_of = {subject.uuid: subject.index for subject in subjects if subject.index}
        events = [replace(event, index=event.index or index_of.get(event.uuid, "")) for event in events]
        self.newest = (*reversed(events), *self.newest)[:MOST_EVENTS]
        for event in events:
            self.standing = still_standing(self.standing, event)

    def take(self) -> XidCounts:
        """The number of XIDs whose holders became clear since the last call, by device, holder and XID."""
        counts = self._counts
        self._counts = Counter()
        return counts

    def before_waiting(self, sequence: int) -> int:
        """The number of the last record before any event that waits.

        `sequence`, the record read last, if none waits.
        """
        return min((waiting.event.event.sequence - 1 for waiting in self._waiting), default=sequence)

    def _note_gpus(self, owners: Owners, inventory: Inventory, subjects: Iterable[Subject]) -> None:
        """Note the GPU at each address. A page lacks a GPU that has fallen off the bus, so earlier notes stay."""
        if inventory is not self._inventory:
            self._inventory = inventory
            self._gpus |= {gpu.address: gpu for gpu in inventory.gpus if gpu.address}
        is_other_nodes = any(match.reason == Unmatched.OTHER_NODE for match in owners.matches)
        if subjects is not self._subjects and not is_other_nodes:
            self._subjects = subjects
            if len(self._gpus_of_pages) > MOST_WAITING:
                self._gpus_of_pages.clear()
            self._gpus_of_pages |= gpus_by_address(subjects)

    def _place_recalled(self) -> None:
        """Let earlier errors count whose GPU is known by now."""
        for recalled in self._recalled:
            uuid = self._gpu_at(recalled.uuid).uuid
            if uuid:
                self.standing = still_standing(self.standing, replace(recalled, uuid=uuid))
        self._recalled = tuple(recalled for recalled in self._recalled if not self._gpu_at(recalled.uuid).uuid)

    def _gpu_at(self, address: str) -> InventoryGpu:
        """The GPU at an address: by the driver or the log, else by pages; `_NO_GPU` if none of them says it."""
        gpu = self._gpus.get(address)
        if gpu is not None:
            return gpu
        of_page = self._gpus_of_pages.get(address, _NO_GPU)
        return next((gpu for gpu in self._inventory.gpus if gpu.uuid == of_page.uuid), of_page)

    def _settled(
        self, waiting: _WaitingEvent, seen: _SeenAtLook, delay: float | None, holders_of: HoldersOf
    ) -> DeviceEvent | None:
        """An event with its GPU and the GPU's holders; None if it concerns no GPU. An XID is counted."""
        event = waiting.event.event
        gpu = self._gpu_at(event.address)
        if event.kind == "pcie" and not gpu.uuid:
            return None  # an error of a device that is no GPU
        holders, uids = _holders_at(waiting, seen, delay, lambda owners: holders_of(owners, gpu, event.instance))
        of_process = self._holder_of(event.pid or 0, gpu)
        if event.kind == "xid" and event.code and is_error(event.code) and gpu.uuid:
            sure = of_process
            if sure is None and holders and len(holders) == 1:
                sure = next(iter(holders.items()))
            self._count(event.code, *(sure or (None, DeviceKey(uuid=gpu.uuid))))
        return replace(
            waiting.event,
            uuid=gpu.uuid,
            index=gpu.index,
            holders=None if holders is None else tuple(sorted(holders)),
            container=of_process[0] if of_process else None,
            pod_uids=tuple(sorted(uids.items())),
        )

    def _holder_of(self, pid: int, gpu: InventoryGpu) -> tuple[Owner, DeviceKey] | None:
        """The owner of a process on a GPU, and the device that it holds; None if nobody measured the process."""
        for name in gpu.names:
            if (pid, name) in self._processes:
                return self._processes[pid, name]
        return None

    def _count(self, xid: int, owner: Owner | None, key: DeviceKey) -> None:
        # the limit matters if nobody keeps accounts, and so nobody takes the counts
        if len(self._counts) < MOST_WAITING:
            self._counts[key, owner, xid] += 1


def _holders_at(
    waiting: _WaitingEvent,
    seen: _SeenAtLook,
    delay: float | None,
    holders_of: Callable[[Owners], Mapping[Owner, DeviceKey]],
) -> _HoldersAtEvent:
    """The holders of the GPU at the event, by the look before it and the look `seen` after it.

    `delay` is the time from the event to the question to the kubelet; None: the kubelet has not answered for long. Only
    the kubelet hands devices out, so the holders before the event still hold them then.
    """
    before = waiting.before
    now = holders_of(seen.owners)
    is_at_once = waiting.is_new and delay is not None and 0 <= delay <= AT_ONCE_SECONDS
    if before is None:
        if not is_at_once:
            return _HoldersAtEvent(None)
        return _HoldersAtEvent(now, _uids_of(now, seen.pods))
    holders = holders_of(before.owners)
    is_gone_with_it = not now and waiting.is_just_after
    if waiting.is_new and (delay is None or is_gone_with_it):
        return _HoldersAtEvent(holders, _uids_of(holders, before.pods))
    if is_at_once:
        return _HoldersAtEvent(now, _uids_of(now, seen.pods))
    if holders.keys() != now.keys():
        return _HoldersAtEvent(None)
    uids = _uids_of(now, seen.pods).items() & _uids_of(holders, before.pods).items()
    return _HoldersAtEvent(holders, dict(uids))


def _uids_of(holders: Iterable[Owner], pods: PodsByName) -> Mapping[PodName, str]:
    names = {owner.pod_key for owner in holders}
    return {name: pods[name].uid for name in names if name in pods}


def gpus_by_address(subjects: Iterable[Subject]) -> Mapping[str, InventoryGpu]:
    """The GPUs of a page, by their addresses as the kernel writes them; none if the page is of several nodes."""
    gpus: dict[str, InventoryGpu] = {}
    contradicted = set[str]()
    hosts = set[str]()
    for subject in subjects:
        address = pci_address(subject.address)
        if not address or not subject.is_device or subject.uuid.startswith("MIG-"):
            continue
        hosts.add(subject.host)
        gpu = gpus.setdefault(address, InventoryGpu(uuid=subject.uuid, index=subject.index))
        if gpu.uuid != subject.uuid:
            contradicted.add(address)
    if len(hosts - {""}) > 1:
        return {}
    return {address: gpu for address, gpu in gpus.items() if address not in contradicted}


def _processes(measured: "Measured | None") -> _HoldersOfProcesses:
    holders: dict[tuple[int, str], tuple[Owner, DeviceKey]] = {}
    if measured is not None:
        for (key, owner), processes in measured.owned.items():
            holders |= {(process.pid, key.uuid): (owner, key) for process in processes}
    return holders


def _holders_of(owners: Owners, gpu: InventoryGpu, instance: str) -> Mapping[Owner, DeviceKey]:
    """The holders of a GPU or of its instance, each with a device that it holds."""
    holders: dict[Owner, DeviceKey] = {}
    for key, of_key in owners.holders.items():
        if key.uuid in gpu.names and (not instance or key.instance in ("", instance)):
            holders |= {holder.owner: key for holder in of_key}
    return holders


def _recovery_action(event: KernelEvent) -> int | None:
    """The action that an XID 154 recommends (0: none); None if its text does not say it, and for other events."""
    if event.code != RECOVERY_CHANGED:
        return None
    action = _ACTION.search(event.text)
    return int(action[1], 16) if action else None


def is_well_again(device_event: DeviceEvent) -> bool:
    """Whether the driver says that the GPU needs no recovery any more."""
    return _recovery_action(device_event.event) == 0


def reason_of(device_event: DeviceEvent) -> HealthReason | None:
    """The reason that this error gives against the GPU's health; None if it gives none, as an error of a program."""
    event = device_event.event
    reason = None
    recommends = bool(_recovery_action(event))
    if event.kind != "xid":
        reason = OF_KIND.get((event.kind, event.severity))
    elif event.code is not None and (recommends or is_error(event.code)):
        xid = XIDS.get(event.code, OTHER_XID)
        verdict = verdict_of(event.code, is_fatal=recommends or event.severity == "fatal")
        text = f"Xid {event.code} ({event.text if recommends else xid.name})"
        reason = HealthReason("fell-off-bus" if verdict == "gone" else "xid", text, xid.remedy, verdict)
    if reason is None or reason.verdict == "ok":
        return None
    moment = datetime.fromtimestamp(device_event.at_seconds, UTC)
    return replace(reason, message=f"{reason.message}, {moment:%F %H:%M} UTC")


def still_standing(standing: tuple[DeviceEvent, ...], new: DeviceEvent) -> tuple[DeviceEvent, ...]:
    """The errors that count after a new one: the last of each number; none of a GPU that is well again."""
    if new.uuid and is_well_again(new):
        return tuple(error for error in standing if error.uuid != new.uuid)
    if not new.uuid or not reason_of(new):
        return standing
    return (*(error for error in standing if _number(error) != _number(new)), new)[-MOST_STANDING:]


def _number(device_event: DeviceEvent) -> tuple[object, ...]:
    """What two errors of one GPU and one number have in common."""
    return device_event.uuid, device_event.event.kind, device_event.event.code, device_event.event.instance


def ends_at(device_event: DeviceEvent, reason: HealthReason) -> float:
    """The moment until which the error counts, in seconds since 1970."""
    counts_for = DEGRADED_SECONDS if reason.verdict == "degraded" else FAILING_SECONDS
    return device_event.at_seconds + counts_for
