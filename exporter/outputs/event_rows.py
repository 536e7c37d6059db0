"""The objects of /events: what happened to a node's GPUs, the newest first.

They are errors of the kernel's log, the begins and ends of suspected hangs, ends of containers that may have lacked GPU
memory, and links of GPUs that went down or whose errors began.

Tests: tests/outputs/test_suspicions.py, tests/ownership/test_link_states.py.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from operator import itemgetter

from exporter.dcgm.xids import OTHER_XID, XIDS, XidMeaning
from exporter.lenient import Object
from exporter.model.hangs import HANG_REMEDIES, SUSPECTED, HangEvent
from exporter.model.kernel import DeviceEvent
from exporter.model.link_events import LinkEvent
from exporter.model.pods import Owner, PodName
from exporter.model.snapshot import Snapshot
from exporter.model.states import rfc3339
from exporter.outputs.suspicions import in_words, remedy_of, suspicions_of
from exporter.ownership.kernel_events import MOST_EVENTS, is_well_again

_NO_XID = XidMeaning("")


def event_rows(snapshot: Snapshot) -> Sequence[Object] | None:
    """The objects of /events, at most MOST_EVENTS; None if nobody reads the kernel's log, and nothing else happened."""
    others = [*_hang_rows(snapshot), *_memory_rows(snapshot), *_link_rows(snapshot)]
    if snapshot.events is None and not others:
        return None
    rows = [*kernel_rows(snapshot.node, snapshot.events or ()), *others]
    # a stable sort: errors of one moment stay in their order
    return sorted(rows, key=itemgetter("at"), reverse=True)[:MOST_EVENTS] if others else rows


def newest_event(snapshot: Snapshot) -> str | None:
    """A text that changes with each new event, "none" without one; None where `event_rows` is None."""
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


def _row(node: str, at_seconds: float, kind: str, **more: object) -> Object:
    """An object of /events. A fact that is not among `more` is "" or null, as docs/openapi.yaml has it."""
    return {
        "node_name": node,
        "at": rfc3339(at_seconds),
        "kind": kind,
        "code": None,
        "name": "",
        "cause": "",
        "remedy": "",
        "severity": "",
        "text": "",
        "pci_address": "",
        "device_uuid": "",
        "device_id": "",
        "mig_instance_id": "",
        "holders": None,
        "pid": None,
        "process": "",
        "container": None,
        **more,
    }


def kernel_rows(node: str, events: Iterable[DeviceEvent]) -> list[Object]:
    """An object for each error of the kernel's log, in their order."""
    return [_kernel_row(node, event) for event in events]


def _kernel_row(node: str, device_event: DeviceEvent) -> Object:
    """An error of the kernel's log. It alone can have a code, an address, a process and the uids of pods."""
    event = device_event.event
    uids = dict(device_event.pod_uids)
    holders = device_event.holders
    return _row(
        node,
        device_event.at_seconds,
        event.kind,
        code=event.code,
        **_meaning(device_event),
        severity=event.severity,
        text=event.text,
        pci_address=event.address,
        device_uuid=device_event.uuid,
        device_id=device_event.index,
        mig_instance_id=event.instance,
        holders=None if holders is None else [_holder(owner, uids) for owner in holders],
        pid=event.pid,
        process=event.process,
        container=asdict(device_event.container) if device_event.container else None,
    )


def _meaning(device_event: DeviceEvent) -> Mapping[str, str]:
    """What the XID of an event means, and what to do; texts are "" for other events."""
    event = device_event.event
    meaning = _NO_XID
    if event.kind == "xid":
        meaning = XIDS.get(event.code or 0, OTHER_XID)
    remedy = meaning.remedy
    if is_well_again(device_event):
        remedy = "nothing: the driver says that the GPU is well again"
    return {"name": meaning.name, "cause": meaning.cause, "remedy": remedy}


def _holder(owner: Owner, uids: Mapping[PodName, str]) -> Mapping[str, str]:
    """A holder, with the uid of its pod if that is known."""
    uid = uids.get(owner.pod_key)
    return {**asdict(owner), "pod_uid": uid} if uid else asdict(owner)


def _hang_rows(snapshot: Snapshot) -> Iterator[Object]:
    return (_hang_row(snapshot.node, event) for event in snapshot.hangs.events)


def _hang_row(node: str, event: HangEvent) -> Object:
    hang = event.hang
    return _row(
        node,
        event.at_seconds,
        "hang",
        name=f"{SUSPECTED} is over" if event.is_end else SUSPECTED,
        cause=hang.reason,
        remedy="" if event.is_end else HANG_REMEDIES[hang.reason],
        text=hang.message,
        holders=[asdict(holder) for holder in hang.holders],
    )


def _link_rows(snapshot: Snapshot) -> Iterator[Object]:
    return (_link_row(snapshot.node, event) for event in snapshot.link_events)


def _link_row(node: str, event: LinkEvent) -> Object:
    holders = event.holders
    return _row(
        node,
        event.at_seconds,
        "nvlink",
        name=event.name,
        remedy=event.trouble.remedy,
        text=event.trouble.message,
        device_uuid=event.uuid,
        device_id=event.index,
        holders=None if holders is None else [asdict(holder) for holder in holders],
    )


def _memory_rows(snapshot: Snapshot) -> Iterator[Object]:
    """The ends of containers that may have lacked GPU memory."""
    suspicions = suspicions_of(snapshot)
    subjects = snapshot.joined.subjects if suspicions and snapshot.joined is not None else ()
    index_of = {subject.key.uuid: subject.index for subject in subjects if subject.index}
    for suspected in suspicions:
        holder = asdict(suspected.owner)
        yield _row(
            snapshot.node,
            suspected.ended_at_seconds,
            "out_of_memory",
            name=f"Lack of GPU memory ({suspected.suspicion})",
            cause="a program that lacks GPU memory ends with an error of its own, which only its log shows",
            remedy=remedy_of(suspected),
            text=in_words(suspected),
            device_uuid=suspected.device.uuid,
            device_id=index_of.get(suspected.device.uuid, ""),
            mig_instance_id=suspected.device.instance,
            holders=[holder],
            container=holder,
        )
