"""Ids of plugins whose scheduler has chosen the GPU: a token names no device, but on a node that has one GPU alone."""

import pytest

from exporter.model.devices import (
    NONE_ALLOCATABLE,
    Allocatable,
    Assignment,
    Inventory,
    InventoryGpu,
    MigInstance,
    Owners,
)
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.model.snapshot import LookContext
from exporter.ownership.device_ids import RULES, read_rules
from exporter.ownership.explain import Explainer
from exporter.ownership.owners import Knowledge, OwnersBuilder, Unmatched
from tests.support.owners import build_owners

A, B = (Owner(namespace="ml", pod=pod, container="main") for pod in "ab")
X, Y = "9567a9e7-341e-bb7e-fcf5-788d8caa50f9", "40f717b2-d09e-4a1f-b8e7-0f5ef53b8a9f"
ONE = {Subject(uuid=f"GPU-{X}", index="0", device="nvidia0"): 3}
TWO = {**ONE, Subject(uuid=f"GPU-{Y}", index="1", device="nvidia1"): 3}
GPU, VOLCANO, ALIYUN = "nvidia.com/gpu", "volcano.sh/vgpu-number", "aliyun.com/gpu-mem"
TOKENS = [
    (GPU, f"GPU-{X}-4", "HAMi"),
    (GPU, f"{X}-4", "HAMi"),
    (GPU, f"GPU-{X}-_-11", "gpushare"),
    (GPU, f"{X}-_-11", "gpushare"),
    (ALIYUN, f"GPU-{X}-_-11", "gpushare"),
    (ALIYUN, f"{X}-_-11", "gpushare"),
    (ALIYUN, f"GPU-{X}", "gpushare"),
    (VOLCANO, f"GPU-{X}-4", "Volcano"),
    (VOLCANO, f"GPU-{X}", "Volcano"),
    ("volcano.sh/vgpu-memory", f"GPU-{X}-memory-17", "Volcano"),
    ("volcano.sh/vgpu-cores", f"GPU-{X}-core-17", "Volcano"),
]


def given(device_id: str, owner: Owner = A, resource: str = GPU) -> Assignment:
    return Assignment(owner=owner, resource=resource, device_id=device_id)


def holders(owners: Owners) -> dict[str, list[tuple[str, bool]]]:
    return {key.uuid: [(holder.owner.pod, holder.shared) for holder in of] for key, of in owners.holders.items()}


# issue 22, line 1
@pytest.mark.parametrize(("resource", "device_id", "allocator"), TOKENS)
def test_a_token_names_no_device_where_there_are_several(resource: str, device_id: str, allocator: str) -> None:
    owners = build_owners([given(device_id, resource=resource)], TWO)
    (match,) = owners.matches
    assert (holders(owners), match.key, match.reason) == ({}, None, Unmatched.ALLOCATOR)
    words = explained(owners)
    why = words.assigned(match)
    assert why is not None
    assert f"{allocator}'s scheduler chose the GPU and wrote it on the pod" in why.message
    assert "annotation" in why.message
    assert why.remedy
    for subject in TWO:
        assert "scheduler chose" in words.why_unknown(subject), "the device may be held, so it is not free"


def explained(owners: Owners) -> Explainer:
    return Explainer(owners, TWO, LookContext(), Inventory(), kubelet_answered=True)


# issue 22, line 1
@pytest.mark.parametrize(("resource", "device_id", "_"), TOKENS)
def test_on_a_node_with_one_gpu_a_token_can_mean_no_other(resource: str, device_id: str, _: str) -> None:
    owners = build_owners([given(device_id, resource=resource)], ONE)
    assert (holders(owners), owners.matches[0].reason) == ({f"GPU-{X}": [("a", True)]}, "")
    assert explained(owners).why_unknown(next(iter(ONE))) == ""


NVML_HAS_TWO = Inventory(gpus=(InventoryGpu(uuid=f"GPU-{X}"), InventoryGpu(uuid=f"GPU-{Y}")))


