"""Idleness: whether each holder of a device was idle in the time that a page describes, as far as the page can tell.

A page has one mean activity for all of that time. If only one container can have held the device in it, the activity is
that container's. If several may have held it, in turn or together, two cases are clear. A holder is idle if the device
was active for less time than would make that holder busy. A holder is busy if the device was active for longer than the
others can have held it, by enough to make that holder busy. Anything between is not known.

Tests: tests/accounts/test_idleness.py, tests/accounts/test_idle_since.py.
"""

from collections.abc import Mapping, Sequence

from exporter.accounts.entries import Entry
from exporter.accounts.gpu import WHOLE, GpuAtLook
from exporter.accounts.stretches import Stretch

# Whether a holder was idle, by GPU_I_ID and holder; None if it is not known.
Verdicts = Mapping[tuple[str, Entry], bool | None]
NO_VERDICTS: Verdicts = {}


def verdicts(gpu: GpuAtLook, window: Sequence[Stretch], rows: Mapping[str, int], least: int) -> Verdicts:
    """Whether each holder at a look of this window was idle, by a page with these rows of activity.

    `window` are the stretches that the page describes. A container is idle below `least`; both are in millionths.
    """
    step_ns = gpu.interval.ns if gpu.interval is not None else 0
    before = gpu.state.holders_before
    all_ns = sum(stretch.ns for stretch in window)
    decided: dict[tuple[str, Entry], bool | None] = {}
    for instance, activity in rows.items():
        active_ns = min(activity, WHOLE) * all_ns // WHOLE
        among = [{*stretch.held.holders_of(instance)} for stretch in window]
        first = {*before.holders_of(instance)} if before is not None else set()
        last = {*gpu.holders_now.holders_of(instance)}
        for entry in set[Entry]().union(*among):
            own_ns = sum(stretch.ns for stretch, holders in zip(window, among, strict=True) if entry in holders)
            others_ns = step_ns if first - {entry} else 0
            for stretch, holders, after in zip(window, among, (*among[1:], last), strict=True):
                if holders - {entry}:
                    others_ns += stretch.ns
                elif after - {entry}:
                    # the device changed hands at some time since the last look of this stretch
                    others_ns += min(step_ns, stretch.ns)
            decided[instance, entry] = _verdict(active_ns, own_ns, others_ns, least)
    return decided


def _verdict(active_ns: int, own_ns: int, others_ns: int, least: int) -> bool | None:
    """Whether a holder was idle; None: not known.

    `others_ns` is the longest time for which others can have held the device.
    """
    is_idle = active_ns * WHOLE < least * own_ns
    if is_idle or not others_ns:
        return is_idle
    is_busy = (active_ns - others_ns) * WHOLE >= least * own_ns
    return False if is_busy else None
