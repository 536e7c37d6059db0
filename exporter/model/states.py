"""The states of a device: used, held but idle, free and others. Every output uses these words. Pure.

`state_of` in device_row.py decides which state a device has. If that is `unknown`, ownership/explain.py has the reason
in words. A verdict on a device's health, which may be "unknown", too, is something else: see ownership/verdicts.py.

Tests: tests/outputs/test_words.py.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

IDLE_BELOW: Final = 0.05  # --accounting.idle-below of an exporter whose answer lacks it


class DeviceState(StrEnum):
    """The field `state`. A device with several holders has the first of these states that one of its rows has."""

    USED = "used"  # a container holds it, and its activity is not below --accounting.idle-below
    HELD = "held"  # a container holds it; what the container does with it is not known
    IDLE = "idle"  # a container holds it, and its activity is below --accounting.idle-below
    OUTSIDE = "outside"  # no container holds it, but somebody uses it outside Kubernetes: it is active, or has users
    UNKNOWN = "unknown"  # who holds it is not known; `state_reason` says why
    FAILING = "failing"  # no container holds it, and no container should: its verdict (`health`) is failing or gone
    FREE = "free"  # no container holds it
    CUT = "cut"  # it is cut into MIG instances, which are devices of their own


# The states' names in every output for people. They keep clear of two words: "held" means any device that a container
# holds, whatever is known of its use; "failing" is a verdict on a device's health, whoever holds it.
WORDS: Final[Mapping[DeviceState, str]] = {
    **{state: str(state) for state in DeviceState},
    DeviceState.HELD: "use unknown",
    DeviceState.IDLE: "held but idle",
    DeviceState.UNKNOWN: "holder unknown",
    DeviceState.FAILING: "broken",
    DeviceState.OUTSIDE: "used outside Kubernetes",
    DeviceState.CUT: "cut into instances",
}
# A user of a device who takes as many bytes of its memory counts as at work there. A program that has only opened a
# CUDA context (an agent, say) takes some 0.5 GiB.
AT_WORK_BYTES: Final = 2**30
# The meaning of a red ring on the page and of an X in `top`: these verdicts on health, in their own words.
IN_BAD_HEALTH: Final = "degraded, failing or gone"
IN_HAND: Final = frozenset({DeviceState.USED, DeviceState.HELD, DeviceState.IDLE})
BROKEN: Final = frozenset({"failing", "gone"})  # the verdicts on a device that nobody can use
_COUNTED = (DeviceState.IDLE, DeviceState.FREE, DeviceState.FAILING, DeviceState.OUTSIDE, DeviceState.UNKNOWN)
_RANK = {state: rank for rank, state in enumerate(DeviceState)}


def rfc3339(seconds: float | None) -> str | None:
    """The RFC 3339 text, in UTC, of a moment in seconds since 1970; None if there is none."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def rounded(seconds: int | None) -> str:
    """Seconds as a text for people: 12 min, 3 h from one hour on, 2 d from two days on; "" below a minute."""
    minutes = (seconds or 0) // 60
    if minutes >= 2 * 24 * 60:
        return f"{minutes // (24 * 60)} d"
    if minutes >= 60:  # noqa: PLR2004 - of an hour
        return f"{minutes // 60} h"
    return f"{minutes} min" if minutes else ""


def state_of_device(states: Iterable[DeviceState]) -> DeviceState:
    """The state of a device, from the states of its rows."""
    return min(states, key=_RANK.__getitem__)


def counts_of(states: Iterable[DeviceState]) -> Mapping[str, int]:
    """The numbers of devices that are held, idle (held devices, too), free, failing, outside and unknown."""
    counts = Counter(states)
    return {"held": sum(counts[state] for state in IN_HAND), **{str(state): counts[state] for state in _COUNTED}}
