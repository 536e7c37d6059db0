"""The ledger as bytes: it goes on as if nothing had happened, and what is not its own is refused with one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.accounting.state import dump, restore
from tests.support.looks import SECOND, Looks, energy, joules, seconds, whole


def saved() -> bytes:
    looks = Looks().at(0, energy("5000"), {"a": whole(0)}).at(10, energy("7500"), {"a": whole(0)})
    return dump(looks.ledger, 1_000 * SECOND)


def test_counters_go_on_after_a_short_restart() -> None:
    looks = Looks(ledger=restore(saved(), 1_012 * SECOND, 5 * SECOND))
    assert joules(looks.account("a")) == 2.5
    looks.at(7, energy("9000"), {"a": whole(0)})
    found = looks.account("a")
    assert (joules(found), seconds(found.allocated_ns), looks.ledger.accounts.gap_ns["exporter"]) == (4, 24, 0)


def test_a_long_downtime_is_a_gap_and_belongs_to_who_holds_the_gpu_at_both_ends() -> None:
    for pod, of_a, of_nobody in (("a", 4, 0), ("b", 2.5, 1.5)):
        looks = Looks(ledger=restore(saved(), 1_100 * SECOND, 5 * SECOND))
        looks.at(5, energy("9000"), {pod: whole(0)})
        assert (joules(looks.account("a")), joules(looks.account(None))) == (of_a, of_nobody)
        assert looks.ledger.accounts.gap_ns["exporter"] == 100 * SECOND


def test_a_clock_that_was_set_back_puts_nothing_into_the_future() -> None:
    looks = Looks(ledger=restore(saved(), 10 * SECOND, 5 * SECOND)).at(6, energy("9000"), {"a": whole(0)})
    assert seconds(looks.account("a").allocated_ns) == 11


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "it is not the state of this exporter's accounting"),
        (b"something else\n", "it is not the state of this exporter's accounting"),
        (
            saved().replace(b"accounting 1", b"accounting 2"),
            "it is of version 2, and this exporter knows versions up to 1",
        ),
        (saved()[:-100], "it is damaged: its checksum is another"),
    ],
)
def test_what_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        restore(data, 0, 0)


@given(st.integers(0, len(saved()) - 2), st.integers(1, 255))
def test_no_damage_goes_unseen(place: int, by: int) -> None:
    data = bytearray(saved())
    data[place] ^= by
    with pytest.raises(ValueError, match=r"^it is [^\n]*$"):
        restore(bytes(data), 0, 0)
