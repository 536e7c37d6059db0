"""The number of GPUs that nodes had, from looks at them (`capacity` of the report)."""

import pytest

from exporter.report.capacity import MOST_GAP_MS, CapacityLooks, gpus_of, most_held

STEP = 60_000
GPUS = {"H100": 8.0, "A100": 2.0}


@pytest.mark.parametrize(
    ("missing_ms", "counted_ms"),
    [
        (0, 2 * STEP),
        (STEP - 1, 2 * STEP),  # the look is a little late
        (STEP, 3 * STEP),
        (MOST_GAP_MS, 2 * STEP + MOST_GAP_MS),
        (MOST_GAP_MS + 1, 2 * STEP),  # the node may have been off
    ],
)
def test_a_short_gap_between_looks_is_bridged(missing_ms: int, counted_ms: int) -> None:
    looks = CapacityLooks()
    looks.add("n", STEP, STEP, GPUS)
    looks.add("n", 2 * STEP + missing_ms, STEP, GPUS)
    assert looks.seen_ms == {"n": counted_ms}
    assert looks.seconds == {("n", "H100"): 8 * counted_ms / 1000, ("n", "A100"): 2 * counted_ms / 1000}


def test_in_a_gap_the_node_had_the_gpus_of_the_look_before() -> None:
    looks = CapacityLooks()
    looks.begin("n", 0, {"H100": 8.0})
    assert (looks.seen_ms, looks.seconds) == ({}, {})
    looks.add("n", 4 * STEP, STEP, {"A100": 1.0})
    looks.add("other", 4 * STEP, STEP, {"A100": 1.0})
    assert looks.seconds == {("n", "H100"): 8 * 180.0, ("n", "A100"): 60.0, ("other", "A100"): 60.0}
    assert looks.seen_ms == {"n": 4 * STEP, "other": STEP}
    assert gpus_of(looks.seconds, looks.seen_ms) == {"n": pytest.approx(6.25), "other": 1.0}


def test_a_node_that_nobody_saw_has_no_number_of_gpus() -> None:
    assert gpus_of({("n", "H100"): 60.0}, {"n": 0.0}) == {}
    assert gpus_of({("n", "H100"): 60.0}, {}) == {}


def test_scrapes_can_show_at_most_a_little_more_than_there_was() -> None:
    assert most_held(2.0, 100.0) == pytest.approx(2 * (102 + 30))
