"""The ledger as bytes: it goes on as if nothing had happened, and what is not its own is refused with one line."""

import json
import re
from dataclasses import dataclass, is_dataclass
from hashlib import sha256
from types import UnionType
from typing import get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.accounts.amounts import new_amounts
from exporter.accounts.entries import Entry
from exporter.accounts.gpu import GpuState
from exporter.accounts.holders import HeldGpu
from exporter.accounts.idle_power import IdlePower
from exporter.accounts.records import RowReader, RowWriter, columns_of
from exporter.accounts.state_bytes import VERSION, Boot, restore
from exporter.model.devices import DeviceKey
from tests.support.ledgers import dump
from tests.support.looks import GPU, SECOND, Looks, energy, joules, kernels, owner, row, seconds, whole
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
    assert (joules(found), seconds(found.amounts.get("allocated_ns")), looks.ledger.accounts.gap_ns["exporter"]) == (
        4,
        24,
        0,
    )


def test_a_long_downtime_belongs_to_a_holder_before_and_after_it() -> None:
    for pod, of_a, of_nobody in (("a", 4, 0), ("b", 2.5, 1.5)):
        looks = Looks(ledger=restore(saved(), 1_100 * SECOND, 5 * SECOND))
        looks.at(5, energy("9000"), {pod: whole(0)})
        assert (joules(looks.account("a")), joules(looks.account(None))) == (of_a, of_nobody)
        assert looks.ledger.accounts.gap_ns["exporter"] == 100 * SECOND


@dataclass
class Remembering:
    """What an amount may remember of a GPU: nothing, one thing, or several."""


@dataclass
class RememberingOne(Remembering):
    last: int = 7


@dataclass
class RememberingTwo(RememberingOne):
    more: str = "x"


@pytest.mark.parametrize(
    ("record", "row_of_it"),
    [(Remembering(), []), (RememberingOne(), [7]), (RememberingTwo(), [7, "x"])],
    ids=["nothing", "one thing", "two things"],
)
def test_an_amount_may_remember_any_number_of_things(record: Remembering, row_of_it: list[object]) -> None:
    writer = RowWriter(0, ())
    made = [*writer.row(record)]
    assert made == row_of_it
    assert RowReader(0, writer.columns, ()).record(type(record), made) == record


def test_a_file_of_version_1_is_gone_on_with() -> None:
    """It was written by the exporter of that version, at the second of two looks 10 s apart."""
    looks = Looks(ledger=restore((DATA / "accounting-state-1").read_bytes(), 1_010 * SECOND, 15 * SECOND))
    assert (joules(looks.account("a")), seconds(looks.account("a").amounts.get("allocated_ns"))) == (2.5, 10)
    page = energy("9000") + row(ACTIVE, "0.5") + row("DCGM_FI_DEV_XID_ERRORS", "79")
    looks.at(15, page, {"b": whole(0)})
    assert (joules(looks.account("a")), dict(looks.account("a").by_label.get("xids", {}))) == (4, {})
    looks.at(25, page.replace("9000", "9500"), {"b": whole(0)})
    assert (joules(looks.account("b")), seconds(looks.account("b").amounts.get("active_ns"))) == (0.5, 5)


def test_a_file_of_version_2_is_gone_on_with() -> None:
    """It was written by the exporter of that version: a held the GPU for 20 s, then b, since the page's second read."""
    looks = Looks(ledger=restore((DATA / "accounting-state-2").read_bytes(), 1_000 * SECOND, 20 * SECOND))
    a = looks.account("a")
    assert (
        joules(a),
        seconds(a.amounts.get("allocated_ns")),
        seconds(a.amounts.get("active_ns")),
        seconds(a.amounts.get("observed_ns")),
    ) == (2.5, 20, 10, 20)
    looks.at(30, energy("9500") + row(ACTIVE, "0.5"), {"b": whole(0)})
    assert [joules(looks.account(pod)) for pod in "ab"] == [3.5, 1]
    assert seconds(looks.account("b").amounts.get("active_ns")) == 5


