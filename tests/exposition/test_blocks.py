"""A page in blocks: what is new is read, what is known is kept, in slices, and what is gone is let go of."""

import gc
import random
import sys
import tracemalloc
import weakref
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.dividing.sharing import CounterBook
from exporter.exposition import join, page_reader, shape_reader
from exporter.exposition.join import Joiner
from exporter.exposition.lines import Line, read_line
from exporter.exposition.plain_block import Closings
from exporter.model.devices import Assignment, Owners
from exporter.model.pages import Row, Rows
from exporter.model.pods import Owner
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution
from tests.support.owners import build_owners
from tests.support.reference_join import reference_join
from tests.support.strategies import attribution_of, owner_states, pages, policies, tidy_pages, with_other_values

POLICY = LabelPolicy()
NOBODY = Attribution(Owners(), POLICY)


def joiner_of(policy: LabelPolicy = POLICY) -> Joiner:
    return Joiner(
        read_subject=policy.read_subject,
        is_owner_label=policy.is_owner_label,
        wanted=lambda _: True,
        nobodys=policy.nobodys,
    )


def large_page(families: int = 30, instances: int = 112, value: int = 1) -> list[bytes]:
    """The lines of a node of 112 MIG instances."""
    lines = []
    for family in range(families):
        lines += [b"# HELP F%d Some help.\n" % family, b"# TYPE F%d gauge\n" % family]
        lines += [
            b'F%d{gpu="%d",UUID="GPU-%08d-aaaa-bbbb-cccc-dddddddddddd",modelName="NVIDIA H100 80GB HBM3"} %d\n'
            % (family, number, number, value + number)
            for number in range(instances)
        ]
    return lines


LARGE = large_page()


class Count:
    """How many lines are read, and not only compared."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.lines = self.taken = 0
        take = shape_reader.ShapeReader.take

        def reading(line: bytes) -> Line:
            self.lines += 1
            return read_line(line)

        def taking(reader: shape_reader.ShapeReader, line: bytes) -> None:
            self.taken += 1
            take(reader, line)

        patch.setattr(shape_reader, "read_line", reading)
        patch.setattr(shape_reader.ShapeReader, "take", taking)


# issue 7, line 39
@pytest.mark.long
@pytest.mark.parametrize("place", [2, 1500, len(LARGE) - 1])
def test_a_line_that_comes_or_goes_costs_what_stands_around_it(monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    without = LARGE[:place] + LARGE[place + 1 :]
    joiner = joiner_of()
    of_all = joiner.join([b"".join(LARGE)], NOBODY).body
    of_fewer = joiner_of().join([b"".join(without)], NOBODY).body
    count = Count(monkeypatch)
    for lines, expected in ((without, of_fewer), (LARGE, of_all), (without, of_fewer)):
        assert joiner.join([b"".join(lines)], NOBODY).body == expected
    # a join looks into one block of half a dozen, and reads only its lines without a sample and the one that changed
    assert count.taken < 3 * 2 * page_reader.BLOCK_LINES
    assert count.lines < 3 * 20


# issue 7, line 39
def test_behind_a_new_line_the_known_blocks_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    joiner = joiner_of()
    joiner.join([b"".join(LARGE)], NOBODY)
    count = Count(monkeypatch)
    joiner.join([b"".join(LARGE[:2] + LARGE[3:])], NOBODY)
    assert count.taken < page_reader.BLOCK_LINES  # one block of ten


# issue 7, line 39
def test_new_values_and_new_owners_are_no_reason_to_read_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    joiner = joiner_of()
    first = joiner.join([b"".join(LARGE)], NOBODY)
    count = Count(monkeypatch)
    later = joiner.join([b"".join(large_page(value=100))], NOBODY)
    owned = joiner.join([b"".join(large_page(value=100))], Attribution(Owners(), POLICY))
    assert (count.lines, count.taken) == (0, 0)
    # it is the same object as long as the page keeps its shape
    assert later.subjects is owned.subjects is first.subjects


# issue 7, lines 22 and 39
def test_a_page_is_worked_on_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    joiner = joiner_of()
    count = Count(monkeypatch)
    for page in (LARGE, LARGE, LARGE[200:], [b"%b" % line.replace(b"} ", b"}  ") for line in LARGE]):
        body, most, slices = b"".join(page), 0, 0
        count.taken = 0
        work = joiner.work_for([body], lambda _: NOBODY)
        while next(work, "done") is None:
            most, slices, count.taken = max(most, count.taken), slices + 1, 0
        assert slices >= len(body) // (2 * page_reader.BLOCK_BYTES)
        assert most <= 2 * page_reader.BLOCK_LINES


# issue 7, line 39
def test_a_small_page_is_joined_in_one_slice_once_it_is_known() -> None:
    joiner = joiner_of()
    body = b"".join(large_page(25, 8))
    joiner.join([body], NOBODY)
    work = joiner.work_for([body], lambda _: NOBODY)
    with pytest.raises(StopIteration):
        next(work)


def test_a_join_that_was_given_up_midway_leaves_nothing_behind() -> None:
    joiner = joiner_of()
    joiner.join([b"".join(LARGE)], NOBODY)
    other = b"".join(LARGE[300:])
    work = joiner.work_for([other], lambda _: NOBODY)
    next(work)
    work.close()
    assert joiner.join([other], NOBODY).body == joiner_of().join([other], NOBODY).body


# issue 7, line 22
def test_a_page_that_is_gone_is_let_go_of_at_once() -> None:
    joiner = joiner_of()
    gc.disable()
    try:
        joiner.join([b"".join(line.replace(b"} ", b"}  ") for line in LARGE)], NOBODY)
        assert joiner._page
        page, block = weakref.ref(joiner._page), weakref.ref(joiner._page.shape.blocks[0])
        joiner.join([b"a 1\n"], NOBODY)
        assert page() is None
        assert block() is None
    finally:
        gc.enable()


# issue 7, line 24
def test_names_are_kept_with_the_page_that_has_them_and_no_longer() -> None:
    """A family's name may have 64 KB, and the next page a thousand others."""
    joiner = joiner_of()

    def join(number: int) -> None:
        joiner.join([b"".join(b"a%d_%d%b 1\n" % (number, name, b"x" * 20_000) for name in range(20))], NOBODY)

    join(0)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(1, 20):
            join(number)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 5_000_000  # one page has 2 MB of it; all of them had 8 MB in names alone


