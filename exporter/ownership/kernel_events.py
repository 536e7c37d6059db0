"""Whose GPU the kernel's log speaks of: PCI address → GPU → who held it at that time.

An event is heard within milliseconds, and the kubelet is asked at once. Who held the GPU before and holds it then held
it at the event. If that changed in between, the answer counts if it is of that moment; otherwise nobody can say. Of
several holders it is the process' own, where it is measured whose processes run on the GPU.

A driver prints several lines of one error, and of one crash many: lines of one number, GPU and process within a second
are one event. Pure, except for what it remembers.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from exporter.model.devices import DeviceKey, Holder, Inventory, InventoryGpu, Owners
from exporter.model.kernel import DeviceEvent, KernelEvent, XidCounts
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.ownership.kernel_reasons import is_well_again, reason_of

if TYPE_CHECKING:
    from exporter.model.measured import Measured

MOST_EVENTS = 100
MOST_WAITING = 500
MOST_STANDING = 256
ONE_ERROR_US = 1_000_000
# an answer of the kubelet that was asked for so soon after an event is of its moment
AT_ONCE_SECONDS = 0.5
# without an answer of the kubelet, those who held the GPU before held it
MOST_WAIT_SECONDS = 30.0
_NO_GPU = InventoryGpu(uuid="")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    event: DeviceEvent
    before: Owners | None
    heard_at: float
    is_new: bool


class KernelEvents:
    """The last events, the newest first, and those that wait until it is clear who held the GPU.

    `standing` are those that say how a GPU is, the last one of each number, until the driver calls it well again.
    """

    def __init__(self) -> None:
        self.newest: tuple[DeviceEvent, ...] = ()
        self.standing: tuple[DeviceEvent, ...] = ()
        self._waiting: deque[_Waiting] = deque()
        self._counts: Counter[tuple[DeviceKey, Owner | None, int]] = Counter()
        self._errors: dict[tuple[object, ...], int] = {}  # since when lines are of one error
        self._owners: Owners | None = None
        self._measured: Measured | None = None
        self._inventory = Inventory()
        self._gpus: dict[str, InventoryGpu] = {}
        self._processes: Mapping[tuple[int, str], tuple[Owner, DeviceKey]] = {}

    def resume(self, holders: Mapping[DeviceKey, Iterable[Owner]]) -> None:
        """Go on from another process, which saw these holders last."""
        held = {key: tuple(Holder(owner=each, resource="", shared=False) for each in of) for key, of in holders.items()}
        self._owners = Owners(holders=held)

    @property
    def is_waiting(self) -> bool:
        """Whether it is not clear yet who held the GPU of an event."""
        return bool(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether there is no place for one more."""
        return len(self._waiting) >= MOST_WAITING

    def hear(
        self, event: KernelEvent, uuids: Mapping[str, str], *, at_seconds: float, heard_at: float, is_new: bool
    ) -> bool:
        """Take an event in. Returns whether it is a new one. `uuids` are GPUs by their address, where the log says it.

        It happened at `at_seconds` since 1970. `heard_at` is of the clock of looks; `is_new`: it happened then.
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
        self._waiting.append(_Waiting(event=heard, before=self._owners, heard_at=heard_at, is_new=is_new))
        return True

    def look(
        self,
        owners: Owners,
        inventory: Inventory,
        subjects: Iterable[Subject] = (),
        *,
        measured: "Measured | None" = None,
        asked_at: float | None,
        now: float,
    ) -> None:
        """A look: the owners by the answer that the kubelet was asked for at `asked_at`; None without one."""
        if inventory is not self._inventory:
            self._inventory = inventory
            self._gpus |= {gpu.address: gpu for gpu in inventory.gpus if gpu.address}
        settled: list[DeviceEvent] = []
        holders_of = _HoldersOf()
        waiting, self._waiting = self._waiting, deque()
        if waiting:
            # a process may be gone by now, and was there at the look before
            self._processes = {**_processes(measured), **_processes(self._measured)}
        for each in waiting:
            delay = None if asked_at is None else asked_at - each.heard_at
            if (delay is None or delay < 0) and now - each.heard_at < MOST_WAIT_SECONDS:
                self._waiting.append(each)
            elif event := self._settled(each, owners, delay, holders_of):
                settled.append(event)
        if settled:
            # of a GPU that is lost there are no samples later on
            index_of = {subject.uuid: subject.index for subject in subjects if subject.index}
            settled = [replace(event, index=event.index or index_of.get(event.uuid, "")) for event in reversed(settled)]
            self.newest = (*settled, *self.newest)[:MOST_EVENTS]
            self._stand(reversed(settled))
        self._owners, self._measured = owners, measured

    def take(self) -> XidCounts:
        """The XIDs that have been settled since this was asked last, by device, holder and number."""
        counts, self._counts = self._counts, Counter()
        return counts

    def before_waiting(self, sequence: int) -> int:
        """The number of the last record up to which everything is settled, where `sequence` was read last."""
        return min((each.event.event.sequence - 1 for each in self._waiting), default=sequence)

    def _stand(self, settled: Iterable[DeviceEvent]) -> None:
        standing = {_error_of(each): each for each in self.standing}
        for each in settled:
            if is_well_again(each):
                standing = {error: other for error, other in standing.items() if other.uuid != each.uuid}
            elif each.uuid and reason_of(each):
                standing.pop(_error_of(each), None)
                standing[_error_of(each)] = each
        self.standing = tuple(standing.values())[-MOST_STANDING:]

    def _settled(
        self, waiting: _Waiting, owners: Owners, delay: float | None, holders_of: "_HoldersOf"
    ) -> DeviceEvent | None:
        event = waiting.event.event
        gpu = self._gpus.get(event.address, _NO_GPU)
        if event.kind == "pcie" and not gpu.uuid:
            return None  # another device's
        now = holders_of(owners, gpu, event.instance)
        before = None if waiting.before is None else holders_of(waiting.before, gpu, event.instance)
        is_at_once = waiting.is_new and delay is not None and 0 <= delay <= AT_ONCE_SECONDS
        holders: Mapping[Owner, DeviceKey] | None = None
        if before is not None and (before.keys() == now.keys() or (waiting.is_new and (not now or delay is None))):
            holders = before
        elif is_at_once:
            holders = now
        process = ((event.pid or 0, name) for name in gpu.names)
        of_process = next((self._processes[each] for each in process if each in self._processes), None)
        # where nobody keeps accounts nobody takes them
        if event.kind == "xid" and event.code and gpu.uuid and len(self._counts) < MOST_WAITING:
            sure = dict([of_process]) if of_process else holders if holders and len(holders) == 1 else {}
            owner, key = next(iter(sure.items()), (None, DeviceKey(uuid=gpu.uuid)))
            self._counts[key, owner, event.code] += 1
        return replace(
            waiting.event,
            uuid=gpu.uuid,
            index=gpu.index,
            holders=None if holders is None else tuple(sorted(holders)),
            container=of_process[0] if of_process else None,
        )


def _error_of(event: DeviceEvent) -> tuple[object, ...]:
    return (event.uuid, event.event.instance, event.event.kind, event.event.code)


def _processes(measured: "Measured | None") -> Mapping[tuple[int, str], tuple[Owner, DeviceKey]]:
    """Whose processes are and on which device, by pid and GPU."""
    owned = measured.owned.items() if measured else ()
    return {(process.pid, key.uuid): (owner, key) for (key, owner), processes in owned for process in processes}


class _HoldersOf:
    """Who holds a GPU or an instance of it, each with a device that is held. In a flood many events are of one GPU."""

    def __init__(self) -> None:
        self._answers: dict[tuple[int, str, str], Mapping[Owner, DeviceKey]] = {}

    def __call__(self, owners: Owners, gpu: InventoryGpu, instance: str) -> Mapping[Owner, DeviceKey]:
        question = (id(owners), gpu.uuid, instance)
        if question not in self._answers:
            of_gpu = (key for key in owners.holders if key.uuid in gpu.names)
            keys = (key for key in of_gpu if not instance or key.instance in ("", instance))
            self._answers[question] = {holder.owner: key for key in keys for holder in owners.holders[key]}
        return self._answers[question]
