"""Sums and differences of what processes ask of CUDA, and the time in which at least one of several was active."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import add, sub
from types import MappingProxyType

from exporter.model.cuda import OTHER_ERRORS, CudaCounts

# Codes of errors that are counted each by itself. CUDA has some 150 of them.
MOST_CODES = 64
NOTHING = CudaCounts()
_Interval = tuple[int, int]


def step(before: CudaCounts, now: CudaCounts) -> tuple[CudaCounts, CudaCounts]:
    """By how much the counters grew, without the memory; and what the next reading is to be compared with.

    Where a number of calls or bytes fell, all began anew, and `now` is what is new. A time that fell was told too long:
    that of work that goes on is counted up to a reading, and its end may be known to be earlier later on.
    """
    if _any_fell(now, before):
        before = NOTHING
    sync_ns, active_ns = max(now.sync_ns, before.sync_ns), max(now.active_ns, before.active_ns)
    if (sync_ns, active_ns) != (now.sync_ns, now.active_ns):
        now = replace(now, sync_ns=sync_ns, active_ns=active_ns)
    return _grown(now, before), now


def _grown(now: CudaCounts, before: CudaCounts) -> CudaCounts:
    return CudaCounts(
        launches=now.launches - before.launches,
        threads=now.threads - before.threads,
        graph_launches=now.graph_launches - before.graph_launches,
        allocations=now.allocations - before.allocations,
        failed_allocations=now.failed_allocations - before.failed_allocations,
        frees=now.frees - before.frees,
        freed_bytes=now.freed_bytes - before.freed_bytes,
        copies=tuple(map(sub, now.copies, before.copies)),
        copied_bytes=tuple(map(sub, now.copied_bytes, before.copied_bytes)),
        syncs=now.syncs - before.syncs,
        sync_ns=now.sync_ns - before.sync_ns,
        active_ns=now.active_ns - before.active_ns,
        errors={code: more for code, count in now.errors.items() if (more := count - before.errors.get(code, 0))},
    )


def added(one: CudaCounts, other: CudaCounts) -> CudaCounts:
    """The sum of two, without the memory. Errors of more than MOST_CODES codes are OTHER_ERRORS."""
    return CudaCounts(
        launches=one.launches + other.launches,
        threads=one.threads + other.threads,
        graph_launches=one.graph_launches + other.graph_launches,
        allocations=one.allocations + other.allocations,
        failed_allocations=one.failed_allocations + other.failed_allocations,
        frees=one.frees + other.frees,
        freed_bytes=one.freed_bytes + other.freed_bytes,
        copies=tuple(map(add, one.copies, other.copies)),
        copied_bytes=tuple(map(add, one.copied_bytes, other.copied_bytes)),
        syncs=one.syncs + other.syncs,
        sync_ns=one.sync_ns + other.sync_ns,
        active_ns=one.active_ns + other.active_ns,
        errors=_added(one.errors, other.errors) if other.errors else one.errors,
    )


def united_ns(increments: Sequence[int], spans: Iterable[Sequence[_Interval]], window_ns: int | None) -> int:
    """The time in which at least one of several was active, of the time that each of them was.

    Args:
        increments: for how long each was active; there is at least one.
        spans: when each was, as far as that is known. They tell which part of the time several had in common, and that
            part is taken for all of it.
        window_ns: the time in which it was; None where that is not known.
    """
    total = united = sum(increments)
    told = [intervals for intervals in spans if intervals]
    if len(told) > 1:
        apart = sum(_measure(intervals) for intervals in told)
        together = _measure([interval for intervals in told for interval in intervals])
        if apart:
            united = total * together // apart
    if window_ns is not None:
        united = min(united, window_ns)
    return max(united, *increments)


def _any_fell(now: CudaCounts, before: CudaCounts) -> bool:
    return (
        now.launches < before.launches
        or now.threads < before.threads
        or now.graph_launches < before.graph_launches
        or now.allocations < before.allocations
        or now.failed_allocations < before.failed_allocations
        or now.frees < before.frees
        or now.freed_bytes < before.freed_bytes
        or now.syncs < before.syncs
        or any(map(int.__lt__, now.copies, before.copies))
        or any(map(int.__lt__, now.copied_bytes, before.copied_bytes))
        or any(now.errors.get(code, 0) < count for code, count in before.errors.items())
    )


def _added(one: Mapping[int, int], other: Mapping[int, int]) -> Mapping[int, int]:
    total = dict(one)
    for code, count in other.items():
        known = code if code in total or len(total) < MOST_CODES else OTHER_ERRORS
        total[known] = total.get(known, 0) + count
    return MappingProxyType(total)


def _measure(intervals: Iterable[_Interval]) -> int:
    """How long the union of intervals is."""
    measure, until = 0, None
    for begin, end in sorted(intervals):
        if until is None or begin > until:
            until = begin
        if end > until:
            measure += end - until
            until = end
    return measure
