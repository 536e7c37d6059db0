"""Active, observed and idle time where holders change, at the limits of what is idle, and by measured kernels."""

import pytest

from exporter.accounts.ledger import Rules
from exporter.accounts.stretches import SmNs
from exporter.model.accounts import Account
from tests.support.looks import GPU, SECOND, Held, Looks, energy, kernels, row, seconds, whole

ACTIVE, UTIL = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"
NOBODY: Held = {}
A: Held = {"a": whole(0)}
B: Held = {"b": whole(0)}
C: Held = {"c": whole(0)}


def shares(*pods: str) -> Held:
    """Pods with one share each of the first GPU."""
    return {pod: [("nvidia.com/gpu.shared", f"{GPU(0)}::{share}")] for share, pod in enumerate(pods)}


AB = shares("a", "b")
ALONE: Held = {"b": AB["b"]}


def page(read: int, active: str | None = None) -> str:
    """A read of the GPU; without an activity if there is none."""
    return energy(str(1000 * read)) + (row(ACTIVE, active) if active is not None else "")


def ran(**of_pods: float) -> SmNs:
    """For how many seconds kernels ran, by pod."""
    return kernels({**{pod: round(SECOND * of) for pod, of in of_pods.items()}, "": 0})


def times_of(account: Account) -> dict[str, float | None]:
    """Active, observed, idle and unknown seconds; those that have no row are left out."""
    names = {"active": "active_ns", "observed": "observed_ns", "idle": "idle_ns", "unknown": "idle_unknown_ns"}
    return {word: seconds(account.amounts[name]) for word, name in names.items() if name in account.amounts}


def active_of(looks: Looks) -> dict[str, float | None]:
    """Active seconds by pod ("" for nobody)."""
    rows = looks.ledger.accounts.rows
    return {of.owner.pod if of.owner else "": seconds(of.amounts.get("active_ns")) for of in rows}


def since(looks: Looks, pod: str) -> float | None:
    return seconds(looks.account(pod).idle_since_ns)


def test_all_times_begin_at_0_for_who_holds_a_device_with_activity() -> None:
    looks = Looks().at(0, page(0, "0.5"), A)
    assert times_of(looks.account("a")) == {"active": 0, "observed": 0, "idle": 0, "unknown": 0}
    assert times_of(looks.account(None)) == {}
    looks.at(10, page(1, "0.5"), B)
    assert times_of(looks.account("b")) == {"active": 0, "observed": 0, "idle": 0, "unknown": 0}


def test_active_time_of_nobody_begins_at_0_where_kernels_are_measured() -> None:
    looks = Looks().at(0, page(0, "0.5"), A, sm_ns=ran(a=0)).at(10, page(1, "0.5"), A, sm_ns=ran(a=1))
    assert times_of(looks.account(None)) == {"active": 0}


def test_without_activity_on_the_page_kernels_begin_no_row() -> None:
    looks = Looks().at(0, page(0), A, sm_ns=ran(a=0)).at(10, page(1), A, sm_ns=ran(a=1))
    assert (times_of(looks.account("a")), times_of(looks.account(None))) == ({}, {})


def test_only_devices_with_activity_on_the_page_have_its_rows() -> None:
    cut = {"MIG-1": (0, "1", "3g.40gb"), "MIG-2": (0, "2", "4g.40gb")}
    held = {"a": [("r", "MIG-1")], "b": [("r", "MIG-2")]}
    rows = row(ACTIVE, "0.5", instance="1", profile="3g.40gb") + energy("1", instance="2", profile="4g.40gb")
    looks = Looks(mig=cut).at(0, rows, held).at(7, rows, held)
    assert times_of(looks.account("a", instance="1")) == {"active": 1.5, "observed": 3, "idle": 0, "unknown": 0}
    assert times_of(looks.account("b", instance="2")) == {}


