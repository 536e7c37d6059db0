"""The state of a device for users who look for one: used, held but idle, free. Every output uses these words. Pure.

device_row.py decides which of them a device has.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

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
IN_HAND: Final = frozenset({DeviceState.USED, DeviceState.HELD, DeviceState.IDLE})
BROKEN: Final = frozenset({"failing", "gone"})  # verdicts of a device that is of no use to anybody
_COUNTED = (DeviceState.IDLE, DeviceState.FREE, DeviceState.FAILING, DeviceState.OUTSIDE, DeviceState.UNKNOWN)
_RANK = {state: rank for rank, state in enumerate(DeviceState)}


def rfc3339(seconds: float | None) -> str | None:
    """A moment in seconds since 1970 as text, in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def rounded(seconds: int | None) -> str:
    """A time for people: 12 min, 3 h from one hour on, 2 d from two days on; "" below a minute."""
    minutes = (seconds or 0) // 60
    if minutes >= 2 * 24 * 60:
        return f"{minutes // (24 * 60)} d"
    return f"{minutes // 60} h" if minutes >= 60 else f"{minutes} min" if minutes else ""  # noqa: PLR2004 - of an hour


def state_of_device(states: Iterable[DeviceState]) -> DeviceState:
    """The state of a device, from those of its objects."""
    return min(states, key=_RANK.__getitem__)


def counts_of(states: Iterable[DeviceState]) -> Mapping[str, int]:
    """How many devices are held, and how many of them `idle`; and how many are in each other state but CUT."""
    counts = Counter(states)
    return {"held": sum(counts[state] for state in IN_HAND), **{str(state): counts[state] for state in _COUNTED}}
