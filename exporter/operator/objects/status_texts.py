"""Texts, numbers and times in what others write into the API, as a status may show them. Pure."""

import re
from datetime import UTC, datetime

from exporter.operator.objects.parts import one_line

MOST_CHARS = 1024
_MOST_TIME_CHARS = 40
_MOST_COUNT = 2**31 - 1
# How Go prints the selector of a metric: it says what is in the ScaledObject's name anyway.
_SELECTOR = re.compile(
    r"[(/]&LabelSelector\{MatchLabels:map\[string\]string\{[^{}]{0,400}\},"
    r"MatchExpressions:\[\](?:LabelSelectorRequirement\{\})?,?\}\)?"
)
# grpc's errors, one in the other: the last one is the peer's own words
_GRPC = re.compile(r"(?:rpc error: )?code = [A-Za-z]{1,32} desc = ")


def clean(value: object) -> str:
    """A text on one line, of at most MOST_CHARS characters; "" where it is none."""
    if not isinstance(value, str):
        return ""
    return one_line(_SELECTOR.sub("", value[: 4 * MOST_CHARS]), MOST_CHARS)


def innermost(text: str) -> str:
    """What the peer at the other end said, of an error that was handed on over grpc."""
    return _GRPC.split(text)[-1].strip()


def count_of(value: object) -> int | None:
    """A number of pods; None where it is none."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_COUNT
    return value if is_count else None  # type: ignore[return-value]


def time_of(value: object) -> datetime | None:
    """A time as Kubernetes writes it, to the second; None where it is none."""
    if not isinstance(value, str) or len(value) > _MOST_TIME_CHARS:
        return None
    try:
        found = datetime.fromisoformat(value)
        return found.astimezone(UTC).replace(microsecond=0) if found.tzinfo else None
    except (ValueError, OverflowError):
        return None
