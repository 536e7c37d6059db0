"""Gaps: for how long nothing could be seen, and what was missing."""

from exporter.accounting.observation import is_away, why_failed
from exporter.model.accounts import GAPS, Gap
from exporter.model.snapshot import Snapshot

_HANDS_UNKNOWN = ("exporter", "kubelet")
# Looks further apart than this many intervals have a gap between them.
_LATE = 2


class Gaps:
    """What is known of the looks so far, those that failed included.

    `ns` are times by what was missing; `noted_at_ns` is the last look's moment, `is_gap` says whether there was a gap
    since the last look that counted.
    """

    def __init__(self) -> None:
        self.ns: dict[str, int] = dict.fromkeys(GAPS, 0)
        self.noted_at_ns: int | None = None
        self.failing: Gap | None = None
        self.is_gap = False

    def note(self, snapshot: Snapshot, at_ns: int, interval_ns: int) -> bool:
        """Count the time since the last look where nothing was seen in it, and say whether this look counts.

        Without a page it counts: who holds what is the kubelet's word, and only what pages tell is missing.
        """
        failing = why_failed(snapshot)
        since = at_ns - self.noted_at_ns if self.noted_at_ns is not None else 0
        reason = "exporter" if since > _LATE * interval_ns else failing or self.failing
        if reason in _HANDS_UNKNOWN or self.failing == "kubelet":
            self.is_gap = True
        elif reason is None and is_away(snapshot):
            reason = "page"  # of some devices; the others were seen
        if reason is not None and since > 0:
            self.ns[reason] += since
        self.noted_at_ns, self.failing = at_ns, failing
        return failing != "kubelet"
