"""Energy and activity of shared devices by the time of their owners' kernels: each rule by hand."""

import pytest

from exporter.accounts.stretches import SmNs
from exporter.model.devices import DeviceKey
from tests.support.looks import GPU, Held, Looks, energy, joules, kernels, row, seconds, whole

ACTIVE, SHARED = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "nvidia.com/gpu.shared"
OFFERED = {(SHARED, DeviceKey(uuid=GPU(0))): 4}
AB: Held = {"a": [(SHARED, f"{GPU(0)}::0"), (SHARED, f"{GPU(0)}::1")], "b": [(SHARED, f"{GPU(0)}::2")]}
AC: Held = {"a": AB["a"], "c": AB["b"]}


def page(read: int, active: str = "0.5") -> str:
    """A read of the GPU, 10 J after the one before."""
    return energy(str(10_000 * read)) + row(ACTIVE, active)


def found(looks: Looks) -> dict[str, tuple[float | None, ...]]:
    """Joules, active, idle and allocated seconds by pod ("" for nobody)."""
    return {
        of.owner.pod if of.owner else "": (
            joules(of),
            seconds(of.amounts.get("active_ns")),
            seconds(of.amounts.get("idle_ns")),
            seconds(of.amounts.get("allocated_ns")),
        )
        for of in looks.ledger.accounts.rows
    }


AS_BEFORE = {"a": (5, 2.5, 0, 5), "b": (5, 1.25, 0, 2.5)}


# issue 10, "Must show" 3
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            {"a": 5, "b": 5, "": 5},
            {"a": 8, "b": 5, "": 6},
            {"a": (7.5, 3.75, 0, 5), "b": (0, 0, 2.5, 2.5), "": (2.5, 1.25)},
        ),
        ({"a": 0, "b": 0}, {"a": 3, "b": 1}, {"a": (7.5, 3.75, 0, 5), "b": (2.5, 1.25, 0, 2.5), "": (0, 0)}),
        ({"a": 0, "b": 0}, {"a": 97, "b": 3}, {"a": (9.7, 4.85, 0, 5), "b": (0.3, 0.15, 2.5, 2.5), "": (0, 0)}),
        ({"a": 0, "b": 0}, {"a": 0, "b": 0, "": 4}, {"a": (0, 0, 5, 5), "b": (0, 0, 2.5, 2.5), "": (10, 5)}),
        # what one used and another one may have is not known
        ({"a": 5, "b": 5}, {"a": 5, "b": 5}, {**AS_BEFORE, "": (0, 0)}),
        ({"a": 5, "b": 5}, {"a": 9, "b": 4}, {**AS_BEFORE, "": (0, None)}),
        ({"a": 5, "b": 5}, {"a": 9}, {**AS_BEFORE, "": (0, None)}),
        ({"a": 5}, {"a": 9, "b": 5}, {**AS_BEFORE, "": (0, None)}),
        ({"a": 5, "b": 5}, None, {**AS_BEFORE, "": (0, None)}),
        (None, {"a": 5, "b": 5}, {**AS_BEFORE, "": (0, None)}),
    ],
)
def test_a_shared_gpu_is_divided_by_the_time_of_kernels(
    before: dict[str, int] | None, after: dict[str, int] | None, expected: dict[str, tuple[float, ...]]
) -> None:
    looks = Looks(offered=OFFERED).at(0, page(0), AB, sm_ns=before and kernels(before))
    looks.at(10, page(1), AB, sm_ns=after and kernels(after))
    assert found(looks) == {pod: (*of, None, None)[:4] for pod, of in expected.items()}


def test_who_holds_one_share_may_be_active_for_longer_than_it_holds() -> None:
    held: Held = {"b": AB["b"]}
    looks = Looks(offered=OFFERED).at(0, page(0, "0.8"), held, sm_ns=kernels({"b": 0}))
    looks.at(10, page(1), held, sm_ns=kernels({"b": 7}))
    assert found(looks)["b"] == (10, 8, 0, 2.5)