# issue 7, line 39
@settings(max_examples=30, deadline=None)
@given(
    bodies=st.lists(st.one_of(pages, tidy_pages()), min_size=2, max_size=5),
    policy=policies,
    owners=st.tuples(owner_states(), owner_states()),
    seed=st.integers(0, 99),
    limits=st.tuples(st.sampled_from((1, 80, 300)), st.sampled_from((1, 2, 5)), st.sampled_from((0, 15_000))),
)
def test_pages_whose_parts_come_and_go_are_those_of_the_reference(
    bodies: list[bytes], policy: LabelPolicy, owners: tuple[Owners, Owners], seed: int, limits: tuple[int, int, int]
) -> None:
    numbers = random.Random(seed)
    joiner = joiner_of(policy)
    states = [attribution_of(state, policy) for state in owners]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_reader, "BLOCK_BYTES", limits[0])
        patch.setattr(page_reader, "BLOCK_LINES", limits[1])
        patch.setattr(join, "MOST_KEPT_SERIES", limits[2])
        for _ in range(5):
            page = [with_other_values(body, numbers.randrange(100)) for body in bodies]
            lines = [line for body in page for line in body.splitlines(keepends=True)]
            for _ in range(numbers.randrange(3)):
                start = numbers.randrange(len(lines) + 1)
                moved = lines[start : start + numbers.randrange(4)]
                del lines[start : start + len(moved)]
                if numbers.random() < 0.5:
                    at = numbers.randrange(len(lines) + 1)
                    lines[at:at] = moved
            attribution = numbers.choice(states)
            joined = joiner.join([b"".join(lines)], attribution)
            expected, rejected = reference_join([b"".join(lines)], policy, attribution, lambda _: True)
            assert joined.body == expected
            assert joined.size == len(expected)
            assert Counter(joined.rejected) == rejected


