"""Sums and differences of what processes ask of CUDA, and the time in which at least one of several was active."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import add, sub
from types import MappingProxyType

from exporter.model.cuda import OTHER_ERRORS, CudaCounts

# Codes of errors that are counted each by itself. CUDA has some 150 of them.
MOST_CODES = 64
NOTHING = CudaCounts()
# CudaCounts begins with the counters, times last; then come what is in use and the tables
_COUNTERS = CudaCounts._fields.index("memory_bytes")
_NO_MEMORY = (0, 0)  # memory_bytes and peak_bytes, which follow the counters
_CALLS_AND_BYTES = CudaCounts._fields.index("sync_ns")
_Interval = tuple[int, int]


def step(before: CudaCounts, now: CudaCounts) -> tuple[CudaCounts, CudaCounts]:
    """By how much the counters grew, without the memory; and what the next reading is to be compared with.

    Where a number of calls or bytes fell, all began anew, and `now` is what is new. A time that fell was told too long:
    that of work that goes on is counted up to a reading, and its end may be known to be earlier later on.
    """
    growth = _each(sub, now, before, _more(now.errors, before.errors))
    if _has_fallen(growth):
        return _each(sub, now, NOTHING, now.errors), now
    if growth.sync_ns < 0 or growth.active_ns < 0:
        now = now._replace(sync_ns=max(now.sync_ns, before.sync_ns), active_ns=max(now.active_ns, before.active_ns))
        growth = growth._replace(sync_ns=max(growth.sync_ns, 0), active_ns=max(growth.active_ns, 0))
    return growth, now


def added(one: CudaCounts, other: CudaCounts) -> CudaCounts:
    """The sum of two, without the memory. Errors of more than MOST_CODES codes are OTHER_ERRORS."""
    return _each(add, one, other, _added(one.errors, other.errors) if other.errors else one.errors)


def _each(of: Callable[[int, int], int], one: CudaCounts, other: CudaCounts, errors: Mapping[int, int]) -> CudaCounts:
    """`of` each pair of counters, as counts again. Their memory is 0."""
    return CudaCounts._make(
        (
            *map(of, _first(one, _COUNTERS), _first(other, _COUNTERS)),
            *_NO_MEMORY,
            tuple(map(of, one.copies, other.copies)),
            tuple(map(of, one.copied_bytes, other.copied_bytes)),
            errors,
        )
    )


def _first(counts: CudaCounts, number: int) -> tuple[int, ...]:
    return counts[:number]  # type: ignore[return-value] # the first fields are numbers, all of them


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


def _has_fallen(growth: CudaCounts) -> bool:
    least = min(*_first(growth, _CALLS_AND_BYTES), *growth.copies, *growth.copied_bytes)
    return least < 0 or any(more < 0 for more in growth.errors.values())


def _more(now: Mapping[int, int], before: Mapping[int, int]) -> Mapping[int, int]:
    if not before:
        return now
    return {code: more for code in {**before, **now} if (more := now.get(code, 0) - before.get(code, 0))}


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
