"""A series: all that the join must know of it, worked out once from the text before the value.

From scrape to scrape a page has the same series with new values. So callers (shape_reader.py) keep a cache of `Series`,
and the text before the value is its key.

Tests: tests/exposition/test_join.py.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from exporter.dcgm.fields import OWN_LABELS
from exporter.exposition.families import unescape
from exporter.exposition.lines import SampleLine, is_value
from exporter.exposition.renaming import AS_IT_CAME, Renamed, Renaming, Texts
from exporter.model.devices import DeviceKey
from exporter.model.pages import UNREAD, UNREAD_OWNED, Subject

# The most devices of an upstream's page, counted once for each owner that the page itself names: 16 GPUs with 7
# instances each and 8 owners are 896. Samples of further devices go out as they came.
MOST_DEVICES = 1_024
_NO_DEVICE = DeviceKey(uuid="")
ReadSubject = Callable[[Mapping[str, str]], Subject]
IsOwnerLabel = Callable[[str], bool]


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """The facts of a series. Its text is not kept, since a node of 112 instances has thousands of series.

    `identity` is equal for two series exactly if Prometheus would take them for the same series, without owner labels.
    `subject` is the same object for all series of a device. `without_owner` is None if the series came without owner
    labels and is not renamed; otherwise it is the name and the other labels, open for owner labels to follow. A renamed
    series has the new name, identity and labels, and `texts` has its values' texts. `twin` is the series that goes out
    a second time. `le_is_number` and `quantile_is_number` are False if the label of that name is no number, which
    promtool refuses in histograms and summaries.
    """

    name: bytes
    identity: bytes
    subject: Subject
    without_owner: bytes | None
    le_is_number: bool
    quantile_is_number: bool
    texts: Texts | None = None
    twin: "Series | None" = None
    own_labels: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Interned:
    """The subjects, label values and names that many series share, each kept as a single object.

    This matters most for subjects: the rows of a device are looked up by its subject's identity. An `Interned` serves
    one page, since upstreams choose the length of these texts. `room` is the number of further devices for which there
    is room.
    """

    subjects: dict[Subject, Subject]
    room: int = MOST_DEVICES
    texts: dict[str, str] = field(default_factory=dict)
    names: dict[bytes, bytes] = field(default_factory=dict)

    def intern(self, subject: Subject) -> Subject:
        """The single object for this subject; UNREAD or UNREAD_OWNED if there is no room for its device."""
        interned = self.subjects.get(subject)
        if interned is None:
            if subject.key != _NO_DEVICE or subject.came_with:
                self.room -= 1
                if self.room < 0:
                    subject = UNREAD_OWNED if subject.came_with else UNREAD
            interned = self.subjects.setdefault(subject, subject)
        return interned


class SeriesReader:
    """A reader of valid sample lines into `Series`, by the label policy of its two functions."""

    def __init__(
        self, read_subject: ReadSubject, is_owner_label: IsOwnerLabel, renaming: Renaming = AS_IT_CAME
    ) -> None:
        """`read_subject` gets unescaped labels; `is_owner_label` says whether a label of this name names owners."""
        self._read_subject = read_subject
        self._is_owner_label = is_owner_label
        self.renaming = renaming

    def read(self, line: SampleLine, interned: Interned) -> Series:
        """The line's series. Its parts are objects of `interned`, to which new parts are added."""
        # equal label values of two lines are kept once
        text_of = interned.texts.setdefault if interned.room > 0 else _as_it_is
        texts = {name.decode(): unescape(value) for name, value in line.labels}
        labels = {name: text_of(text, text) for name, text in texts.items()}
        subject = interned.intern(self._read_subject(labels))
        kept = [
            (name, value)
            for name, value in line.labels
            if subject is UNREAD_OWNED or not self._is_owner_label(name.decode())
        ]
        twin = self.renaming.twins.get(line.name)
        return _series(
            line,
            interned,
            subject,
            kept,
            self.renaming.families.get(line.name),
            None if twin is None else _series(line, interned, subject, kept, twin),
            tuple(labels.get(name, "") for name in OWN_LABELS.get(line.name, ())),
        )


def _series(
    line: SampleLine,
    interned: Interned,
    subject: Subject,
    kept: list[tuple[bytes, bytes]],
    renamed: Renamed | None,
    twin: Series | None = None,
    own_labels: tuple[str, ...] = (),
) -> Series:
    """A series with the labels that are `kept`, under the name and labels that it goes out with."""
    name = line.name
    labels = dict(line.labels)
    is_as_it_came = len(kept) == len(line.labels)
    if renamed is not None:
        name = renamed.name
        kept = renamed.labels_of(kept)
        is_as_it_came = False
    return Series(
        name=interned.names.setdefault(name, name),
        # 16 bytes take the place of about 250; that two series of a page share them is less likely than a broken
        # processor
        identity=blake2b(identity_of(name, kept), digest_size=16).digest(),
        subject=subject,
        without_owner=None if is_as_it_came else opened(name, kept),
        le_is_number=is_value(labels.get(b"le", b"0")),
        quantile_is_number=is_value(labels.get(b"quantile", b"0")),
        texts=renamed.texts if renamed is not None else None,
        twin=twin,
        own_labels=own_labels,
    )


def _as_it_is(text: str, _: str) -> str:
    return text


def unread(subjects: Mapping[Subject, int]) -> int:
    """The number of samples of devices for which there was no room."""
    return subjects.get(UNREAD, 0) + subjects.get(UNREAD_OWNED, 0)


def opened(name: bytes, labels: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Name and labels, ready for another label to follow."""
    return name + b"{" + b"".join(b'%b="%b",' % label for label in labels)


def opened_as_it_came(series: bytes) -> bytes:
    """A series' text as it came, ready for another label to follow."""
    if not series.endswith(b"}"):
        return series + b"{"
    inside = series[:-1].rstrip(b" \t,")
    return inside if inside.endswith(b"{") else inside + b","


def identity_of(name: bytes, labels: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Name and sorted labels as one text, without empty labels, which Prometheus takes for absent ones.

    It is bytes, since bytes remember their hash. The byte between the parts occurs in no valid UTF-8.
    """
    return b"\xff".join([name, *(part for label in sorted(labels) if label[1] for part in label)])