@pytest.mark.parametrize(
    ("later", "pod", "idle_since"),
    [
        ((B, C, C, C), "c", 20),  # the page of 30 s tells of b's time and c's
        ((B, B, C, C), "c", 30),
        ((A, A, A, A), "a", 0),
    ],
)
def test_who_comes_within_a_page_is_idle_since_its_own_look(later: tuple[Held, ...], pod: str, idle_since: int) -> None:
    looks = Looks().at(0, page(0, "0"), A)
    for number, held in enumerate(later, 1):
        looks.at(10 * number, page(number // 3, "0"), held)
    looks.at(50, page(2, "0"), later[-1])
    assert since(looks, pod) == idle_since


def test_kernels_on_a_page_without_activity_divide_no_time() -> None:
    looks = Looks().at(0, page(0, "0"), A, sm_ns=ran(a=0))
    looks.at(10, page(0, "0"), B, sm_ns=ran(a=1, b=1)).at(20, page(0, "0"), B, sm_ns=ran(b=2))
    looks.at(30, page(1, "0"), B, sm_ns=ran(b=3)).at(40, page(2, "0"), B, sm_ns=ran(b=4))
    assert [times_of(looks.account(pod))["active"] for pod in "ab"] == [0, 0]


@pytest.mark.parametrize(
    ("holders", "mean", "active"),
    [
        # the window of the page is 30 s long: at its ends nobody gets more than a look's time
        ((A, NOBODY, NOBODY, NOBODY, NOBODY), "1", {"a": 10}),
        ((NOBODY, NOBODY, NOBODY, NOBODY, B), "1", {"b": 10}),
        ((A, NOBODY, NOBODY, NOBODY, B), "1", {"a": 10, "b": 10}),
        ((A, NOBODY, NOBODY, NOBODY, B), "0.2", {"a": 3, "b": 3}),
        ((NOBODY, NOBODY, NOBODY, NOBODY, B), "0.2", {"b": 6}),
        ((NOBODY, NOBODY, NOBODY, NOBODY, NOBODY), "1", {}),
        # b came before the last look, so only a may have more than the looks saw
        ((A, NOBODY, NOBODY, B, B), "0.8", {"a": 10, "b": 10}),
        ((A, NOBODY, B, B, NOBODY), "0.8", {"a": 4, "b": 20}),
        # what b may have had before a look saw it counts with the next page
        ((NOBODY, NOBODY, NOBODY, B, B), "1", {"b": 20}),
    ],
)
def test_active_time_without_a_holder_is_a_looks_time_of_its_neighbours(
    holders: tuple[Held, ...], mean: str, active: dict[str, float]
) -> None:
    looks = Looks().at(-20, page(0), holders[0]).at(-10, page(1), holders[0])
    for number, held in enumerate(holders[1:]):
        looks.at(10 * number, page(2 if number < 3 else 3, "0" if number < 3 else mean), held)
    looks.at(40, page(4, "0"), holders[-1]).at(50, page(5, "0"), C).at(60, page(6, "0"), C)
    assert {pod: of for pod, of in active_of(looks).items() if of} == active


def test_time_before_a_look_saw_the_holder_moves_on_page_by_page() -> None:
    looks = Looks().at(-10, page(0, "0")).at(0, page(1, "1"), B).at(10, page(1, "1"), B)
    assert active_of(looks.at(20, page(2, "1"), B))["b"] == 20
    assert active_of(looks.at(30, page(3, "0"), B))["b"] == 30
    assert active_of(looks.at(40, page(4, "0"), B))["b"] == 30


def test_time_before_a_look_saw_the_holder_is_let_go_after_a_gap() -> None:
    looks = Looks().at(-10, page(0, "0")).at(0, page(1, "1"), B).at(100, page(2, "1"), B)
    assert active_of(looks.at(110, page(3, "0"), B))["b"] == 0


def test_what_a_page_shows_of_steady_holders_is_not_counted_again() -> None:
    looks = Looks().at(0, page(0, "0"), A).at(10, page(1, "0"), A).at(20, page(2, "1"), A).at(30, page(2, "1"), B)
    assert active_of(looks.at(40, page(3, "0.5"), B)) == {"a": 10, "b": 0, "": None}


def test_what_others_did_while_nobody_held_the_gpu_takes_nothing_off() -> None:
    looks = Looks()
    for number, held in enumerate((NOBODY, NOBODY, NOBODY, A)):
        looks.at(10 * number, page(min(number, 1), "0.3"), held)
    assert active_of(looks.at(40, page(2, "0.3"), A))["a"] == 9


@pytest.mark.parametrize(("mean", "times"), [("0.3", {"active": 3, "observed": 0}), ("0", {})])
def test_who_left_before_activity_came_to_the_page_may_have_been_active(mean: str, times: dict[str, float]) -> None:
    looks = Looks().at(-10, page(0), A).at(0, page(1), NOBODY).at(10, page(2, mean), NOBODY)
    assert times_of(looks.account("a")) == times


@pytest.mark.parametrize(
    ("active", "of_kernels", "idle", "idle_since"),
    [
        ("0.05", None, 0, None),
        ("0.049999", None, 10, 0),
        # by kernels, a is as active as the page says; what no page saw says nothing of since when it is idle
        ("0.05", 5, 0, None),
        ("0.049999", 5, 10, None),
        ("0.5", 0.1, 0, None),
        ("0", 0.5, 10, None),
        ("0", 0.499, 10, 0),
    ],
)
def test_what_is_below_the_limit_is_idle_and_the_limit_itself_is_not(
    active: str, of_kernels: float | None, idle: float, idle_since: float | None
) -> None:
    measured = (None, None) if of_kernels is None else (ran(a=0), ran(a=of_kernels))
    looks = Looks()
    for number, sm_ns in enumerate(measured):
        looks.at(10 * number, page(number, active), A, sm_ns=sm_ns)
    assert (times_of(looks.account("a"))["idle"], since(looks, "a")) == (idle, idle_since)


@pytest.mark.parametrize(
    ("keep", "looks_at", "idle_since"),
    [
        # a look's time is never too long
        (0, ((20, "0"), (30, "0")), 0),
        (0, ((20, None), (30, "0"), (40, "0")), 30),
        # a gap is, unless the account lasts as long
        (29, ((40, "0"),), None),
        (30, ((40, "0"),), 0),
        (31, ((40, "0"),), 0),
    ],
)
def test_idle_since_lasts_for_as_long_as_accounts_do_without_being_seen(
    keep: int, looks_at: tuple[tuple[int, str | None], ...], idle_since: float | None
) -> None:
    looks = Looks(rules=Rules(keep_ns=keep * SECOND)).at(0, page(0, "0"), A).at(10, page(1, "0"), A)
    for number, (at, active) in enumerate(looks_at, 2):
        looks.at(at, page(number, active), A)
    assert since(looks, "a") == idle_since


def test_what_a_page_tells_of_those_who_left_before_its_activity_is_exact() -> None:
    for held, active, expected in (
        (A, "0.01", {"active": 0.3, "observed": 10, "idle": 10}),
        (A, "0.5", {"active": 10, "observed": 10}),
        (AB, "0.5", {"active": 10 / 2, "observed": 10 / 2, "unknown": 10 / 2}),
    ):
        looks = Looks().at(0, page(0), NOBODY).at(10, page(0), held).at(20, page(0), NOBODY)
        assert times_of(looks.at(30, page(1, active), NOBODY).account("a")) == expected


@pytest.mark.parametrize("reads", [1, 2, 3])
def test_kernels_without_a_new_sample_do_not_make_their_holder_idle(reads: int) -> None:
    before, held, last = {"a": 0.0, "b": 0.0, "c": 0.0}, shares("a", "c"), {"a": 1.0, "b": 0.0, "c": 1.0}
    looks = Looks().at(0, page(0, "0"), AB, sm_ns=ran(**before))
    looks.at(10, page(0, "0"), held, sm_ns=ran(**before)).at(20, page(1, "0.2"), held, sm_ns=ran(**last))
    for number in range(1, reads):
        looks.at(20 + 10 * number, page(1, "0.2"), held, sm_ns=ran(**last))
    looks.at(20 + 10 * reads, page(1, "0.2"), AB, sm_ns=ran(**last))
    looks.at(30 + 10 * reads, page(2, "0.3"), AB, sm_ns=ran(**last))
    assert [times_of(looks.account("c"))[word] for word in ("idle", "unknown")] == [0, 5 * reads]


@pytest.mark.parametrize(
    ("of_a", "of_c", "times"),
    [
        # of c: idle and unknown seconds, of 10 in which it held its share
        (5, 0, (10, 0)),
        (5, 0.999, (10, 0)),
        (5, 1, (0, 0)),
        (0, 0, (0, 10)),
    ],
)
def test_where_a_page_cannot_tell_who_was_idle_kernels_do(of_a: float, of_c: float, times: tuple[float, float]) -> None:
    looks = Looks().at(0, page(0, "0"), AB, sm_ns=ran(a=0, b=0, c=0))
    looks.at(10, page(0, "0"), shares("a", "c"), sm_ns=ran(a=0, b=0, c=0))
    looks.at(20, page(0, "0"), shares("a", "c"), sm_ns=ran(a=of_a / 2, b=0, c=of_c / 2))
    looks.at(30, page(1, "0.2"), shares("a", "c"), sm_ns=ran(a=of_a, b=0, c=of_c))
    assert tuple(times_of(looks.account("c"))[word] for word in ("idle", "unknown")) == times


@pytest.mark.parametrize(("is_there", "active"), [(True, {"a": 3, "b": 3}), (False, {"b": 6})])
def test_who_left_before_a_look_without_rows_gets_no_time_after_it(is_there: bool, active: dict[str, float]) -> None:
    looks = Looks().at(-20, page(0), A).at(-10, page(1), A).at(0, page(2, "0"), NOBODY)
    looks.at(10, page(2, "0") if is_there else energy("1", 1), NOBODY)
    looks.at(20, page(2, "0"), NOBODY).at(30, page(2, "0"), NOBODY)
    looks.at(40, page(3, "0.15" if is_there else "0.3"), B).at(50, page(4, "0"), B)
    assert {pod: of for pod, of in active_of(looks).items() if of} == active


def test_who_came_when_no_kernel_ran_any_more_is_idle() -> None:
    looks = Looks().at(0, page(0, "0"), AB, sm_ns=ran(a=0, b=0, c=0))
    looks.at(10, page(0, "0"), shares("a", "c"), sm_ns=ran(a=5, b=0, c=0))
    looks.at(20, page(1, "0.2"), shares("a", "c"), sm_ns=ran(a=5, b=0, c=0))
    assert times_of(looks.account("c"))["idle"] == 5


def left_by_a(looks: Looks, before: str | None, after: str, of_a: float, of_b: float) -> Looks:
    """A leaves after the look of 20 s; a page is new at 10, 40 and 50 s. Kernels run for these times of each look."""
    for number, held in enumerate((AB, AB, AB, ALONE, ALONE, ALONE)):
        of_pods = {"a": of_a * number, "b": of_b * number} if held is AB else {"b": of_b * number}
        read = (0, 1, 1, 1, 2, 3)[number]
        looks.at(10 * number, page(read, after if read > 1 else before), held, sm_ns=ran(**of_pods))
    return looks


@pytest.mark.parametrize(
    ("before", "after", "of_a", "of_b", "active"),
    [
        # of 16 s to 40 s, 8 are counted at 20 s; b has 6 parts of what is left, since a left at 25 s for all we know
        ("0.4", "0.4", 1, 3, {"a": 2 + 8 / 7, "b": 6 + 48 / 7 + 4}),
        ("1.02", "1.02", 1, 3, {"a": 5 + 20 / 7, "b": 15 + 120 / 7 + 10}),
        # nothing is counted before the page has the activity
        (None, "0.4", 1, 3, {"a": 12 / 7, "b": 72 / 7 + 4}),
        # no kernels ran: each is as active as its part of the device
        ("0.4", "0.4", 0, 0, {"a": 6, "b": 14}),
    ],
)
def test_of_the_time_in_which_a_holder_left_the_next_page_tells(
    before: str | None, after: str, of_a: float, of_b: float, active: dict[str, float]
) -> None:
    looks = left_by_a(Looks(), before, after, of_a, of_b)
    got = active_of(looks)
    assert {pod: got[pod] for pod in "ab"} == pytest.approx(active, abs=3e-9)
    assert times_of(looks.account("a"))["observed"] == (15 if before else 0)


def test_more_than_the_page_says_is_taken_off_the_next_page_once() -> None:
    looks = Looks()
    # at 40 s the looks have counted 26 s more than the page says; the next page counts less by a look's 10 s
    reads = ((0, "1"),) * 4 + ((1, "0.1"),) * 3 + ((2, "1"),) * 2 + ((3, "1"),) * 2 + ((4, "1"),)
    for number, (read, mean) in enumerate(reads):
        held = AB if 3 <= number < 10 else ALONE
        looks.at(10 * number, page(read, mean), held, sm_ns=ran(**dict.fromkeys(held, 2.0 * number)))
        if number == 9:
            assert active_of(looks) == {"a": 20, "b": 50, "": 0}
    assert sum(of or 0 for of in active_of(looks).values()) == 90


def test_active_time_that_kernels_divide_is_not_shared_out_once_more() -> None:
    looks = Looks().at(-10, page(0, "0"), sm_ns=ran())
    for number, held in enumerate((NOBODY, NOBODY, NOBODY, A)):
        looks.at(10 * number, page(1, "0"), held, sm_ns=ran(**dict.fromkeys(held, 2.0)))
    looks.at(40, page(2, "1"), A, sm_ns=ran(a=12))
    assert active_of(looks)["a"] == 20
    assert active_of(looks.at(50, page(3, "0"), A, sm_ns=ran(a=12)))["a"] == 20


def test_a_gpu_that_is_cut_while_kernels_are_measured_keeps_its_times() -> None:
    looks = Looks().at(0, page(0, "0.5"), A, sm_ns=ran(a=0)).at(10, page(1, "0.5"), A, sm_ns=ran(a=5))
    looks.mig = {"MIG-1": (0, "1", "3g.40gb")}
    both = page(2, "0.6") + row(ACTIVE, "0.6", instance="1", profile="3g.40gb")
    looks.at(20, both, {"b": [("r", "MIG-1")]}, sm_ns=ran(a=5))
    assert times_of(looks.account("a"))["observed"] == 20


@pytest.mark.parametrize("most", [3, 2])
def test_what_a_holder_without_an_account_did_is_nobodys(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr("exporter.accounts.entries.MOST_ACCOUNTS", most)
    looks = Looks().at(0, page(0, "1"), sm_ns=ran()).at(10, page(1, "1"), {"a": AB["a"]}, sm_ns=ran(a=0))
    for number in range(2, 6):
        looks.at(10 * number, page(number, "1"), AB, sm_ns=ran(a=number, b=3 * number))
    got = active_of(looks)
    assert got.keys() == ({"a", "b", ""} if most == 3 else {"a", ""})
    assert sum(of or 0 for of in got.values()) == pytest.approx(50)
    assert (got["a"] or 0) < 13


def test_when_a_holder_left_nobodys_processes_have_their_part_of_the_time() -> None:
    looks = Looks()
    for number, held in enumerate((AB, AB, AB, ALONE, ALONE)):
        of_pods = {"a": number, "b": 3 * number} if held is AB else {"b": 3 * number}
        times = kernels({pod: of * SECOND for pod, of in {**of_pods, "": number}.items()})
        looks.at(10 * number, page((0, 1, 1, 1, 2)[number], "0.4"), held, sm_ns=times)
    expected = {"a": 1.6 + 8 / 9, "b": 4.8 + 48 / 9, "": 1.6 + 16 / 9}
    assert active_of(looks) == pytest.approx(expected, abs=3e-9)