@pytest.mark.parametrize(
    ("first", "then"),
    [
        # what a known line means depends on lines that are new
        (b'# TYPE a histogram\nb 1\na_bucket{le="x"} 1\n', b'# TYPE a gauge\nb 1\na_bucket{le="x"} 1\n'),
        (b'# TYPE a gauge\nb 1\na_bucket{le="x"} 1\n', b'# TYPE a histogram\nb 1\na_bucket{le="x"} 1\n'),
        (b"b 1\n# TYPE a gauge\na 1\n", b'a{c="d"} 1\nb 1\n# TYPE a gauge\na 1\n'),
        (b"# HELP a x\nb 1\n# HELP a x\n", b"# HELP a y\nb 1\n# HELP a x\n"),
        (b"b 1\n# HELP a x\na 1\n", b"# HELP a x\nb 1\n# HELP a x\na 1\n"),
        (b"# TYPE a summary\nb 1\n# TYPE a_sum gauge\n", b"b 1\n# TYPE a_sum gauge\n"),
        # a series that another line has now, or no longer has
        (b"b 1\nc 2\na 1\n", b"b 1\na 3\nc 2\na 1\n"),
        (b"a 3\nb 1\nc 2\na 1\n", b"b 1\nc 2\na 1\n"),
        (b"a 3\nb 1\na 1\nc 2\n", b"b 1\na 1\nc 2\na 3\n"),
        # one owner's part, or the device's own
        (b'a{UUID="GPU-1",pod="x"} 1\nb 1\na{UUID="GPU-1"} 2\n', b'b 1\na{UUID="GPU-1"} 2\n'),
        (b'b 1\na{UUID="GPU-1"} 2\n', b'a{UUID="GPU-1",pod="x"} 1\nb 1\na{UUID="GPU-1"} 2\n'),
        (b'a{UUID="GPU-1",pod="x"} 1\nb 1\na{UUID="GPU-1",pod="y"} 2\n', b'b 1\na{UUID="GPU-1",pod="y"} 2\n'),
    ],
)
def test_a_block_that_is_the_same_in_another_page(monkeypatch: pytest.MonkeyPatch, first: bytes, then: bytes) -> None:
    monkeypatch.setattr(page_reader, "BLOCK_LINES", 1)
    owner = Owner(namespace="ml", pod="y", container="main")
    states = build_owners([Assignment(owner=owner, resource="nvidia.com/gpu", device_id="GPU-1")])
    attribution = Attribution(states, POLICY)
    joiner = joiner_of()
    for page in (first, then, first):
        joined = joiner.join([page], attribution)
        expected, rejected = reference_join([page], POLICY, attribution, lambda _: True)
        assert (joined.body, Counter(joined.rejected)) == (expected, rejected)


# issue 7, line 22
@pytest.mark.parametrize("length", [1, 20_000, *range(32 * 1024 - 4, 32 * 1024 + 2), 33_000, 64 * 1024])
def test_a_value_that_grows_makes_a_line_too_long(length: int) -> None:
    """Known or not, a line that is too long is left out."""
    long_label = b"x" * 30_000
    page = b'a{UUID="%b"} %b\nb{c="d"} 1\n'
    joiner = joiner_of()
    for word in (b"1", b"0" * length, b"2"):
        body = page % (long_label, word)
        expected, rejected = reference_join([body], POLICY, NOBODY, lambda _: True)
        joined = joiner.join([body], NOBODY)
        assert (joined.body, Counter(joined.rejected)) == (expected, rejected)
    assert joiner_of().join([page % (long_label, b"0" * 64 * 1024)], NOBODY).rejected == {"syntax": 1}


# issue 7, line 41
def test_the_book_of_divided_counters_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.dividing.sharing.MOST_SERIES", 50)
    policy, book = LabelPolicy(sharing="split"), CounterBook()
    shares = (
        Assignment(
            owner=Owner(namespace="ml", pod=pod, container="main"), resource="nvidia.com/gpu", device_id=f"GPU-1::{pod}"
        )
        for pod in "ab"
    )
    energy = b'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{UUID="GPU-1",x="%d"} 1\n'
    page = b"".join(energy % number for number in range(80))
    joiner_of(policy).join([page], Attribution(build_owners(shares), policy, book=book))
    assert book.series == 50


def test_closing_texts_of_owners_that_are_gone_are_forgotten() -> None:
    closings = Closings()
    rows = Rows(each=(Row(labels=(("pod", "a"),)),))
    before = sys.getrefcount(rows)
    closings.of([rows])
    closings.turn()
    assert sys.getrefcount(rows) > before
    closings.turn()
    assert sys.getrefcount(rows) == before


def test_the_joiner_remembers_the_series_of_the_last_page_alone() -> None:
    joiner = joiner_of()
    assert (joiner.series, joiner.devices) == (0, 0)
    joiner.join([b'a{UUID="GPU-1"} 1\nb{UUID="GPU-1"} 1\n'], NOBODY)
    assert (joiner.series, joiner.devices) == (2, 1)
    joiner.join([b'a{UUID="GPU-1"} 1\n'], NOBODY)
    assert (joiner.series, joiner.devices) == (1, 1)
