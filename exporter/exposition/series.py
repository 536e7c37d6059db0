"""A series, worked out once: from the text before a value to everything the join needs to know about it.

From scrape to scrape a page has the same series with new values, so the text before the value is the key of a cache
(the caller's: see blocks.py) and this is what it holds.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from exporter.exposition.lines import SampleLine, is_value
from exporter.exposition.text import unescape
from exporter.model.pages import Subject

ReadSubject = Callable[[Mapping[str, str]], Subject]
IsOwnerLabel = Callable[[str], bool]


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """What a series says. Its text is not kept here: a node of 112 instances has thousands of them.

    `identity` is the same for two series exactly if Prometheus would take them for one, the owner's labels aside.
    `subject` is one object for all series of one device. `without_owner`: where labels that say who owns the device
    came with it, name and the other labels, open for those that are written anew; otherwise None. `le_is_number` and
    `quantile_is_number` are False where a label of that name is no number, which promtool refuses in histograms and
    summaries.
    """

    name: bytes
    identity: bytes
    subject: Subject
    without_owner: bytes | None
    le_is_number: bool
    quantile_is_number: bool


@dataclass(frozen=True, slots=True, eq=False)
class Interned:
    """What many series of a page have in common, by itself, so that it is one object.

    Subjects above all: what is worked out for a device is found by identity. Kept for one page, since what upstreams
    say may be long.
    """

    subjects: dict[Subject, Subject]
    texts: dict[str, str] = field(default_factory=dict)
    names: dict[bytes, bytes] = field(default_factory=dict)


class SeriesReader:
    """Turns valid sample lines into `Series`."""

    def __init__(self, read_subject: ReadSubject, is_owner_label: IsOwnerLabel) -> None:
        """`is_owner_label` knows the labels that say who owns the device, under all their names."""
        self._read_subject = read_subject
        self._is_owner_label = is_owner_label

    def read(self, line: SampleLine, interned: Interned) -> Series:
        """The line's series, of parts that `interned` knows where it does."""
        labels = dict(line.labels)
        # a label that only says what the last line's said is not kept twice
        text_of = interned.texts.setdefault
        texts = {name.decode(): unescape(value) for name, value in line.labels}
        subject = self._read_subject({name: text_of(text, text) for name, text in texts.items()})
        kept = [(name, value) for name, value in line.labels if not self._is_owner_label(name.decode())]
        return Series(
            name=interned.names.setdefault(line.name, line.name),
            # 16 bytes for about 250: that two series of a page share them is less likely than a broken processor
            identity=blake2b(identity_of(line.name, kept), digest_size=16).digest(),
            subject=interned.subjects.setdefault(subject, subject),
            without_owner=None if len(kept) == len(line.labels) else opened(line.name, kept),
            le_is_number=is_value(labels.get(b"le", b"0")),
            quantile_is_number=is_value(labels.get(b"quantile", b"0")),
        )


def opened(name: bytes, labels: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Name and labels, ready for another label to follow."""
    return name + b"{" + b"".join(b'%b="%b",' % label for label in labels)


def opened_as_it_came(series: bytes) -> bytes:
    """The same of a series' text, which stays as it is."""
    if not series.endswith(b"}"):
        return series + b"{"
    inside = series[:-1].rstrip(b" \t,")
    return inside if inside.endswith(b"{") else inside + b","


def identity_of(name: bytes, labels: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Name and labels in one order, without the empty ones: Prometheus takes an empty label for an absent one.

    Bytes, since they remember their hash. The byte between the parts is in no valid UTF-8.
    """
    return b"\xff".join([name, *(part for label in sorted(labels) if label[1] for part in label)])
