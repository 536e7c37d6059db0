"""The reading of NVML: the GPUs when they may have changed, the processes every time. All of it on the worker thread.

The driver reports errors (XIDs) and new cuts of GPUs by events. nvml.h has the kinds of events, and each GPU says which
it supports. Every reading takes the events that came. Drivers since R450 report changes of MIG instances of Ampere and
later. Only the privileged hear of errors of one MIG instance; everybody hears of errors of the whole GPU.
"""

import ctypes
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from exporter.errors import Trouble
from exporter.model.devices import DeviceKey, Inventory, InventoryGpu
from exporter.model.driver import DriverReading, GpuProcess
from exporter.model.health import HealthReason
from exporter.sources.nvml.gpus import (
    NO_INSTANCE,
    ListedProcess,
    Memory,
    NvmlGpu,
    busy,
    listed,
    memory_of,
    read_gpu,
    together,
)
from exporter.sources.nvml.library import (
    IN_A_POD,
    LACKS,
    LOST,
    MOST_GPUS,
    MOST_PROCESSES,
    NO_PERMISSION,
    REMEDY_OF_GPU,
    TIMEOUT,
    UNASKED,
    Failed,
    Library,
)
from exporter.sources.nvml.nvml_links import NvmlLinks

if TYPE_CHECKING:
    from exporter.model.gpu_links import GpuLinks
    from exporter.sources.nvml.nvml_page import PageMaker

Answer = TypeVar("Answer")
# nvmlEventTypeXidCriticalError, nvmlEventMigConfigChange
XID = 0x8
MIG_CHANGE = 0x100
# Events beyond this number wait for the next reading.
MOST_EVENTS = 64


class NvmlEvents:
    """An event set of all GPUs that there are. It is made again after a failure."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._last_xids: dict[str, int] = {}
        self.forget()

    @property
    def last_xids(self) -> Mapping[str, int]:
        """The last XID since the exporter began to ask NVML, by UUID of each GPU that reports errors.

        0 if there was none.
        """
        reporting = (uuid for uuid, types in self._answered_of.items() if types & XID)
        return MappingProxyType({uuid: self._last_xids.get(uuid, 0) for uuid in reporting})

    def forget(self) -> None:
        """Forget the set, which has gone with the old library. The GPUs' last errors stay."""
        self.tells_changes = False
        self._set: object = None
        self._answered_of: dict[str, int] = {}  # the types of events by UUID
        self._uuids: dict[int | None, str] = {}  # by the address that is the GPU's handle

    def listen(self, gpus: Iterable[NvmlGpu]) -> bool:
        """Listen to exactly these GPUs. Returns whether one is new: its earlier events are lost.

        Raises Failed: no library.
        """
        now = {gpu.in_inventory.uuid: gpu for gpu in gpus}
        for uuid in self._answered_of.keys() - now.keys():
            del self._answered_of[uuid]  # the GPU is lost, and is registered again when it comes back
        new = [gpu for uuid, gpu in now.items() if uuid not in self._answered_of]
        try:
            if new and self._set is None:
                self._set = self._library.call("nvmlEventSetCreate")
            for gpu in new:
                self._answered_of[gpu.in_inventory.uuid] = self._register(gpu)
                self._uuids[_address(gpu.handle)] = gpu.in_inventory.uuid
        except Failed as failed:
            self._deafen(failed)
            return False
        changes = (self._answered_of[uuid] & MIG_CHANGE for uuid, gpu in now.items() if gpu.can_be_cut)
        self.tells_changes = bool(now) and all(changes)
        return any(self._answered_of[gpu.in_inventory.uuid] & MIG_CHANGE for gpu in new)

    def have_changed(self) -> bool:
        """Take the events that came. Returns whether MIG instances may have changed.

        Raises Failed: the library is gone.
        """
        is_changed = False
        for _ in range(MOST_EVENTS):
            if self._set is None:
                break
            try:
                event = self._library.call("nvmlEventSetWait_v2", self._set, 0)
            except Failed as failed:
                if failed.code == TIMEOUT:
                    break
                self._deafen(failed)
                return True
            is_changed |= bool(event.eventType & MIG_CHANGE)
            uuid = self._uuids.get(_address(event.device))
            if event.eventType & XID and uuid:
                self._last_xids[uuid] = int(event.eventData)
        return is_changed

    def _register(self, gpu: NvmlGpu) -> int:
        """Register for a GPU's events. Returns the types of events that the driver will report."""
        try:
            types = self._library.call("nvmlDeviceGetSupportedEventTypes", gpu.handle) & (XID | MIG_CHANGE)
            if types:
                self._library.call("nvmlDeviceRegisterEvents", gpu.handle, types, self._set)
        except Failed as failed:
            # nvml.h says that the set stays valid. Other calls notice a GPU that is lost.
            if failed.code in LACKS or failed.scope == "gpu":
                return 0
            raise
        return int(types)

    def _deafen(self, failed: Failed) -> None:
        """Free the set, whose state is undefined after a failure."""
        events = self._set
        self.forget()
        if failed.scope == "library":
            raise failed
        if events is not None:
            with suppress(Failed):
                self._library.call("nvmlEventSetFree", events)


