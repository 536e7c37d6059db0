"""What an error in the kernel's log says of how its GPU is, and for how long.

Nothing there says that a GPU is well again, but a recovery action that becomes None (XID 154, drivers since R555). What
makes a GPU failing counts until then, until its counters begin anew, or for a day: then it was set right unseen.
What only degrades it counts for an hour. A restart of the machine ends all, with the log.
"""

import re
from datetime import UTC, datetime

from exporter.dcgm.xids import OTHER_XID, XIDS, verdict_of
from exporter.model.health import HealthReason
from exporter.model.kernel import DeviceEvent

FAILING_SECONDS, DEGRADED_SECONDS = 86_400.0, 3_600.0
RECOVERY_CHANGED, MOST_STANDING = 154, 256
_ACTION = re.compile(r" to 0x([0-9a-f]{1,8})\b", re.IGNORECASE)
_SLOT = "look at the kernel's log (dmesg | grep AER); if it comes back, have the GPU and its slot looked at"
OF_KIND = {
    ("lost", ""): HealthReason("fell-off-bus", "gone", "fallen off the bus", XIDS[79].remedy),
    ("pcie", "fatal"): HealthReason("pcie", "failing", "fatal error of PCI Express", _SLOT),
    ("pcie", "nonfatal"): HealthReason("pcie", "degraded", "error of PCI Express", _SLOT),
}


def is_well_again(device_event: DeviceEvent) -> bool:
    """Whether the driver says that nothing is to be done about the GPU any more."""
    event = device_event.event
    action = _ACTION.search(event.text) if event.code == RECOVERY_CHANGED else None
    return action is not None and not int(action[1], 16)


def reason_of(device_event: DeviceEvent) -> HealthReason | None:
    """Why the GPU is not well by this error; None where it says nothing of that, as one of a program does."""
    event, reason = device_event.event, None
    if event.kind != "xid":
        reason = OF_KIND.get((event.kind, event.severity))
    elif event.code is not None and not is_well_again(device_event):
        xid, is_recovery = XIDS.get(event.code, OTHER_XID), event.code == RECOVERY_CHANGED
        verdict = verdict_of(event.code, is_fatal=is_recovery or event.severity == "fatal")
        text = f"Xid {event.code} ({event.text if is_recovery else xid.name})"
        reason = HealthReason("fell-off-bus" if verdict == "gone" else "xid", verdict, text, xid.remedy)
    if reason is None or reason.verdict == "ok":
        return None
    return reason._replace(text=f"{reason.text}, {datetime.fromtimestamp(device_event.at_seconds, UTC):%F %H:%M} UTC")


def still_standing(standing: tuple[DeviceEvent, ...], new: DeviceEvent) -> tuple[DeviceEvent, ...]:
    """Which errors say how GPUs are after a new one: the last of each number, none of a GPU that is well again."""
    if new.uuid and is_well_again(new):
        return tuple(each for each in standing if each.uuid != new.uuid)
    others = (each for each in standing if each.uuid != new.uuid or _number(each) != _number(new))
    return (*others, new)[-MOST_STANDING:] if new.uuid and reason_of(new) else standing


def _number(device_event: DeviceEvent) -> tuple[object, ...]:
    return device_event.event.kind, device_event.event.code, device_event.event.instance


def ends_at(device_event: DeviceEvent, reason: HealthReason) -> float:
    """Until when it counts, in seconds since 1970."""
    return device_event.at_seconds + (DEGRADED_SECONDS if reason.verdict == "degraded" else FAILING_SECONDS)
