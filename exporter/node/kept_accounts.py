"""The accounts of a node, kept over a reload, with the clock that dates their looks.

Tests: tests/node/test_state_file.py.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.accounts.hang_watch import HangWatch
from exporter.accounts.ledger import Ledger
from exporter.accounts.state_bytes import UNKNOWN_BOOT, Boot

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from exporter.node.state_file import StateFile

_LEAST_STEP_NS = 1_000_000_000
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock:
    """Nanoseconds since 1970, set by the machine's clock at the start: comparable across processes, without steps."""

    def __init__(self) -> None:
        self._ahead = time.time_ns() - time.monotonic_ns()

    def set_ns(self) -> int:
        """By how much the machine's clock was set since the start.

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


class KeptAccounts:
    """The ledger, what of it may be shown, and the file that keeps it.

    Attributes:
        clock: dates the looks of the pulse.
        clock_set_ns: by how much the machine's clock was set meanwhile.
        boot: shows steps of the wall clock between two processes.
        accounts: the ledger's accounts that may be shown.
        hang_watch: finds jobs that seem to hang, at the same looks.
        looked_at_ns: this process' last look; None before the first.
        state_file: the file, if there is one.
        writing: the last write of it.
    """

    def __init__(self) -> None:
        self.ledger = Ledger()
        clock = Clock()
        self.clock: Callable[[], int] = clock
        self.clock_set_ns: Callable[[], int] = clock.set_ns
        self.boot = boot()
        self.accounts = self.ledger.accounts
        self.hang_watch = HangWatch()
        self.looked_at_ns: int | None = None
        self.state_file: StateFile | None = None
        self.writing: asyncio.Task[None] | None = None
