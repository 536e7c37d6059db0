r"""The reader of a line of the Prometheus text format, version 0.0.4.

The grammar is what two readers both accept, Prometheus' scraper and promtool's, since the whole page must pass both. If
they differ (measured on 2.42), the stricter reader decides:

- Prometheus alone fails on blanks before a name, on `TYPE x  gauge` and `TYPE x Gauge`, on signed timestamps, and
  silently stops reading at a NUL byte.
- promtool alone fails on blanks after a value, on escapes other than `\\`, `\"` and `\n`, on labels without a comma
  between them, on a second HELP or TYPE, and reads `#HELP` (no blank) as metadata.

A line that differs only in blanks is mended. Any other bad line is rejected, since a line is worth less than its page.
This module also rejects lines longer than any exporter writes, samples with more labels than any exporter's, and label
names that begin with two underscores. Prometheus keeps these names for itself, and node-exporter panics when its
textfile collector meets one.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import isinf


class Reason(StrEnum):
    """The reasons why a line, or a part of it, did not go out: the values of `rejected_lines_total{reason}`."""

    SYNTAX = "syntax"
    VALUE = "value"
    DUPLICATE_LABEL = "duplicate_label"
    UTF8_NAME = "utf8_name"
    EXEMPLAR = "exemplar"
    LATE_METADATA = "late_metadata"
    DUPLICATE = "duplicate"
    RESERVED_NAME = "reserved_name"


@dataclass(frozen=True, slots=True)
class SampleLine:
    """A valid sample. All parts are the bytes as they came; label values are still escaped."""

    series: bytes  # name and labels, with the closing brace
    name: bytes
    labels: tuple[tuple[bytes, bytes], ...]
    gap: bytes  # the blanks between series and value
    value: bytes
    timestamp: bytes  # with the blanks before it; b"" if there is none
    had_exemplar: bool


@dataclass(frozen=True, slots=True)
class MetadataLine:
    """A HELP or TYPE line. `line` is the mended line, as it goes out."""

    keyword: bytes
    name: bytes
    text: bytes
    line: bytes


@dataclass(frozen=True, slots=True)
class PassedLine:
    """A comment or a blank line, which goes out as it came."""

    line: bytes


Line = SampleLine | MetadataLine | PassedLine | Reason

# These two limits bound the cost of a line. dcgm-exporter's lines have 300 bytes and 12 labels; with pod labels they
# may have 2 KB and 50 labels.
LONGEST_LINE = 64 * 1024
MOST_LABELS = 128
# Prometheus keeps label names with this prefix for itself.
_RESERVED_LABEL = b"__"

TYPES = frozenset({b"counter", b"gauge", b"histogram", b"summary", b"untyped"})

# At every point of these patterns the next character decides, so that a line that does not match fails in linear time.
# Possessive quantifiers would ensure the same, but they match wrongly around groups in Debian 12's Python 3.11.2.
_NAME = rb"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = rb'([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"([^"\\]*)"'
# Escapes are replaced before a line is matched, since a group for them, repeated inside a value, would cost 80 bytes of
# the matcher's memory for each. The replacement is as long as an escape, and is valid only inside a value.
_HIDDEN = b"\x01\x01"
_ONE_LABEL = re.compile(_LABEL)
_ANY_LABEL = re.sub(rb"\((?!\?)", b"(?:", _LABEL) + rb"[ \t]*"  # the same without groups, for repetition
_SERIES = re.compile(
    rb"(" + _NAME + rb")(?:[ \t]*(\{[ \t]*(?:" + _ANY_LABEL + rb"(?:,[ \t]*" + _ANY_LABEL + rb")*(?:,[ \t]*)?)?\}))?"
)
# A quoted text in the place of a name. Prometheus 3 may quote names of metrics and labels: {"my.name", "my.label"="x"}.
_QUOTED = rb'"[^"]*"'
_QUOTED_NAME = re.compile(
    rb"(?:"
    + _NAME
    + rb")?[ \t]*\{[ \t]*(?:[a-zA-Z_][a-zA-Z0-9_]*[ \t]*=[ \t]*"
    + _QUOTED
    + rb"[ \t]*,[ \t]*)*"
    + _QUOTED,
    re.DOTALL,
)
_AFTER_SERIES = re.compile(rb"([ \t]*)([^ \t]+)(?:([ \t]+)([^ \t]+))?(.*)", re.DOTALL)
_METADATA = re.compile(rb"[ \t]*#[ \t]*(HELP|TYPE)[ \t]+([^ \t]+)(?:[ \t]+(.*))?", re.DOTALL)
_WHOLE_NAME = re.compile(_NAME)
# The numbers that Go's ParseFloat accepts, except the hexadecimal and underscored forms, which both readers refuse.
_NUMBER = re.compile(
    rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|infinity)|nan", re.IGNORECASE
)
_MAX_TIMESTAMP = 2**63 - 1
_MAX_TIMESTAMP_DIGITS = 19


def is_value(text: bytes) -> bool:
    """Whether both readers accept `text` as a sample's value. Both refuse a decimal too large for a float64."""
    if not _NUMBER.fullmatch(text):
        return False
    return not isinf(float(text)) or text.lstrip(b"+-")[:1] in b"iI"


