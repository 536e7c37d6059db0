"""A series, worked out once: from the text before a value to everything the join needs to know about it.

From scrape to scrape a page has the same series with new values, so the text before the value is the key of a cache
(the caller's: see layout.py) and this is what it holds.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from exporter.exposition.lines import SampleLine, is_value
from exporter.exposition.text import unescape
from exporter.model import Subject

ReadSubject = Callable[[Mapping[str, str]], Subject]
IsOwnerLabel = Callable[[str], bool]


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One series as it came, cut where labels are added.

    `open` is name and labels as they came, but without the closing brace and without the labels that say who owns the
    device (those are written anew), ready for a label to follow; `bare` is the same closed again.
    `identity` is the same for two series exactly if Prometheus would take them for one, the owner's labels aside.
    `subject` is one object for all series of one device. `le_is_number` and `quantile_is_number`
    are False where a label of that name is no number, which promtool refuses in histograms and summaries.
    """

    name: bytes
    open: bytes
    as_came: bytes  # where closing `open` would not give what came; otherwise b""
    identity: bytes
    subject: Subject
    le_is_number: bool
    quantile_is_number: bool

    @property
    def bare(self) -> bytes:
        """Name and labels, when nobody's labels are added."""
        return self.as_came or self.open.removesuffix(b",") + b"}"


class SeriesReader:
    """Turns valid sample lines into `Series`."""

    def __init__(self, read_subject: ReadSubject, is_owner_label: IsOwnerLabel) -> None:
        """`is_owner_label` knows the labels that say who owns the device, under all their names."""
        self._read_subject = read_subject
        self._is_owner_label = is_owner_label

    def read(self, line: SampleLine, subjects: dict[Subject, Subject]) -> Series:
        """`subjects` makes equal subjects one object, so that what is worked out for a device is found by identity."""
        labels = dict(line.labels)
        subject = self._read_subject({name.decode(): unescape(value) for name, value in line.labels})
        kept = [(name, value) for name, value in line.labels if not self._is_owner_label(name.decode())]
        if len(kept) == len(line.labels):
            before_brace = line.series.removesuffix(b"}").rstrip(b" \t,") if b"{" in line.series else line.series + b"{"
            bare = line.series
        else:
            before_brace = line.name + b"{" + b",".join(b'%b="%b"' % label for label in kept)
            bare = before_brace + b"}" if kept else line.name
        return Series(
            name=line.name,
            open=before_brace + b"," if kept else before_brace,
            as_came=b"" if bare == before_brace + b"}" and kept else bare,
            identity=identity_of(line.name, kept),
            subject=subjects.setdefault(subject, subject),
            le_is_number=is_value(labels.get(b"le", b"0")),
            quantile_is_number=is_value(labels.get(b"quantile", b"0")),
        )


def identity_of(name: bytes, labels: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Name and labels in one order, without the empty ones: Prometheus takes an empty label for an absent one.

    Bytes, since they remember their hash. The byte between the parts is in no valid UTF-8.
    """
    return b"\xff".join([name, *(part for label in sorted(labels) if label[1] for part in label)])
