"""A family of the exporter's own metrics as data (name, type, help, labels and samples), and the writer of its text.

The text is Prometheus' 0.0.4 or, with `is_open`, OpenMetrics 1.0: there HELP and TYPE of a counter lack its `_total`,
and a series `_created` after each counter and histogram says when its count began, in seconds since 1970.

Tests: tests/exposition/test_families.py, tests/outputs/test_openmetrics.py.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from exporter.model.slices import Work

Labels = tuple[tuple[str, str], ...]
# A sample whose texts are already written: the text between the braces, the value, and the moment when its count began
# (seconds since 1970; b"" if that is not known). A gauge has no such moment.
Written = tuple[bytes, bytes, bytes]
_TOTAL = "_total"
_CREATED = "_created"


def escape(value: str) -> bytes:
    r"""A text as a label value, with backslash, quote and newline escaped. No other code escapes label values.

    A NUL becomes U+FFFD, since Prometheus' scraper silently stops reading at it. A character that UTF-8 cannot encode
    becomes a question mark.
    """
    escaped = (
        value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\0", "\N{REPLACEMENT CHARACTER}")
    )
    try:
        return escaped.encode()
    except UnicodeEncodeError:
        return escaped.encode("utf-8", "replace")


def unescape(value: bytes) -> str:
    r"""A label value's text: `\\`, `\"` and `\n` undone. The bytes are valid UTF-8 (lines.py saw to it)."""
    if b"\\" not in value:
        return value.decode()
    parts = value.split(b"\\\\")
    return "\\".join(part.replace(b"\\n", b"\n").replace(b'\\"', b'"').decode() for part in parts)


def render_labels(labels: Labels) -> bytes:
    """The text between the braces, with the labels in the order given; b"" for no labels."""
    return b",".join(b'%b="%b"' % (name.encode(), escape(value)) for name, value in labels)


def render_family(
    name: str,
    kind: str,
    help_text: str,
    label_names: tuple[str, ...],
    samples: Iterable[tuple[tuple[str, ...], float]],
    *,
    began: bytes = b"",
    is_open: bool = False,
) -> bytes:
    """The text of a whole family with HELP and TYPE; b"" if there are no samples.

    `help_text` is one line without backslashes. A sample is one label value for each of `label_names`, and a number; in
    a histogram the suffix of the series' name (`_bucket`, `_count`, `_sum`) stands before the label values. All counts
    began at the same moment.
    """
    if kind == "histogram":
        lines = [
            b"%b%b\n" % (_series_of(name + suffix, label_names[: len(values)], tuple(values)), render_number(value))
            for (suffix, *values), value in samples
        ]
        if is_open and began and lines:
            lines.append(b"%b%b\n" % (_series_of(name + _CREATED, (), ()), began))
    else:
        lines = [b"%b%b\n" % (_series_of(name, label_names, values), render_number(value)) for values, value in samples]
        if is_open and began and kind == "counter":
            created = name.removesuffix(_TOTAL) + _CREATED
            begins = (b"%b%b\n" % (_series_of(created, label_names, values), began) for values, _ in samples)
            lines = [line for pair in zip(lines, begins, strict=True) for line in pair]
    return b"".join((_head(name, kind, help_text, is_open), *lines)) if lines else b""


def render_written(name: str, kind: str, help_text: str, samples: Iterable[Written], *, is_open: bool = False) -> bytes:
    """The text of a whole family of samples that are already written; b"" if there are none."""
    start = name.encode() + b"{"
    if is_open and kind == "counter":
        created = f"{name.removesuffix(_TOTAL)}{_CREATED}{{".encode()
        lines = [
            b"%b%b} %b\n%b%b} %b\n" % (start, labels, value, created, labels, began)
            if began
            else b"%b%b} %b\n" % (start, labels, value)
            for labels, value, began in samples
        ]
    else:
        lines = [b"%b%b} %b\n" % (start, labels, value) for labels, value, _ in samples]
    return b"".join((_head(name, kind, help_text, is_open), *lines)) if lines else b""


# The exporter's own families end the page of every scrape, so their unchanging parts are cached.
@lru_cache(maxsize=256)
def _head(name: str, kind: str, help_text: str, is_open: bool) -> bytes:
    if is_open:
        name = name.removesuffix(_TOTAL) if kind == "counter" else name
        help_text = help_text.replace('"', '\\"')
    return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n".encode()


# Longer series are not cached, since upstreams choose their length: 1,024 cached series are then at most 1 MiB.
_LONGEST_KEPT = 250


def _series_of(name: str, label_names: tuple[str, ...], values: tuple[str, ...]) -> bytes:
    is_short = len(name) + sum(map(len, values)) <= _LONGEST_KEPT
    return (_series if is_short else _series.__wrapped__)(name, label_names, values)


@lru_cache(maxsize=1024)
def _series(name: str, label_names: tuple[str, ...], values: tuple[str, ...]) -> bytes:
    labels = tuple(zip(label_names, values, strict=True))
    return b"%b{%b} " % (name.encode(), render_labels(labels)) if labels else name.encode() + b" "


def render_number(value: float) -> bytes:
    """The text of a sample's value: whole numbers without a point, others as Python's repr (also "nan" and "inf")."""
    return b"%d" % value if value.is_integer() else b"%a" % value


def render_units(amount: int, power: int) -> bytes:
    """The exact text of `amount` (0 or more) in units of 10**-power: 1500 with power 3 is b"1.5"."""
    whole, rest = divmod(amount, 10**power)
    return (b"%d.%0*d" % (whole, power, rest)).rstrip(b"0") if rest else b"%d" % whole


Samples = Sequence[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class Family:
    """One family of the catalogue. A counter's name ends in _total."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Filled:
    """A family with its samples. A sample is a tuple of label values (as many as the family has labels) and a number.

    In a histogram the suffix of the series' name comes first (`_bucket`, `_count`, `_sum`), then the label values. If
    samples are `written`, their labels are those in the text. `began` is when the counts of `samples` began.
    """

    family: Family
    samples: Samples = ()
    written: Sequence[Written] = ()
    began: bytes = b""


def render(families: Iterable[Filled], *, is_open: bool = False) -> bytes:
    """The text of the families, one after the other.

    A family without samples is left out, since the unknown has no series.
    """
    return b"".join([_render(filled.family, filled, is_open=is_open) for filled in families])


def pieces(families: Iterable[Filled], *, is_open: bool = False) -> Work[list[bytes]]:
    """The same text with a piece for each family, and pauses before (the family was just filled) and after it."""
    texts = []
    for filled in families:
        yield
        texts.append(_render(filled.family, filled, is_open=is_open))
        yield
    return texts


def _render(family: Family, filled: Filled, *, is_open: bool) -> bytes:
    head = family.name, family.kind, family.help
    if filled.written:
        return render_written(*head, filled.written, is_open=is_open)
    return render_family(*head, family.labels, filled.samples, began=filled.began, is_open=is_open)