# issue 15, line 9
@pytest.mark.parametrize("step", [-7_200, 0, 3_600, 86_400])
def test_a_wall_clock_that_is_set_credits_no_time_between_two_exporters(step: int) -> None:
    looks = Looks().at(0, energy("0"), {"a": whole(0)}).at(10, energy("1000"), {"a": whole(0)})
    data = dump(looks.ledger, 1_000 * SECOND, Boot("one", 400 * SECOND))
    ledger = restore(data, (1_019 + step) * SECOND, 500 * SECOND, Boot("one", (400 + step) * SECOND))
    found = Looks(ledger=ledger).at(500, energy("2000"), {"a": whole(0)})
    assert seconds(found.account("a").amounts.get("allocated_ns")) == 29
    assert found.ledger.accounts.gap_ns["exporter"] == 0


# issue 15, line 9
def test_a_night_in_which_the_machine_was_off_is_nobodys() -> None:
    for before, now, allocated, of_a in (("one", "two", 10, 1), ("one", "one", 110, 2), ("", "two", 110, 2)):
        looks = Looks().at(0, energy("0"), {"a": whole(0)}).at(10, energy("1000"), {"a": whole(0)})
        data = dump(looks.ledger, 1_000 * SECOND, Boot(before, 0))
        after = Looks(ledger=restore(data, 1_100 * SECOND, 0, Boot(now, 0)))
        after.at(0, energy("2000"), {"a": whole(0)})
        assert (seconds(after.account("a").amounts.get("allocated_ns")), joules(after.account("a"))) == (
            allocated,
            of_a,
        )
        assert joules(after.account(None)) == 2 - of_a


# issue 15, line 9
def test_a_night_is_credited_to_a_pod_by_its_uid_and_not_by_its_name() -> None:
    page, after = (energy(of) + energy(of, 1) for of in ("1000", "2000"))
    held, uids = {"named": whole(0), "columns": whole(1)}, {"columns": "u1"}
    for night, uid, named, columns in ((200, "u1", 210, 210), (30_000, "u1", 10, 30_010), (30_000, "u2", 10, 10)):
        looks = Looks().at(0, page, held, uids=uids).at(10, page, held, uids=uids)
        looks = Looks(ledger=restore(dump(looks.ledger, 1_000 * SECOND), (1_000 + night) * SECOND, 0))
        looks.at(0, after, held, uids={"columns": uid})
        of_pods = {
            of.owner.pod: seconds(of.amounts.get("allocated_ns"))
            for of in looks.ledger.accounts.rows
            if of.owner and of.amounts.get("allocated_ns")
        }
        assert of_pods == {"named": named, "columns": columns}


# issue 15, line 3
def test_devices_are_columns_after_a_restart_while_the_page_is_away() -> None:
    held = {"a": [("nvidia.com/gpu", "nvidia0")]}
    looks = Looks().at(0, energy("0"), held).at(10, None, held)
    looks = Looks(ledger=restore(dump(looks.ledger, 1_000 * SECOND), 1_000 * SECOND, 10 * SECOND))
    looks.at(20, None, held).at(30, energy("3000"), held)
    assert (seconds(looks.account("a").amounts.get("allocated_ns")), joules(looks.account("a"))) == (30, 3)


def test_what_grew_while_a_page_stood_is_divided_after_a_restart_too() -> None:
    page = energy("5000") + row(ACTIVE, "0.5") + row("DCGM_FI_DEV_XID_ERRORS", "0")
    times = [kernels({"a": 5 * number, "b": 3 * number, "": 2 * number}) for number in range(4)]
    held = {"a": shared(0), "b": shared(1)}
    looks = Looks().at(0, page, {"c": whole(0)}).at(10, page, {"c": whole(0)})
    looks.at(20, page, held, sm_ns=times[1]).at(30, page, held, sm_ns=times[2])
    looks = Looks(ledger=restore(dump(looks.ledger, 1_000 * SECOND), 1_000 * SECOND, 30 * SECOND))
    looks.at(40, page.replace("5000", "9000").replace("} 0\n", "} 79\n"), held)
    # 2 of 4 J to c; for the second half the kernels are columns of a half
    assert {of.owner.pod if of.owner else "": joules(of) for of in looks.ledger.accounts.rows} == {
        "c": 2,
        "a": 1,
        "b": 0.6,
        "": 0.4,
    }
    assert looks.account(None).by_label["xids"] == {"79": 1}