def split_lines(body: bytes) -> list[bytes]:
    """The lines of a page, without their newlines. The last line may lack its newline."""
    lines = body.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def read_line(line: bytes, *, is_limited: bool = True) -> Line:
    """Read a line without its newline. With `is_limited`, a line beyond LONGEST_LINE or MOST_LABELS is rejected."""
    if is_limited and len(line) > LONGEST_LINE:
        return Reason.SYNTAX
    line = line.rstrip(b"\r")
    if b"\0" in line or not _is_utf8(line):
        return Reason.SYNTAX
    start = line.lstrip(b" \t")
    if not start:
        return PassedLine(line)
    if start.startswith(b"#"):
        return _read_comment(line)
    sample = _read_sample(start.rstrip(b" \t"))
    if is_limited and isinstance(sample, SampleLine) and len(sample.labels) > MOST_LABELS:
        return Reason.SYNTAX
    return sample


def _is_utf8(line: bytes) -> bool:
    if line.isascii():
        return True
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read_comment(line: bytes) -> Line:
    """Read a line that begins with #: HELP and TYPE are metadata, any other comment passes."""
    metadata = _METADATA.fullmatch(line)
    if metadata is None:
        # an incomplete HELP or TYPE is a comment to Prometheus and promtool, but an error to prometheus_client
        words = line.decode().lstrip(" \t#").split()
        return Reason.SYNTAX if words and words[0] in ("HELP", "TYPE") else PassedLine(line)
    keyword = metadata[1]
    name = metadata[2]
    text = metadata[3] or b""
    if not _WHOLE_NAME.fullmatch(name):
        return Reason.SYNTAX
    if keyword == b"TYPE":
        text = text.strip(b" \t").lower()
        if text not in TYPES:
            return Reason.SYNTAX
        return MetadataLine(keyword, name, text, b"# TYPE %b %b" % (name, text))
    if b"\\" in text.replace(rb"\\", b"").replace(rb"\n", b""):
        return Reason.SYNTAX
    as_it_came = line if line.startswith(b"# HELP ") else b"# HELP %b %b" % (name, text)
    return MetadataLine(keyword, name, text, as_it_came)


def _read_sample(line: bytes) -> SampleLine | Reason:
    """Read a sample's line without blanks at either end. An exemplar is cut off, and `had_exemplar` says so."""
    hidden = _hide_escapes(line) if b"\\" in line else line
    series = _SERIES.match(hidden)
    if series is None:
        return _why_no_series(hidden)
    has_braces = series[2] is not None
    if not has_braces and line[series.end() :].lstrip(b" \t").startswith(b"{"):
        return _why_no_series(hidden)
    labels = _labels(line, hidden, *series.span(2)) if series[2] else ()
    names = {name for name, _ in labels}
    if len(names) < len(labels):
        return Reason.DUPLICATE_LABEL
    if _has_reserved(names):
        return Reason.RESERVED_NAME
    after = _AFTER_SERIES.fullmatch(line, series.end())
    if after is None or b"__name__" in names or not (has_braces or after[1]):
        return Reason.SYNTAX
    gap, value, *_ = after.groups()
    if not is_value(value):
        return Reason.VALUE
    behind = _behind_value(after)
    if behind is None:
        return Reason.SYNTAX
    timestamp, had_exemplar = behind
    return SampleLine(line[: series.end()], series[1], labels, gap, value, timestamp, had_exemplar=had_exemplar)


def _has_reserved(names: Iterable[bytes]) -> bool:
    """Whether Prometheus keeps one of these names for itself. `__name__` is answered as an error of syntax."""
    return any(name.startswith(_RESERVED_LABEL) and name != b"__name__" for name in names)


def _why_no_series(hidden: bytes) -> Reason:
    return Reason.UTF8_NAME if _QUOTED_NAME.match(hidden) else Reason.SYNTAX


def _behind_value(after: re.Match[bytes]) -> tuple[bytes, bool] | None:
    """The timestamp with the gap before it (b"" for none), and whether there is an exemplar; None: neither is there."""
    _, _, gap, word, rest = after.groups()
    if word is None:
        return b"", False
    if word.startswith(b"#"):
        return b"", True
    if not _is_timestamp(word):
        return None
    exemplar = rest.lstrip(b" \t")
    if exemplar and not exemplar.startswith(b"#"):
        return None
    return gap + word, bool(exemplar)


def _hide_escapes(line: bytes) -> bytes:
    r"""The line with `\\`, `\"` and `\n` replaced, in this order: a pair of backslashes escapes nothing after it."""
    return line.replace(rb"\\", _HIDDEN).replace(rb"\"", _HIDDEN).replace(rb"\n", _HIDDEN)


def _labels(line: bytes, hidden: bytes, start: int, end: int) -> tuple[tuple[bytes, bytes], ...]:
    """The labels between two braces, with their values as they came."""
    if hidden is line:
        return tuple(_ONE_LABEL.findall(line, start, end))
    return tuple((label[1], line[slice(*label.span(2))]) for label in _ONE_LABEL.finditer(hidden, start, end))


def _is_timestamp(text: bytes) -> bool:
    # bytes.isdigit accepts only ASCII; the length is checked first, so that a long line never becomes a huge number
    digits = text.lstrip(b"0") or b"0"
    return text.isdigit() and len(digits) <= _MAX_TIMESTAMP_DIGITS and int(digits) <= _MAX_TIMESTAMP
