"""Devices of DRA claims."""

import pytest

from exporter.model.devices import Assignment, Claim, DeviceKey, Inventory, PodResources, ResourceSlice, SliceDevice
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.model.snapshot import LookContext
from exporter.ownership.device_ids import complete_pools, devices_of, read_claim
from exporter.ownership.explain import Explainer
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.owners import Knowledge, Unmatched, is_meant
from exporter.ownership.retention import Retained, answered
from exporter.ownership.sample_rows import Attribution
from tests.support.owners import build_owners

UUID = "9567a9e7-341e-bb7e-fcf5-788d8caa50f9"
CLAIM_UID = "11111111-2222-4333-8444-555555555555"
A = Owner(namespace="ml", pod="train-0", container="main")
B = Owner(namespace="ml", pod="train-1", container="main")
GPU, MIG = SliceDevice(uuid=f"GPU-{UUID}", kind="gpu"), SliceDevice(uuid="MIG-1", kind="mig", parent_uuid="GPU-1")


def claim(*cdi: str, device: str = "gpu-0", share: str = "", name: str = "gpu") -> Claim:
    return Claim(
        namespace="ml", name=name, driver="gpu.nvidia.com", pool="node-1", device=device, cdi_names=cdi, share=share
    )


def given(owner: Owner, of: Claim) -> Assignment:
    return Assignment(owner=owner, resource=of.driver, device_id=of.device_id, claim=of)


@pytest.mark.parametrize(
    ("cdi", "slices", "uuid", "mig"),
    [
        ((), {"gpu-0": GPU}, f"GPU-{UUID}", ""),
        ((), {"gpu-0": MIG}, "", "MIG-1"),
        ((f"nvidia.com/gpu=GPU-{UUID}",), {}, f"GPU-{UUID}", ""),
        ((f"nvidia.com/gpu=MIG-{UUID}",), {}, "", f"MIG-{UUID}"),
        # the names of an instance may name its GPU as well
        ((f"nvidia.com/gpu=GPU-{CLAIM_UID}", f"nvidia.com/gpu=MIG-{UUID}"), {}, "", f"MIG-{UUID}"),
        # the slice's word counts more than a name's
        ((f"nvidia.com/gpu=GPU-{CLAIM_UID}",), {"gpu-0": GPU}, f"GPU-{UUID}", ""),
    ],
)
def test_a_claims_device(cdi: tuple[str, ...], slices: dict[str, SliceDevice], uuid: str, mig: str) -> None:
    ref = read_claim(claim(*cdi), {("gpu.nvidia.com", "node-1", name): device for name, device in slices.items()})
    assert ref is not None
    assert (ref.uuid, ref.mig) == (uuid, mig)


@pytest.mark.parametrize(
    "cdi",
    [
        (),
        (f"k8s.gpu.nvidia.com/claim={CLAIM_UID}-gpu-0",),
        ("x=GPU-short",),
        # a wrong owner is worse than none
        (f"x=GPU-{UUID}", f"x=GPU-{CLAIM_UID}"),
        (f"x=MIG-{UUID}", f"x=MIG-{CLAIM_UID}"),
    ],
)
def test_a_claim_that_says_nothing(cdi: tuple[str, ...]) -> None:
    # NVIDIA's driver puts the claim's own UUID into its names: that is no GPU
    assert read_claim(claim(*cdi), {}) is None
    (match,) = build_owners([given(A, claim(*cdi))], {Subject(uuid="GPU-1"): 1}).matches
    assert match.reason == Unmatched.CLAIM_UNRESOLVED


SLICES = {("gpu.nvidia.com", "node-1", "gpu-0"): SliceDevice(kind="gpu")}


# issue 7, line 1
@pytest.mark.parametrize(
    ("context", "says", "remedy"),
    [
        (LookContext(), "no ResourceSlice and no CDI name", "deploy/rbac.yaml"),
        (
            LookContext(slices_up=True),
            "a kubelet that starts deletes those",
            "wait a minute; if it stays so",
        ),
        (LookContext(slices_up=False), "the Kubernetes API tells of none now", "the source resourceslices"),
        (
            LookContext(slice_devices=SLICES, slices_up=True),
            "gives it no attribute uuid",
            "newer driver gpu.nvidia.com",
        ),
    ],
)
def test_why_a_claim_is_not_resolved(context: LookContext, says: str, remedy: str) -> None:
    owners = build_owners([given(A, claim())], {}, Knowledge(slices=context.slice_devices))
    advice = Explainer(owners, (), context, Inventory(), kubelet_answered=True).assigned(owners.matches[0])
    assert advice is not None
    assert says in advice.message
    assert remedy in advice.remedy


