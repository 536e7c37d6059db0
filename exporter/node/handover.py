"""The handover: the object that outlives a reload. A node hands it to the node of the next configuration."""

import secrets
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.accounts.ledger import Ledger
from exporter.accounts.state_bytes import UNKNOWN_BOOT, Boot
from exporter.dividing.sharing import CounterBook
from exporter.model.devices import Assignment, DeviceRef
from exporter.model.snapshot import KUBELET, Snapshot
from exporter.ownership.current import CurrentOwners, Tenures
from exporter.ownership.device_health import HealthWatch
from exporter.ownership.owners import ADMIN_ACCESS, Knowledge, read_assignment
from exporter.ownership.verdicts import Verdicts
from exporter.sources.kubelet.assignments import KeptAssignments
from exporter.sources.source import SourceCache
from exporter.telemetry import Telemetry

if TYPE_CHECKING:
    import asyncio

    from exporter.node.state_file import StateFile
    from exporter.ownership.kernel_events import KernelEvents
    from exporter.probe.cuda_ledger import CudaTotals


_LEAST_STEP_NS = 1_000_000_000
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock:
    """Nanoseconds since 1970, set by the machine's clock at the start: comparable across processes, without steps."""

    def __init__(self) -> None:
        self._ahead = time.time_ns() - time.monotonic_ns()

    def set_ns(self) -> int:
        """The time by which the machine's clock was set since the start.

        0 for less than a second, which does not count as a step.
        """
        step = time.time_ns() - self()
        return step if abs(step) >= _LEAST_STEP_NS else 0

    def __call__(self) -> int:
        """The present moment."""
        return time.monotonic_ns() + self._ahead


def boot() -> Boot:
    """The start of this machine, dated by the present wall clock; unknown if Linux does not say it.

    In a container it is the node's start: the kernel has one boot_id, and containers have no time namespace of their
    own.
    """
    try:
        boot_id = BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return UNKNOWN_BOOT
    return Boot(boot_id, time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME))


class NodeHandover:
    """The counters, the accounts, the sources, the owners in force, and the process' own state.

    `instance` names the process towards upstreams. `not_ready` says why there has been no page yet; "" from the first
    page on. `clock` dates the looks of the pulse, and `looked_at_ns` is this process' last look; `clock_set_ns` says by
    how much the machine's clock was set meanwhile. `accounts` are the ledger's accounts that may be shown.
    `state_file`, if there is one, keeps them, and `writing` is the last write. `wants_workloads` and `reads_slices`:
    somebody needed these streams once, and they stay open. `boot` shows steps of the wall clock between two processes.
    `cuda` is None if the CUDA probe has never been on, `kernel_events` if the kernel's log has never been read.
    """

    def __init__(self) -> None:
        self.telemetry = Telemetry()
        self.instance = f"pod-gpu-metrics-exporter-{secrets.token_hex(8)}"
        self.not_ready = "no page has been asked for yet"
        self.ledger = Ledger()
        clock = Clock()
        self.clock: Callable[[], int] = clock
        self.clock_set_ns: Callable[[], int] = clock.set_ns
        self.boot = boot()
        self.accounts = self.ledger.accounts
        self.looked_at_ns: int | None = None
        self.state_file: StateFile | None = None
        self.writing: asyncio.Task[None] | None = None
        self.wants_workloads = False
        self.reads_slices = False
        self.cuda: CudaTotals | None = None
        self.kernel_events: KernelEvents | None = None
        self.tenures = Tenures()
        self.health_watch = HealthWatch()
        self.verdicts = Verdicts()
        self.cache: SourceCache | None = None
        self.owners: CurrentOwners | None = None
        self._sharing = ""
        self._kept = KeptAssignments(read=self._refers_to)
        self._kept_of: Hashable = None

    def book(self, sharing: str) -> CounterBook | None:
        """The values of divided counters; None if they were divided in another way, or not at all."""
        return self.owners.book if self.owners and sharing == self._sharing else None

    def kept(self, of: Hashable) -> KeptAssignments:
        """The assignments in force, if they come from the same kubelet with the same settings; else none."""
        return self._kept if of == self._kept_of else KeptAssignments(read=self._refers_to)

    def hand_over(
        self, *, cache: SourceCache, owners: CurrentOwners, sharing: str, kept: KeptAssignments, kept_of: Hashable
    ) -> None:
        """Hand over to the new node, which is complete and owns this from here on."""
        cache.settle()
        self.cache, self.owners, self._sharing = cache, owners, sharing
        self._kept, self._kept_of = kept, kept_of

    def note_readiness(self, snapshot: Snapshot) -> None:
        """Note whether there was a page with the kubelet's answer, or why not."""
        down = (
            f"{name}: {snapshot.health[name].trouble}"
            for name in (KUBELET, *snapshot.page_sources)
            if not snapshot.health[name].up
        )
        is_ready = snapshot.joined is not None and snapshot.health[KUBELET].up
        self.not_ready = "" if is_ready else "not ready: " + "; ".join(down)

    def _refers_to(self, assignment: Assignment) -> DeviceRef | None:
        """The device that an assignment refers to, by the present node's rules and devices.

        A claim takes nobody's device as long as it is not known whether it has admin access.
        """
        knowledge = self.owners.knowledge if self.owners else Knowledge()
        if assignment.claim is not None and knowledge.claims.is_to_be_asked(assignment.claim):
            return DeviceRef(form=ADMIN_ACCESS, is_look=True)
        return read_assignment(assignment, knowledge)
