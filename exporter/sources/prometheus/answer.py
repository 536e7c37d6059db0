"""The body of an answer of Prometheus' HTTP API → its series. Pure, and strict: whoever answers there may be anybody.

https://prometheus.io/docs/prometheus/latest/querying/api/ describes the body. It is read row by row, so that an answer
of 64 MiB holds up nobody and is never in memory as a whole in Python's objects.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from exporter.errors import Malformed
from exporter.model.slices import Work

# Kubernetes' names have at most 253 characters, models and UUIDs fewer; an `up` may have a pod's labels as well.
MOST_TEXT_CHARS = 1024
MOST_LABELS = 128
_MOST_ROW_CHARS = 8 * 1024
# what is not the result: warnings, statistics
_MOST_OTHER_CHARS = 64 * 1024
_MOST_TOLD_CHARS = 200
_ROW_PARTS = 2
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|Inf)|NaN")
_SPACE = re.compile(r"[ \t\r\n]*")
REMEDY = (
    "look at what that address answers to curl: is it Prometheus' HTTP API, and is --cluster.prometheus given with the"
    " prefix that it has (such as /prometheus for Mimir), without /api/v1? Is there a proxy that wants a password?"
)


class Series(NamedTuple):
    """A series at a moment, in seconds since 1970: its labels, the name among them, and the value as it is written."""

    labels: Mapping[str, str]
    at_seconds: float
    value: str


def read_vector(body: bytes, take: Callable[[Series], None]) -> Work[int]:
    """Hand each series of an instant vector to `take`; how many there were. What was taken counts only if this ends.

    Raises:
        Malformed: the body is no such answer, or it is a part of the truth.
    """
    try:
        reader = _Reader(body.decode())
    except UnicodeDecodeError as error:
        raise garbage(f"it is not UTF-8: {error.reason} at byte {error.start}") from error
    said: dict[str, Any] = {}
    count = 0
    reader.expect("{", "it is not a JSON object")
    for name in reader.names():
        if name in said:
            raise garbage(f"{name[:99]!r} is there twice")
        said[name] = None
        if name == "data" and reader.has("{"):
            for part in reader.names():
                if part == "result" and reader.has("["):
                    if "result" in said:
                        raise garbage("there are two results")
                    said["result"] = True
                    for row in reader.values():
                        take(_series(row, count))
                        count += 1
                        yield
                else:
                    said[f"data.{part}"] = reader.value(_MOST_OTHER_CHARS)
        else:
            said[name] = reader.value(_MOST_OTHER_CHARS)
    reader.end()
    _judge(said)
    return count


def _judge(said: Mapping[str, Any]) -> None:
    if said.get("status") != "success":
        raise garbage(f"its status is not success: {short(said.get('error'))}")
    warnings = said.get("warnings")
    if warnings or said.get("isPartial"):
        told = warnings[0] if type(warnings) is list and warnings else warnings
        raise Malformed(
            "truncated",
            "its answer may be a part of the truth, so it counts as none; it warns:"
            f" {short(told or 'the answer is partial')}",
            remedy="look at that server, and at the stores and servers that it asks in its turn (Thanos: /stores)",
        )
    if said.get("data.resultType") != "vector" or "result" not in said:
        raise garbage("it is not an instant vector")


def _series(row: object, number: int) -> Series:
    if type(row) is not dict:
        raise garbage(f"row {number} is not a JSON object")
    labels, value = row.get("metric"), row.get("value")
    if type(labels) is not dict or len(labels) > MOST_LABELS:
        raise garbage(f"row {number} has no labels, or more than {MOST_LABELS}")
    for text in labels.values():
        if type(text) is not str or len(text) > MOST_TEXT_CHARS:
            raise garbage(f"row {number} has a label that is not text, or has more than {MOST_TEXT_CHARS} characters")
        if not text.isascii():
            _refuse_surrogates(text, number)
    if type(value) is not list or len(value) != _ROW_PARTS:
        raise garbage(f"row {number} has no value")
    at, text = value
    # bool is an int, too
    if type(at) not in (int, float) or not 0 <= at < 1e11 or type(text) is not str or not _NUMBER.fullmatch(text):  # noqa: PLR2004 - the year 5138
        raise garbage(f"row {number} has a value that is no number at a moment")
    return Series(labels, float(at), text)


def _refuse_surrogates(text: str, number: int) -> None:
    """Half a character (a lone surrogate, escaped) is JSON that no output may hold: most readers refuse it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise garbage(f"row {number} has half a character in a label") from error


class _Reader:
    """JSON from left to right. Objects and arrays are gone through where they are large, all else is decoded."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def has(self, sign: str) -> bool:
        """Whether this sign comes next; it is then passed."""
        at = self._after_space()
        if self._text[at : at + 1] != sign:
            return False
        self._at = at + 1
        return True

    def expect(self, sign: str, otherwise: str) -> None:
        if not self.has(sign):
            raise garbage(otherwise)

    def names(self) -> Any:  # noqa: ANN401 - a generator of texts, whose user reads the value behind each
        """The names in the object that has begun; whoever goes through them reads the value of each."""
        if self.has("}"):
            return
        while True:
            name = self.value(_MOST_OTHER_CHARS)
            if type(name) is not str:
                raise garbage("a name in an object is not text")
            self.expect(":", "a name in an object has no value")
            yield name
            if self.has("}"):
                return
            self.expect(",", "an object does not end")

    def values(self) -> Any:  # noqa: ANN401 - a generator of whatever JSON can hold
        """The values in the array that has begun."""
        if self.has("]"):
            return
        while True:
            yield self.value(_MOST_ROW_CHARS)
            if self.has("]"):
                return
            self.expect(",", "an array does not end")

    def value(self, most_chars: int) -> Any:  # noqa: ANN401 - whatever JSON can hold
        """What comes next, of at most so many characters."""
        at = self._after_space()
        window = self._text[at : at + most_chars]
        try:
            found, length = _DECODER.raw_decode(window)
        except RecursionError as error:
            raise garbage("it is nested too deeply") from error
        except ValueError as error:
            if len(window) == most_chars and len(self._text) > at + most_chars:
                raise Malformed(
                    "oversize",
                    f"a part of its answer is not JSON, or has more than {most_chars} characters",
                    remedy=REMEDY,
                ) from error
            raise garbage(f"it is not JSON at character {at}") from error
        self._at = at + length
        return found

    def end(self) -> None:
        if self._after_space() != len(self._text):
            raise garbage("there is more after its end")

    def _after_space(self) -> int:
        return _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr] # it matches everywhere


def _no_constants(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constants)


def short(said: object) -> str:
    """What a server says, on one line that is not long."""
    text = " ".join(str(said).split())
    return text if len(text) <= _MOST_TOLD_CHARS else f"{text[:_MOST_TOLD_CHARS]}…"


def garbage(what: str) -> Malformed:
    """An answer that cannot be used, and why."""
    return Malformed("garbage", f"its answer cannot be used: {what}", remedy=REMEDY)
