"""Parts of many objects of Kubernetes: conditions, times, and texts that a status may show. Pure.

Conditions are as in https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md:
the time is that of the last change of `status`; a new reason or message does not change it. A new message that differs
only in durations and times is not written.

Tests: tests/operator/test_exporter_status.py.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from exporter.errors import SourceError, Trouble
from exporter.lenient import AnyObject, mapping, mappings, number, text
from exporter.wording import one_line

_TIME = re.compile(r"\d+(?:\.\d+)? ?(?:ms|s|m|h)\b|\d{4}-\d\d-\d\dT[0-9:.]+Z?")
_NO_LETTER = re.compile(r"[^A-Za-z0-9]+")


def is_going(item: AnyObject) -> bool:
    """Whether an object is being deleted."""
    return bool(mapping(item, "metadata").get("deletionTimestamp"))


def word(text_of: str) -> str:
    """A reason that a condition may have: the letters and digits of a text."""
    return _NO_LETTER.sub("", text_of)[:63].lstrip("0123456789")


class Condition(NamedTuple):
    """A condition: its status (True, False or Unknown), its reason in one CamelCase word, and a sentence for people."""

    status: str
    reason: str
    message: str


def condition(status: AnyObject, kind: str) -> Condition:
    """The first condition of this type in a status; "" for each part that it lacks."""
    row = _row(status, kind)
    return Condition(*(text(row, name) for name in Condition._fields))


def _row(status: AnyObject, kind: str) -> AnyObject:
    return next((row for row in mappings(status, "conditions") if row.get("type") == kind), {})


def moment(item: AnyObject, name: str) -> datetime | None:
    """The time in a field, as Kubernetes writes it (RFC 3339, in UTC); None if there is none."""
    try:
        time = datetime.fromisoformat(text(item, name))
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def steady(before: str, now: str) -> str:
    """The old text, if the new one differs only in durations and times, which always change; else the new one."""
    return before if _TIME.sub("", before) == _TIME.sub("", now) else now


MOST_CHARS = 4096


def base_status(owner: AnyObject, conditions: Mapping[str, Condition], now: datetime) -> dict[str, Any]:
    """The fields that every status has.

    `owner` is the custom resource with its present status; `conditions` are by their types.
    """
    old = mapping(owner, "status")
    generation = number(mapping(owner, "metadata"), "generation") or 0
    rows = []
    for kind, new in conditions.items():
        before = condition(old, kind)
        message = one_line(new.message, MOST_CHARS)
        since = written(now)
        if before.status == new.status:
            row = _row(old, kind)
            if before.reason == new.reason:
                message = steady(before.message, message)
            if moment(row, "lastTransitionTime"):
                since = text(row, "lastTransitionTime")
        rows.append(
            {
                "type": kind,
                "status": new.status,
                "reason": new.reason,
                "message": message,
                "lastTransitionTime": since,
                "observedGeneration": generation,
            }
        )
    return {"observedGeneration": generation, "conditions": rows}


def written(now: datetime) -> str:
    """A time in the form of Kubernetes: RFC 3339, in UTC, whole seconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def in_microseconds(seconds: float) -> str:
    """A moment in the form of MicroTime; `seconds` count from 1970."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def is_same(old: AnyObject, new: Mapping[str, object]) -> bool:
    """Whether a new status says the same as the old one, and so need not be written."""
    return all(old.get(name) == value for name, value in new.items()) and not old.keys() - new.keys()


def as_trouble(error: SourceError) -> Trouble:
    """An error's trouble: the API server refuses a request (then the error has an HTTP status), or does not answer."""
    usual = "Refused" if isinstance(getattr(error, "status", None), int) else "ApiUnavailable"
    reasons = {"permission": "Forbidden", "unauthorized": "Forbidden", "oversize": "TooMany"}
    return replace(error.trouble, reason=reasons.get(error.reason, usual))
