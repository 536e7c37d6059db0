"""The check whether an answer is a page, and small enough. It counts lines before it cuts them into objects."""

from functools import lru_cache

from exporter.exposition.lines import SampleLine, is_value, read_line
from exporter.model.slices import Work

# A node of 16 GPUs with 7 instances each and 100 families has 11,000 lines. The shape of a line takes 0.4 to 1 KB.
MOST_LINES = 50_000

_USUAL_BYTES = 1000  # a longer line is not worth a place in the cache
_LINES_A_SLICE = 500


def why_too_large(body: bytes) -> str:
    """The limit that a page exceeds, such as "more than 50000 lines"; "" for a page that is small enough."""
    return f"more than {MOST_LINES} lines" if body.count(b"\n") > MOST_LINES else ""


def has_sample(body: bytes) -> Work[bool]:
    """Whether a page holds at least one valid sample. If not, it is an error page or empty. Works in slices."""
    # the last line of a good page is a sample
    if _is_sample(body[body.rfind(b"\n", 0, -1) + 1 :].removesuffix(b"\n")):
        return True
    start = number = 0
    while start < len(body):
        end = body.find(b"\n", start)
        end = len(body) if end < 0 else end
        if not body.startswith(b"#", start) and _is_sample(body[start:end]):
            return True
        start = end + 1
        number += 1
        if number % _LINES_A_SLICE == 0:
            yield
    return False


def _is_sample(line: bytes) -> bool:
    # From scrape to scrape the series stays and only its value is new: a cached series costs 2 us instead of 15.
    head, _, word = line.rpartition(b" ")
    usual = len(line) < _USUAL_BYTES and is_value(word) and _is_series(head)
    return usual or isinstance(read_line(line), SampleLine)


@lru_cache(maxsize=16)
def _is_series(head: bytes) -> bool:
    # behind a value the last word is a timestamp, for which other rules hold
    line = read_line(head + b" 0")
    return isinstance(line, SampleLine) and not line.timestamp
