"""Writing the text format: label values, label lists, and whole families of the exporter's own."""

from collections.abc import Iterable
from functools import lru_cache

Labels = tuple[tuple[str, str], ...]
# A sample of which the text between the braces and that of the value are written already.
Written = tuple[bytes, bytes]


def escape(value: str) -> bytes:
    r"""A text as a label value: backslash, quote and newline escaped. No other code escapes label values.

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
) -> bytes:
    """A whole family with HELP and TYPE; b"" where there are no samples.

    `help_text` is one line without backslashes. A sample is one label value for each of `label_names`, and a number; in
    a histogram the suffix of the series' name (`_bucket`, `_count`, `_sum`) stands before the label values.
    """
    if kind == "histogram":
        lines = [
            b"%b%b\n" % (_series_of(name + suffix, label_names[: len(values)], tuple(values)), render_number(value))
            for (suffix, *values), value in samples
        ]
        return b"".join((_head(name, kind, help_text), *lines)) if lines else b""
    lines = [b"%b%b\n" % (_series_of(name, label_names, values), render_number(value)) for values, value in samples]
    return b"".join((_head(name, kind, help_text), *lines)) if lines else b""


def render_written(name: str, kind: str, help_text: str, samples: Iterable[Written]) -> bytes:
    """A whole family of samples that are written already; b"" where there are none."""
    start = name.encode() + b"{"
    lines = [b"%b%b} %b\n" % (start, labels, value) for labels, value in samples]
    return b"".join((_head(name, kind, help_text), *lines)) if lines else b""


# The exporter's own families end the page of every scrape, so the parts of them that do not change are cached.
@lru_cache(maxsize=256)
def _head(name: str, kind: str, help_text: str) -> bytes:
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
    """A sample's value: whole numbers without a point, others as Python's repr ("nan" and "inf" included)."""
    return b"%d" % value if value.is_integer() else b"%a" % value


def render_units(amount: int, power: int) -> bytes:
    """`amount` (0 or more) in units of 10**-power, exactly: 1500 with power 3 is b"1.5"."""
    whole, rest = divmod(amount, 10**power)
    return b"%d.%b" % (whole, (b"%0*d" % (power, rest)).rstrip(b"0")) if rest else b"%d" % whole
