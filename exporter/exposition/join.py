"""The join: GPU pages in, the same pages with their owners out. The hot path of the program.

    page ──split──► heads + last words ──same shape as last time?──► fill in the values
                                        └─ no ─► read every line (layout.py), then fill

Pure but for what it remembers, which is one layout: nothing here waits, logs or asks for the time.
"""

from collections.abc import Sequence

from exporter.exposition.layout import Attribute, Layout, LayoutBuilder, Wanted
from exporter.exposition.lines import SampleLine, read_line
from exporter.exposition.series import ReadSubject, SeriesReader
from exporter.model import JoinedPage


class Joiner:
    """Joins page after page. One object a set of upstreams: it is fast because their pages keep their shape."""

    def __init__(self, *, read_subject: ReadSubject, owner_labels: frozenset[str], wanted: Wanted) -> None:
        """See `SeriesReader` for the first two, `LayoutBuilder` for the last."""
        self._builder = LayoutBuilder(SeriesReader(read_subject, owner_labels), wanted)
        self._layout: Layout | None = None
        self._attribute: Attribute | None = None

    def join(self, bodies: Sequence[bytes], attribute: Attribute) -> JoinedPage:
        """Make one page of all, in upstream order. A layout is reused as long as `attribute` is the same object."""
        lines = [line for body in bodies for line in split_lines(body)]
        # rpartition, not split: a head holds blanks of its own ("NVIDIA H100 80GB HBM3")
        heads, _, words = zip(*[line.rpartition(b" ") for line in lines], strict=True) if lines else ((), (), ())
        layout = self._layout
        values = layout.values(heads, words) if layout and self._attribute is attribute else None
        if layout is None or values is None:
            layout = self._layout = self._builder.build(lines, heads, words, attribute)
            self._attribute = attribute
            values = layout.values(heads, words)
            if values is None:  # pragma: no cover - a layout always fits the page it was built from
                raise AssertionError("the layout does not fit its own page")
        return layout.fill(values)


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
        if isinstance(read_line(body[start:end]), SampleLine):
            return True
        start = end + 1
    return False
