"""What may be too much of a page is counted before it is cut."""

import pytest

from exporter.exposition.check import MOST_LINES, has_sample, why_too_large
from exporter.model.slices import at_once


# issue 7, line 22
@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"a 1\n" * MOST_LINES, ""),
        (b"a 1\n" * (MOST_LINES + 1), "more than 50000 lines"),
        (b'a{b="' + b"}" * 5_000_000 + b'"} 1\n', ""),
    ],
    ids=["lines", "too-many-lines", "braces"],
)
def test_a_page_may_have_so_much_and_no_more(body: bytes, why: str) -> None:
    assert why_too_large(body) == why


# issue 7, line 22
def test_a_sample_is_looked_for_in_slices() -> None:
    work = has_sample(b"no sample\n" * 20_000 + b"a 1\nno sample\n")
    assert sum(1 for _ in iter(lambda: next(work, "found"), "found")) == 40
    assert at_once(has_sample(b"no sample\n" * 20_000)) is False
    # a good page ends with a sample, and is not looked through
    with pytest.raises(StopIteration, match="True"):
        next(has_sample(b"no sample\n" * 20_000 + b"a 1\n"))