# issue 18, line 4
@pytest.mark.parametrize(
    ("ran", "expected"),
    [
        ({"a": 3, "": 1}, {"a": (7.5, 3.75, 0, 10), "": (2.5, 1.25, None, None)}),
        ({"a": 0, "": 9}, {"a": (0, 0, 10, 10), "": (10, 5, None, None)}),  # it holds the GPU idle: somebody else works
        ({"a": 9, "": 0}, {"a": (10, 5, 0, 10), "": (0, 0, None, None)}),
        ({"a": 0, "": 0}, {"a": (10, 5, 0, 10), "": (0, 0, None, None)}),
        ({"": 9}, {"a": (10, 5, 0, 10), "": (0, None, None, None)}),  # what the holder did is not known
    ],
)
def test_what_others_do_on_a_whole_gpu_is_not_its_holders(
    ran: dict[str, int], expected: dict[str, tuple[float | None, ...]]
) -> None:
    held: Held = {"a": whole(0)}
    looks = Looks().at(0, page(0), held, sm_ns=kernels(dict.fromkeys(ran, 0)))
    looks.at(10, page(1), held, sm_ns=kernels(ran))
    assert found(looks) == expected


def test_the_time_of_several_looks_is_divided_among_holders_by_kernels() -> None:
    times: list[SmNs] = [
        kernels({"a": 0, "b": 0}),
        kernels({"a": 6, "b": 0}),
        kernels({"a": 6, "b": 2, "c": 0}),
        kernels({"a": 7, "c": 3}),
    ]
    looks = Looks(offered=OFFERED)
    for number, held in enumerate((AB, AB, AC, AC)):
        looks.at(10 * number, page(number // 3), held, sm_ns=times[number])
    # 20 s in a's and b's hands, with 6 to 2, and 10 s in a's and c's, with 1 to 3
    of_page = {pod: of[0] for pod, of in found(looks).items()}
    assert of_page == {"a": 5.833335, "b": 1.666666, "c": 2.499999, "": 0}
    assert sum(account.amounts.get("energy_uj") or 0 for account in looks.ledger.accounts.rows) == 10_000_000


# issue 15, line 11
def test_a_look_without_a_new_sample_divides_as_the_last_sample_did() -> None:
    held: Held = {**AB, "c": [(SHARED, f"{GPU(0)}::3")]}
    times = [kernels({"a": 3 * ran, "b": ran, "c": 0}) for ran in (0, 1, 1, 1)]
    looks = Looks(offered=OFFERED)
    for number, of in enumerate(times):
        looks.at(10 * number, page(number), held, sm_ns=of)
    assert [found(looks)[pod][0] for pod in "abc"] == [22.5, 7.5, 0]
    # after two minutes nothing runs, and before a first sample nobody knows what does
    for number in range(4, 20):
        looks.at(10 * number, page(number), held, sm_ns=times[-1])
    assert found(looks)["c"][0] == pytest.approx(10 / 3 * 7)
    first = Looks(offered=OFFERED).at(0, page(0), held, sm_ns=times[1]).at(10, page(1), held, sm_ns=times[1])
    assert found(first)["c"][0] == pytest.approx(10 / 3)


# issue 15, line 27: the mutant in stretches.py that let the later kernels go
def test_kernels_first_seen_while_one_owner_holds_the_gpu_are_counted() -> None:
    # of 30 s in a's and b's hands, 10 are known: the first or the last
    measured = (kernels({"a": 0, "b": 0}), kernels({"a": 1, "b": 3}))
    for times in ((None, None, *measured), (*measured, None, None)):
        looks = Looks(offered=OFFERED)
        for number, of in enumerate(times):
            looks.at(10 * number, page(number // 3), AB, sm_ns=of)
        assert [found(looks)[pod][0] for pod in "ab"] == [2.5, 7.5]


def test_instances_with_shares_are_divided_each_for_itself() -> None:
    cut = {"MIG-1": (0, "1", "3g.40gb"), "MIG-2": (0, "2", "4g.40gb")}
    shared = "nvidia.com/mig-3g.40gb.shared"
    held: Held = {"a": [(shared, "MIG-1::0")], "b": [(shared, "MIG-1::1")], "c": [("nvidia.com/mig-4g.40gb", "MIG-2")]}

    def page(mj: int) -> str:
        return "".join(
            row(family, value, instance=number, profile=profile)
            for number, profile in (("1", "3g.40gb"), ("2", "4g.40gb"))
            for family, value in (("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", str(mj)), (ACTIVE, "0.5"))
        )

    looks = Looks(mig=cut, offered={(shared, DeviceKey(uuid=GPU(0), instance="1")): 2})
    looks.at(0, page(0), held, sm_ns=kernels({"a": 0, "b": 0}, instance="1"))
    looks.at(7, page(7000), held, sm_ns=kernels({"a": 1, "b": 2}, instance="1"))
    of = {pod: looks.account(pod, instance=number) for pod, number in (("a", "1"), ("b", "1"), ("c", "2"))}
    assert {pod: (joules(a), seconds(a.amounts.get("active_ns"))) for pod, a in of.items()} == {
        "a": (1, 0.5),  # of 3 J, and of 3/7 of 7 s at 0.5
        "b": (2, 1),
        "c": (4, 2),
    }


def test_measurements_of_two_processes_are_not_compared() -> None:
    looks = Looks(offered=OFFERED).at(0, page(0), AB, sm_ns=kernels({"a": 900, "b": 900}))
    looks.at(10, page(1), AB, sm_ns={})
    looks.at(20, page(2), AB, sm_ns=kernels({"a": 0, "b": 0}))
    looks.at(30, page(3), AB, sm_ns=kernels({"a": 1, "b": 3}))
    assert [found(looks)[pod][0] for pod in ("a", "b")] == [5 + 5 + 2.5, 5 + 5 + 7.5]


def test_samples_of_the_process_before_divide_nothing_of_the_next_one() -> None:
    times: list[SmNs] = [kernels({"a": 0, "b": 0}), kernels({"a": 1, "b": 3}), {}, *[kernels({"a": 0, "b": 0})] * 2]
    looks = Looks(offered=OFFERED)
    for number, of in enumerate(times):
        looks.at(10 * number, page(number), AB, sm_ns=of)
    assert [found(looks)[pod][0] for pod in ("a", "b")] == [2.5 + 5 + 5 + 5, 7.5 + 5 + 5 + 5]


SHARES: Held = {"a": [(SHARED, f"{GPU(0)}::0")], "b": [(SHARED, f"{GPU(0)}::1")]}
ALONE: Held = {"b": SHARES["b"]}


def active_of(looks: Looks) -> dict[str, float | None]:
    return {pod: of[1] for pod, of in found(looks).items() if pod}


# issue 22, "Must show" 0
def test_a_holder_who_came_and_left_between_looks_has_its_active_time() -> None:
    """B's kernels run for 4 s of each look, a's for half of the time that it holds its share: from 15 s to 35 s."""
    times: list[tuple[Held, dict[str, float]]] = [
        (ALONE, {"b": 0}),
        (ALONE, {"b": 4}),
        (SHARES, {"b": 8, "a": 2.5}),
        (SHARES, {"b": 12, "a": 7.5}),
        (ALONE, {"b": 16}),
        (ALONE, {"b": 20}),
        (ALONE, {"b": 24}),
    ]
    # dcgm-exporter reads in the middle between two looks
    means = ["0.4", "0.4", "0.4", "0.9", "0.9", "0.4", "0.4"]
    looks = Looks(offered=OFFERED)
    for number, ((held, ran), mean) in enumerate(zip(times, means, strict=True)):
        of_pods = kernels({pod: round(1e9 * of) for pod, of in ran.items()} | {"": 0})
        looks.at(10 * number, page(number, mean), held, sm_ns=of_pods)
    active = active_of(looks)
    assert active["a"] == pytest.approx(10, rel=0.05)
    assert active["b"] == pytest.approx(24, rel=0.05)


# issue 22, "Must show" 0
@pytest.mark.parametrize(
    ("first_ns", "last_ns"),
    [(2, 8), (5, 5), (10, 0), (0, 10)],
)
def test_the_two_ends_of_a_pod_are_one_look_together(first_ns: int, last_ns: int) -> None:
    second = 10**9
    times = [
        kernels({"b": 0, "": 0}),
        kernels({"b": 0, "a": first_ns * second, "": 0}),
        kernels({"b": 0, "a": (first_ns + 10) * second, "": 0}),
        kernels({"b": 0, "": 0}),
    ]
    looks = Looks(offered=OFFERED)
    for number, (held, of) in enumerate(zip((ALONE, SHARES, SHARES, ALONE), times, strict=True)):
        looks.at(10 * number, page(0), held, sm_ns=of)
    ran = looks.ledger._kernels.of_gpu(GPU(0)).ran[""]
    assert {entry.owner.pod: ns for entry, ns in ran.items() if entry and entry.owner} == {
        "a": last_ns * second,
        "b": 0,
    }


# issue 22, "Must show" 0
def test_of_whom_nvml_knows_nothing_yet_the_page_tells_as_before() -> None:
    second = 10**9
    times = [kernels({"b": 0, "": 0}), kernels({"b": 4 * second, "": 0}), kernels({"b": 8 * second, "": 0})]
    looks = Looks(offered=OFFERED)
    for number, (held, of) in enumerate(zip((ALONE, ALONE, SHARES), times, strict=True)):
        looks.at(10 * number, page(number), held, sm_ns=of)
    assert looks.ledger._kernels.of_gpu(GPU(0)).ran == {}
