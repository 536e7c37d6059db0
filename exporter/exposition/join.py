"""The join: GPU pages in, the same pages with their owners out. The hot path of the program.

    page ──► the shape of last time? ──► labels added to each sample, and that is all? ──► the same pieces, other braces
               │ no                        │ no                                              (plain.py, cuts.py)
               ▼                           ▼
             read every line             take the values out, put them where they belong
             (shape.py)                  (layout.py)

Pure but for what it remembers, one shape and what goes with it: nothing here waits, logs or asks for the time.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from exporter.exposition.layout import Attribute, LaidOutPage
from exporter.exposition.lines import SampleLine, is_value, read_line
from exporter.exposition.plain import PlainPage, is_plain
from exporter.exposition.series import IsOwnerLabel, ReadSubject, SeriesReader
from exporter.exposition.shape import ShapeReader, Wanted
from exporter.model import JoinedPage, Subject

# A node of 16 GPUs, each in 7 instances, with 100 families has 11,000. What is known of a line takes up to 2 KB.
MOST_LINES = 50_000

AttributeFor = Callable[[Mapping[Subject, int]], Attribute]


class Joiner:
    """Joins page after page. One object a set of upstreams: it is fast because their pages keep their shape."""

    def __init__(self, *, read_subject: ReadSubject, is_owner_label: IsOwnerLabel, wanted: Wanted) -> None:
        """See `SeriesReader` for the first two, `ShapeReader` for the last."""
        self._reader = ShapeReader(SeriesReader(read_subject, is_owner_label), wanted)
        self._page: PlainPage | LaidOutPage | None = None

    @property
    def series(self) -> int:
        """How many series are remembered: those of one page."""
        return 0 if self._page is None else self._page.series_count

    def join(self, bodies: Sequence[bytes], attribute: Attribute) -> JoinedPage:
        """All pages as one, in upstream order, with these owners."""
        return self.join_for(bodies, lambda _: attribute)

    def join_for(self, bodies: Sequence[bytes], attribute_for: AttributeFor) -> JoinedPage:
        """All pages as one, in upstream order, with the owners of what they are about.

        `attribute_for` is told what the samples are about, and how many of each: the same object as long as the pages
        keep their shape. What was worked out for its answer is reused as long as that is the same object, too.
        """
        body = _one_page(bodies)
        if self._page is not None:
            joined = self._page.join(body, attribute_for(self._page.subjects))
            if joined is not None:
                return joined
        return self._read(body, attribute_for)

    def _read(self, body: bytes, attribute_for: AttributeFor) -> JoinedPage:
        shape, values = self._reader.read(body, {} if self._page is None else self._page.known)
        attribute = attribute_for(shape.subjects)
        if is_plain(shape, body, values):
            page = PlainPage(shape)
            joined = page.join(body, attribute)
            if joined is not None:
                self._page = page
                return joined
        self._page = LaidOutPage(shape)
        return self._page.write(values, attribute)


def _one_page(bodies: Sequence[bytes]) -> bytes:
    if len(bodies) == 1:
        return bodies[0]
    return b"".join(body if body.endswith(b"\n") or not body else body + b"\n" for body in bodies)


def has_sample(body: bytes) -> bool:
    """Whether a page holds one valid sample: if not, it is no page of GPUs but an error page, noise or nothing."""
    # the last line of a good page is one
    if _is_sample(body[body.rfind(b"\n", 0, -1) + 1 :].removesuffix(b"\n")):
        return True
    start = 0
    while start < len(body):
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
