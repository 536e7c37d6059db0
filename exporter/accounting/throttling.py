"""Throttling: for how long a GPU's clocks were lowered, by reason, as GPU-seconds of those who held it.

From the violation counters. For a reason that the page has no counter of, from the bits of CLOCKS_EVENT_REASONS: those
set when the GPU was read stand for the time until it is read again.
"""

from exporter.accounting.held import HeldGpu
from exporter.accounting.turn import Turn

# nvmlClocksEventReasons: SW power cap and HW power brake, SW and HW thermal slowdown, sync boost
_BITS = {"power": 0x4 | 0x80, "thermal": 0x20 | 0x40, "sync_boost": 0x10}
# HW slowdown is set beside HW thermal slowdown and HW power brake, which say why; alone it is a reason of its own
_HW_SLOWDOWN, _SAID_WHY = 0x8, 0x40 | 0x80


def count(turn: Turn) -> None:
    """Count how long the GPU was throttled since its last look."""
    state, values = turn.state, turn.seen.violations
    known = state.violations
    if known is not None and not values and turn.at_ns - known.at_ns >= turn.keep_ns:
        known = state.violations = None
    counted = frozenset(known.values) if known is not None else frozenset()
    for stretch, seen in turn.told:
        for reason in _reasons(seen.reasons) - counted if seen.reasons else ():
            _give(turn, stretch.held, reason, stretch.ns)
    if not values:
        return
    if known is None:
        state.violations = turn.read(dict(values))
        return
    turn.reach(known)
    grown = {reason: known.grow_to(reason, value) for reason, value in values.items()}
    for stretch, amounts in known.divide(grown):
        for reason, ns in amounts.items():
            _give(turn, stretch.held, reason, ns)
    # a GPU is mostly not throttled: that the counter stands does not say that it was not read
    if turn.is_new:
        known.renew()


def told(turn: Turn) -> frozenset[str]:
    """The reasons of which the page tells: a counter's, and those of the bits."""
    of_bits = (*_BITS, "hw_slowdown") if turn.seen.reasons is not None else ()
    return frozenset((*turn.seen.violations, *of_bits))


def _reasons(bits: int) -> frozenset[str]:
    found = {reason for reason, of in _BITS.items() if bits & of}
    return frozenset(found | ({"hw_slowdown"} if bits & _HW_SLOWDOWN and not bits & _SAID_WHY else set()))


def _give(turn: Turn, held: HeldGpu, reason: str, ns: int) -> None:
    """Count a time to those who held the GPU, each for its part."""
    if not ns:
        return
    *parts, nobodys = held.times(ns)
    for (_, entry), part in zip(held.holders, parts, strict=True):
        if entry.is_dropped:
            nobodys += part
        else:
            entry.throttled_ns[reason] = entry.throttled_ns.get(reason, 0) + part
    if nobodys:
        nobody = turn.nobody(held.key)
        nobody.throttled_ns[reason] = nobody.throttled_ns.get(reason, 0) + nobodys