# issue 22, line 1
@pytest.mark.parametrize(
    ("subjects", "inventory", "offered", "others"),
    [
        # a page lacks a GPU that is lost: what else knows of a second one
        (ONE, NVML_HAS_TWO, NONE_ALLOCATABLE, ()),
        (ONE, Inventory(), {GPU: dict.fromkeys([f"GPU-{X}-0", f"GPU-{Y}-0"], 1)}, ()),
        (ONE, Inventory(), NONE_ALLOCATABLE, (given(f"GPU-{Y}-1", B),)),
        (ONE, Inventory(), NONE_ALLOCATABLE, (given(f"GPU-{Y}", B, "nvidia.com/whole"),)),
        ({Subject(uuid=f"GPU-{X}", index="1"): 3}, Inventory(), NONE_ALLOCATABLE, ()),
        # nothing says how many there are
        ({}, Inventory(), NONE_ALLOCATABLE, ()),
        ({}, Inventory(), {GPU: dict.fromkeys([f"GPU-{X}-0", f"GPU-{X}-1"], 1)}, ()),
        ({Subject(index="0"): 3}, Inventory(), NONE_ALLOCATABLE, ()),
        # the node's GPU is another one
        ({Subject(uuid=f"GPU-{Y}", index="0"): 3}, Inventory(), NONE_ALLOCATABLE, ()),
    ],
)
def test_whatever_knows_of_a_second_gpu_leaves_a_token_without_one(
    subjects: dict[Subject, int], inventory: Inventory, offered: Allocatable, others: tuple[Assignment, ...]
) -> None:
    owners = build_owners([given(f"GPU-{X}-4"), *others], subjects, Knowledge(inventory=inventory), offered)
    reasons = {match.assignment.device_id: match.reason for match in owners.matches}
    assert reasons[f"GPU-{X}-4"] == Unmatched.ALLOCATOR
    assert f"GPU-{X}" not in holders(owners)


# issue 22, line 1
def test_a_gpu_that_was_seen_once_is_remembered_when_it_is_lost() -> None:
    builder = OwnersBuilder()
    for subjects in (TWO, ONE):
        owners = builder.build([given(f"GPU-{X}-4")], subjects, Knowledge(), NONE_ALLOCATABLE)
        assert {match.reason for match in owners.matches} == {Unmatched.ALLOCATOR}


MIG = f"MIG-{Y}"


def cut(instances: int) -> Inventory:
    uuids = [MIG, *(f"MIG-{n}" for n in range(1, instances))]
    mig = tuple(MigInstance(uuid=uuid, instance_id=f"{n + 3}") for n, uuid in enumerate(uuids))
    return Inventory(gpus=(InventoryGpu(uuid=f"GPU-{X}", mig=mig),))


# issue 22, line 1
@pytest.mark.parametrize(("instances", "expected"), [(1, {f"GPU-{X}": [("a", True)]}), (2, {})])
def test_a_token_of_a_mig_instance_means_the_node_s_only_one(instances: int, expected: dict[str, object]) -> None:
    owners = build_owners([given(f"{MIG}-1")], ONE, Knowledge(inventory=cut(instances)))
    assert holders(owners) == expected
    # HAMi's own mode for whole instances: the id is true
    whole = build_owners([given(MIG)], ONE, Knowledge(inventory=cut(instances)))
    assert holders(whole) == {f"GPU-{X}": [("a", False)]}


@pytest.mark.parametrize("instances", [1, 2])
def test_a_token_of_a_gpu_that_is_cut_means_some_instance_of_it(instances: int) -> None:
    """In HAMi's mode "mig" the ids name the GPU, and each container has an instance that HAMi has cut for it."""
    owners = build_owners([given(f"GPU-{X}-0"), given(f"GPU-{X}-1", B)], ONE, Knowledge(inventory=cut(instances)))
    assert holders(owners) == {}
    assert {match.reason for match in owners.matches} == {Unmatched.ALLOCATOR}


# issue 22, line 1
def test_true_ids_beside_tokens_keep_their_devices() -> None:
    assigned = [given(f"GPU-{X}-4"), given(f"GPU-{Y}", B, "nvidia.com/whole")]
    assert holders(build_owners(assigned, TWO)) == {f"GPU-{Y}": [("b", False)]}


# issue 22, line 1
def test_a_rule_of_the_user_s_makes_ids_true() -> None:
    """HAMi with enablegetpreferredallocation aligns ids with its choice; --allocators.hami id says it, too."""
    rules = read_rules({"devices": [{"resource": GPU, "id": "(?P<uuid>GPU-[0-9a-f-]{36})(?P<share>-[0-9]+)"}]}).rules
    assert rules[1:] == RULES
    owners = build_owners([given(f"GPU-{X}-4")], TWO, Knowledge(rules=rules))
    assert holders(owners) == {f"GPU-{X}": [("a", True)]}
