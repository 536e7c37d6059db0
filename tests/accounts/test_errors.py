"""XIDs and throttling: whose they are, by tables."""

import pytest

from exporter.accounts.amounts.xids import add
from exporter.accounts.entries import Entry
from exporter.dcgm.xids import XIDS
from exporter.model.devices import DeviceKey
from tests.support.looks import GPU, Held, Looks, energy, owner, row, whole
from tests.support.xids import INFORMING

COUNT, TOTAL = "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_XID_ERRORS_TOTAL"
NONE = row(COUNT, "0", window_size_in_ms="300000")
# What a page says of XIDs (the value of the field, then counts by XID), and who holds the GPU; one look after the other
Step = tuple[str, str]


def last(xid: int | str) -> str:
    return row("DCGM_FI_DEV_XID_ERRORS", str(xid), err_code=str(xid), err_msg="x")


def count(**by_xid: int) -> str:
    return "".join(
        row(COUNT, str(number), window_size_in_ms="300000", xid=xid.removeprefix("x")) for xid, number in by_xid.items()
    )


def total(**by_xid: int) -> str:
    return count(**by_xid).replace(COUNT, TOTAL)


def xids(looks: Looks) -> dict[str, dict[str, int]]:
    """What was counted, by pod ("" for nobody)."""
    return {
        account.owner.pod if account.owner else "": dict(account.by_label["xids"])
        for account in looks.ledger.accounts.rows
        if account.by_label.get("xids")
    }


def after(*steps: Step) -> dict[str, dict[str, int]]:
    looks = Looks()
    for number, (page, pods) in enumerate(steps):
        looks.at(10 * number, energy(f"{number}") + page, {pod: whole(0) for pod in pods})
    return xids(looks)


# issue 9, "Must show" 4
@pytest.mark.parametrize(
    ("steps", "counted"),
    [
        (
            [(last(0), "a"), (last(0), "b"), (last(0), "b"), (last(79), "b"), (last(79), "c"), (last(79), "c")],
            {"b": {"79": 1}},
        ),
        # a may have left just before the second look, and the page have been read just after the first one
        ([(last(0), "a"), (last(0), "b"), (last(79), "b")], {"": {"79": 1}}),
        ([(last(0), "a"), (last(0), ""), (last(79), "")], {"a": {"79": 1}}),
        ([(last(0), "a"), (last(79), "b")], {"a": {"79": 1}}),  # b came after it
        ([(last(0), ""), (last(79), "b")], {"b": {"79": 1}}),
        ([(last(0), ""), (last(79), "")], {"": {"79": 1}}),
        ([(last(0), "ab"), (last(79), "ab")], {"": {"79": 1}}),  # nobody can say whose it was
        ([(last(79), "a"), (last(79), "a")], {}),  # the first look counts nothing
        ([(last(79), "a"), (last(0), "a"), (last(79), "a")], {"a": {"79": 1}}),
        ([(last(79), "a"), ("", "a"), (last(79), "a")], {}),
        ([(last(79), "a"), (last("9223372036854775794"), "a"), (last(79), "a")], {}),
        ([(last(79), "a"), (last(13), "a"), (last(79), "a")], {"a": {"13": 1, "79": 1}}),
        ([(last(0), "a"), (last(4_000_000), "a")], {}),  # no XID
        ([(last(0), "a"), (last(1_000), "a")], {}),
        ([(last(0), "a"), (last(999), "a")], {"a": {"999": 1}}),
        # issue 22, line 7: what the driver recommends is no error
        ([(last(0), "a"), (last(154), "a")], {}),
        ([(last(0), "a"), (last(79), "a"), (last(154), "a")], {"a": {"79": 1}}),
    ],
)
def test_the_last_xid(steps: list[Step], counted: dict[str, dict[str, int]]) -> None:
    assert after(*steps) == counted


# issue 22, line 7
@pytest.mark.parametrize("xid", XIDS)
def test_an_xid_that_only_informs_is_not_counted(xid: int) -> None:
    errors = {} if xid in INFORMING else {"a": {str(xid): 1}}
    assert after((last(0), "a"), (last(xid), "a")) == errors
    assert after((NONE, "a"), (count(**{f"x{xid}": 1}), "a")) == errors
    assert after((total(x999=1), "a"), (total(**{"x999": 1, f"x{xid}": 1}), "a")) == errors