def test_who_left_just_before_a_restart_may_still_be_whose_an_xid_is() -> None:
    looks = Looks().at(0, energy("1") + NO_XID, {"a": whole(0)}).at(10, energy("2") + NO_XID, {"b": whole(0)})
    for ledger in (looks.ledger, restore(dump(looks.ledger, 1_000 * SECOND), 1_000 * SECOND, 10 * SECOND)):
        page = energy("3") + NO_XID.replace("} 0", "} 79")
        after = Looks(ledger=ledger).at(20, page, {"b": whole(0)})
        assert [
            (of.owner, of.by_label.get("xids")) for of in after.ledger.accounts.rows if of.by_label.get("xids")
        ] == [(None, {"79": 1})]


def test_a_clock_that_was_set_back_puts_nothing_into_the_future() -> None:
    looks = Looks(ledger=restore(saved(), 10 * SECOND, 5 * SECOND)).at(6, energy("9000"), {"a": whole(0)})
    assert seconds(looks.account("a").amounts.get("allocated_ns")) == 11


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "it is not the state of this exporter's accounting"),
        (b"something else\n", "it is not the state of this exporter's accounting"),
        (saved().replace(b"accounting 9", b"accounting x"), "it is not the state of this exporter's accounting"),
        (
            saved().replace(b"accounting 9", b"accounting 10"),
            "it is of version 10, and this exporter knows versions up to 9",
        ),
        (saved()[:-100], "it is damaged: its checksum is another"),
    ],
)
def test_what_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        restore(data, 0, 0)


KEY = DeviceKey(uuid=GPU(0))


# issue 30, line 2: a restart reads no line of the kernel's log twice
@pytest.mark.parametrize(
    ("kept", "boot", "goes_on"),
    [(77, "a-boot", 77), (None, "a-boot", None), (77, "another", -1), (None, "another", None)],
)
def test_the_kernel_s_log_is_read_on_from_the_last_record_of_its_boot(
    kept: int | None, boot: str, goes_on: int | None
) -> None:
    looks = Looks().at(0, energy("5000"), {"a": whole(0)})
    if kept is not None:
        looks.ledger.note_kernel_log({(KEY, owner("a"), 79): 2, (KEY, None, 48): 1}, kept, 0)
    data = dump(looks.at(10, energy("7500"), {"a": whole(0)}).ledger, 1_000 * SECOND, Boot("a-boot", 1))
    ledger = restore(data, 1_010 * SECOND, 20 * SECOND, Boot(boot, 1))
    assert ledger.kernel_sequence == goes_on
    if kept is not None:
        assert Looks(ledger=ledger).account("a").by_label == {"xids": {"79": 2}}
        assert Looks(ledger=ledger).account(None).by_label == {"xids": {"48": 1}}


# issue 30, line 2
def test_while_the_kernel_s_log_is_read_the_xids_of_pages_are_not_counted() -> None:
    def page(xid: int) -> str:
        return energy("5000") + row("DCGM_FI_DEV_XID_ERRORS", str(xid))

    looks = Looks().at(0, page(0), {"a": whole(0)})
    looks.ledger.note_kernel_log({(KEY, owner("a"), 31): 1}, 5, 0)
    looks.at(10, page(31), {"a": whole(0)})
    assert looks.account("a").by_label == {"xids": {"31": 1}}
    # it is turned off: what the page has shown by then stays counted once
    looks.ledger.kernel_sequence = None
    looks.at(20, page(31), {"a": whole(0)}).at(30, page(79), {"a": whole(0)})
    assert looks.account("a").by_label == {"xids": {"31": 1, "79": 1}}


def test_xids_of_more_kinds_than_there_are_count_as_others() -> None:
    looks = Looks().at(0, energy("5000"), {"a": whole(0)})
    looks.ledger.note_kernel_log({(KEY, owner("a"), number): 1 for number in range(1, 100)}, 5, 0)
    looks.at(10, energy("5000"), {"a": whole(0)})
    assert len(looks.account("a").by_label["xids"]) == 65
    assert looks.account("a").by_label["xids"]["other"] == 35


def signed(body: bytes) -> bytes:
    """This content as if the exporter itself had written it."""
    return (
        saved().partition(b"accounting ")[0]
        + b"accounting 9 "
        + sha256(b"9 " + body).hexdigest().encode()
        + b"\n"
        + body
    )