def _address(handle: object) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value  # type: ignore[arg-type]


# The GPUs are read again when the driver reports a change, and at the latest after the first of these times. If the
# driver does not report changes, it is after the second.
INVENTORY_SECONDS = 60.0
UNTOLD_SECONDS = 5.0
# A call about a lost GPU may take 10 s to fail.
LOST_SECONDS = 60.0
# Between the first two samples of profiling counters.
SAMPLE_SECONDS = 0.1


@dataclass(slots=True)
class _Lost:
    """A GPU that cannot be asked; `known` is its last inventory."""

    in_inventory: InventoryGpu | None
    says: str
    reason: HealthReason
    until: float


class NvmlReader:
    """A reader with a `library`, which it opens when it must. After a failure of the library it starts anew.

    `page` is the page of the last reading, if the settings ask for a page; b"" if no GPU can be asked.
    """

    def __init__(self, library: Library, pages: "PageMaker | None" = None) -> None:
        self.library = library
        self.trouble: Trouble | None = None
        self.page = b""
        self._pages = pages
        self._gpus: dict[int, NvmlGpu] = {}
        self._lost: dict[int, _Lost] = {}
        self._inventory = Inventory()
        self._inventory_at: float | None = None
        self.events = NvmlEvents(library)
        self._links = NvmlLinks(library)
        self._links_of_gpus: Mapping[str, GpuLinks] = {}
        self._may_not_ask = False

    def read(self, now: float) -> DriverReading:
        """One reading at `now`; `trouble` then says what is odd about it.

        Raises NotThere: there is no library. Failed: NVML as a whole cannot be asked. Everything is let go of, and the
        next read loads it anew.
        """
        try:
            if not self.library.is_open:
                self.library.open()
                self._gpus = {}
                self._lost = {}
                self._inventory_at = None
                self.events.forget()
                self._links.forget()
                if self._pages is not None:
                    self._pages.forget()
            if self._is_due(now):
                self._read_gpus(now)
            processes, unknown = self._processes(now)
            memories = self._memories(now)
            self._read_links(now)
            if self._pages is not None:
                self.page = self._make_page(self._pages, memories, now)
        except Failed as failed:
            if failed.scope == "library":
                self.library.close()
            raise
        self.trouble = self._odd(len(processes))
        return DriverReading(
            inventory=self._inventory,
            processes=tuple(sorted(processes[:MOST_PROCESSES], key=lambda process: (process.device, process.pid))),
            unknown=frozenset(unknown),
            memory_used={device: memory.used for device, memory in memories.items()},
            busy=self._least_busy,
            links=self._links_of_gpus,
            lost={lost.in_inventory.uuid: lost.reason for lost in self._lost.values() if lost.in_inventory},
            read_at=now,
        )

    def close(self) -> None:
        """Give back all objects of the library, and let go of it."""
        if self.library.is_open and self._pages is not None:
            self._pages.profiling.close()
        self.library.close()

    def _is_due(self, now: float) -> bool:
        if self.events.have_changed() or self._inventory_at is None:
            return True
        return now - self._inventory_at >= (INVENTORY_SECONDS if self.events.tells_changes else UNTOLD_SECONDS)

    def _read_gpus(self, now: float) -> None:
        """Read all GPUs but those left alone, and listen to their events. Raises Failed: the library is gone."""
        count = min(self.library.call("nvmlDeviceGetCount"), MOST_GPUS)
        before = self._gpus
        self._gpus = {}
        for index in range(count):
            lost = self._lost.get(index)
            if lost and now < lost.until:
                continue
            try:
                gpu = self._gpus[index] = read_gpu(self.library, index)
            except Failed as failed:
                in_inventory = before[index].in_inventory if index in before else lost.in_inventory if lost else None
                self._lose(index, in_inventory, failed, now)
                continue
            self._lost.pop(index, None)
            if index in before:
                gpu.busy = before[index].busy
        self._lost = {index: lost for index, lost in self._lost.items() if index < count}
        # a change before the driver began to report changes is seen the next time
        is_new = self.events.listen(self._gpus.values())
        self._inventory_at = None if is_new else now
        gpus = {index: gpu.in_inventory for index, gpu in self._gpus.items()}
        gpus |= {index: lost.in_inventory for index, lost in self._lost.items() if lost.in_inventory}
        inventory = Inventory(gpus=tuple(gpus[index] for index in sorted(gpus)))
        if inventory != self._inventory:
            self._inventory = inventory

    def _read_links(self, now: float) -> None:
        """Read the links of all GPUs, if they are due. Raises Failed: the library is gone."""
        if not self._links.is_due(self._gpus.values(), now):
            return
        self._of_each(self._links.know, now)
        links = dict(self._of_each(lambda gpu: (gpu.in_inventory.uuid, self._links.of(gpu)), now))
        if links != self._links_of_gpus:
            self._links_of_gpus = links

    def _lose(self, index: int, in_inventory: InventoryGpu | None, failed: Failed, now: float) -> None:
        """Leave a GPU alone for a while. Its last inventory stays in force, since its ids can mean no other GPU."""
        if failed.scope == "library":
            raise failed
        self._gpus.pop(index, None)
        if self._pages is not None and in_inventory is not None:
            self._pages.lose(in_inventory.uuid)
        self._lost[index] = _Lost(in_inventory, str(failed), LOST.get(failed.code, UNASKED), now + LOST_SECONDS)

    def _processes(self, now: float) -> tuple[list[GpuProcess], list[str]]:
        """The processes of all GPUs, and the UUIDs of the GPUs whose processes are not known."""
        processes: list[GpuProcess] = []
        unknown = [lost.in_inventory.uuid for lost in self._lost.values() if lost.in_inventory]
        self._may_not_ask = False
        for index, gpu in list(self._gpus.items()):
            entries: list[ListedProcess] | None = None
            try:
                entries = self._entries(gpu)
                gpu.busy = None if gpu.is_cut else busy(self.library, gpu.handle, gpu.busy, now)
            except Failed as failed:
                if failed.scope == "gpu":
                    self._lose(index, gpu.in_inventory, failed, now)
                elif failed.scope == "library":
                    raise
                self._may_not_ask |= failed.code == NO_PERMISSION
            if entries is None or index in self._lost:
                unknown.append(gpu.in_inventory.uuid)
            else:
                processes += together(gpu.in_inventory.uuid, entries, gpu.busy.by_pid if gpu.busy else None)
        return processes, unknown

    @property
    def _least_busy(self) -> Mapping[DeviceKey, float]:
        """See `DriverReading.busy`. One moment alone may be a burst, between times in which nothing ran."""
        busy_gpus = ((gpu.in_inventory.uuid, gpu.busy.of_any) for gpu in self._gpus.values() if gpu.busy)
        return {DeviceKey(uuid=uuid): min(of_any) for uuid, of_any in busy_gpus if of_any}

    def _entries(self, gpu: NvmlGpu) -> list[ListedProcess] | None:
        """The processes of a GPU. If it is cut, each instance is asked: the GPU itself answers only the privileged.

        By nvml.h a process of a GPU that is not cut has no instance; NVIDIA's mock of NVML gives it instance 0, which
        would be the whole GPU, too.
        """
        if not gpu.is_cut:
            of_gpu = listed(self.library, gpu.handle)
            return of_gpu and [entry if entry.instance else entry._replace(instance=NO_INSTANCE) for entry in of_gpu]
        entries: list[ListedProcess] = []
        for handle, instance in gpu.instances:
            of_instance = listed(self.library, handle)
            if of_instance is None:
                return None
            entries += (entry._replace(instance=instance) for entry in of_instance)
        return entries

    def _memories(self, now: float) -> dict[DeviceKey, Memory]:
        memories = self._of_each(
            lambda gpu: [(of, memory_of(self.library, handle)) for of, handle in _devices(gpu)], now
        )
        return {device: memory for device, memory in chain.from_iterable(memories) if memory is not None}

    def _of_each(self, ask: Callable[[NvmlGpu], Answer], now: float) -> list[Answer]:
        """The answers of the GPUs. A GPU that fails is left alone for a while. Raises Failed: the library is gone."""
        answers = []
        for index, gpu in list(self._gpus.items()):
            try:
                answers.append(ask(gpu))
            except Failed as failed:
                self._lose(index, gpu.in_inventory, failed, now)
        return answers

    def _make_page(self, pages: "PageMaker", memories: Mapping[DeviceKey, Memory], now: float) -> bytes:
        if any(self._of_each(pages.profiling.prepare, now)):
            time.sleep(SAMPLE_SECONDS)  # once for all GPUs, so that the first page has the values that need two samples
        xids = self.events.last_xids
        rows = self._of_each(lambda gpu: tuple(pages.rows(gpu, memories, xids, now)), now)
        return pages.text(chain.from_iterable(rows))

    def _odd(self, processes: int) -> Trouble | None:
        if self._lost:
            # a GPU without a UUID comes first, since no device shows its trouble
            index, lost = min(self._lost.items(), key=lambda item: (item[1].in_inventory is not None, item[0]))
            uuid = f" ({lost.in_inventory.uuid})" if lost.in_inventory else ""
            more = f", and {len(self._lost) - 1} more" if len(self._lost) > 1 else ""
            return Trouble("unreachable", f"GPU {index}{uuid} cannot be asked{more}: {lost.says}", REMEDY_OF_GPU)
        if self._may_not_ask:
            says = "the processes of a MIG instance may not be listed: their memory is not known"
            return Trouble("permission", says, f"{IN_A_POD}; of MIG also NVIDIA_MIG_MONITOR_DEVICES=all")
        if processes > MOST_PROCESSES:
            return Trouble("oversize", f"{processes} processes use GPUs; the first {MOST_PROCESSES} are taken", "none")
        return None


def _devices(gpu: NvmlGpu) -> Iterator[tuple[DeviceKey, object]]:
    """A GPU and its MIG instances. Compute instances share the memory of their instance, so the first one is asked."""
    yield DeviceKey(uuid=gpu.in_inventory.uuid), gpu.handle
    of_instances = {instance: handle for handle, instance in reversed(gpu.instances)}
    for instance, handle in of_instances.items():
        yield DeviceKey(uuid=gpu.in_inventory.uuid, instance=str(instance)), handle
