"""dcgm-exporter reads its GPUs less often than looks are made: what appears when its page changes, and whose it is."""

import pytest

from exporter.model.devices import DeviceKey
from tests.support.looks import GPU, SECOND, Held, Looks, energy, joules, owner, row, seconds, whole

ACTIVE, POWER, XID = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_XID_ERRORS"
VIOLATION, REASONS = "DCGM_FI_DEV_POWER_VIOLATION", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"


def looked(*steps: tuple[str, str], apart: int = 10) -> Looks:
    """Looks, each at a page that somebody holds GPU 0 under."""
    looks = Looks(offered={("nvidia.com/gpu", DeviceKey(uuid=GPU(0))): 1})
    for number, (page, pods) in enumerate(steps):
        looks.at(apart * number, page, {pod: whole(0) for pod in pods})
    return looks


def of_pods(looks: Looks) -> dict[str, float | None]:
    """Joules by pod ("" for nobody)."""
    return {account.owner.pod if account.owner else "": joules(account) for account in looks.ledger.accounts.rows}


def test_energy_goes_to_all_who_held_the_gpu_since_it_grew() -> None:
    stands, grown = energy("1000"), energy("4000")
    assert of_pods(looked((stands, "a"), (stands, "a"), (stands, "b"), (grown, "b"))) == {"a": 2, "b": 1, "": 0}
    assert of_pods(looked((stands, "a"), (stands, ""), (stands, ""), (grown, "b"))) == {"a": 1, "b": 0, "": 2}
    assert of_pods(looked((stands, "a"), (stands, "b"), (stands, "a"), (grown, "c"))) == {"a": 2, "b": 1, "c": 0, "": 0}
    # what cannot be divided into microjoules is not lost
    looks = looked((energy("0"), "a"), (energy("0"), "b"), (energy("0"), "c"), (energy("1"), "c"))
    assert [account.amounts.get("energy_uj") for account in looks.ledger.accounts.rows if account.owner] == [
        334,
        333,
        333,
    ]


def test_energy_is_divided_by_the_time_between_looks() -> None:
    looks = Looks().at(0, energy("0"), {"a": whole(0)}).at(4, energy("0"), {"b": whole(0)})
    assert of_pods(looks.at(10, energy("1000"), {"b": whole(0)})) == {"a": 0.4, "b": 0.6, "": 0}


def test_in_a_gap_of_a_standing_page_energy_goes_to_those_at_both_its_ends() -> None:
    for after, expected in (("a", {"a": 2.5, "b": 0.5, "": 0}), ("c", {"a": 0.5, "b": 0.5, "c": 0, "": 2})):
        looks = Looks().at(0, energy("0"), {"b": whole(0)}).at(10, energy("0"), {"a": whole(0)})
        looks.at(20, energy("0"), {"a": whole(0)}).at(40, energy("0"), kubelet=False)
        looks.at(60, energy("0"), {after: whole(0)})
        # who was there at the end of the gap is gone when it is known how much it was
        looks.at(60, energy("3000"), {"d": whole(0)})
        assert {pod: of for pod, of in of_pods(looks).items() if pod != "d"} == expected


# issue 9, "Must show" 4: the page stands still while pods change
@pytest.mark.parametrize(
    ("steps", "whose"),
    [
        ([(0, 0, "a"), (0, 0, "a"), (0, 0, "a"), (1, 79, "a")], "a"),
        ([(0, 0, "a"), (0, 0, "a"), (0, 0, "b"), (1, 79, "b")], ""),  # it may have been a's
        ([(0, 0, "a"), (0, 0, ""), (0, 0, "b"), (1, 79, "b")], ""),
        ([(0, 0, "a"), (0, 0, ""), (0, 0, ""), (1, 79, "")], "a"),  # a crashed with it, and was gone at once
        ([(0, 0, "a"), (0, 0, ""), (0, 0, ""), (1, 79, "b")], "a"),
        ([(0, 0, ""), (0, 0, "b"), (0, 0, "b"), (1, 79, "b")], "b"),
        ([(0, 0, "a"), (1, 0, "b"), (1, 0, "b"), (2, 79, "b")], ""),  # a may have left after the second read
        ([(0, 0, "a"), (1, 0, ""), (1, 0, "b"), (2, 79, "b")], ""),
        ([(0, 0, "a"), (1, 0, "b"), (2, 0, "b"), (3, 79, "b")], "b"),
        ([(0, 0, "a"), (0, 79, "b"), (0, 79, "b"), (1, 79, "b")], "a"),  # some are told as they happen
        ([(0, 0, "a"), (0, 0, "b"), (0, 79, "b"), (1, 79, "b")], ""),
        ([(0, 0, "a"), *([(0, 0, "b")] * 13), (0, 79, "b")], "b"),  # no page stands still for two minutes
        ([(0, 0, "a"), *([(0, 0, "b")] * 10), (0, 79, "b")], ""),
    ],
)
def test_an_xid_is_nobodys_if_the_gpu_changed_hands_since_the_page_was_new(
    steps: list[tuple[int, int, str]], whose: str
) -> None:
    looks = looked(*((energy(str(read)) + row(XID, str(xid)), pods) for read, xid, pods in steps))
    found = {
        account.owner: dict(account.by_label["xids"])
        for account in looks.ledger.accounts.rows
        if account.by_label.get("xids")
    }
    assert found == {owner(whose) if whose else None: {"79": 1}}


