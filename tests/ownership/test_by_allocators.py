"""Assignments with the words of allocators, step by step: from pods by name to tokens and unlisted holders."""

import json
from dataclasses import replace
from math import inf

import pytest

from exporter.model.devices import Assignment
from exporter.model.grants import NO_EVIDENCE, Evidence
from exporter.model.pods import PodInfo, PodName, PodOfName, PodsOfNames
from exporter.ownership.by_allocators import ByAllocators
from exporter.ownership.pods_of_names import Listing
from exporter.ownership.unlisted import UnlistedHolders
from exporter.ownership.words import Words
from tests.ownership.test_unlisted import of_koordinator, reservation, worker
from tests.ownership.test_words import GPU, GPUS, INVENTORY, MAIN, hami, ids, pod, shows

NAME = ("ml", "a")
TOKENS = frozenset(ids(MAIN, 0))


def by_allocators(*, reads_pods: bool = True) -> ByAllocators:
    return ByAllocators(Words(), UnlistedHolders(), reads_pods=reads_pods)


def named(*pods: PodInfo, is_gone: bool = False) -> PodsOfNames:
    return {
        (each.namespace, each.name): (PodOfName(pod=each, since=0.0, until=inf, is_first=True, is_gone=is_gone),)
        for each in pods
    }


def listing(*names: PodName) -> Listing:
    return Listing(asked_at_seconds=5.0, listed=frozenset(names))


def uuids(assignments: frozenset[Assignment]) -> list[str]:
    return [held.word.ref.uuid if held.word and held.word.ref else "" for held in assignments]


WRITTEN = pod(hami([2]))[NAME]


def test_a_token_has_the_word_of_its_pod() -> None:
    assert uuids(by_allocators().of(TOKENS, named(WRITTEN), listing(NAME), NO_EVIDENCE, INVENTORY)) == [GPUS[2]]


def test_where_words_on_pods_do_not_count_nothing_tells_the_device() -> None:
    (held,) = by_allocators(reads_pods=False).of(TOKENS, named(WRITTEN), listing(NAME), NO_EVIDENCE, INVENTORY)
    assert held.word is not None
    assert held.word.ref is None


@pytest.mark.parametrize("reads_pods", [True, False])
def test_what_the_node_shows_counts_with_pods_and_without(*, reads_pods: bool) -> None:
    evidence: Evidence = {(MAIN, GPU): (shows(3),)}
    made = by_allocators(reads_pods=reads_pods).of(TOKENS, named(WRITTEN), listing(NAME), evidence, INVENTORY)
    assert uuids(made) == [GPUS[3]]


def test_the_word_of_a_pod_that_is_gone_no_longer_counts() -> None:
    """Another pod may have its devices."""
    steps, of_list = by_allocators(), listing(NAME)
    assert uuids(steps.of(TOKENS, named(WRITTEN), of_list, NO_EVIDENCE, INVENTORY)) == [GPUS[2]]
    assert uuids(steps.of(TOKENS, named(WRITTEN, is_gone=True), of_list, NO_EVIDENCE, INVENTORY)) == [""]


def test_nothing_is_made_anew_while_nothing_changes() -> None:
    steps, pods, of_list = by_allocators(), named(WRITTEN), listing(NAME)
    before = steps.of(TOKENS, pods, of_list, NO_EVIDENCE, INVENTORY)
    assert steps.of(TOKENS, pods, of_list, NO_EVIDENCE, INVENTORY) is before
    now = named(replace(WRITTEN, annotations={**WRITTEN.annotations, "x": "y"}))
    assert steps.of(TOKENS, now, of_list, NO_EVIDENCE, INVENTORY) == before


def test_a_listed_pod_without_ids_may_hold_a_device_by_its_annotation() -> None:
    steps, none = by_allocators(), frozenset[Assignment]()
    assert steps.unlisted == none
    pods = named(of_koordinator(2))
    (holder,) = steps.of(none, pods, listing(NAME), NO_EVIDENCE, INVENTORY)
    assert steps.unlisted == {holder}
    assert json.loads(next(iter(pods[NAME][0].pod.annotations.values())))["gpu"] == [{"minor": 2}]
    # the kubelet runs no such pod
    assert steps.of(none, pods, listing(), NO_EVIDENCE, INVENTORY) == none
    assert steps.unlisted == none


def test_a_reservation_is_looked_at_after_the_tokens() -> None:
    held, reserving = reservation(1, "g")
    sharing = worker("b", "g", gpu_fraction="0.5")
    names = [(each.namespace, each.name) for each in (WRITTEN, reserving, sharing)]
    pods = named(WRITTEN, reserving, sharing)
    steps = by_allocators()
    made = steps.of(TOKENS | {held}, pods, listing(*names), NO_EVIDENCE, INVENTORY)
    assert {each.owner.pod for each in made} == {"a", "b", "gpu-reservation-g"}
    assert [each.owner.pod for each in steps.unlisted] == ["b"]
