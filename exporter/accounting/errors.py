"""The XIDs: each counted once, to the one container that held the GPU; to nobody where several did.

An XID may have come at any time since the page was read anew before, and that was after the look before it: where the
GPU went from one container to another since that look, it is nobody's.

DCGM_FI_DEV_XID_ERRORS keeps the last XID: a new value is an error, the same XID again cannot be seen. dcgm-exporter
itself counts them, if it is told to: DCGM_EXP_XID_ERRORS_COUNT over a sliding window (always there; 0 without a label
xid where there was none), DCGM_EXP_XID_ERRORS_TOTAL since its start (a series appears with the first error). Both
repeat the GPU's count on the rows of its MIG instances.
"""

from collections import Counter
from collections.abc import Mapping

from exporter.accounting.entries import Entry
from exporter.accounting.held import HeldGpu
from exporter.accounting.turn import LastXids, Turn

# dcgm-exporter counts the last errors when it next polls, every 30 s by default: until then only the value tells.
_COUNTED_LATER_NS = 60_000_000_000
# Kinds of XIDs that a row counts by number. NVIDIA lists fewer than 200 in all.
_MOST_KINDS = 64
_OTHER = "other"
_NOT_READ: frozenset[int] = frozenset()


def count(turn: Turn) -> None:
    """Count the XIDs that are new since the GPU's last look. The first look at it counts none."""
    last, seen = turn.state.xids, turn.seen
    if last is not None and not (last.has_counts or seen.has_xid_counts) and seen.xids in (last.values, _NOT_READ):
        return  # nothing new, as mostly
    now = _read(turn)
    turn.state.xids = now
    if last is None:
        return
    new = _new(turn, last, now)
    if not new:
        return
    entry = _whose(turn)
    for xid, number in new.items():
        kind = str(xid) if len(entry.xids) < _MOST_KINDS or str(xid) in entry.xids else _OTHER
        entry.xids[kind] = entry.xids.get(kind, 0) + number


def _read(turn: Turn) -> LastXids:
    """What this look tells; where the field has no value, the last one stays."""
    last, seen = turn.state.xids or LastXids(), turn.seen
    return LastXids(frozenset(seen.xids) or last.values, seen.xid_counts, seen.xid_totals, last.counted)


def _new(turn: Turn, last: LastXids, now: LastXids) -> Mapping[int, int]:
    """The number of new errors by XID. `now` learns which was counted by its value."""
    if now.counts is not None:
        return _grown(last.counts, now.counts) if last.counts is not None else {}
    if now.totals is not None:
        new = _grown(last.totals or {}, now.totals, restarts=True)
        if last.totals is None and now.counted is not None:
            xid, at_ns = now.counted
            if new[xid] and turn.at_ns - at_ns <= _COUNTED_LATER_NS:
                new[xid] -= 1
                now.counted = None
        return +new
    appeared = Counter(xid for xid in now.values - last.values if xid)
    for xid in appeared:
        now.counted = (xid, turn.at_ns)
    return appeared


def _grown(last: Mapping[int, int], now: Mapping[int, int], *, restarts: bool = False) -> Counter[int]:
    """By how much each count grew. One that `restarts` begins at 0 when it falls; another only forgets."""
    grown: Counter[int] = Counter()
    for xid, number in now.items():
        before = last.get(xid, 0)
        grown[xid] = number - before if number >= before else number if restarts else 0
    return +grown


def _whose(turn: Turn) -> Entry:
    """The entry of the one container that held the GPU since the page was new; of this look's, where none did."""
    stretches = turn.state.page.stretches if turn.state.page is not None else ()
    hands = [stretch.held for stretch in stretches]
    if turn.state.before is not None:
        hands.append(turn.state.before)
    holders = [entry for held in hands for entry in _holders(held)]
    if not holders and not any(stretch.is_gap for stretch in stretches):
        holders = _holders(turn.held)
    if len({(entry.owner, entry.uid, entry.is_dropped) for entry in holders}) == 1 and not holders[0].is_dropped:
        return holders[0]
    return turn.nobody(turn.held.key)


def _holders(held: HeldGpu) -> list[Entry]:
    return [entry for _, entry in held.holders]
