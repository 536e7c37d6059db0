"""The state of a device for users who look for one: used, held but idle, free. Every output uses these words. Pure.

The functions take an untrusted object of /container/metrics, a device and its holder: fields may be missing or odd.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from exporter.lenient import finite, mapping

Object = Mapping[str, Any]

IDLE_BELOW: Final = 0.05  # --accounting.idle-below of an exporter that does not say it


class DeviceState(StrEnum):
    """The field `state`. Of a device with several holders the first of these that one of its objects has counts."""

    USED = "used"  # a container holds it, and its activity is not below --accounting.idle-below
    HELD = "held"  # a container holds it; what the container does with it is not known
    IDLE = "idle"  # a container holds it, and its activity is below --accounting.idle-below
    OUTSIDE = "outside"  # no container holds it, and it is active, or in use: somebody uses it outside Kubernetes
    UNKNOWN = "unknown"  # who holds it is not known; `state_reason` says why
    FAILING = "failing"  # no container holds it, and none should: its verdict (`health`) is failing or gone
    FREE = "free"  # no container holds it
    CUT = "cut"  # it is cut into MIG instances, which are devices of their own


# What every output that people read calls them. "held" alone is each that a container holds, whatever is known of its
# use; "failing" is a verdict on a device's health, whoever holds it.
WORDS: Final[Mapping[DeviceState, str]] = {
    **{state: str(state) for state in DeviceState},
    DeviceState.HELD: "use unknown",
    DeviceState.IDLE: "held but idle",
    DeviceState.UNKNOWN: "holder unknown",
    DeviceState.FAILING: "broken",
    DeviceState.OUTSIDE: "used outside Kubernetes",
    DeviceState.CUT: "cut into instances",
}
# What somebody takes of a device before they count as at work there, in bytes: who has only opened a CUDA context (an
# agent, say) takes some 0.5 GiB.
AT_WORK_BYTES: Final = 2**30
# What a red ring, or an X of `top`, means: verdicts on health, which stand as they are.
IN_BAD_HEALTH: Final = "degraded, failing or gone"
_MOST_USERS = 3
_MOST_CHARS = 60  # of a command
IN_HAND: Final = frozenset({DeviceState.USED, DeviceState.HELD, DeviceState.IDLE})
BROKEN: Final = frozenset({"failing", "gone"})  # verdicts of a device that is of no use to anybody
_COUNTED = (DeviceState.IDLE, DeviceState.FREE, DeviceState.FAILING, DeviceState.OUTSIDE, DeviceState.UNKNOWN)
_RANK = {state: rank for rank, state in enumerate(DeviceState)}


def activity(row: Object) -> float | None:
    """How busy the holder keeps the device (0 to 1): as measured, else the device's GR_ENGINE_ACTIVE or GPU_UTIL."""
    ratio = finite(mapping(row, "measured"), "utilization_ratio")
    if ratio is None:
        ratio = finite(row, "graphics_engine_active")
    percent = finite(row, "gpu_utilization")
    return percent / 100 if ratio is None and percent is not None else ratio