FORM: dict[str, str] = {
    "content": "40a0a65773bb",
    "Entry": "da5ccd26121e",
    "Owner": "6c944b90a675",
    "DeviceKey": "94c1e96ec257",
    "HeldGpu": "9d9834eb0f15",
    "Device": "c45e90bb0dd6",
    "GpuState": "762e5c87ce9e",
    "GpuSamples": "3206bdba8f2a",
    "CountersAtLook": "a90d9e3b9d13",
    "Stretch": "110489f9e995",
    "Activity": "703493f369c8",
    "Energy": "5d07f57d43fa",
    "Xids": "57dc439414c6",
    "XidSamples": "2c32cd861129",
    "Throttling": "d3da55b992e7",
    "IdlePower": "fe9fd7f9edb5",
}


def form(hint: object, columns: dict[str, str]) -> str:
    """A type in words; `columns` learns the columns of the records in it."""
    kind, inner = get_origin(hint) or hint, get_args(hint)
    name = "|" if kind is UnionType else getattr(kind, "__name__", str(kind))
    if is_dataclass(kind) and isinstance(kind, type) and name not in columns:
        columns[name] = ""
        columns[name] = ", ".join(f"{column}: {form(of, columns)}" for column, of in columns_of(kind).items())
    return f"{name}[{', '.join(form(each, columns) for each in inner)}]" if inner else name


# issue 16, line 7: where this fails, the form of the file has changed: it needs a new VERSION, and a reader of files
# of the version before. An amount that is new, and all that belongs to it alone, is left out: it needs neither.
def test_the_form_of_a_version_does_not_change() -> None:
    columns: dict[str, str] = {"content": ", ".join(sorted(json.loads(saved().partition(b"\n")[2])))}
    for kind in (Entry, HeldGpu, GpuState, IdlePower, *map(type, new_amounts().values())):
        form(kind, columns)
    digests: dict[str, str] = {name: sha256(text.encode()).hexdigest()[:12] for name, text in columns.items()}
    assert (VERSION, {name: digests[name] for name in FORM}) == (9, FORM)


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


def restored_with(amount: bytes) -> int:
    """The microjoules of `saved`, with another number in the file."""
    body = saved().partition(b"\n")[2].replace(b'"energy_uj":2500000', b'"energy_uj":' + amount)
    return Looks(ledger=restore(signed(body), 1_000 * SECOND, 0)).account("a").amounts["energy_uj"]


def test_whole_numbers_are_read_exactly_up_to_the_limit_of_all() -> None:
    assert restored_with(b"9007199254740993") == 2**53 + 1
    assert restored_with(b"-9007199254740993") == -(2**53) - 1
    assert restored_with(b"9e199") == 9e199
    for beyond in (b"1e200", b"-1e200"):
        with pytest.raises(ValueError, match="it is damaged: ValueError while reading it"):
            restored_with(beyond)


@pytest.mark.parametrize(
    ("step_ns", "boots", "seconds_held"),
    [
        (SECOND - 1, ("one", "one"), 29),
        (1 - SECOND, ("one", "one"), 29),
        (SECOND, ("one", "one"), 28),
        (-SECOND, ("one", "one"), 30),
        # nobody knows that it is the same boot
        (7 * SECOND, ("", ""), 29),
        (7 * SECOND, ("one", ""), 29),
        (7 * SECOND, ("", "one"), 29),
    ],
)
def test_a_step_of_the_wall_clock_counts_from_a_second_on(
    step_ns: int, boots: tuple[str, str], seconds_held: float
) -> None:
    looks = Looks().at(0, energy("0"), {"a": whole(0)}).at(10, energy("1000"), {"a": whole(0)})
    data = dump(looks.ledger, 1_000 * SECOND, Boot(boots[0], 400 * SECOND))
    ledger = restore(data, 1_019 * SECOND, 500 * SECOND, Boot(boots[1], 400 * SECOND + step_ns))
    after = Looks(ledger=ledger).at(500, energy("2000"), {"a": whole(0)})
    assert seconds(after.account("a").amounts.get("allocated_ns")) == seconds_held


