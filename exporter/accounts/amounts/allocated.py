"""The time for which containers held devices.

A look's holders get the time to the next look, or over a gap if they still hold the device after it.

Tests: tests/accounts/test_two_hours.py.
"""

from collections.abc import Iterable

from exporter.accounts.entries import NANOSECONDS, AmountFamily
from exporter.accounts.gpu import Interval
from exporter.accounts.holders import HeldGpu

ALLOCATED = "allocated_ns"
FAMILIES = (AmountFamily("pod_gpu_allocated_seconds_total", ALLOCATED, NANOSECONDS),)


def count(before: Iterable[HeldGpu], now: Iterable[HeldGpu], interval: Interval | None) -> None:
    """Count the time since the last look to the holders `before`, and start the holders `now` at 0."""
    for held in before:
        if interval is None:
            break
        for (_, entry), ns in zip(held.holders, held.times(interval.ns), strict=False):
            if not entry.is_dropped and not (interval.is_gap and entry.gone_at_ns is not None):
                entry.amounts[ALLOCATED] = entry.amounts.get(ALLOCATED, 0) + ns
    for held in now:
        for _, entry in held.holders:
            entry.amounts.setdefault(ALLOCATED, 0)
