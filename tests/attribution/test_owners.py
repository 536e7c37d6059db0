"""From assignments to owners, and the assignments without samples."""

from exporter.attribution.owners import Unmatched, build_owners, match, select
from exporter.model import Assignment, Holder, Owner, Subject

A = Owner(namespace="ml", pod="train-0", container="main")
B = Owner(namespace="web", pod="serve-1", container="server")


def given(owner: Owner, device_id: str, resource: str = "nvidia.com/gpu") -> Assignment:
    return Assignment(owner=owner, resource=resource, device_id=device_id)


def test_several_shares_in_one_container_are_one_holder() -> None:
    owners = build_owners([given(A, "GPU-1::0"), given(A, "GPU-1::1"), given(B, "GPU-1::2")])
    assert owners.of("GPU-1") == (
        Holder(owner=A, resource="nvidia.com/gpu", shared=True),
        Holder(owner=B, resource="nvidia.com/gpu", shared=True),
    )


def test_whoever_holds_a_gpu_holds_its_instances_and_not_the_other_way_round() -> None:
    owners = build_owners([given(A, "GPU-1"), given(B, "MIG-2")])
    assert [holder.owner for holder in owners.of("GPU-1", "7")] == [A]
    assert [holder.owner for holder in owners.of("MIG-2")] == [B]
    assert owners.of("GPU-2") == ()


def test_resources_are_selected_by_globs() -> None:
    wanted, shared, other = given(A, "a"), given(A, "b", "nvidia.com/gpu.shared"), given(A, "c", "intel.com/nic")
    assert select([wanted, shared, other], ["nvidia.com/*"]) == {wanted, shared}
    assert select([wanted, shared, other], ["nvidia.com/gpu", "intel.*"]) == {wanted, other}


def test_an_assignment_without_samples_says_why() -> None:
    owners = build_owners(
        [given(A, "GPU-1"), given(A, "GPU-2"), given(A, "MIG-3"), given(A, "MIG-4"), given(A, "tpu0")]
    )
    seen = [Subject(uuid="GPU-1", instance="7"), Subject(uuid="MIG-4"), Subject()]
    assert {found.assignment.device_id: found.unmatched for found in match(owners, seen)} == {
        "GPU-1": None,
        "GPU-2": Unmatched.NO_SAMPLE,
        "MIG-3": Unmatched.MIG_UNRESOLVED,
        "MIG-4": None,
        "tpu0": Unmatched.UNKNOWN_ID,
    }