def rfc3339(seconds: float | None) -> str | None:
    """A moment in seconds since 1970 as text, in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_before(row: Object) -> bool:
    """Whether the values were read before the present holder got the device, or the last one gave it back."""
    since, read_at = row.get("holder_since"), row.get("read_at")
    # both are RFC 3339 in UTC with milliseconds, which sort as texts do
    return isinstance(since, str) and isinstance(read_at, str) and since >= read_at


def idle_seconds(row: Object) -> int | None:
    """For how long the holder had not used the device when the object was made; None while it does, or not known."""
    try:
        since, now = (datetime.fromisoformat(row[name]) for name in ("idle_since", "timestamp"))
        return max(0, int((now - since).total_seconds()))
    except (KeyError, TypeError, ValueError):  # none, or an older exporter's
        return None


def rounded(seconds: int | None) -> str:
    """A time for people: 12 min, 3 h from one hour on, 2 d from two days on; "" below a minute."""
    minutes = (seconds or 0) // 60
    if minutes >= 2 * 24 * 60:
        return f"{minutes // (24 * 60)} d"
    return f"{minutes // 60} h" if minutes >= 60 else f"{minutes} min" if minutes else ""  # noqa: PLR2004 - of an hour


def state_of(row: Object, *, idle_below: float = IDLE_BELOW, why_unknown: str = "") -> DeviceState:
    """The state of the device for this holder. `why_unknown`: a row without holder may have one, for this reason."""
    if row.get("entity") == "mig-parent":
        return DeviceState.CUT
    busy = None if is_before(row) else activity(row)
    # with --sharing device the one object of several holders names none of them
    if row.get("pod") or row.get("gpu_shared") is True:
        if busy is None:
            return DeviceState.HELD
        return DeviceState.IDLE if busy < idle_below else DeviceState.USED
    if why_unknown:
        return DeviceState.UNKNOWN
    is_used = any(is_at_work(each, idle_below) for each in users(row))
    if is_used or (busy or 0) >= idle_below:
        return DeviceState.OUTSIDE
    return DeviceState.FAILING if row.get("health") in BROKEN else DeviceState.FREE


def users(row: Object) -> Sequence[Object]:
    """Those that use the device and do not hold it: the objects of `used_by`."""
    of_row = row.get("used_by")
    return [each for each in of_row if isinstance(each, Mapping)] if isinstance(of_row, list) else []


def is_at_work(user: Object, idle_below: float = IDLE_BELOW) -> bool:
    """Whether one of `used_by` does more on the device than keep a context open."""
    memory_bytes, ratio = (finite(user, name) or 0.0 for name in ("memory_used_bytes", "utilization_ratio"))
    return memory_bytes >= AT_WORK_BYTES or ratio >= idle_below


def user_name(user: Object) -> str:
    """The pod as kubectl writes it, else the container's engine and the first part of its id, else the command."""
    if user.get("pod"):
        return f"{user.get('namespace', '')}/{user['pod']}"
    if user.get("id"):
        return f"{user.get('engine') or 'container'} {str(user['id'])[:12]}"
    return str(user.get("command", ""))[:_MOST_CHARS]


def used_by(row: Object) -> str:
    """In words, who uses the device and does not hold it; "" for nobody."""
    names = [*dict.fromkeys(filter(None, map(user_name, users(row))))]
    some = names[:_MOST_USERS] if len(names) <= _MOST_USERS else [*names[: _MOST_USERS - 1], f"{len(names) - 2} others"]
    does = "does" if len(names) == 1 else "do"
    return f"used by {' and '.join(some)}, which {does} not hold it" if some else ""


def last_xid(row: Object) -> tuple[int | None, bool]:
    """The last XID of the device, None where none is known, and whether it is a reason of `health`."""
    xid, reasons = row.get("last_xid"), row.get("health_reasons")
    if not isinstance(xid, int):
        return None, False
    return xid, isinstance(reasons, list) and any(f"{each}".startswith(f"Xid {xid} ") for each in reasons)


def stated(row: Object) -> DeviceState:
    """The object's own state, or the one that follows from it where an older exporter gives none."""
    try:
        return DeviceState(row.get("state", ""))
    except ValueError:
        return state_of(row)


def state_of_device(states: Iterable[DeviceState]) -> DeviceState:
    """The state of a device, from those of its objects."""
    return min(states, key=_RANK.__getitem__)


def counts_of(states: Iterable[DeviceState]) -> Mapping[str, int]:
    """How many devices are held, and how many of them `idle`; and how many are in each other state but CUT."""
    counts = Counter(states)
    return {"held": sum(counts[state] for state in IN_HAND), **{str(state): counts[state] for state in _COUNTED}}
