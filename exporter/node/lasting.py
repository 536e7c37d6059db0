"""What outlives a reload: one object, which the node of a configuration hands to the node of the next one."""

import secrets
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.accounting.ledger import Ledger
from exporter.accounting.sharing import CounterBook
from exporter.accounting.state import UNKNOWN_BOOT, Boot
from exporter.attribution.current import CurrentOwners
from exporter.attribution.owners import Knowledge, read_assignment
from exporter.attribution.tenures import Tenures
from exporter.model.devices import Assignment, DeviceRef
from exporter.model.snapshot import KUBELET, Snapshot
from exporter.sources.kubelet.assignments import Kept
from exporter.sources.made import Made
from exporter.telemetry import Telemetry

if TYPE_CHECKING:
    import asyncio

    from exporter.attribution.cuda_totals import CudaTotals
    from exporter.node.state_file import StateFile


BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock:
    """Nanoseconds since 1970 as the machine's clock had them at the start; from then on no step of it is followed.

    So moments of two processes can be compared, and within one of them time never steps.
    """

    def __init__(self) -> None:
        self._ahead = time.time_ns() - time.monotonic_ns()

    def __call__(self) -> int:
        """Now."""
        return time.monotonic_ns() + self._ahead


def boot() -> Boot:
    """The start of this machine, as the wall clock of now dates it; unknown where Linux does not tell.

    In a container both are the node's: the kernel has one boot_id, and containers have no time namespace of their own.
    """
    try:
        boot_id = BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return UNKNOWN_BOOT
    return Boot(boot_id, time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME))


class Lasting:
    """The counters, the accounts, the sources, the owners in force and what is known of the process' own state.

    `instance` is what the process calls itself towards upstreams. `not_ready` is why no page could be made so far, and
    "" from the first page on. `clock` dates the looks of the pulse, and `looked_at_ns` is the last one of this process.
    `accounts` are those of the ledger that may be shown. They are kept in `state_file`, if anywhere; `writing` is the
    last time that somebody did. `wants_workloads` and `reads_slices` say what somebody has needed: it stays open.
    `boot` tells the steps of the wall clock between two processes. `cuda` is None where the CUDA probe has never been
    on.
    """

    def __init__(self) -> None:
        self.telemetry = Telemetry()
        self.instance = f"pod-gpu-metrics-exporter-{secrets.token_hex(8)}"
        self.not_ready = "no page has been asked for yet"
        self.ledger = Ledger()
        self.clock: Callable[[], int] = Clock()
        self.boot = boot()
        self.accounts = self.ledger.accounts
        self.looked_at_ns: int | None = None
        self.state_file: StateFile | None = None
        self.writing: asyncio.Task[None] | None = None
        self.wants_workloads = False
        self.reads_slices = False
        self.cuda: CudaTotals | None = None
        self.tenures = Tenures()
        self.made: Made | None = None
        self.owners: CurrentOwners | None = None
        self._sharing = ""
        self._kept = Kept(read=self._refers_to)
        self._kept_of: Hashable = None

    def book(self, sharing: str) -> CounterBook | None:
        """What divided counters stand at; None where they were divided in another way, or not at all."""
        return self.owners.book if self.owners and sharing == self._sharing else None

    def kept(self, of: Hashable) -> Kept:
        """The assignments in force, where they are whose word it is that is meant now; else none."""
        return self._kept if of == self._kept_of else Kept(read=self._refers_to)

    def hand_over(self, *, made: Made, owners: CurrentOwners, sharing: str, kept: Kept, kept_of: Hashable) -> None:
        """All that a new node is made of is whole: from here on what is here is its own."""
        made.settle()
        self.made, self.owners, self._sharing = made, owners, sharing
        self._kept, self._kept_of = kept, kept_of

    def note_readiness(self, snapshot: Snapshot) -> None:
        """Whether a page could be made with the kubelet's word, or why not."""
        down = (
            f"{name}: {snapshot.health[name].trouble}"
            for name in (KUBELET, *snapshot.page_sources)
            if not snapshot.health[name].up
        )
        is_ready = snapshot.joined is not None and snapshot.health[KUBELET].up
        self.not_ready = "" if is_ready else "not ready: " + "; ".join(down)

    def _refers_to(self, assignment: Assignment) -> DeviceRef | None:
        """What an assignment refers to, as the node of the moment knows its devices."""
        return read_assignment(assignment, self.owners.knowledge if self.owners else Knowledge())
