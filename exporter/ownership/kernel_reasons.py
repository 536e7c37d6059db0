"""What an error in the kernel's log says of how its GPU is, and for how long.

Nothing in the log says that a GPU is well again, but a recovery action that becomes None (XID 154, drivers since R555).
So what makes a GPU failing counts until then, until its counters begin anew (a reset, or the driver was loaded anew),
or for a day: a GPU that has worked for so long was set right in a way that nobody saw. What only degrades it counts for
an hour: an error that does not come back within one was passing. A restart of the machine ends all, with the log.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

from exporter.dcgm.xids import OTHER_XID, XIDS, verdict_of
from exporter.model.health import HealthReason, Verdict
from exporter.model.kernel import DeviceEvent, Severity

FAILING_SECONDS, DEGRADED_SECONDS = 86_400.0, 3_600.0
RECOVERY_CHANGED = 154
_OF_SEVERITY: Mapping[Severity, Verdict] = MappingProxyType({"fatal": "failing", "nonfatal": "degraded"})
_ACTION = re.compile(r" to 0x([0-9a-f]{1,8})\b", re.IGNORECASE)
_GONE = "drain the node and restart it; if it comes back, ask the vendor of the node"
_PCIE = "look at the kernel's log (dmesg | grep AER); if it comes back, have the GPU and its slot looked at"


def is_well_again(device_event: DeviceEvent) -> bool:
    """Whether the driver says that nothing is to be done about the GPU any more."""
    event = device_event.event
    action = _ACTION.search(event.text) if event.code == RECOVERY_CHANGED else None
    return action is not None and not int(action[1], 16)


def reason_of(device_event: DeviceEvent) -> HealthReason | None:
    """Why the GPU is not well by this error; None where it says nothing of that, as one of a program does."""
    event, at = device_event.event, datetime.fromtimestamp(device_event.at_seconds, UTC)
    when = f"{at:%Y-%m-%d %H:%M} UTC"
    if event.kind == "lost":
        return HealthReason(code="fell-off-bus", verdict="gone", text=f"fallen off the bus, {when}", remedy=_GONE)
    if event.kind == "pcie":
        return _reason(
            "pcie", _OF_SEVERITY.get(event.severity, "ok"), f"error of PCI Express ({event.severity}), {when}", _PCIE
        )
    if event.kind != "xid" or event.code is None or is_well_again(device_event):
        return None
    xid, is_recovery = XIDS.get(event.code, OTHER_XID), event.code == RECOVERY_CHANGED
    verdict = verdict_of(event.code, is_fatal=is_recovery or event.severity == "fatal")
    what = event.text if is_recovery else xid.name
    code = "fell-off-bus" if verdict == "gone" else "xid"
    return _reason(code, verdict, f"Xid {event.code} ({what}), {when}", xid.remedy)


def ends_at(device_event: DeviceEvent, verdict: Verdict) -> float:
    """Until when it counts, in seconds since 1970."""
    return device_event.at_seconds + (DEGRADED_SECONDS if verdict == "degraded" else FAILING_SECONDS)


def _reason(code: str, verdict: Verdict, text: str, remedy: str) -> HealthReason | None:
    return None if verdict == "ok" else HealthReason(code=code, verdict=verdict, text=text, remedy=remedy)
