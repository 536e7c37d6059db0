"""What pods do with their GPUs, over days."""

from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.simulator.job_phases import DAY, MORNING, WorkloadUse, together, use

HOUR = 3600
WORKLOADS = ("train-resnet", "finetune-llm", "serve-embeddings", "render", "eval-nightly", "jupyter", "of-a-test")
FIELDS = ("activity", "memory", "tensor", "dram", "pcie", "nvlink")


@given(st.sampled_from(WORKLOADS), st.integers(), st.floats(0, 1e7), st.floats(0, 1e7))
def test_nothing_is_used_more_than_there_is(workload: str, seed: int, age: float, clock: float) -> None:
    found = use(workload, seed, age, clock)
    assert all(0 <= getattr(found, field) <= 1 for field in FIELDS)
    assert use(workload, seed, age, clock) == found


@given(st.lists(st.tuples(st.sampled_from(WORKLOADS), st.integers(), st.floats(0, 1e6)), min_size=1, max_size=4))
def test_what_holders_of_shares_do_adds_up(holders: list[tuple[str, int, float]]) -> None:
    uses = [use(workload, seed, age, age) for workload, seed, age in holders]
    both = together(uses, [1 / 4] * len(uses))
    assert both.activity == min(1.0, sum(each.activity for each in uses))
    assert both.memory <= len(uses) / 4
    assert all(getattr(both, field) <= 1 for field in FIELDS)


@pytest.mark.parametrize("seed", range(5))
def test_training_loads_then_works_with_short_pauses(seed: int) -> None:
    found = [use("train-resnet", seed, age, age) for age in range(0, 6 * HOUR, 5)]
    loading = next(number for number, each in enumerate(found) if each.activity > 0.5)
    assert 60 <= loading * 5 <= 185
    assert found[0].memory < 0.2
    assert found[loading].memory > 0.7
    working = [each.activity for each in found[loading:]]
    pauses = [activity for activity in working if activity < 0.1]
    assert 0.005 < len(pauses) / len(working) < 0.08
    assert mean(working) > 0.7


def test_serving_has_day_and_night_and_keeps_its_memory() -> None:
    night, noon = DAY - MORNING + 3 * HOUR, 5 * HOUR
    at_night = [use("serve-embeddings", 1, 1e5, night + second).activity for second in range(0, 1800, 10)]
    by_day = [use("serve-embeddings", 1, 1e5, noon + second).activity for second in range(0, 1800, 10)]
    assert max(at_night) < 0.1
    assert min(by_day) > 0.3
    assert {use("serve-embeddings", 1, 1e5, clock).memory for clock in range(0, int(DAY), 600)} == {0.8}


@pytest.mark.parametrize("seed", range(5))
def test_a_notebook_is_idle_for_hours_and_has_its_moments(seed: int) -> None:
    found = [use("jupyter", seed, age, age).activity for age in range(0, 48 * HOUR, 10)]
    idle = found.count(0)
    assert 0.9 < idle / len(found) < 1
    longest = max(map(len, "".join("x" if activity else "." for activity in found).split("x")))
    assert longest * 10 > HOUR
    assert max(found) > 0.3


def test_a_device_of_one_holder_does_what_he_does() -> None:
    alone = WorkloadUse(activity=0.5, memory=0.5)
    assert together([alone], [1.0]) == alone
