"""The ledger as bytes: it goes on as if nothing had happened, and what is not its own is refused with one line."""

import re
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.accounting.state import dump, restore
from tests.support.looks import GPU, SECOND, Looks, energy, joules, kernels, row, seconds, whole
from tests.support.places import ROOT

NO_XID = row("DCGM_FI_DEV_XID_ERRORS", "0")
ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
DATA = ROOT / "tests" / "data"


def shared(share: int) -> list[tuple[str, str]]:
    return [("nvidia.com/gpu.shared", f"{GPU(0)}::{share}")]


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


def test_a_file_of_version_1_is_gone_on_with() -> None:
    """It was written by the exporter of that version, at the second of two looks 10 s apart."""
    looks = Looks(ledger=restore((DATA / "accounting-state-1").read_bytes(), 1_010 * SECOND, 15 * SECOND))
    assert (joules(looks.account("a")), seconds(looks.account("a").allocated_ns)) == (2.5, 10)
    page = energy("9000") + row(ACTIVE, "0.5") + row("DCGM_FI_DEV_XID_ERRORS", "79")
    looks.at(15, page, {"b": whole(0)})
    assert (joules(looks.account("a")), dict(looks.account("a").xids)) == (4, {})
    looks.at(25, page.replace("9000", "9500"), {"b": whole(0)})
    assert (joules(looks.account("b")), seconds(looks.account("b").active_ns)) == (0.5, 5)


def test_what_grew_while_a_page_stood_is_divided_after_a_restart_too() -> None:
    page = energy("5000") + row(ACTIVE, "0.5") + row("DCGM_FI_DEV_XID_ERRORS", "0")
    times = [kernels({"a": 5 * number, "b": 3 * number, "": 2 * number}) for number in range(4)]
    held = {"a": shared(0), "b": shared(1)}
    looks = Looks().at(0, page, {"c": whole(0)}).at(10, page, {"c": whole(0)})
    looks.at(20, page, held, sm_ns=times[1]).at(30, page, held, sm_ns=times[2])
    looks = Looks(ledger=restore(dump(looks.ledger, 1_000 * SECOND), 1_000 * SECOND, 30 * SECOND))
    looks.at(40, page.replace("5000", "9000").replace("} 0\n", "} 79\n"), held)
    # 2 of 4 J to c; for the second half the kernels are known of a half
    assert {of.owner.pod if of.owner else "": joules(of) for of in looks.ledger.accounts.rows} == {
        "c": 2,
        "a": 1,
        "b": 0.6,
        "": 0.4,
    }
    assert looks.account(None).xids == {"79": 1}


def test_who_left_just_before_a_restart_may_still_be_whose_an_xid_is() -> None:
    looks = Looks().at(0, energy("1") + NO_XID, {"a": whole(0)}).at(10, energy("2") + NO_XID, {"b": whole(0)})
    for ledger in (looks.ledger, restore(dump(looks.ledger, 1_000 * SECOND), 1_000 * SECOND, 10 * SECOND)):
        page = energy("3") + NO_XID.replace("} 0", "} 79")
        after = Looks(ledger=ledger).at(20, page, {"b": whole(0)})
        assert [(of.owner, of.xids) for of in after.ledger.accounts.rows if of.xids] == [(None, {"79": 1})]


def test_a_clock_that_was_set_back_puts_nothing_into_the_future() -> None:
    looks = Looks(ledger=restore(saved(), 10 * SECOND, 5 * SECOND)).at(6, energy("9000"), {"a": whole(0)})
    assert seconds(looks.account("a").allocated_ns) == 11


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "it is not the state of this exporter's accounting"),
        (b"something else\n", "it is not the state of this exporter's accounting"),
        (
            saved().replace(b"accounting 2", b"accounting 3"),
            "it is of version 3, and this exporter knows versions up to 2",
        ),
        (saved()[:-100], "it is damaged: its checksum is another"),
    ],
)
def test_what_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        restore(data, 0, 0)


def signed(body: bytes) -> bytes:
    """This content as if the exporter itself had written it."""
    return (
        saved().partition(b"accounting ")[0]
        + b"accounting 2 "
        + sha256(b"2 " + body).hexdigest().encode()
        + b"\n"
        + body
    )


NUMBERS = list(re.finditer(rb"(?<=[\[:,])-?\d+(?=[\],}])", saved().partition(b"\n")[2]))


# issue 15, line 22
@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"NaN", b"Infinity", b"9" * 400, b"9" * 5_000])
def test_a_number_that_is_none_is_refused_wherever_it_stands(number: bytes) -> None:
    body = saved().partition(b"\n")[2]
    assert restore(signed(body), 0, 0).entries
    assert len(NUMBERS) > 20
    for place in NUMBERS:
        with pytest.raises(ValueError, match=r"^it is damaged: \w+ while reading it$"):
            restore(signed(body[: place.start()] + number + body[place.end() :]), 0, 0)


# issue 15, line 22
def test_what_is_nested_too_deeply_is_refused() -> None:
    deep = 100_000
    with pytest.raises(ValueError, match="it is damaged: RecursionError while reading it"):
        restore(signed(b'{"saved_ns":0,"look":' + b"[" * deep + b"]" * deep + b"}"), 0, 0)


@given(st.integers(0, len(saved()) - 2), st.integers(1, 255))
def test_no_damage_goes_unseen(place: int, by: int) -> None:
    data = bytearray(saved())
    data[place] ^= by
    with pytest.raises(ValueError, match=r"^it is [^\n]*$"):
        restore(bytes(data), 0, 0)
