"""Accounts of GPUs of which an allocator granted parts: by what it granted, even where that is more than there is."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.accounts.state_bytes import restore
from exporter.model.devices import DeviceKey
from exporter.model.grants import Grant
from tests.support.ledgers import dump, note
from tests.support.looks import GPU, SECOND, Looks, energy, joules, kernels, row, seconds, whole

WHOLE = 81_559
MODEL = "NVIDIA H100 80GB HBM3"
USED, FREE, TOTAL, ACTIVITY = (
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_FB_TOTAL",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
)
MEMORY = row(TOTAL, str(WHOLE))


def share(number: int, gpu: int = 0) -> list[tuple[str, str]]:
    return [("nvidia.com/gpu", f"{GPU(gpu)}::{number}")]


def of_memory(mib: float, cores: float | None = None) -> Grant:
    return Grant(allocator="HAMi", memory_mib=mib, cores_percent=cores)


def of_fraction(fraction: float) -> Grant:
    return Grant(allocator="KAI", fraction=fraction)


def held_by(pods: str) -> dict[str, list[tuple[str, str]]]:
    return {pod: share(number) for number, pod in enumerate(pods)}


def allocated(looks: Looks, pod: str) -> float:
    return looks.account(pod).amounts["allocated_ns"] / SECOND


def ratios(looks: Looks) -> dict[str, float | None]:
    return {
        account.owner.pod: account.allocated_ratio
        for account in looks.ledger.accounts.rows
        if account.owner is not None
    }


# issue 24, part 5
@pytest.mark.parametrize(
    ("page", "grants", "parts"),
    [
        (MEMORY, {"a": of_memory(10_240, 45)}, {"a": 10_240 / WHOLE}),
        (MEMORY, {"a": of_memory(10_240, 100)}, {"a": 1}),
        ("", {"a": of_memory(10_240, 45)}, {"a": 0.45}),
        ("", {"a": of_memory(10_240)}, {"a": 1}),  # by ids: it has the only one
        (MEMORY, {"a": of_fraction(0.3), "b": of_fraction(0.7)}, {"a": 0.3, "b": 0.7}),
        (MEMORY, {"a": of_fraction(0.9), "b": of_fraction(0.6)}, {"a": 0.9, "b": 0.6}),  # more than there is
        (MEMORY, {"a": of_memory(WHOLE * 2)}, {"a": 2}),
        # what is not granted is by ids, whatever the neighbour was granted
        (MEMORY, {"a": of_fraction(0.75), "b": Grant(allocator="x")}, {"a": 0.75, "b": 0.5}),
    ],
)
def test_a_container_holds_what_it_was_granted(page: str, grants: dict[str, Grant], parts: dict[str, float]) -> None:
    looks = Looks(grants=grants)
    held = held_by("".join(grants))
    for number in range(3):
        looks.at(10 * number, page + energy(str(1000 * number)) + row(ACTIVITY, "0.5"), held)
    assert ratios(looks) == parts
    for pod, part in parts.items():
        assert allocated(looks, pod) == pytest.approx(20 * part, abs=1e-8)
        assert seconds(looks.account(pod).amounts["active_ns"]) == pytest.approx(10 * part, abs=1e-8)
    # the GPU is one GPU, however much of it was granted
    assert looks.ledger.accounts.allocated[MODEL] == pytest.approx(min(1, sum(parts.values())))


PARTS = st.lists(st.integers(1, 1_000), min_size=1, max_size=12)


# issue 24, part 5
@given(PARTS, st.sampled_from([1_000, 4_000, WHOLE]), st.booleans(), st.data())
def test_ratios_are_the_grants_and_seconds_their_integral(
    parts: list[int], of_whole: int, is_memory: bool, data: st.DataObject
) -> None:
    """Together they may be more than the GPU. Pods of two teams come and go, and a ledger is kept by hand."""
    pods = {f"{'xy'[number % 2]}{number}": part for number, part in enumerate(parts)}
    grants = {
        pod: of_memory(part) if is_memory else of_fraction(float(Fraction(part, of_whole)))
        for pod, part in pods.items()
    }
    looks = Looks(grants=grants)
    page = row(TOTAL, str(of_whole)) + row(ACTIVITY, "0.25")
    every = {pod: share(number) for number, pod in enumerate(pods)}
    holding = data.draw(st.lists(st.sets(st.sampled_from(sorted(pods))), min_size=2, max_size=5))
    by_hand: Counter[str] = Counter()
    for number, now in enumerate(holding):
        looks.at(10 * number, page, {pod: every[pod] for pod in now})
        shown = {pod: ratio for pod, ratio in ratios(looks).items() if ratio is not None}
        assert shown == pytest.approx({pod: pods[pod] / of_whole for pod in now}, rel=1e-15)
        together = sum(pods[pod] for pod in now) / of_whole
        assert looks.ledger.accounts.allocated[MODEL] == pytest.approx(min(1, together))
    for before, _ in pairwise(holding):
        for pod in before:
            by_hand[pod[0]] += Fraction(10 * pods[pod], of_whole)  # type: ignore[assignment]
    for team in "xy":
        had = sum(allocated(looks, pod) for pod in ratios(looks) if pod.startswith(team))
        assert had == pytest.approx(float(by_hand[team]), abs=1e-7)


def test_energy_that_nobody_measures_is_shared_as_it_was_granted() -> None:
    held = held_by("ab")
    for grants, of_a in (
        ({"a": of_fraction(0.75), "b": of_fraction(0.25)}, 0.75),
        ({"a": of_fraction(0.9), "b": of_fraction(0.6)}, 0.6),
        ({"a": of_fraction(0.2), "b": of_fraction(0.2)}, 0.5),  # what nobody was granted is used by those who are there
        ({"a": of_fraction(0.75)}, 0.5),
        ({}, 0.5),
    ):
        looks = Looks(grants=grants)
        for number in range(3):
            looks.at(10 * number, energy(str(1000 * number)), held)
        assert joules(looks.account("a")) == pytest.approx(2 * of_a, abs=1e-5)
        assert joules(looks.account("b")) == pytest.approx(2 - 2 * of_a, abs=1e-5)


def test_measured_energy_does_not_ask_for_grants() -> None:
    looks = Looks(grants={"a": of_fraction(0.75), "b": of_fraction(0.25)})
    for number in range(3):
        ran = kernels({"a": 10 * SECOND * number // 4, "b": 30 * SECOND * number // 4, "": 0})
        looks.at(10 * number, energy(str(1000 * number)), held_by("ab"), sm_ns=ran)
    assert joules(looks.account("a")) == pytest.approx(0.5)


def test_the_memory_of_a_gpu_stays_while_its_page_is_away() -> None:
    looks = Looks(grants={"a": of_memory(1000)})
    held = held_by("a")
    looks.at(0, row(USED, "1000") + row(FREE, "3000"), held)
    for number, page in enumerate((row(USED, "1010") + row(FREE, "3001"), energy("1"), row(TOTAL, "0"), None), start=1):
        looks.at(10 * number, page, held)
        assert looks.account("a").allocated_ratio == 0.25
    looks.at(50, row(USED, "1000") + row(FREE, "7000"), held)  # another GPU in its place
    assert looks.account("a").allocated_ratio == 0.125


def test_a_move_of_one_percent_is_no_other_memory_and_more_is() -> None:
    looks = Looks(grants={"a": of_memory(1000)})
    for number, (total, of) in enumerate(((4950, 4950), (5000, 4950), (5001, 5001), (4900, 4900))):
        looks.at(10 * number, row(TOTAL, str(total)), held_by("a"))
        assert looks.account("a").allocated_ratio == pytest.approx(1000 / of)


def test_the_memory_of_a_gpu_without_grants_is_forgotten() -> None:
    page = MEMORY + row(TOTAL, str(WHOLE), 1)
    looks = Looks(grants={"a": of_memory(1000), "b": of_memory(1000)})
    looks.at(0, page, {"a": share(0), "b": share(0, 1)})
    looks.at(10, page, {"b": share(0, 1)})
    assert looks.ledger.holders.memory_mib == {DeviceKey(uuid=GPU(1)): WHOLE}


def test_a_restart_keeps_what_was_granted_and_the_memory_of_gpus() -> None:
    looks = Looks(grants={"a": of_memory(1000, 40), "b": of_memory(5000)})
    page = row(TOTAL, "4000") + energy("1000")
    looks.at(0, page, held_by("ab")).at(10, page, held_by("ab"))
    data = dump(looks.ledger, 1_000 * SECOND)
    after = Looks(grants=looks.grants, ledger=restore(data, 1_005 * SECOND, 0))
    after.at(0, None, held_by("ab")).at(5, energy("4000"), held_by("ab"))
    assert (ratios(after), allocated(after, "a"), allocated(after, "b")) == ({"a": 0.25, "b": 1.25}, 5, 25)
    assert joules(after.account("a")) == pytest.approx(0.5)
    assert joules(after.account("b")) == pytest.approx(2.5)


def test_grants_of_one_gpu_do_not_change_another_ones_accounts() -> None:
    page = "".join(energy("1", gpu) for gpu in (0, 1, 2))
    plain = Looks().at(0, page, {"w": whole(1), "v": share(0, 2)})
    beside = Looks(grants={"a": of_fraction(0.7), "b": of_fraction(0.7)})
    beside.at(0, page, {**held_by("ab"), "w": whole(1), "v": share(0, 2)})
    assert {pod: part for pod, part in ratios(beside).items() if pod in "wv"} == ratios(plain)
    assert plain.ledger.accounts.allocated[MODEL] == pytest.approx(2 / 3)
    assert beside.ledger.accounts.allocated[MODEL] == pytest.approx(1)


def test_a_mig_instance_that_an_allocator_hands_out_is_held_whole() -> None:
    """HAMi's templates round an instance's memory: 5120 MiB for 1g.5gb, which has 4864."""
    looks = Looks(mig={"MIG-1": (0, "1", "1g.5gb")}, grants={"a": of_memory(5120)})
    page = row(TOTAL, "4864", instance="1", profile="1g.5gb")
    looks.at(0, page, {"a": [("nvidia.com/gpu", "MIG-1")]})
    assert looks.account("a", instance="1").allocated_ratio == pytest.approx(1 / 7)


def test_a_grant_that_changes_counts_from_then_on() -> None:
    looks = Looks(grants={"a": of_fraction(0.5)})
    looks.at(0, energy("1"), held_by("a"))
    after = replace(looks, grants={"a": of_fraction(0.25)})
    after.at(10, energy("1"), held_by("a")).at(20, energy("1"), held_by("a"))
    assert allocated(after, "a") == pytest.approx(5 + 2.5)


def test_an_assignment_of_several_ids_counts_as_many() -> None:
    """Ids of gpushare count units of memory; whether these are GiB or MiB nobody says."""
    looks = Looks()
    snapshot = looks.snapshot(MEMORY, held_by("ab"))
    counts = {"a": 12, "b": 36}
    matches = tuple(
        replace(match, assignment=replace(match.assignment, count=counts[match.assignment.owner.pod]))
        for match in snapshot.owners.matches
    )
    note(looks.ledger, replace(snapshot, owners=replace(snapshot.owners, matches=matches)), 0, looks.rules)
    assert ratios(looks) == {"a": 0.25, "b": 0.75}
