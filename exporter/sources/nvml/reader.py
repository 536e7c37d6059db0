"""Reading NVML: the GPUs when they may have changed, the processes each time. All of it on the worker thread."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exporter.errors import Trouble
from exporter.model.devices import DeviceKey, Inventory, InventoryGpu
from exporter.model.driver import DriverReading, GpuProcess
from exporter.sources.nvml.events import Events
from exporter.sources.nvml.failures import IN_A_POD, NO_PERMISSION, REMEDY_OF_GPU, Failed
from exporter.sources.nvml.gpus import Gpu, read_gpu
from exporter.sources.nvml.library import Library
from exporter.sources.nvml.limits import MOST_GPUS, MOST_PROCESSES
from exporter.sources.nvml.memory import Memory, memory_of
from exporter.sources.nvml.processes import Listed, busy, listed, together

if TYPE_CHECKING:
    from exporter.sources.nvml.page import PageMaker, Row

# The GPUs are read again when the driver tells of a change, after so long at the latest, and where it does not tell
# of changes as often as this.
INVENTORY_SECONDS, UNTOLD_SECONDS = 60.0, 5.0
# A call about a lost GPU may take 10 s to fail.
LOST_SECONDS = 60.0
# Between the first two samples of profiling counters.
SAMPLE_SECONDS = 0.1


@dataclass(slots=True)
class _Lost:
    """A GPU that cannot be asked; `known` is what it was before."""

    known: InventoryGpu | None
    says: str
    until: float


class Reader:
    """Reads with a `library`, which it opens when it has to. After a failure of the library it starts anew.

    `page` is that of the last reading, where one is asked for; b"" where no GPU can be asked.
    """

    def __init__(self, library: Library, pages: "PageMaker | None" = None) -> None:
        self.library = library
        self.trouble: Trouble | None = None
        self.page = b""
        self._pages = pages
        self._gpus: dict[int, Gpu] = {}
        self._lost: dict[int, _Lost] = {}
        self._inventory = Inventory()
        self._inventory_at: float | None = None
        self._events = Events(library)
        self._may_not_ask = False

    def read(self, now: float) -> DriverReading:
        """One reading at `now`; `trouble` then says what is odd about it.

        Raises:
            NotThere: there is no library.
            Failed: NVML as a whole cannot be asked. Everything is let go of, and the next read loads it anew.
        """
        try:
            if not self.library.is_open:
                self.library.open()
                self._forget()
            if self._is_due(now):
                self._read_gpus(now)
            processes, unknown = self._processes(now)
            memories = self._memories(now)
            if self._pages is not None:
                self.page = self._make_page(self._pages, memories, now)
        except Failed as failed:
            if failed.scope == "library":
                self.library.close()
            raise
        self.trouble = self._odd(len(processes))
        return DriverReading(
            inventory=self._inventory,
            processes=tuple(sorted(processes[:MOST_PROCESSES], key=lambda one: (one.device, one.pid))),
            unknown=frozenset(unknown),
            memory_used={device: memory.used for device, memory in memories.items()},
            read_at=now,
        )

    def close(self) -> None:
        """Give back what the library lent, and let go of it."""
        if self.library.is_open and self._pages is not None:
            self._pages.close()
        self.library.close()

    @property
    def last_xids(self) -> Mapping[str, int]:
        """The last error by the UUID of each GPU that tells of errors; 0 where none came since NVML is asked."""
        return self._events.last_xids

    def _forget(self) -> None:
        self._gpus, self._lost, self._inventory_at = {}, {}, None
        self._events.forget()
        if self._pages is not None:
            self._pages.forget()

    def _is_due(self, now: float) -> bool:
        if self._events.have_changed() or self._inventory_at is None:
            return True
        return now - self._inventory_at >= (INVENTORY_SECONDS if self._events.tells_changes else UNTOLD_SECONDS)

    def _read_gpus(self, now: float) -> None:
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
                known = before[index].known if index in before else lost.known if lost else None
                self._lose(index, known, failed, now)
                continue
            self._lost.pop(index, None)
            if index in before:
                gpu.busy = before[index].busy
        self._lost = {index: lost for index, lost in self._lost.items() if index < count}
        # what changed before the driver began to tell of it is seen the next time
        is_new = self._events.listen(self._gpus.values())
        self._inventory_at = None if is_new else now
        self._settle()

    def _settle(self) -> None:
        known = {index: gpu.known for index, gpu in self._gpus.items()}
        known |= {index: lost.known for index, lost in self._lost.items() if lost.known}
        inventory = Inventory(gpus=tuple(known[index] for index in sorted(known)))
        if inventory != self._inventory:
            self._inventory = inventory

    def _lose(self, index: int, known: InventoryGpu | None, failed: Failed, now: float) -> None:
        """Leave a GPU alone for a while. What it was before stays in force: nobody else can be meant by its ids."""
        if failed.scope == "library":
            raise failed
        self._gpus.pop(index, None)
        if self._pages is not None and known is not None:
            self._pages.lose(known.uuid)
        self._lost[index] = _Lost(known, str(failed), now + LOST_SECONDS)

    def _processes(self, now: float) -> tuple[list[GpuProcess], list[str]]:
        """The processes of all GPUs, and the UUIDs of the GPUs whose processes are not known."""
        found: list[GpuProcess] = []
        unknown = [lost.known.uuid for lost in self._lost.values() if lost.known]
        self._may_not_ask = False
        for index, gpu in list(self._gpus.items()):
            entries: list[Listed] | None = None
            try:
                entries = self._entries(gpu)
                gpu.busy = None if gpu.is_cut else busy(self.library, gpu.handle, gpu.busy)
            except Failed as failed:
                if failed.scope == "gpu":
                    self._lose(index, gpu.known, failed, now)
                elif failed.scope == "library":
                    raise
                self._may_not_ask |= failed.code == NO_PERMISSION
            if entries is None or index in self._lost:
                unknown.append(gpu.known.uuid)
            else:
                found += together(gpu.known.uuid, entries, gpu.busy.ratios if gpu.busy else None)
        return found, unknown

    def _entries(self, gpu: Gpu) -> list[Listed] | None:
        """Of a GPU that is cut each instance is asked: the GPU itself tells of all only to the privileged."""
        if not gpu.is_cut:
            return listed(self.library, gpu.handle)
        entries: list[Listed] = []
        for handle, instance in gpu.instances:
            of_instance = listed(self.library, handle)
            if of_instance is None:
                return None
            entries += (entry._replace(instance=instance) for entry in of_instance)
        return entries

    def _memories(self, now: float) -> dict[DeviceKey, Memory]:
        """The memory of each GPU and MIG instance that tells it."""
        found: dict[DeviceKey, Memory] = {}
        for index, gpu in list(self._gpus.items()):
            try:
                for device, handle in _devices(gpu):
                    memory = memory_of(self.library, handle)
                    if memory is not None:
                        found[device] = memory
            except Failed as failed:
                self._lose(index, gpu.known, failed, now)
        return found

    def _make_page(self, pages: "PageMaker", memories: Mapping[DeviceKey, Memory], now: float) -> bytes:
        rows: list[Row] = []
        is_new = False
        for index, gpu in list(self._gpus.items()):
            try:
                is_new |= pages.prepare(gpu)
            except Failed as failed:
                self._lose(index, gpu.known, failed, now)
        if is_new:
            time.sleep(SAMPLE_SECONDS)  # once for all, so that the first page has what comes of two samples
        for index, gpu in list(self._gpus.items()):
            try:
                rows += pages.rows(gpu, memories, self._events.last_xids, now)
            except Failed as failed:
                self._lose(index, gpu.known, failed, now)
        return pages.text(rows)

    def _odd(self, processes: int) -> Trouble | None:
        if self._lost:
            index, lost = min(self._lost.items())
            uuid = f" ({lost.known.uuid})" if lost.known else ""
            more = f", and {len(self._lost) - 1} more" if len(self._lost) > 1 else ""
            return Trouble("unreachable", f"GPU {index}{uuid} cannot be asked{more}: {lost.says}", REMEDY_OF_GPU)
        if self._may_not_ask:
            says = "the processes of a MIG instance may not be listed: their memory is not known"
            return Trouble("permission", says, f"{IN_A_POD}; of MIG also NVIDIA_MIG_MONITOR_DEVICES=all")
        if processes > MOST_PROCESSES:
            return Trouble("oversize", f"{processes} processes use GPUs; the first {MOST_PROCESSES} are taken", "none")
        return None


def _devices(gpu: Gpu) -> Iterator[tuple[DeviceKey, object]]:
    """A GPU and its MIG instances; an instance's compute instances share its memory, and the first is asked."""
    yield DeviceKey(uuid=gpu.known.uuid), gpu.handle
    of_instances = {instance: handle for handle, instance in reversed(gpu.instances)}
    for instance, handle in of_instances.items():
        yield DeviceKey(uuid=gpu.known.uuid, instance=str(instance)), handle
