"""Suspicions of ends for lack of GPU memory in words, and among the events. Pure; out_of_memory.py judges."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime

from exporter.accounts.out_of_memory import FULL
from exporter.lenient import Object
from exporter.model.accounts import SuspectedOutOfMemory, Suspicion
from exporter.model.snapshot import Snapshot
from exporter.model.states import rfc3339
from exporter.outputs.diagnosis import Finding, warning
from exporter.wording import and_listed, counted

_MIB_A_GIB = 1024
_NS_A_SECOND = 1_000_000_000
_MOST_NAMED = 3
# a suspicion is a finding of doctor and `kubectl gpu why` for so long; /events keeps it longer
_FINDING_SECONDS = 86_400.0


def suspicions_of(snapshot: Snapshot) -> tuple[SuspectedOutOfMemory, ...]:
    """The suspicions, the newest first; none if no accounts are kept, or the output did not ask for them."""
    return snapshot.accounts.suspicions if snapshot.accounts is not None else ()


def in_words(suspected: SuspectedOutOfMemory) -> str:
    """The end, what was seen before it, and how much speaks for a lack of memory, in one sentence."""
    ended = datetime.fromtimestamp(suspected.ended_at_seconds, UTC)
    end = f"its container {suspected.owner.container} ended with exit code {suspected.exit_code} at {ended:%H:%M} UTC"
    seconds = round(suspected.seen_before_ns / _NS_A_SECOND)
    return f"{end}, {seconds} s after {_memory(suspected)}: {_verdict(suspected)}"


def _memory(suspected: SuspectedOutOfMemory) -> str:
    """What a look saw of the memory: `its GPU's memory was full (79.2 of 79.6 GiB, 71.0 of them of ml/other)`."""
    whose = "its MIG instance's memory" if suspected.device.instance else "its GPU's memory"
    amounts = f"{_gib(suspected.used_mib)} of {_gib(suspected.all_mib)} GiB"
    if suspected.neighbour is not None:
        pod = f"{suspected.neighbour.namespace}/{suspected.neighbour.pod}"
        amounts += f", {_gib(suspected.neighbour_mib)} of them held by the pod {pod}"
    if suspected.more_devices:
        amounts += f"; {suspected.more_devices} more of its devices like it"
    if suspected.ratio >= FULL:
        return f"{whose} was full ({amounts})"
    return f"a look at {whose} ({amounts})"


def _gib(mib: float) -> str:
    return f"{mib / _MIB_A_GIB:.1f}"


def _verdict(suspected: SuspectedOutOfMemory) -> str:
    if suspected.suspicion is Suspicion.LIKELY:
        failed = counted(suspected.failed_allocations, "allocation")
        return f"{failed} of it had failed, so that a lack of GPU memory is likely"
    if suspected.suspicion is Suspicion.SUSPECTED:
        return "a lack of GPU memory is suspected"
    if suspected.xids:
        xids = and_listed([f"Xid {xid}" for xid in suspected.xids], _MOST_NAMED)
        return f"a lack of GPU memory is possible; {xids} beside may be the cause, or come of it"
    if suspected.ratio < FULL:
        return "a lack of GPU memory is possible, since others left it little"
    return "a lack of GPU memory is possible, though it may have been as full for long"


def remedy_of(suspected: SuspectedOutOfMemory) -> str:
    """What to do."""
    pod = f"{suspected.owner.pod} -n {suspected.owner.namespace} -c {suspected.owner.container}"
    look = f"look for 'out of memory' in its log (kubectl logs --previous {pod})"
    if suspected.neighbour is not None:
        return f"{look}; if it says so, limit what the neighbour takes, or give each a GPU or a MIG instance of its own"
    return f"{look}; if it says so, let it take less at a time, or give it a device with more memory"


def findings_of(snapshot: Snapshot) -> Iterator[Finding]:
    """The suspicions of a day, as findings about their containers; of each container the newest."""
    named = set[str]()
    now = snapshot.read_at_seconds
    for suspected in suspicions_of(snapshot):
        name = suspected.owner.name
        is_old = now is not None and now - suspected.ended_at_seconds > _FINDING_SECONDS
        if name not in named and not is_old:
            named.add(name)
            yield warning(name, in_words(suspected), remedy_of(suspected))


def memory_rows(snapshot: Snapshot) -> list[Object]:
    """The objects of /events for these suspicions."""
    suspicions = suspicions_of(snapshot)
    index_of = _indices(snapshot) if suspicions else {}
    return [_event_row(snapshot.node, suspected, index_of) for suspected in suspicions]


def _indices(snapshot: Snapshot) -> Mapping[str, str]:
    subjects = snapshot.joined.subjects if snapshot.joined is not None else ()
    return {subject.key.uuid: subject.index for subject in subjects if subject.index}


def _event_row(node: str, suspected: SuspectedOutOfMemory, index_of: Mapping[str, str]) -> Object:
    """An object of /events. It has all fields of an error of the kernel's log."""
    holder = asdict(suspected.owner)
    return {
        "node_name": node,
        "at": rfc3339(suspected.ended_at_seconds),
        "kind": "out_of_memory",
        "code": None,
        "name": f"Lack of GPU memory ({suspected.suspicion})",
        "cause": "a program that lacks GPU memory ends with an error of its own, which nobody else sees",
        "remedy": remedy_of(suspected),
        "severity": "",
        "text": in_words(suspected),
        "pci_address": "",
        "device_uuid": suspected.device.uuid,
        "device_id": index_of.get(suspected.device.uuid, ""),
        "mig_instance_id": suspected.device.instance,
        "holders": [holder],
        "pid": None,
        "process": "",
        "container": holder,
    }