def times(looks: Looks, pod: str) -> tuple[float | None, float | None]:
    account = looks.account(pod)
    return seconds(account.amounts.get("active_ns")), seconds(account.amounts.get("idle_ns"))


def test_how_active_a_gpu_is_says_the_next_page_of_those_who_came_since() -> None:
    busy, idle, half = (energy(str(number)) + row(ACTIVE, of) for number, of in enumerate(("1", "0", "0.5")))
    looks = looked((busy, "a"), (busy, "b"), (busy, "b"), (idle, "b"), (idle, "b"))
    # it describes a time in which a held it, too: the last 10 s wait for another one
    assert (times(looks, "a"), times(looks, "b")) == ((10, 0), (0, 20))
    looks = looked((busy, "a"), (busy, "b"), (idle, "b"), (half, "b"), (idle, "b"))
    assert (times(looks, "a"), times(looks, "b")) == ((10, 0), (10, 10))
    # who came together with a page is not in it yet
    looks = looked((busy, "a"), (idle, "b"), (idle, "b"), (half, "b"))
    assert (times(looks, "a"), times(looks, "b")) == ((10, 0), (10, 0))
    # a page that stands still for two minutes is no old one
    looks = looked((busy, "a"), *([(busy, "b")] * 12))
    assert (times(looks, "a"), times(looks, "b")) == ((10, 0), (110, 0))


def test_power_and_reasons_of_throttling_are_whose_the_next_page_says() -> None:
    first, second = (row(POWER, watts) + row(REASONS, bits) for watts, bits in (("300", "4"), ("60", "0")))
    looks = looked((first, "a"), (first, "b"), (first, "b"), (second, "b"), (second, "b"))
    assert of_pods(looks) == {"a": 3000, "b": 60 * 20, "": 0}
    assert looks.account("a").by_label["throttled_ns"]["power"] == 10 * SECOND
    assert looks.account("b").by_label["throttled_ns"]["power"] == 0


def test_throttled_time_goes_to_all_holders_since_the_page_was_new() -> None:
    def page(read: int, throttled: int) -> str:
        return energy(str(read)) + row(VIOLATION, str(throttled * SECOND))

    looks = looked((page(0, 0), "a"), (page(0, 0), "b"), (page(1, 6), "b"))
    assert [looks.account(pod).by_label["throttled_ns"]["power"] / SECOND for pod in "ab"] == [3, 3]
    # that the counter stood still does not say that it was not read
    looks = looked((page(0, 0), "a"), (page(1, 0), "a"), (page(2, 0), "b"), (page(2, 0), "b"), (page(3, 6), "b"))
    assert [looks.account(pod).by_label["throttled_ns"]["power"] / SECOND for pod in "ab"] == [0, 6]


def test_who_held_a_gpu_too_long_ago_is_not_remembered() -> None:
    looks = Looks()
    for number in range(100):
        looks.at(number, energy("0"), {f"p{number}": whole(0)})
    looks.at(100, energy("100000"), {"last": whole(0)})
    found: dict[str, float | None] = of_pods(looks)
    assert (found["p0"], found["p35"], found["p37"], found["p99"], found[""]) == (0, 0, 1, 1, 37)
    held: Held = {"last": whole(0)}
    state = looks.at(101, energy("100001"), held).ledger.states[GPU(0)]
    assert all(not counters.stretches for counters in state.counters)


@pytest.mark.parametrize(("away", "joules_of_a", "throttled", "replays"), [(299, 2, 6, 4), (300, 0, 0, 0)])
def test_a_counter_that_the_page_lacks_is_remembered_for_five_minutes(
    away: int, joules_of_a: float, throttled: float, replays: int
) -> None:
    def page(milli_joules: int, throttled_ns: int, replayed: int) -> str:
        return (
            energy(f"{milli_joules}")
            + row(VIOLATION, f"{throttled_ns}")
            + row("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", f"{replayed}")
            + row(ACTIVE, "0")
        )

    held = {"a": whole(0)}
    looks = Looks().at(0, page(1_000, SECOND, 3), held).at(away, row(ACTIVE, "0"), held)
    account = looks.at(400, page(3_000, 7 * SECOND, 7), held).account("a")
    # a page that is late, but has them, loses nothing
    late = Looks().at(0, page(1_000, SECOND, 3), held).at(400, page(3_000, 7 * SECOND, 7), held).account("a")
    assert (joules(late), late.by_label["throttled_ns"]["power"]) == (2, 6 * SECOND)
    assert late.by_label["link_errors"] == {"pcie_replay/": 4}
    assert joules(account) == joules_of_a
    assert account.by_label["throttled_ns"]["power"] == throttled * SECOND
    assert sum(account.by_label.get("link_errors", {}).values()) == replays
