"""Ends of containers that may have lacked GPU memory, in words. Pure; accounts/out_of_memory.py judges them."""

from datetime import UTC, datetime

from exporter.accounts.out_of_memory import FULL
from exporter.model.accounts import SuspectedOutOfMemory, Suspicion
from exporter.model.snapshot import Snapshot
from exporter.wording import and_listed, counted

_MIB_A_GIB = 1024
_NS_A_SECOND = 1_000_000_000
_MOST_NAMED = 3


def suspicions_of(snapshot: Snapshot) -> tuple[SuspectedOutOfMemory, ...]:
    """The suspicions, the newest first; none if no accounts are kept, or the output did not ask for them."""
    return snapshot.accounts.suspicions if snapshot.accounts is not None else ()


def in_words(suspected: SuspectedOutOfMemory) -> str:
    """The end, what was seen before it, and how much speaks for a lack of memory, in one sentence."""
    ended = datetime.fromtimestamp(suspected.ended_at_seconds, UTC)
    end = f"its container {suspected.owner.container} ended with exit code {suspected.exit_code} at {ended:%H:%M} UTC"
    seconds = round(suspected.seen_before_ns / _NS_A_SECOND)
    when = f"{seconds} s after" if seconds else "just after"
    return f"{end}, {when} {_memory(suspected)}: {_verdict(suspected)}"


def _memory(suspected: SuspectedOutOfMemory) -> str:
    """What a look saw of the memory: `its GPU's memory was full (79.2 of 79.6 GiB, 71.0 of them of ml/other)`."""
    whose = "its MIG instance's memory" if suspected.device.instance else "its GPU's memory"
    amounts = f"{_gib(suspected.used_mib)} of {_gib(suspected.all_mib)} GiB"
    if suspected.neighbour is not None:
        pod = f"{suspected.neighbour.namespace}/{suspected.neighbour.pod}"
        amounts += f", {_gib(suspected.neighbour_mib)} of them held by the pod {pod}"
    if suspected.more_devices:
        amounts += f"; {suspected.more_devices} more of its devices looked the same"
    if suspected.ratio >= FULL:
        return f"{whose} was full ({amounts})"
    return f"a look at {whose} ({amounts})"


def _gib(mib: float) -> str:
    return f"{mib / _MIB_A_GIB:.1f}"


def _verdict(suspected: SuspectedOutOfMemory) -> str:
    if suspected.suspicion is Suspicion.LIKELY:
        failed = counted(suspected.failed_allocations, "allocation")
        return f"{failed} of it had failed, so a lack of GPU memory is likely"
    if suspected.suspicion is Suspicion.SUSPECTED:
        return "a lack of GPU memory is suspected"
    if suspected.xids:
        xids = and_listed([f"Xid {xid}" for xid in suspected.xids], _MOST_NAMED)
        return f"a lack of GPU memory is possible; {xids} at the same time may be the cause, or follow from it"
    if suspected.ratio < FULL:
        return "a lack of GPU memory is possible, since others left little of it"
    return "a lack of GPU memory is possible, but the memory may have been as full for a long time"


def remedy_of(suspected: SuspectedOutOfMemory) -> str:
    """What to do."""
    pod = f"{suspected.owner.pod} -n {suspected.owner.namespace} -c {suspected.owner.container}"
    look = f"look for 'out of memory' in its log (kubectl logs --previous {pod})"
    if suspected.neighbour is not None:
        return f"{look}; if it says so, limit what the neighbour takes, or give each a GPU or a MIG instance of its own"
    return f"{look}; if it says so, let it take less at a time, or give it a device with more memory"
