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
AB: Held = {pod: [("nvidia.com/gpu.shared", f"{GPU(0)}::{share}")] for share, pod in enumerate("ab")}


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
    ("holders", "active"),
    [
        # the window of the page is the 30 s without a holder: both ends get no more than a look's time
        ((A, NOBODY, NOBODY, NOBODY, NOBODY), {"a": 10}),
        ((NOBODY, NOBODY, NOBODY, NOBODY, B), {"b": 10}),
        ((A, NOBODY, NOBODY, NOBODY, B), {"a": 10, "b": 10}),
        ((NOBODY, NOBODY, NOBODY, NOBODY, NOBODY), {}),
    ],
)
def test_active_time_without_a_holder_is_a_looks_time_of_its_neighbours(
    holders: tuple[Held, ...], active: dict[str, float]
) -> None:
    looks = Looks().at(-20, page(0), holders[0]).at(-10, page(1), holders[0])
    for number, held in enumerate(holders[1:]):
        looks.at(10 * number, page(2 if number < 3 else 3, "0" if number < 3 else "1"), held)
    looks.at(40, page(4, "0"), holders[-1])
    got = {of.owner.pod: seconds(of.amounts.get("active_ns")) for of in looks.ledger.accounts.rows if of.owner}
    assert got == active


def test_who_left_before_activity_came_to_the_page_is_active_and_observed() -> None:
    looks = Looks().at(-10, page(0), A).at(0, page(1), NOBODY).at(10, page(2, "0.3"), NOBODY)
    assert times_of(looks.account("a")) == {"active": 3, "observed": 0}


@pytest.mark.parametrize(
    ("active", "of_kernels", "idle", "idle_since"),
    [
        ("0.05", None, 0, None),
        ("0.049999", None, 10, 0),
        # by kernels, a is as active as the page says; what no page saw says nothing of since when it is idle
        ("0.05", 5, 0, None),
        ("0.049999", 5, 10, None),
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


def shares(*pods: str) -> Held:
    """Pods with one share each of the first GPU."""
    return {pod: [("nvidia.com/gpu.shared", f"{GPU(0)}::{share}")] for share, pod in enumerate(pods)}


def test_what_a_page_tells_of_those_who_left_before_its_activity_is_exact() -> None:
    for held, active, expected in (
        (A, "0.01", {"active": 0.3, "observed": 10, "idle": 10}),
        (A, "0.5", {"active": 10, "observed": 10}),
        (shares("a", "b"), "0.5", {"active": 10 / 2, "observed": 10 / 2, "unknown": 10 / 2}),
    ):
        looks = Looks().at(0, page(0), NOBODY).at(10, page(0), held).at(20, page(0), NOBODY)
        assert times_of(looks.at(30, page(1, active), NOBODY).account("a")) == expected


@pytest.mark.parametrize("reads", [1, 2, 3])
def test_kernels_without_a_new_sample_do_not_make_their_holder_idle(reads: int) -> None:
    before, held, last = {"a": 0.0, "b": 0.0, "c": 0.0}, shares("a", "c"), {"a": 1.0, "b": 0.0, "c": 1.0}
    looks = Looks().at(0, page(0, "0"), shares("a", "b"), sm_ns=ran(**before))
    looks.at(10, page(0, "0"), held, sm_ns=ran(**before)).at(20, page(1, "0.2"), held, sm_ns=ran(**last))
    for number in range(1, reads):
        looks.at(20 + 10 * number, page(1, "0.2"), held, sm_ns=ran(**last))
    looks.at(20 + 10 * reads, page(1, "0.2"), shares("a", "b"), sm_ns=ran(**last))
    looks.at(30 + 10 * reads, page(2, "0.3"), shares("a", "b"), sm_ns=ran(**last))
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
    looks = Looks().at(0, page(0, "0"), shares("a", "b"), sm_ns=ran(a=0, b=0, c=0))
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
    got = {of.owner.pod: seconds(of.amounts.get("active_ns")) for of in looks.ledger.accounts.rows if of.owner}
    assert {pod: of for pod, of in got.items() if of} == active
