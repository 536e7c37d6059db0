"""What the kubelet can hand out: counted by device, and kept while a device plugin is away."""

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.devices import (
    NONE_ALLOCATABLE,
    Allocatable,
    Assignment,
    DeviceKey,
    Inventory,
    InventoryGpu,
    MigInstance,
)
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.ownership.owners import Knowledge
from exporter.ownership.retention import offered_now, read_by_built_in_rules
from tests.support.owners import build_owners

A, B = "GPU-aaaa", "GPU-bbbb"
SHARED, WHOLE = "nvidia.com/gpu.shared", "nvidia.com/gpu"


def once(*ids: str) -> Mapping[str, int]:
    """Ids that stand for themselves alone."""
    return dict.fromkeys(ids, 1)


def shares(uuid: str, count: int) -> dict[str, int]:
    return dict.fromkeys((f"{uuid}::{number}" for number in range(count)), 1)


def held(*ids: str, resource: str = SHARED) -> list[Assignment]:
    return [
        Assignment(owner=Owner(namespace="n", pod=f"p{at}", container="c"), resource=resource, device_id=one)
        for at, one in enumerate(ids)
    ]


def now(before: Allocatable, answer: Allocatable, assignments: Iterable[Assignment] = ()) -> Allocatable:
    return offered_now(before, answer, list(assignments), read_by_built_in_rules)


BOTH = {SHARED: shares(A, 4) | shares(B, 4), WHOLE: once("GPU-cccc")}


@pytest.mark.parametrize(
    ("answer", "holds", "expected"),
    [
        # the plugin is gone: what is held stays as it was offered, whole devices too
        ({}, held(f"{A}::1"), {SHARED: shares(A, 4)}),
        ({}, held("GPU-cccc", resource=WHOLE), {WHOLE: once("GPU-cccc")}),
        ({}, [], {}),
        # one plugin of several is gone, or one GPU is unhealthy
        ({WHOLE: once("GPU-cccc")}, held(f"{B}::0"), {SHARED: shares(B, 4), WHOLE: once("GPU-cccc")}),
        ({SHARED: shares(A, 4)}, held(f"{A}::0", f"{B}::0"), {SHARED: shares(A, 4) | shares(B, 4)}),
        # another word about a device is its last one: other replicas, or no shares any more
        ({SHARED: shares(A, 2)}, held(f"{A}::1"), {SHARED: shares(A, 2)}),
        ({SHARED: once(A)}, held(f"{A}::1"), {SHARED: once(A)}),
        # the same device of another resource is none of this one's business
        ({WHOLE: once(A)}, held(f"{A}::1"), {SHARED: shares(A, 4), WHOLE: once(A)}),
    ],
)
def test_what_an_answer_does_not_name_stays_while_it_is_held(
    answer: Allocatable, holds: list[Assignment], expected: Allocatable
) -> None:
    assert dict(now(BOTH, answer, holds)) == expected


def test_an_id_of_no_known_form_stands_for_itself() -> None:
    before = {SHARED: once("odd-1", "odd-2")}
    assert dict(now(before, {}, held("odd-1"))) == {SHARED: once("odd-1")}


IDS = st.sampled_from(sorted({*shares(A, 3), *shares(B, 2), A, "odd"}))
OFFERS = st.dictionaries(st.sampled_from([SHARED, WHOLE]), st.frozensets(IDS, min_size=1).map(lambda ids: once(*ids)))


@given(st.lists(OFFERS, max_size=6), st.frozensets(IDS))
def test_any_answers_one_after_the_other(answers: list[Allocatable], ids: frozenset[str]) -> None:
    offers: Allocatable = NONE_ALLOCATABLE
    for answer in answers:
        before, offers = offers, now(offers, answer, held(*ids))
        for resource, of_resource in answer.items():
            assert of_resource.items() <= offers[resource].items()
        assert all(offers.values())
        known = {one for of in (before, answer) for of_resource in of.values() for one in of_resource}
        assert {one for of_resource in offers.values() for one in of_resource} <= known
        # the same again is the same object: nothing is worked out anew for it
        assert now(offers, answer, held(*ids)) is offers


INVENTORY = Inventory(
    gpus=(
        InventoryGpu(
            uuid=B, mig=(MigInstance(uuid="MIG-1", instance_id="3"), MigInstance(uuid="MIG-2", instance_id="4"))
        ),
    )
)
MIG = "nvidia.com/mig-3g.40gb"


def subject(uuid: str, instance: str = "", profile: str = "") -> Subject:
    return Subject(uuid=uuid, instance=instance, profile=profile)


@pytest.mark.parametrize(
    ("offers", "inventory", "expected"),
    [
        ({SHARED: shares(A, 4), WHOLE: once(B)}, Inventory(), {(SHARED, A, ""): 4, (WHOLE, B, ""): 1}),
        # those by number
        ({SHARED: once("nvidia0/vgpu0", "nvidia0/vgpu1")}, Inventory(), {(SHARED, "nvidia0", ""): 2}),
        ({SHARED: once("what is this")}, Inventory(), {}),
        ({MIG: once("MIG-1", "MIG-2")}, INVENTORY, {(MIG, B, "3"): 1, (MIG, B, "4"): 1}),
        ({MIG: once("MIG-1::0", "MIG-1::1")}, INVENTORY, {(MIG, B, "3"): 2}),
        # the only instance of its profile, and one id of the profile
        ({MIG: once("MIG-9")}, Inventory(), {(MIG, B, "3"): 1}),
        # two ids could mean it, one of which nobody holds
        ({MIG: once("MIG-8", "MIG-9")}, Inventory(), {(MIG, "MIG-8", ""): 1, (MIG, "MIG-9", ""): 1}),
    ],
)
def test_ids_on_offer_are_counted_by_the_device_that_they_mean(
    offers: Allocatable, inventory: Inventory, expected: dict[tuple[str, str, str], int]
) -> None:
    subjects = {subject(A): 1, subject(B): 1, subject(B, "3", "3g.40gb"): 1}
    owners = build_owners(held("MIG-9", resource=MIG), subjects, Knowledge(inventory=inventory), offers)
    assert {(resource, key.uuid, key.instance): count for (resource, key), count in owners.offered.items()} == expected


def test_what_is_on_offer_makes_nobody_an_owner() -> None:
    owners = build_owners(held(f"{A}::0"), {subject(A): 1}, None, {SHARED: shares(A, 4) | shares(B, 4)})
    without = build_owners(held(f"{A}::0"), {subject(A): 1})
    assert (owners.holders, owners.matches) == (without.holders, without.matches)
    assert owners.offered[SHARED, DeviceKey(uuid=A)] == 4
    assert without.offered == {}