@pytest.mark.parametrize(("away_ns", "allocated"), [(300 * SECOND, 310), (300 * SECOND + 1, 10)])
def test_a_name_holds_for_five_minutes_without_an_exporter(away_ns: int, allocated: float) -> None:
    looks = Looks(ledger=restore(saved(), 1_000 * SECOND + away_ns, 0)).at(0, energy("7500"), {"a": whole(0)})
    assert seconds(looks.account("a").amounts.get("allocated_ns")) == allocated


def test_after_another_boot_a_uid_does_not_hold_either() -> None:
    held, uids = {"a": whole(0)}, {"a": "u1"}
    looks = Looks().at(0, energy("0"), held, uids=uids).at(10, energy("1000"), held, uids=uids)
    data = dump(looks.ledger, 1_000 * SECOND, Boot("one"))
    for boot, allocated in (("one", 30), ("two", 10)):
        after = Looks(ledger=restore(data, 1_020 * SECOND, 0, Boot(boot))).at(0, energy("1000"), held, uids=uids)
        assert seconds(after.account("a").amounts.get("allocated_ns")) == allocated


def test_a_look_at_the_moment_0_is_a_look() -> None:
    looks = Looks().at(0, energy("0"), {"a": whole(0)})
    ledger = restore(dump(looks.ledger, 1_000 * SECOND), 1_000 * SECOND, 50 * SECOND)
    assert (ledger.began_at_ns, ledger.counted_at_ns) == (50 * SECOND, 50 * SECOND)
    assert ledger.holders.subjects.keys() == looks.ledger.holders.subjects.keys()


def test_a_ledger_without_a_look_begins_at_the_first_look_after_it() -> None:
    ledger = restore(dump(Looks().ledger, 1_000 * SECOND), 1_100 * SECOND, 5 * SECOND)
    assert (ledger.look, ledger.counted_at_ns, ledger.began_at_ns, ledger.gaps.noted_at_ns) == (0, None, None, None)
    assert Looks(ledger=ledger).at(5, energy("1"), {"a": whole(0)}).ledger.accounts.gap_ns["exporter"] == 0


def test_moments_are_as_long_ago_as_they_were() -> None:
    ledger = restore(saved(), 1_003 * SECOND, 500 * SECOND)
    assert (ledger.look, ledger.began_at_ns, ledger.counted_at_ns, ledger.gaps.noted_at_ns) == (
        2,
        487 * SECOND,
        497 * SECOND,
        497 * SECOND,
    )


def test_what_failed_before_a_restart_is_the_reason_of_the_gap() -> None:
    looks = Looks().at(0, energy("0"), {"a": whole(0)}).at(10, energy("1"), None, kubelet=False)
    before = looks.ledger.accounts.gap_ns["kubelet"]
    looks = Looks(ledger=restore(dump(looks.ledger, 1_000 * SECOND), 1_000 * SECOND, 10 * SECOND))
    assert looks.ledger.accounts.gap_ns["kubelet"] == before
    looks.at(20, energy("2"), {"a": whole(0)})
    assert looks.ledger.accounts.gap_ns["kubelet"] == before + 10 * SECOND


def test_how_often_accounts_were_shown_survives_a_restart() -> None:
    looks = Looks().at(0, energy("0"), {"a": whole(0)})
    for _ in range(3):
        looks.ledger.note_shown()
    assert restore(dump(looks.ledger, 0), 0, 0).entries.shown == 3


def test_the_power_at_rest_survives_a_restart() -> None:
    looks = Looks()
    for number in range(3):
        looks.at(10 * number, energy(f"{100_000 * number}"))
    (before,) = looks.ledger.idle_powers.values()
    ledger = restore(dump(looks.ledger, 0), 0, 0)
    (after,) = ledger.idle_powers.values()
    assert (after.lowest, after.has_rested) == (before.lowest, before.has_rested) == ((10**8, 10 * SECOND), True)


def test_a_file_of_version_7_tells_the_lowest_power() -> None:
    ledger = restore((DATA / "accounting-state-7").read_bytes(), 1_000 * SECOND, 20 * SECOND)
    assert [power.lowest for power in ledger.idle_powers.values()] == [(1_000, 5 * SECOND)]


def test_a_file_that_lacks_a_part_is_damaged() -> None:
    body = saved().partition(b"\n")[2].replace(b'"gpus":', b'"cards":')
    with pytest.raises(ValueError, match=r"^it is damaged: KeyError while reading it$"):
        restore(signed(body), 0, 0)


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