def slice_of(generation: int, count: int, *devices: str, pool: str = "node-1") -> ResourceSlice:
    return ResourceSlice(
        driver="gpu.nvidia.com",
        pool=pool,
        generation=generation,
        slice_count=count,
        devices={name: SliceDevice(uuid=f"{name}@{generation}") for name in devices},
    )


def test_only_the_highest_generation_that_is_complete_counts() -> None:
    slices = [
        slice_of(1, 1, "a", "old"),
        slice_of(2, 2, "a"),
        slice_of(2, 2, "b"),
        slice_of(3, 2, "a"),  # its second slice is still missing
        slice_of(9, 2, "x", pool="never-complete"),
    ]
    assert {key[2]: device.uuid for key, device in devices_of(complete_pools(slices)).items()} == {
        "a": "a@2",
        "b": "b@2",
    }


# issue 7, line 7
def test_the_labels_of_a_claim_and_a_claim_that_two_pods_hold() -> None:
    knowledge = Knowledge(slices={("gpu.nvidia.com", "node-1", "gpu-0"): GPU})
    policy = LabelPolicy(has_claims=True)
    owners = build_owners([given(A, claim()), given(B, claim())], {}, knowledge)
    subject = policy.read_subject({"UUID": f"GPU-{UUID}", "pod": "came", "dra_claim_name": "theirs"})
    (rows,) = Attribution(owners, policy)([(b"x", subject)])
    of_claim = {
        "dra_claim_name": "gpu", "dra_claim_namespace": "ml", "dra_driver_name": "gpu.nvidia.com",
        "dra_pool_name": "node-1", "dra_device_name": "gpu-0",
    }  # fmt: skip
    assert [dict(row.labels) for row in rows.each] == [
        {"pod": owner.pod, "namespace": "ml", "container": "main", "gpu_shared": "true", **of_claim} for owner in (A, B)
    ]
    (kept,) = Attribution(owners, LabelPolicy(has_claims=True, incoming_wins=True))([(b"x", subject)])
    assert dict(kept.each[0].labels) == {"pod": "came", "namespace": "", "container": "", "dra_claim_name": "theirs"}


def test_a_mig_device_of_a_claim_is_looked_up_on_its_parent() -> None:
    slices = {
        ("gpu.nvidia.com", "node-1", "gpu-0"): SliceDevice(
            uuid="MIG-1", kind="mig", parent_uuid="GPU-2", profile="1g.5gb"
        )
    }
    subjects = {Subject(uuid=uuid, instance="7", profile="1g.5gb"): 1 for uuid in ("GPU-1", "GPU-2")}
    owners = build_owners([given(A, claim())], subjects, Knowledge(slices=slices))
    assert [holder.owner for holder in owners.of(DeviceKey(uuid="GPU-2", instance="7"))] == [A]
    assert owners.of(DeviceKey(uuid="GPU-1", instance="7")) == ()


def test_nvidias_driver_is_meant_and_others_by_resources_alone() -> None:
    assert is_meant(claim().driver, ["nvidia.com/*"], of_claim=True)
    assert not is_meant("dra.net", ["nvidia.com/*"], of_claim=True)
    assert is_meant("dra.net", ["dra.net"], of_claim=True)
    # a device plugin's resource of that name is another thing
    assert not is_meant(claim().driver, ["nvidia.com/*"])


def test_after_a_reconnect_a_shared_claim_displaces_nobody() -> None:
    def after_reconnect(*now: Assignment) -> frozenset[Assignment]:
        before = answered(
            Retained(),
            PodResources(assignments=frozenset({given(A, claim())}), listed=frozenset({("ml", "train-0")})),
            now=0.0,
            reconnected=False,
        )
        answer = PodResources(assignments=frozenset(now), listed=frozenset({("ml", "train-1")}))
        return answered(before, answer, now=1.0, reconnected=True).assignments

    assert after_reconnect(given(B, claim())) == {given(A, claim()), given(B, claim())}
    other = given(B, claim(name="other"))
    assert after_reconnect(other) == {other}
    share = given(B, claim(name="other", share="s1"))
    assert after_reconnect(share) == {given(A, claim()), share}
