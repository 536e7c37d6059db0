"""The time for which nothing could be seen, by the source that was missing."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from exporter.accounts.ledger import Gaps
from tests.support.looks import SECOND, Looks, energy

ALL, NO_PAGE, NO_KUBELET, NEITHER, ONE_PAGE = "all", "no page", "no kubelet", "neither", "one page"


def noted(*looks: tuple[float, str]) -> tuple[Gaps, Sequence[bool]]:
    """The gaps after looks, and which of these count."""
    gaps, node = Gaps(), Looks()
    counts = []
    for at, sees in looks:
        snapshot = node.snapshot(
            None if sees in (NO_PAGE, NEITHER) else energy("1"),
            kubelet=sees not in (NO_KUBELET, NEITHER),
            one_page_fails=sees == ONE_PAGE,
        )
        counts.append(gaps.note(snapshot, round(at * SECOND), 10 * SECOND))
    return gaps, counts


@pytest.mark.parametrize(
    ("looks", "seconds", "is_gap"),
    [
        ([(5, ALL), (15, ALL)], {}, False),
        ([(5, ALL), (25, ALL)], {}, False),
        ([(5, ALL), (25.5, ALL)], {"exporter": 20.5}, True),
        ([(5, NO_KUBELET)], {}, True),
        ([(5, ALL), (15, NO_PAGE)], {"page": 10}, False),
        ([(5, ALL), (15, NO_PAGE), (25, ALL), (35, ALL)], {"page": 20}, False),
        ([(5, ALL), (15, ONE_PAGE), (25, ALL)], {"page": 10}, False),
        ([(5, ALL), (15, NO_KUBELET), (25, ALL), (35, ALL)], {"kubelet": 20}, True),
        ([(5, ALL), (15, NEITHER), (25, ALL)], {"kubelet": 20}, True),
        ([(5, ALL), (15, NO_KUBELET), (25, ONE_PAGE)], {"kubelet": 20}, True),
        ([(5, NO_KUBELET), (15, NO_PAGE)], {"page": 10}, True),
        ([(5, ALL), (50, NO_KUBELET), (100, NO_PAGE)], {"exporter": 95}, True),
        ([(5, ALL), (5, NO_KUBELET)], {}, True),
    ],
)
def test_the_time_of_a_gap_is_that_of_the_source_that_lacked(
    looks: list[tuple[float, str]], seconds: dict[str, float], is_gap: bool
) -> None:
    gaps, _ = noted(*looks)
    assert {reason: ns / SECOND for reason, ns in gaps.ns.items() if ns} == seconds
    assert gaps.is_gap == is_gap


def test_every_kind_of_gap_is_there_from_the_start() -> None:
    assert Gaps().ns == {"exporter": 0, "kubelet": 0, "page": 0}


def test_a_look_counts_if_the_kubelet_names_the_holders() -> None:
    _, counts = noted((0, ALL), (10, NO_PAGE), (20, NO_KUBELET), (30, NEITHER), (40, ONE_PAGE))
    assert counts == [True, True, False, False, True]


def test_a_kubelet_that_nobody_has_asked_names_no_holders() -> None:
    gaps = Gaps()
    assert not gaps.note(replace(Looks().snapshot(energy("1")), health={}), 0, 10 * SECOND)
    assert gaps.failing == "kubelet"