# issue 9, "Must show" 4
@pytest.mark.parametrize(
    ("first", "second", "counted"),
    [
        (last(79), last(79), {"79": 1}),  # the same XID again: the field alone cannot tell
        (last(79) + count(x79=1), last(79) + count(x79=2), {"79": 2}),
        (last(79) + count(x79=1), last(79) + NONE, {"79": 1}),  # it fell out of the window
        (last(79) + count(x79=2, x13=1), last(79) + count(x79=1, x13=2), {"79": 2, "13": 2}),
        (last(79) + total(x79=1), last(79) + total(x79=2), {"79": 2}),
        (last(79) + total(x79=3), last(79) + total(x79=1), {"79": 4}),  # dcgm-exporter started again
        (last(79), last(79) + total(x79=1), {"79": 1}),  # it counts a little later than the field changes
        (last(79), last(79) + total(x79=2), {"79": 2}),
        (count(x79=1, x0=7, x123456=3, xzz=1), NONE, {"79": 1}),
        (last(154) + count(x79=1, x154=2), NONE, {"79": 1}),
    ],
)
def test_the_same_xid_again(first: str, second: str, counted: dict[str, int]) -> None:
    before = last(0) + (NONE if COUNT in first else "")
    assert after((before, "a"), (before, "a"), (first, "a"), (second, "b"), (second, "b")) == {"a": counted}


@pytest.mark.parametrize(("later", "counted"), [(60, 1), (60.000000001, 2)])
def test_an_error_is_the_same_if_it_is_counted_within_a_minute(later: float, counted: int) -> None:
    looks = Looks()
    for moment, page in ((0, last(0)), (10, last(79)), (10 + later, last(79) + total(x79=1))):
        looks.at(moment, energy(f"{moment}") + page, {"a": whole(0)})
    assert xids(looks) == {"a": {"79": counted}}


def test_only_the_error_that_was_seen_is_taken_off_the_first_counts() -> None:
    assert after((last(0), "a"), (last(79), "a"), (last(79) + total(x79=1, x13=2), "a")) == {"a": {"79": 1, "13": 2}}
    assert after((last(0), "a"), (last(79), "a"), (last(79) + total(x13=2), "a")) == {"a": {"79": 1, "13": 2}}
    assert after((last(0), "a"), (last(0) + total(x79=2), "a")) == {"a": {"79": 2}}


def test_of_very_many_kinds_of_xids_the_first_keep_their_numbers() -> None:
    entry = Entry(owner("a"), "", DeviceKey(uuid="GPU-1"))
    for _ in range(2):
        add(entry, dict.fromkeys(range(100, 170), 1))
    assert entry.by_label["xids"] == {**{str(xid): 2 for xid in range(100, 164)}, "other": 12}


def test_an_xid_of_a_gap_before_the_first_holder_is_nobodys() -> None:
    looks = Looks().at(0, energy("0") + last(0)).at(10, energy("1") + last(0))
    looks.at(500, energy("2") + last(79), {"b": whole(0)})
    assert xids(looks) == {"": {"79": 1}}


def test_counts_that_were_there_before_are_not_counted() -> None:
    assert after((count(x79=3), "a"), (count(x79=3), "a")) == {}
    assert after((total(x79=3), "a"), (total(x79=3), "a")) == {}


def test_an_xid_of_a_gap_is_whose_the_gpu_was_at_both_ends() -> None:
    for pod, whose in (("a", "a"), ("b", "")):
        looks = Looks().at(0, last(0), {"a": whole(0)}).at(10, last(0), {"a": whole(0)}, kubelet=False)
        assert xids(looks.at(20, last(79), {pod: whole(0)})) == {whose: {"79": 1}}


