"""The events of a node, the newest first: errors of the kernel's log, and the begins and ends of suspected hangs."""

from collections.abc import Sequence
from dataclasses import asdict
from operator import itemgetter

from exporter.lenient import Object
from exporter.model.hangs import HANG_REMEDIES, SUSPECTED, HangEvent
from exporter.model.snapshot import Snapshot
from exporter.model.states import rfc3339
from exporter.outputs.device_rows import event_rows


def all_events(snapshot: Snapshot) -> Sequence[Object] | None:
    """The objects of /events; None if nobody reads the kernel's log, and no job has seemed to hang."""
    hangs = [_hang_row(snapshot.node, event) for event in snapshot.hangs.events]
    if snapshot.events is None:
        return hangs or None
    rows = [*event_rows(snapshot.node, snapshot.events), *hangs]
    # a stable sort: errors of one moment stay in their order
    return sorted(rows, key=itemgetter("at"), reverse=True) if hangs else rows


def newest_event(snapshot: Snapshot) -> str | None:
    """A text that changes with each new event, "none" without one; None where `all_events` is None."""
    names: list[tuple[float, str]] = []
    if snapshot.events:
        newest = snapshot.events[0]
        names.append((newest.at_seconds, f"{newest.at_seconds:.3f} {newest.event.sequence}"))
    if snapshot.hangs.events:
        at_seconds = snapshot.hangs.events[0].at_seconds
        names.append((at_seconds, f"{at_seconds:.3f} {SUSPECTED} {len(snapshot.hangs.events)}"))
    if not names:
        return None if snapshot.events is None else "none"
    return max(names)[1]


def _hang_row(node: str, event: HangEvent) -> Object:
    """An object of /events; a suspicion has no code, and neither address nor process."""
    hang = event.hang
    return {
        "node_name": node,
        "at": rfc3339(event.at_seconds),
        "kind": "hang",
        "code": None,
        "name": f"{SUSPECTED} is over" if event.is_end else SUSPECTED,
        "cause": hang.reason,
        "remedy": "" if event.is_end else HANG_REMEDIES[hang.reason],
        "severity": "",
        "text": hang.message,
        "pci_address": "",
        "device_uuid": "",
        "device_id": "",
        "mig_instance_id": "",
        "holders": [asdict(holder) for holder in hang.holders],
        "pid": None,
        "process": "",
        "container": None,
    }
