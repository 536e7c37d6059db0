"""The join: GPU pages in, the same pages with their owners out. The hot path of the program.

    page ──► lines ──► the shape of last time? ──► the owners of last time? ──► fill in the values
                         no: read every line         no: lay the page out anew
                         (shape.py)                  (layout.py)

Pure but for what it remembers, one shape and one layout: nothing here waits, logs or asks for the time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from exporter.exposition.layout import Attribute, Layout, lay_out
from exporter.exposition.lines import SampleLine, is_value, read_line
from exporter.exposition.series import IsOwnerLabel, ReadSubject, SeriesReader
from exporter.exposition.shape import Shape, ShapeReader, Wanted
from exporter.model import JoinedPage, Subject


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Pages as they were read, before anybody's labels are added."""

    shape: Shape
    values: Sequence[bytes]

    @property
    def subjects(self) -> Mapping[Subject, int]:
        """What the samples are about, and how many of each. The same object as long as the shape stays."""
        return self.shape.subjects


# A node of 16 GPUs, each in 7 instances, with 100 families has 11,000. What is known of a line takes about 2 KB.
MOST_LINES = 50_000


class Joiner:
    """Joins page after page. One object a set of upstreams: it is fast because their pages keep their shape."""

    def __init__(self, *, read_subject: ReadSubject, is_owner_label: IsOwnerLabel, wanted: Wanted) -> None:
        """See `SeriesReader` for the first two, `ShapeReader` for the last."""
        self._reader = ShapeReader(SeriesReader(read_subject, is_owner_label), wanted)
        self._shape: Shape | None = None
        self._layout: Layout | None = None
        self._attribute: Attribute | None = None

    @property
    def series(self) -> int:
        """How many series are remembered."""
        return self._reader.series

    def join(self, bodies: Sequence[bytes], attribute: Attribute) -> JoinedPage:
        """Read, then write."""
        return self.write(self.read(bodies), attribute)

    def read(self, bodies: Sequence[bytes]) -> Reading:
        """All pages as one, in upstream order."""
        lines = split_lines(bodies[0]) if len(bodies) == 1 else [line for body in bodies for line in split_lines(body)]
        values = self._shape.values(lines) if self._shape else None
        if self._shape is None or values is None:
            self._shape, values = self._reader.read(lines)
            self._layout = None
        return Reading(self._shape, values)

    def write(self, reading: Reading, attribute: Attribute) -> JoinedPage:
        """The last reading with its owners. A layout is reused as long as `attribute` is the same object."""
        if self._layout is None or self._attribute is not attribute:
            self._layout = lay_out(reading.shape, attribute)
            self._attribute = attribute
        return self._layout.fill(reading.values)


def split_lines(body: bytes) -> list[bytes]:
    """The lines of a page without their ends; a missing last newline and carriage returns make no difference."""
    lines = body.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if b"\r" in body:
        lines = [line.rstrip(b"\r") for line in lines]
    return lines


def has_sample(body: bytes) -> bool:
    """Whether a page holds one valid sample: if not, it is no page of GPUs but an error page, noise or nothing."""
    start = 0
    while start < len(body):  # line by line, since a good page answers in its third
        end = body.find(b"\n", start)
        end = len(body) if end < 0 else end
        if not body.startswith(b"#", start) and _is_sample(body[start:end]):
            return True
        start = end + 1
    return False


_USUAL_BYTES = 1000  # what is longer is not worth remembering


def _is_sample(line: bytes) -> bool:
    # From scrape to scrape it is the same series with another value: 2 us instead of 15.
    head, _, word = line.rpartition(b" ")
    usual = len(head) < _USUAL_BYTES and is_value(word) and _is_series(head)
    return usual or isinstance(read_line(line), SampleLine)


@lru_cache(maxsize=16)
def _is_series(head: bytes) -> bool:
    return isinstance(read_line(head + b" 0"), SampleLine)