def test_an_xid_on_the_rows_of_instances_is_counted_once() -> None:
    cut = {f"MIG-{number}": (0, str(number), "1g.10gb") for number in (1, 2)}

    def page(xid: int) -> str:
        return "".join(row("DCGM_FI_DEV_XID_ERRORS", str(xid), instance=i, profile="1g.10gb") for i in "12")

    one: Held = {"a": [("r", "MIG-1"), ("r", "MIG-2")]}
    two: Held = {"a": [("r", "MIG-1")], "b": [("r", "MIG-2")]}
    assert xids(Looks(mig=cut).at(0, page(0), one).at(10, page(31), one)) == {"a": {"31": 1}}
    looks = Looks(mig=cut).at(0, page(0), two).at(10, page(31), two)
    (nobodys,) = [account for account in looks.ledger.accounts.rows if account.by_label.get("xids")]
    assert (nobodys.owner, nobodys.device, nobodys.by_label["xids"]) == (None, DeviceKey(uuid=GPU(0)), {"31": 1})
    # the GPU's own row is there as long as the GPU
    for moment in range(20, 1000, 10):
        looks.at(moment, page(31), two)
        looks.ledger.note_shown()
    assert xids(looks) == {"": {"31": 1}}


NS = 1_000_000_000
REASONS, VIOLATION = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_{}_VIOLATION"


@pytest.mark.parametrize(
    ("before", "now", "throttled"),
    [
        (row(VIOLATION.format("POWER"), "5000000000"), row(VIOLATION.format("POWER"), "8500000000"), {"power": 3.5}),
        (
            row("DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", "5.25"),
            row("DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", "6.5"),
            {"thermal": 1.25},
        ),
        (row(REASONS, "0"), row(REASONS, "4"), {}),
        (row(REASONS, "4"), row(REASONS, "0"), {"power": 10}),
        (row(REASONS, str(0x20 | 0x10)), row(REASONS, "0"), {"thermal": 10, "sync_boost": 10}),
        (row(REASONS, str(0x8 | 0x40)), row(REASONS, "0"), {"thermal": 10}),
        (row(REASONS, str(0x8 | 0x80)), row(REASONS, "0"), {"power": 10}),
        (row(REASONS, "8"), row(REASONS, "0"), {"hw_slowdown": 10}),
        (row(REASONS, "1"), row(REASONS, "1"), {}),  # idle
        # what has a counter goes by the counter
        (
            row(REASONS, str(0x4 | 0x20)) + row(VIOLATION.format("POWER"), "0"),
            row(REASONS, "0") + row(VIOLATION.format("POWER"), "2000000000"),
            {"power": 2, "thermal": 10},
        ),
    ],
)
def test_throttling(before: str, now: str, throttled: dict[str, float]) -> None:
    looks = Looks().at(0, energy("1") + before, {"a": whole(0)}).at(10, energy("1") + now, {"b": whole(0)})
    of_a = {reason: ns / NS for reason, ns in looks.account("a").by_label["throttled_ns"].items()}
    assert {reason: time for reason, time in of_a.items() if time} == throttled
    # each reason that the page tells of begins at 0
    assert set(of_a) >= set(throttled)
    assert not any(looks.account("b").by_label["throttled_ns"].values())


def test_throttling_goes_by_the_part_that_is_held() -> None:
    shared = "nvidia.com/gpu.shared"
    looks = Looks(offered={(shared, DeviceKey(uuid=GPU(0))): 4})
    held: Held = {"a": [(shared, f"{GPU(0)}::1")]}
    looks.at(0, row(VIOLATION.format("POWER"), "0"), held).at(10, row(VIOLATION.format("POWER"), "8000000000"), held)
    found = {account.owner: account.by_label["throttled_ns"]["power"] / NS for account in looks.ledger.accounts.rows}
    assert found == {owner("a"): 2, None: 6}


def test_throttling_in_a_gap() -> None:
    page = row(REASONS, "4") + row(VIOLATION.format("THERMAL"), "0")
    looks = Looks().at(0, page, {"a": whole(0)}).at(10, page, kubelet=False)
    looks.at(20, page.replace("} 0", "} 3000000000"), {"a": whole(0)})
    assert looks.account("a").by_label["throttled_ns"] == {
        "power": 0,
        "sync_boost": 0,
        "hw_slowdown": 0,
        "thermal": 3 * NS,
    }
