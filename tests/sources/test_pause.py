"""How long to wait before something that failed is tried again."""

import random
from itertools import pairwise
from math import inf, isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.pause import Pause


@pytest.mark.parametrize(
    ("pause", "seconds"),
    [
        (Pause(1.0, 60.0), [1, 1, 2, 4, 8, 16, 32, 60, 60]),
        (Pause(1.0, 30.0, factor=5.0), [1, 1, 5, 25, 30]),
        (Pause(0.5), [0.5, 0.5, 1, 2, 4]),
    ],
)
def test_it_grows_with_each_failure_up_to_its_limit(pause: Pause, seconds: list[float]) -> None:
    assert [pause.after(failures) for failures in range(len(seconds))] == seconds


@given(st.integers(min_value=-1, max_value=10**9), st.integers(), st.sampled_from([60.0, inf]))
def test_it_stays_finite_and_between_its_limits_by_chance(failures: int, seed: int, longest: float) -> None:
    pause = Pause(0.1, longest, least=0.75, most=1.25)
    most = Pause(0.1, longest).after(failures)
    seconds = pause.after(failures, random.Random(seed))
    assert isfinite(seconds)
    assert 0.75 * most <= seconds <= 1.25 * most


def test_it_never_shrinks_with_more_failures() -> None:
    pause = Pause(0.2, 60.0)
    assert all(one <= next_one for one, next_one in pairwise(map(pause.after, range(2000))))
