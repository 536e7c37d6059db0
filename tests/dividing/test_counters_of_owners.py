"""A counter's rows over time: kernels' times divide its growth, and the rows of those who left long ago make room."""

from collections.abc import Sequence
from itertools import count

from exporter.dividing.sharing import CounterBook, RunTimes
from exporter.model.pages import Page
from exporter.model.pods import Owner

A, B, C = (Owner(namespace="ml", pod=name, container="main") for name in "abc")


class Energy:
    """The rows of one counter, in a book of its own."""

    def __init__(self) -> None:
        self.book = CounterBook()
        self._moments = count()

    def rows(
        self,
        owners: Sequence[Owner],
        value: int,
        times: RunTimes | None = None,
        *,
        granted: Sequence[int] | None = None,
        is_new: bool = True,
    ) -> list[int]:
        """The owners' rows, and that of nobody, after a new read or at another look at the last one."""
        if is_new:
            moment = float(next(self._moments))
            self.book.turn_to([Page(source="dcgm", body=b"", read_at_seconds=0.0, moment=moment)])
        return [int(text) for text in self.book.advance(b"energy", owners, b"%d" % value, times, granted)]


def test_kernels_divide_what_a_device_drew_since_the_last_read() -> None:
    rows = Energy().rows
    assert rows([A, B], 100, {A: 5, B: 5, None: 5}) == [0, 0, 0]
    assert rows([A, B], 160, {A: 35, B: 15, None: 25}) == [30, 10, 20]
    # a time that fell began again from 0
    assert rows([A, B], 200, {A: 10, B: 45, None: 25}) == [40, 40, 20]
    # a time that did not grow gets nothing
    assert rows([A, B], 210, {A: 10, B: 46, None: 25}) == [40, 50, 20]


def test_where_kernels_do_not_tell_who_drew_it_the_parts_are_equal() -> None:
    rows = Energy().rows
    assert rows([A, B], 100, {A: 0, B: 0, None: 0}) == [0, 0, 0]
    # nobody's time is not known now, or was not known at the last read, or no kernels ran
    assert rows([A, B], 120, {A: 9, B: 0}) == [10, 10, 0]
    assert rows([A, B], 140, {A: 19, B: 0, None: 0}) == [20, 20, 0]
    assert rows([A, B], 160, {A: 19, B: 0, None: 0}) == [30, 30, 0]
    assert rows([A, B], 180, None) == [40, 40, 0]
    assert rows([A, B], 200, {A: 30, B: 0, None: 0}) == [50, 50, 0]
    assert rows([A, B], 220, {A: 40, B: 0, None: 0}) == [70, 50, 0]
    # what nobody's kernels drew is no owner's, even if nobody else's ran
    assert rows([A, B], 240, {A: 40, B: 0, None: 1}) == [70, 50, 20]


def test_times_go_on_until_there_is_something_to_divide() -> None:
    rows = Energy().rows
    assert rows([A, B], 100, {A: 0, B: 0, None: 0}) == [0, 0, 0]
    assert rows([A, B], 100, {A: 10, B: 0, None: 0}) == [0, 0, 0]
    assert rows([A, B], 120, {A: 10, B: 10, None: 0}) == [10, 10, 0]
    # after a division they begin anew
    assert rows([A, B], 130, {A: 20, B: 10, None: 0}) == [20, 10, 0]


def test_times_count_from_the_last_read_that_knew_them() -> None:
    rows = Energy().rows
    # with nothing to divide, times become known, and later unknown
    rows([A, B], 100)
    assert rows([A, B], 100, {A: 0, B: 0, None: 0}) == [0, 0, 0]
    assert rows([A, B], 120, {A: 10, B: 0, None: 0}) == [20, 0, 0]
    assert rows([A, B], 120) == [20, 0, 0]
    assert rows([A, B], 140, {A: 20, B: 0, None: 0}) == [30, 10, 0]


def test_an_owner_that_comes_while_nothing_grows_begins_with_its_time_then() -> None:
    for is_new in (True, False):
        rows = Energy().rows
        rows([A], 100, {A: 0, None: 0})
        assert rows([A, B], 100, {A: 10, B: 500, None: 0}, is_new=is_new) == [0, 0, 0]
        assert rows([A, B], 140, {A: 20, B: 520, None: 0}) == [20, 20, 0]


def test_times_first_known_at_another_look_count_from_the_next_read() -> None:
    rows = Energy().rows
    rows([A, B], 100)
    rows([A, B], 100, {A: 0, B: 0, None: 0}, is_new=False)
    assert rows([A, B], 120, {A: 10, B: 0, None: 0}) == [10, 10, 0]
    assert rows([A, B], 130, {A: 20, B: 0, None: 0}) == [20, 10, 0]


def test_who_came_or_left_since_the_last_read_has_no_part_by_kernels() -> None:
    rows = Energy().rows
    rows([A, B], 100, {A: 0, B: 0, C: 0, None: 0})
    assert rows([A, C], 120, {A: 10, B: 10, C: 10, None: 0}) == [20, 0, 0]
    # if nobody stayed, it is nobody's, whatever was granted
    assert rows([B], 130, {A: 20, B: 20, C: 20, None: 0}, granted=(5,)) == [0, 10]


def test_grants_count_where_kernels_say_nothing() -> None:
    rows = Energy().rows
    rows([A, B, C], 100, granted=(3, 1, 4))
    assert rows([A, B, C], 180, granted=(3, 1, 4)) == [30, 10, 40, 0]
    # of those who stayed alone
    assert rows([A, B], 220, granted=(3, 1)) == [60, 20, 0]
    assert rows([A, B, C], 260, granted=(3, 1, 4)) == [90, 30, 40, 0]


def test_the_row_of_whoever_left_longest_ago_makes_room() -> None:
    energy = Energy()
    many = [Owner(namespace="ml", pod=f"job-{number:02}", container="main") for number in range(16)]
    for owner in many[:15]:
        energy.rows([owner], 0)
        energy.rows([owner], 0)
    # the first one comes back, and the sixteenth comes: with nobody's row there is room for 15
    energy.rows(many[:1], 0)
    assert energy.rows(many[:1], 100) == [100, 0]
    energy.rows(many[15:], 100)
    assert energy.rows(many[:1], 100) == [100, 0]


def test_as_many_rows_are_kept_as_owners_hold_a_device_at_once() -> None:
    energy = Energy()
    many = [Owner(namespace="ml", pod=f"job-{number:02}", container="main") for number in range(16)]
    energy.rows(many[:15], 0)
    assert energy.rows(many[:15], 15) == [1] * 15 + [0]
    # one more: nobody is forgotten
    assert energy.rows(many, 15) == [1] * 15 + [0, 0]
    assert energy.rows(many, 31) == [2] * 15 + [1, 0]
    # with fifteen owners and nobody's row there is no room for the one that left
    assert energy.rows(many[1:], 31) == [2] * 14 + [1, 0]
    assert energy.rows(many, 31) == [0] + [2] * 14 + [1, 0]


def test_a_book_counts_the_counters_that_it_remembers() -> None:
    book = CounterBook()
    book.turn_to([Page(source="dcgm", body=b"", read_at_seconds=0.0, moment=1.0)])
    assert book.series == 0
    for name in (b"one", b"other", b"one"):
        book.advance(name, [], b"1")
    assert book.series == 2
    # values that are no amounts, and a look without a read, need no counter
    book.advance(b"third", [], b"NaN")
    assert book.peek(b"fourth", [A], b"7") == [b"0", b"0"]
    assert book.peek(b"fourth", [A], b"NaN") == [b"NaN", b"NaN"]
    assert book.series == 2
