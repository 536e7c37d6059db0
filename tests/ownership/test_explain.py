"""What people are told of a device without samples or without an owner, and why."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from exporter.errors import Trouble
from exporter.model.device_ref import DeviceRef
from exporter.model.devices import (
    Assignment,
    CdiPlace,
    Claim,
    DeviceKey,
    Holder,
    Inventory,
    InventoryDoubt,
    InventoryGpu,
    Match,
    MigInstance,
    Owners,
    SliceDevice,
)
from exporter.model.grants import Grant, Word
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.model.snapshot import Health, LookContext
from exporter.ownership import explain
from exporter.ownership.explain import HIDES_OWNERS, NOBODY, Explainer, is_kubelet_silent, of_look, what_hides_owners
from exporter.ownership.owners import Knowledge, Unmatched
from tests.support.owners import build_owners

A = Owner(namespace="ml", pod="train-0", container="main")
CUT = InventoryGpu(uuid="GPU-1", index="0", mig=(MigInstance(uuid="MIG-a", instance_id="7"),), sources=("cdi",))
WHOLE = InventoryGpu(uuid="GPU-2", index="1", sources=("cdi",))
BY_NVML = InventoryGpu(uuid="GPU-3", index="2", sources=("driver", "nvml"))
ODD = InventoryDoubt(trouble=Trouble("", "two files differ", "write one anew"), leaves_out=frozenset({"MIG-x"}))


@pytest.mark.parametrize(
    ("inventory", "has_file", "why"),
    [
        (Inventory(), False, explain._NO_INVENTORY),
        (Inventory(gpus=(WHOLE,)), False, explain._NO_INVENTORY),
        (Inventory(gpus=(WHOLE, CUT)), False, explain._SPECS_LACK_IT),
        (Inventory(gpus=(WHOLE, CUT)), True, explain._FILE_LACKS_IT),
        (Inventory(gpus=(WHOLE, BY_NVML)), True, explain._NVML_LACKS_IT),
        (
            Inventory(gpus=(BY_NVML,), doubts=(ODD,)),
            True,
            Trouble("", "the inventory leaves this MIG instance out: two files differ", "write one anew"),
        ),
    ],
)
def test_an_unresolved_mig_instance_is_explained(inventory: Inventory, has_file: bool, why: Trouble) -> None:
    held = Assignment(owner=A, resource="nvidia.com/mig-1g.10gb", device_id="MIG-x")
    seen = {Subject(uuid="GPU-1", index="0"): 3}
    owners = build_owners([held], seen, Knowledge(inventory=inventory))
    context = LookContext(has_inventory_file=has_file)
    (match,) = owners.matches
    assert match.reason == Unmatched.MIG_UNRESOLVED
    assert Explainer(owners, seen, context, inventory, kubelet_answered=True).assigned(match) == why


CLAIM = Claim(namespace="ml", name="c", driver="gpu.nvidia.com", pool="n", device="gpu-3", cdi_names=("k=a", "k=b"))
BY_ID = Assignment(owner=A, resource="nvidia.com/gpu", device_id="GPU-9")
BY_CLAIM = Assignment(owner=A, resource=CLAIM.driver, device_id=CLAIM.device_id, claim=CLAIM)
GPU_1, INSTANCE = DeviceKey(uuid="GPU-1"), DeviceKey(uuid="GPU-1", instance="7")


def explainer(
    context: LookContext | None = None,
    owners: Owners | None = None,
    places: Mapping[str, CdiPlace | None] | None = None,
    *,
    kubelet_answered: bool = True,
) -> Explainer:
    inventory = Inventory(places=places or {})
    return Explainer(owners or Owners(), (), context or LookContext(), inventory, kubelet_answered=kubelet_answered)


def why(match: Match, context: LookContext | None = None) -> str:
    trouble = explainer(context).assigned(match)
    return f"{trouble.message}; {trouble.remedy}" if trouble else ""


def unmatched(reason: str, ref: DeviceRef | None = None, key: DeviceKey | None = None, of: Assignment = BY_ID) -> Match:
    return Match(assignment=of, ref=ref, key=key, reason=reason)


def test_a_device_with_samples_needs_no_reason() -> None:
    assert explainer().assigned(Match(assignment=BY_ID, ref=None, key=GPU_1, samples=3)) is None


@pytest.mark.parametrize(
    ("match", "text"),
    [
        (unmatched(Unmatched.NO_SAMPLE), "has a sample of this device;"),
        (unmatched(Unmatched.NO_SAMPLE, key=GPU_1), "has a sample of this device;"),
        (unmatched(Unmatched.NO_SAMPLE, DeviceRef(form="x", uuid="GPU-1"), GPU_1), "has a sample of this device;"),
        (unmatched(Unmatched.NO_SAMPLE, key=INSTANCE), "has a sample of this MIG instance;"),
        (unmatched(Unmatched.UNNAMED, key=INSTANCE), "no sample says what this device id says"),
        (unmatched(Unmatched.MIG_UNRESOLVED), "MIG id and no inventory"),
        (unmatched(Unmatched.ALLOCATOR), "the form of this device id is not known"),
        (
            unmatched(Unmatched.CONTRADICTED, DeviceRef(form="x", minor="3", uuid="GPU-1")),
            "names /dev/nvidia3, and its ResourceSlice or its CDI name says GPU-1, which is another device",
        ),
        (
            unmatched(
                Unmatched.CONTRADICTED, DeviceRef(form="x", minor="3", instance="7", mig="MIG-1", device="gpu-1")
            ),
            "names /dev/nvidia3, GPU instance 7, and its ResourceSlice or its CDI name says MIG-1, which",
        ),
        (unmatched(Unmatched.CONTRADICTED, DeviceRef(form="x", minor="3", device="vfio/5")), "name says vfio/5, which"),
        (
            unmatched(Unmatched.CLAIM_UNRESOLVED, DeviceRef(form="x", minor="99"), of=BY_CLAIM),
            "the CDI spec of this claim's device names /dev/nvidia99, and nothing here says which GPU that is",
        ),
        (unmatched(Unmatched.CLAIM_UNRESOLVED, DeviceRef(form="x"), of=BY_CLAIM), "no CDI spec, no ResourceSlice"),
    ],
)
def test_why_a_device_has_no_samples(match: Match, text: str) -> None:
    assert text in why(match)


SLICE_OF_CLAIM = {CLAIM.slice_name: SliceDevice(kind="gpu")}


@pytest.mark.parametrize(
    ("context", "text"),
    [
        (LookContext(slice_devices=SLICE_OF_CLAIM), "no CDI spec, no ResourceSlice"),
        (LookContext(slice_devices=SLICE_OF_CLAIM, slices_up=False), "gives it no attribute uuid"),
        (LookContext(slices_up=False), "the Kubernetes API tells of none now"),
        (LookContext(slices_up=True), "deletes those of its node"),
    ],
)
def test_why_a_claim_without_a_number_has_no_device(context: LookContext, text: str) -> None:
    assert text in why(unmatched(Unmatched.CLAIM_UNRESOLVED, of=BY_CLAIM), context)


GRANT = Grant(allocator="HAMi")
TROUBLE = Trouble("", "its annotation is no JSON", "look at it")


def says(**facts: str) -> Word:
    return Word(grant=GRANT, source="an annotation", ref=DeviceRef(form="x", **facts))  # type: ignore[arg-type] # texts


@pytest.mark.parametrize(
    ("word", "text"),
    [
        (replace(says(uuid="GPU-1"), trouble=TROUBLE), "its annotation is no JSON; look at it"),
        (Word(grant=GRANT, trouble=TROUBLE), "its annotation is no JSON; look at it"),
        (says(minor="3"), "an annotation says that the container has /dev/nvidia3, and nothing here says"),
        (says(minor="3", uuid="GPU-1"), "the container has GPU-1, and this node has no such device; no owner is shown"),
        (says(mig="MIG-1", device="nvidia0"), "the container has MIG-1, and"),
        (says(device="nvidia0", index="4"), "the container has nvidia0, and"),
        (says(index="4"), "the container has 4, and this node has no such device; no owner is shown: look at"),
        (says(index="4"), "the scheduler and the device plugin of HAMi"),
        (None, "HAMi"),
        (Word(grant=GRANT), "HAMi"),
    ],
)  # fmt: skip
def test_why_an_allocator_s_token_has_no_device(word: Word | None, text: str) -> None:
    match = unmatched(Unmatched.ALLOCATOR, DeviceRef(form="x", allocator="HAMi"), of=replace(BY_ID, word=word))
    assert text in why(match)


def test_the_page_of_another_node_is_told_by_its_numbers_of_uuids() -> None:
    matches = [unmatched(Unmatched.OTHER_NODE, key=key) for key in (GPU_1, GPU_1, INSTANCE)]
    owners = Owners(matches=(*matches, unmatched(Unmatched.UNKNOWN_ID)))
    subjects = [Subject(uuid="GPU-7", index="0"), Subject(uuid="GPU-7", index="1"), Subject(index="2")]
    words = Explainer(owners, subjects, LookContext(), Inventory(), kubelet_answered=True)
    trouble = words.assigned(matches[0])
    assert trouble is not None
    assert "none of its 1 UUIDs is among this kubelet's 2" in trouble.message


NETWORK = replace(CLAIM, driver="dra.net")
NO_NODE, ANY_NODE = CdiPlace(minor=""), CdiPlace(minor="3")


@pytest.mark.parametrize(
    ("claim", "context", "places", "reason"),
    [
        (replace(CLAIM, driver=""), LookContext(), {}, "not_prepared"),
        (CLAIM, LookContext(follows_claims=False), {}, "dra_off"),
        (NETWORK, LookContext(follows_claims=False, resources=("dra.*",)), {}, "dra_off"),
        (NETWORK, LookContext(follows_claims=False, resources=("nvidia.com/*",)), {}, "outside_resources"),
        (NETWORK, LookContext(), {"k=a": NO_NODE, "k=b": NO_NODE}, "no_gpu"),
        (NETWORK, LookContext(), {"k=a": NO_NODE, "k=b": ANY_NODE}, "outside_resources"),
        (NETWORK, LookContext(), {"k=a": NO_NODE, "k=b": None}, "outside_resources"),
        (NETWORK, LookContext(), {"k=a": NO_NODE}, "outside_resources"),
        (None, LookContext(follows_claims=False, resources=("dra.*",)), {}, "outside_resources"),
    ],
)
def test_why_an_assignment_is_left_out(
    claim: Claim | None, context: LookContext, places: Mapping[str, CdiPlace | None], reason: str
) -> None:
    held = (
        replace(BY_ID, resource="dra.net") if claim is None else replace(BY_CLAIM, resource=claim.driver, claim=claim)
    )
    name, trouble = explainer(context, places=places).outside(held)
    assert name == reason
    if reason == "outside_resources":
        globs = ", ".join(context.resources)
        assert trouble.message == f"resource dra.net is outside --resources ({globs})"
        assert trouble.remedy.endswith("add --resources dra.net")


DEVICE, CUT_DEVICE = Subject(uuid="GPU-1"), Subject(uuid="GPU-1", instance="7")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (explainer(), ""),
        (explainer(kubelet_answered=False), "the kubelet has not answered yet"),
        (explainer(LookContext(outside=(BY_ID, BY_CLAIM))), ""),
        (explainer(LookContext(outside=(BY_ID,), follows_claims=False)), ""),
        (explainer(LookContext(outside=(BY_ID, BY_CLAIM), follows_claims=False)), "and --dra is off"),
        (explainer(LookContext(misses_pods=True)), "by an allocator's word alone"),
        (explainer(owners=Owners(units=(BY_ID,))), "whose ids name no GPU"),
        (explainer(owners=Owners(matches=(unmatched(Unmatched.UNKNOWN_ID),))), "by ids that are not understood"),
        (
            explainer(owners=Owners(matches=(unmatched(Unmatched.UNKNOWN_ID),), units=(BY_ID,))),
            "by ids that are not understood",
        ),
    ],
)
def test_why_a_device_may_have_an_owner_that_is_not_known(words: Explainer, text: str) -> None:
    assert text in words.why_unknown(DEVICE)
    assert bool(words.why_unknown(DEVICE)) == bool(text)
    assert words.unowned(DEVICE) == (f"not known: {words.why_unknown(DEVICE)}" if text else NOBODY)


def test_an_unresolved_instance_hides_the_owners_of_instances_alone() -> None:
    unresolved = {str(Unmatched.MIG_UNRESOLVED)}
    assert what_hides_owners(unresolved, DEVICE) == ""
    assert "MIG instances" in what_hides_owners(unresolved, CUT_DEVICE)
    assert what_hides_owners({Unmatched.NO_SAMPLE}, CUT_DEVICE) == ""
    for reason in HIDES_OWNERS.keys() - unresolved:
        assert what_hides_owners({reason}, DEVICE) == HIDES_OWNERS[reason]


@pytest.mark.parametrize(
    ("held", "name", "text"),
    [
        (BY_CLAIM, "admin_access", "admin access"),
        (BY_ID, "monitoring", "for monitoring"),
        (replace(BY_ID, word=Word(grant=GRANT)), "reservation", "reserves the GPU"),
    ],
)
def test_why_an_assignment_holds_nothing(held: Assignment, name: str, text: str) -> None:
    of, trouble = of_look(unmatched("", of=held))
    assert (of, text in trouble.message) == (name, True)


HOLDERS = {GPU_1: (Holder(owner=A, resource="nvidia.com/gpu", shared=False),)}


@pytest.mark.parametrize(
    ("kubelet", "owners", "is_silent"),
    [
        (Health(up=True), Owners(), False),
        (Health(up=True, trouble=Trouble("no_pods", "")), Owners(), True),
        (Health(up=True, trouble=Trouble("slow", "")), Owners(), False),
        (Health(up=False), Owners(), True),
        (Health(), Owners(), True),
        # those of the last answer count
        (Health(up=False), Owners(holders=HOLDERS), False),
        (Health(up=False), Owners(units=(BY_ID,)), False),
    ],
)
def test_whether_only_the_kubelet_s_silence_leaves_devices_without_holders(
    kubelet: Health, owners: Owners, *, is_silent: bool
) -> None:
    assert is_kubelet_silent(kubelet, owners) == is_silent
