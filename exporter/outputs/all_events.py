"""The events of a node, the newest first.

They are errors of the kernel's log, the begins and ends of suspected hangs, ends of containers that may have lacked GPU
memory, and links of GPUs that went down or whose errors began.
"""

from collections.abc import Sequence
from dataclasses import asdict
from operator import itemgetter

from exporter.lenient import Object
from exporter.model.hangs import HANG_REMEDIES, SUSPECTED, HangEvent
from exporter.model.link_events import LinkEvent
from exporter.model.snapshot import Snapshot
from exporter.model.states import rfc3339
from exporter.outputs.device_rows import event_rows
from exporter.outputs.suspicions import memory_rows, suspicions_of
from exporter.ownership.kernel_events import MOST_EVENTS


def all_events(snapshot: Snapshot) -> Sequence[Object] | None:
    """The objects of /events, at most MOST_EVENTS; None if nobody reads the kernel's log, and nothing else happened."""
    hangs = (_hang_row(snapshot.node, event) for event in snapshot.hangs.events)
    links = (_link_row(snapshot.node, event) for event in snapshot.link_events)
    suspected = [*hangs, *memory_rows(snapshot), *links]
    if snapshot.events is None and not suspected:
        return None
    rows = [*event_rows(snapshot.node, snapshot.events or ()), *suspected]
    # a stable sort: errors of one moment stay in their order
    return sorted(rows, key=itemgetter("at"), reverse=True)[:MOST_EVENTS] if suspected else rows


def newest_event(snapshot: Snapshot) -> str | None:
    """A text that changes with each new event, "none" without one; None where `all_events` is None."""
    names: list[str] = []
    if snapshot.events:
        newest = snapshot.events[0]
        names.append(f"{newest.at_seconds:.3f} {newest.event.sequence}")
    if snapshot.hangs.events:
        at_seconds = snapshot.hangs.events[0].at_seconds
        names.append(f"{at_seconds:.3f} {SUSPECTED} {len(snapshot.hangs.events)}")
    if snapshot.link_events:
        names.append(f"{snapshot.link_events[0].at_seconds:.3f} nvlink {len(snapshot.link_events)}")
    suspicions = suspicions_of(snapshot)
    if suspicions:
        names.append(f"{suspicions[0].ended_at_seconds:.0f} memory {len(suspicions)}")
    if not names:
        return None if snapshot.events is None else "none"
    # all of them, since an end is known only some time after it, and other events may have come meanwhile
    return ", ".join(names)


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


def _link_row(node: str, event: LinkEvent) -> Object:
    """An object of /events about links of a GPU."""
    holders = event.holders
    return {
        "node_name": node,
        "at": rfc3339(event.at_seconds),
        "kind": "nvlink",
        "code": None,
        "name": event.name,
        "cause": "",
        "remedy": event.trouble.remedy,
        "severity": "",
        "text": event.trouble.message,
        "pci_address": "",
        "device_uuid": event.uuid,
        "device_id": event.index,
        "mig_instance_id": "",
        "holders": None if holders is None else [asdict(holder) for holder in holders],
        "pid": None,
        "process": "",
        "container": None,
    }
