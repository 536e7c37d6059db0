"""The body of an answer of Prometheus' HTTP API → its series. Pure, and strict: any program may answer there.

https://prometheus.io/docs/prometheus/latest/querying/api/ describes the body. It is read row by row, so that an answer
of 64 MiB does not block the event loop, and is never turned into Python's objects as a whole.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from exporter.errors import Malformed
from exporter.lenient import AnyObject
from exporter.model.slices import Work
from exporter.sources import json_text
from exporter.sources.json_text import JsonText
from exporter.wording import one_line

# Kubernetes' names have at most 253 characters, models and UUIDs fewer; an `up` may have a pod's labels as well.
MOST_TEXT_CHARS = 1024
MOST_LABELS = 128
_MOST_ROW_CHARS = 8 * 1024
_MOST_TOLD_CHARS = 200
_ROW_PARTS = 2
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|Inf)|NaN")
REMEDY = (
    "look at what that address answers to curl: is it Prometheus' HTTP API, and is --cluster.prometheus given with the"
    " prefix that it has (such as /prometheus for Mimir), without /api/v1? Is there a proxy that wants a password?"
)
garbage = partial(json_text.garbage, remedy=REMEDY)


class VectorSeries(NamedTuple):
    """A series at a moment, in seconds since 1970: its labels, including its name, and the value as text."""

    labels: Mapping[str, str]
    at_seconds: float
    value: str


def read_vector(body: bytes, take: Callable[[VectorSeries], None]) -> Work[int]:
    """Call `take` with each series of an instant vector. Return their number.

    The series count only after this has ended without an error.

    Raises:
        Malformed: the body is no such answer, or is incomplete by its own words.
    """
    text = JsonText(body, REMEDY)
    members: dict[str, Any] = {}
    count = 0
    text.expect("{", "it is not a JSON object")
    for name in text.names():
        if name in members:
            raise garbage(f"{name[:99]!r} is there twice")
        members[name] = None
        if name == "data" and text.has("{"):
            for part in text.names():
                if part == "result" and text.has("["):
                    if "result" in members:
                        raise garbage("there are two results")
                    members["result"] = True
                    for row in text.objects(_MOST_ROW_CHARS, "row"):
                        take(_series(row, count))
                        count += 1
                        yield
                else:
                    members[f"data.{part}"] = text.value()
        else:
            members[name] = text.value()
    text.end()
    _judge(members)
    return count


def _judge(members: AnyObject) -> None:
    if members.get("status") != "success":
        raise garbage(f"its status is not success: {one_line(members.get('error'), _MOST_TOLD_CHARS)}")
    warnings = members.get("warnings")
    if warnings or members.get("isPartial"):
        first = warnings[0] if type(warnings) is list and warnings else warnings
        raise Malformed(
            "truncated",
            "its answer may be incomplete, so it does not count; it warns:"
            f" {one_line(first or 'the answer is partial', _MOST_TOLD_CHARS)}",
            remedy="look at that server, and at the stores and servers that it asks in its turn (Thanos: /stores)",
        )
    if members.get("data.resultType") != "vector" or "result" not in members:
        raise garbage("it is not an instant vector")


def _series(row: AnyObject, number: int) -> VectorSeries:
    """A series of the answer's row with this number. Raises Malformed: it is no series with one value."""
    labels = row.get("metric")
    value = row.get("value")
    if type(labels) is not dict or len(labels) > MOST_LABELS:
        raise garbage(f"row {number} has no labels, or more than {MOST_LABELS}")
    for text in labels.values():
        if type(text) is not str or len(text) > MOST_TEXT_CHARS:
            raise garbage(f"row {number} has a label that is not text, or has more than {MOST_TEXT_CHARS} characters")
    if type(value) is not list or len(value) != _ROW_PARTS:
        raise garbage(f"row {number} has no value")
    at, text = value
    # bool is an int, too
    if type(at) not in (int, float) or not 0 <= at < 1e11 or type(text) is not str or not _NUMBER.fullmatch(text):  # noqa: PLR2004 - the year 5138
        raise garbage(f"row {number} has a value that is no number at a moment")
    return VectorSeries(labels, float(at), text)
