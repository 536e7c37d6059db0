"""XIDs: each is counted once, to the only container that held the GPU, or to nobody if several held it.

An XID may have come at any time since dcgm-exporter's previous read of the GPU, which came after the look before that
page was new. So if the GPU went from one container to another since that look, the XID is nobody's.

DCGM_FI_DEV_XID_ERRORS keeps the last XID: a new value is an error; nobody can see that the same XID came again.
dcgm-exporter itself counts XIDs if it is configured to: DCGM_EXP_XID_ERRORS_COUNT over a sliding window (always there;
without errors it is 0 and has no label xid), DCGM_EXP_XID_ERRORS_TOTAL since its start (a series appears with the first
error). Both repeat the GPU's count on the rows of its MIG instances.

If the exporter reads the kernel's log (--kernel-log.mode), only XIDs of the log count, since the driver prints every
XID there. A page has only the last XID, and none of a GPU that has fallen off the bus. ownership/kernel_events.py finds
the holders for XIDs of the log.

Tests: tests/accounts/test_errors.py, tests/accounts/test_standing_pages.py.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from exporter.accounts.entries import COUNTS, AmountFamily, Entry
from exporter.accounts.gpu import GpuAtLook
from exporter.accounts.observation import XidSamples
from exporter.dcgm.xids import is_error

XIDS = "xids"
FAMILIES = (AmountFamily("pod_gpu_xid_errors_total", XIDS, COUNTS, labels=("xid",)),)
# dcgm-exporter counts an error at its next poll (every 30 s by default). Until then only the value shows it.
_COUNTED_LATER_NS = 60_000_000_000
# Kinds of XIDs that a row counts by number. NVIDIA lists fewer than 200 in all.
_MOST_KINDS = 64
_OTHER = "other"
_NOT_READ: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class Xids:
    """The XIDs of a GPU at its `last` look; None before the first look at it, which counts no XID.

    `counted` is the XID that was last counted by its value, at `counted_at_ns`. dcgm-exporter may count the same error
    a little later.
    """

    last: XidSamples | None = None
    counted: int | None = None
    counted_at_ns: int | None = None

    def count(self, gpu: GpuAtLook) -> None:
        """Count the XIDs that are new since the GPU's last look. An XID that never came has no row."""
        last = self.last
        now = gpu.samples.xids
        if last is None:
            self.last = now
            return
        if not (last.has_counts or now.has_counts) and now.values in (last.values, _NOT_READ):
            return  # the usual case: nothing is new
        # if the field has no value now, its last value stays
        self.last = replace(now, values=now.values or last.values)
        new = self._new(last, self.last, gpu.at_ns)
        errors = {xid: number for xid, number in new.items() if is_error(xid)}
        if errors and gpu.counts_xids:
            add(_holder(gpu), errors)
            gpu.state.xids |= dict.fromkeys(errors, gpu.at_ns)

    def _new(self, last: XidSamples, now: XidSamples, at_ns: int) -> Mapping[int, int]:
        """The number of each XID since the last look: by dcgm-exporter's own counts, else by a new value."""
        if now.counts is not None:
            return _grown(last.counts, now.counts) if last.counts is not None else {}
        if now.totals is not None:
            new = _grown(last.totals or {}, now.totals, restarts=True)
            if last.totals is None:
                self._take_off_counted(new, at_ns)
            return +new
        appeared = Counter(xid for xid in now.values - last.values if xid)
        for xid in appeared:
            self.counted = xid
            self.counted_at_ns = at_ns
        return appeared

    def _take_off_counted(self, new: Counter[int], at_ns: int) -> None:
        """Take the XID off that was counted by its value, if it was a moment ago: it is the same error."""
        if self.counted is None or self.counted_at_ns is None:
            return
        is_same = at_ns - self.counted_at_ns <= _COUNTED_LATER_NS
        if is_same and new[self.counted]:
            new[self.counted] -= 1
            self.counted = None


def add(entry: Entry, new: Mapping[int, int]) -> None:
    """Count these XIDs, by number."""
    counted = entry.by_label.setdefault(XIDS, {})
    for xid, number in new.items():
        kind = str(xid) if len(counted) < _MOST_KINDS or str(xid) in counted else _OTHER
        entry.add(XIDS, number, kind)


def _grown(last: Mapping[int, int], now: Mapping[int, int], *, restarts: bool = False) -> Counter[int]:
    """The growth of each count.

    With `restarts`, a fall is a restart from 0. Without it, a fall only means that the window has passed old errors.
    """
    grown: Counter[int] = Counter()
    for xid, number in now.items():
        before = last.get(xid, 0)
        if number >= before:
            grown[xid] = number - before
        elif restarts:
            grown[xid] = number
    return +grown


def _holder(gpu: GpuAtLook) -> Entry:
    """The entry of the only container that held the GPU since the page was new.

    If nobody held it then, it is the entry of this look's only holder. Otherwise it is nobody's entry.
    """
    state = gpu.state
    stretches = state.page.stretches if state.page is not None else ()
    all_held = [stretch.held for stretch in stretches]
    if state.holders_before is not None:
        all_held.append(state.holders_before)
    entries = [entry for held in all_held for _, entry in held.holders]
    if not entries and not any(stretch.is_gap for stretch in stretches):
        entries = [entry for _, entry in gpu.holders_now.holders]
    containers = {(entry.owner, entry.uid, entry.is_dropped) for entry in entries}
    if len(containers) == 1 and not entries[0].is_dropped:
        return entries[0]
    return gpu.nobody(gpu.holders_now.key)
