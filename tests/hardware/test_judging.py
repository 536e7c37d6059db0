"""What counts as the same, what as a fault, and what cannot be judged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hardware.judging import (
    ALLOWED,
    CONTEXT_BYTES,
    MIB,
    NEAR_SECONDS,
    OfProcess,
    compared,
    copied,
    energy,
    equal,
    integral,
    mean_between,
    memory_of,
    owners,
    same_text,
    sum_of_rates,
    value_at,
    within,
)

TEMPERATURE, USED, LIMIT, CLOCK = (
    f"DCGM_FI_DEV_{name}" for name in ("GPU_TEMP", "FB_USED", "ENFORCED_POWER_LIMIT", "SM_CLOCK")
)
GIB = 1024 * MIB


def every_second(*values: float, began: float = 0.0) -> list[tuple[float, float]]:
    return [(began + second, value) for second, value in enumerate(values)]


@pytest.mark.parametrize(
    ("family", "ours", "theirs", "verdict"),
    [
        (TEMPERATURE, (40, 41, 43), (40, 41, 43), "ok"),
        # between what was read a second before and after
        (TEMPERATURE, (40, 55, 70), (40, 70, 70), "ok"),
        (TEMPERATURE, (40, 75, 70), (40, 70, 70), "fails"),
        (TEMPERATURE, (42, 42, 42), (40, 40, 40), "ok"),
        (TEMPERATURE, (43, 43, 43), (40, 40, 40), "fails"),
        (LIMIT, (700.004,), (700.0,), "ok"),
        (LIMIT, (700.1,), (700.0,), "fails"),
        # a counter without an allowance may be anything between, and nothing else
        ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", (5, 6, 7), (5, 5, 9), "ok"),
        ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", (5, 6, 10), (5, 5, 9), "fails"),
        ("DCGM_FI_DEV_POWER_VIOLATION", (1,), (1_000_000,), "not judged"),
    ],
)
def test_a_family_lies_between_its_neighbours_at_nvidia_smi(
    family: str, ours: tuple[float, ...], theirs: tuple[float, ...], verdict: str
) -> None:
    assert compared(family, every_second(*ours), every_second(*theirs)).verdict == verdict


def test_a_few_pairs_may_miss_where_the_share_allows_it() -> None:
    ours = every_second(*[1000.0] * 39, 1500.0)
    theirs = every_second(*[1000.0] * 40)
    row = compared(CLOCK, ours, theirs)
    assert (row.verdict, row.ours, row.difference, row.pairs) == ("ok", "1500", "500 (1 pairs)", 40)
    assert compared(CLOCK, ours[-10:], theirs[-10:]).verdict == "fails"


def test_what_is_far_apart_in_time_is_no_pair() -> None:
    row = compared(USED, every_second(1, 2), every_second(1, 2, began=60))
    assert (row.verdict, row.pairs) == ("fails", 0)
    assert "close in time" in row.note


def test_a_slow_nvidia_smi_has_neighbours_too() -> None:
    theirs = [(0.0, 40.0), (4.0, 60.0), (8.0, 80.0)]
    assert compared(TEMPERATURE, [(2.0, 50.0)], theirs).verdict == "ok"
    assert compared(TEMPERATURE, [(2.0, 70.0)], theirs).verdict == "fails", "the third is no neighbour"


def test_a_family_that_one_side_lacks_is_told() -> None:
    lacking = compared(USED, [], every_second(1))
    assert (lacking.verdict, lacking.note) == ("fails", "nvidia-smi has it, the exporter lacks it")
    assert compared(USED, every_second(1), []).verdict == "not judged"


@given(
    values=st.lists(st.floats(0, 1e6), min_size=3, max_size=30),
    shift=st.floats(0, 1),
    family=st.sampled_from(sorted(ALLOWED)),
)
def test_a_series_beside_itself_a_moment_later_is_always_right(values: list[float], shift: float, family: str) -> None:
    theirs = every_second(*values)
    ours = every_second(*values, began=shift)
    assert compared(family, ours, theirs).verdict in ("ok", "not judged")


@given(excess=st.floats(1, 1e6), level=st.floats(0, 1e5))
def test_what_is_further_off_than_allowed_for_good_always_fails(excess: float, level: float) -> None:
    for family, allowed in ALLOWED.items():
        if allowed.is_judged:
            ours = every_second(*[level + allowed.of(level) + excess] * 5)
            assert compared(family, ours, every_second(*[level] * 5)).verdict == "fails"


def test_neighbours_are_read_once_a_second() -> None:
    assert 1 < NEAR_SECONDS < 2


def test_labels_are_the_same_texts() -> None:
    assert same_text("modelName", ["T4", "T4"], ["T4"]).verdict == "ok"
    assert same_text("modelName", ["T4"], ["Tesla T4"]).verdict == "fails"
    assert same_text("modelName", ["T4"], []).verdict == "not judged"


def test_the_integral_is_that_of_straight_lines() -> None:
    assert integral([(0, 100), (10, 100), (12, 200)]) == 1300
    assert integral([(0, 100)]) == 0


def test_rates_are_means_of_the_time_before_them() -> None:
    assert sum_of_rates([(0, 100), (1, 5), (3, 10)]) == 25
    assert sum_of_rates([(0, 100)]) == 0


@pytest.mark.parametrize(("joules", "verdict"), [(4000, "ok"), (4079, "ok"), (4081, "fails"), (3919, "fails")])
def test_energy_is_the_integral_of_power_within_2_percent(joules: float, verdict: str) -> None:
    power = every_second(*[100.0] * 41)
    counter = [(0.0, 5_000.0), (40.0, 5_000 + joules * 1000)]
    assert energy(counter, power).verdict == verdict


def test_energy_of_a_few_seconds_is_not_judged() -> None:
    assert energy(every_second(1, 2, 3), every_second(1, 2, 3)).verdict == "not judged"
    assert energy([], []).verdict == "not judged"


def test_activity_is_a_mean_between_bounds() -> None:
    assert mean_between("SM active", every_second(0.7, 0.95), 0.8, 1).verdict == "ok"
    assert mean_between("SM active", every_second(0.7, 0.8), 0.8, 1).verdict == "fails"
    assert mean_between("SM active", [], 0.8, 1).verdict == "not judged"


@pytest.mark.parametrize(
    ("ours", "theirs", "verdicts"),
    [
        (4 * GIB + 500 * MIB, 4 * GIB + 500 * MIB, ["ok", "ok"]),
        (4 * GIB - 1, 4 * GIB, ["fails", "ok"]),
        (4 * GIB + CONTEXT_BYTES + 1, None, ["fails"]),
        (4 * GIB + 500 * MIB, 4 * GIB + 503 * MIB, ["ok", "fails"]),
        (None, 4 * GIB, ["fails"]),
        # in another PID namespace the driver lists none of them
        (None, None, ["not judged"]),
    ],
)
def test_memory_of_a_process_is_what_it_allocated_and_a_context(
    ours: int | None, theirs: int | None, verdicts: list[str]
) -> None:
    process = OfProcess(name="4 GiB", pid=7, allocated=4 * GIB, ours=ours, theirs=theirs)
    assert [row.verdict for row in memory_of(process)] == verdicts


def test_bytes_over_pcie_are_those_copied_and_their_headers() -> None:
    rate = every_second(*[1e9] * 11)
    assert copied("received", rate, [(0.0, 0.0), (10.0, 9e9)]).verdict == "ok"
    assert copied("received", rate, [(0.0, 0.0), (10.0, 20e9)]).verdict == "fails"
    assert copied("received", rate, [(0.0, 5.0), (10.0, 5.0)]).verdict == "not judged"
    assert copied("received", [], []).verdict == "not judged"


def test_a_growing_series_between_and_beyond_its_ends() -> None:
    series = [(0.0, 0.0), (10.0, 100.0)]
    assert [value_at(series, at) for at in (-1, 0, 5, 10, 11)] == [0, 0, 50, 100, 100]
    assert within(series, 1, 10) == [(10.0, 100.0)]


def test_owners_are_the_same_pods_at_every_moment() -> None:
    train = frozenset({"train"})
    assert owners("matmul", [train, train], train).verdict == "ok"
    wrong = owners("matmul", [train, frozenset()], train)
    assert (wrong.verdict, wrong.ours, wrong.difference) == ("fails", "nobody", "1 moments")
    assert owners("matmul", [], train).verdict == "not judged"


def test_counts_are_equal_to_the_one() -> None:
    assert equal("launches", 4321, 4321).verdict == "ok"
    assert equal("launches", 4320, 4321).verdict == "fails"
