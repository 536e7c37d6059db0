"""31 faults in what decides, made by hand: each one a slip that a reader of the code may overlook."""

from typing import NamedTuple

from tests.mutants.changes import Change, scope_at, source_of


class Fault(NamedTuple):
    """A fault: what users would see of it, and the old and the new text in a file below exporter/."""

    says: str
    path: str
    old: str
    new: str


FAULTS = (
    Fault(
        "a ledger with too many GPUs forgets the newest states",
        "accounts/ledger.py",
        "oldest_first[:too_many]",
        "oldest_first[-too_many:]",
    ),
    Fault(
        "a device with several ids of its one share counts as unshared",
        "ownership/owners.py",
        "if ids == 1 and offered",
        "if ids >= 1 and offered",
    ),
    Fault(
        "a missing MIG instance stays for a day",
        "ownership/verdicts.py",
        'GRACE_SECONDS if key.instance or key.uuid.startswith("MIG-") else MISSING_SECONDS',
        "MISSING_SECONDS",
    ),
    Fault(
        "an amount without any time goes to the first holder",
        "accounts/stretches.py",
        "by[-1] = 1",
        "by[0] = 1",
    ),
    Fault(
        "a counter that falls to just half of itself goes on",
        "accounts/stretches.py",
        "now < before <= 2 * now",
        "now < before < 2 * now",
    ),
    Fault(
        "a late value of just half a divided counter is a restart",
        "dividing/decimals.py",
        "minus(plus(now, now), before).units >= 0",
        "minus(plus(now, now), before).units > 0",
    ),
    Fault(
        "an error at the moment of a reset does not count",
        "ownership/verdicts.py",
        "if reset_at <= error.at_seconds and",
        "if reset_at < error.at_seconds and",
    ),
    Fault(
        "a device given whole and in parts has more than all of it",
        "accounts/holdings.py",
        "return parts, max(whole, parts.total())",
        "return parts, whole",
    ),
    Fault(
        "a MIG id that nothing resolves proves another node",
        "ownership/owners.py",
        "handed_out = handed_out or key.uuid != ref.mig",
        "handed_out = True",
    ),
    # ownership
    Fault(
        "a pod that is not listed for just ten seconds stays",
        "ownership/retention.py",
        "if missing + seconds < GRACE_SECONDS",
        "if missing + seconds <= GRACE_SECONDS",
    ),
    Fault(
        "a kubelet whose first answer has static pods alone has listed all pods",
        "ownership/retention.py",
        "return bool(answer.listed) and all(held.owner.pod.endswith(ending) for held in unlisted)",
        "return bool(answer.listed)",
    ),
    Fault(
        "an id on offer that its plugin drops for a moment is gone, though a container holds it",
        "ownership/retention.py",
        "ids = {**kept, **ids} if kept else ids",
        "ids = {**ids}",
    ),
    Fault(
        "an old generation of a pool wins over the new one",
        "ownership/device_ids.py",
        "in sorted(by_generation):",
        "in sorted(by_generation, reverse=True):",
    ),
    Fault(
        "the CDI names of a MIG instance and its GPU contradict each other",
        "ownership/device_ids.py",
        'uuids = {uuid for uuid in uuids if uuid.startswith("MIG-")} or uuids',
        "uuids = set(uuids)",
    ),
    # dividing
    Fault(
        "a ratio of just 1 has no halves",
        "dividing/decimals.py",
        "0 < abs(units) <= 10**places",
        "0 < abs(units) < 10**places",
    ),
    Fault(
        "a grant of all cores is a part by memory",
        "dividing/granted_parts.py",
        "if cores >= _PERCENT:",
        "if cores > _PERCENT:",
    ),
    Fault(
        "owners with more memory than their device has are not scaled down",
        "dividing/measured_values.py",
        "if total is None or together <= total:",
        "if total is None or together >= total:",
    ),
    Fault(
        "an older page that a late scrape joins moves the counters",
        "dividing/sharing.py",
        "self._is_older = any(page.moment < self._read_at",
        "self._is_older = all(page.moment < self._read_at",
    ),
    # accounts
    Fault(
        "a look later than twice the interval is no gap",
        "accounts/ledger.py",
        '"exporter" if since > _LATE * interval_ns',
        '"exporter" if since > (_LATE + 1) * interval_ns',
    ),
    Fault(
        "the account of a container that is gone is forgotten before it was shown twice",
        "accounts/entries.py",
        "self.shown - entry.shown_before >= _SHOWN_ENOUGH",
        "self.shown - entry.shown_before >= 1",
    ),
    Fault(
        "a holder of a device that changed hands is idle, although the other one may have worked",
        "accounts/idleness.py",
        "others_ns += min(step_ns, stretch.ns)",
        "others_ns += 0",
    ),
    Fault(
        "the power at rest is the lowest ever seen, even if a GPU has rested since",
        "accounts/idle_power.py",
        "if lowest is None or is_nobodys or energy",
        "if lowest is None or energy",
    ),
    # exposition
    Fault(
        "a value too large for a float64 goes out, and the whole page is refused",
        "exposition/lines.py",
        'return not isinf(float(text)) or text.lstrip(b"+-")[:1] in b"iI"',
        "return True",
    ),
    Fault(
        "a ratio of just the most that there can be contradicts itself",
        "exposition/units.py",
        "is_above_all = any(value > _MOST for value in values)",
        "is_above_all = any(value >= _MOST for value in values)",
    ),
    Fault(
        "of two labels that get one name the last stays",
        "exposition/renaming.py",
        "out.setdefault(new, value)",
        "out[new] = value",
    ),
    # usage
    Fault(
        "a process with the pid of an earlier one counts for its container",
        "usage/owner_use.py",
        "if process is None or process.started_at > read_at:",
        "if process is None:",
    ),
    Fault(
        "all of an owner's first reading counts",
        "usage/sm_times.py",
        "seconds /= _PART_OF_THE_FIRST",
        "seconds /= 1",
    ),
    # report
    Fault(
        "the rest of a rounded sum goes to the smallest remainders",
        "report/costs.py",
        "key=lambda at: units[at] - exact[at]",
        "key=lambda at: exact[at] - units[at]",
    ),
    Fault(
        "a node that was off for longer than ten minutes had GPUs meanwhile",
        "report/capacity.py",
        "if step_ms <= missing_ms <= MOST_GAP_MS:",
        "if step_ms <= missing_ms:",
    ),
    # outputs
    Fault(
        "a device with an owner has a free row, too",
        "outputs/device_rows.py",
        "holders.pop(_NOBODY, None)",
        "pass",
    ),
    Fault(
        "a pushed sum that fell goes on from its old start",
        "outputs/otlp/starts.py",
        "began_ns = self._at_ns if has_begun_anew else last.began_ns",
        "began_ns = last.began_ns",
    ),
)  # fmt: skip


def changes_of_faults() -> list[Change]:
    """The faults as changes. Raises ValueError if a fault's old text is not exactly once in its file."""
    return [_change(fault) for fault in FAULTS]


def _change(fault: Fault) -> Change:
    path = f"exporter/{fault.path}"
    source = source_of(path)
    old = fault.old.encode()
    if source.count(old) != 1:
        raise ValueError(f"{path} has the old text of a fault {source.count(old)} times, not once: {fault.old}")
    begin = source.index(old)
    lines = source.count(b"\n", 0, begin) + 1, source.count(b"\n", 0, begin + len(old)) + 1
    return Change(path, begin, begin + len(old), fault.new.encode(), lines, scope_at(path, lines[0]), fault.says)
