"""From assignments to owners, and the assignments without samples."""

import pytest

from exporter.errors import Trouble
from exporter.model.devices import (
    Assignment,
    Claim,
    DeviceKey,
    Holder,
    Inventory,
    InventoryDoubt,
    InventoryGpu,
    MigInstance,
    Owners,
    SliceDevice,
)
from exporter.model.pages import UNREAD, UNREAD_OWNED, Subject
from exporter.model.pods import Owner
from exporter.ownership.owners import Knowledge, Unmatched, is_meant, profile_of_resource
from tests.support.owners import build_owners

A = Owner(namespace="ml", pod="train-0", container="main")
B = Owner(namespace="web", pod="serve-1", container="server")
SMALL = "nvidia.com/mig-1g.10gb"
INVENTORY = Inventory(
    gpus=(
        InventoryGpu(
            uuid="GPU-1",
            index="0",
            mig=(
                MigInstance(uuid="MIG-a", instance_id="7", profile="1g.10gb"),
                MigInstance(uuid="MIG-b", instance_id="8", profile="1g.10gb"),
            ),
        ),
    )
)


def given(owner: Owner, device_id: str, resource: str = "nvidia.com/gpu") -> Assignment:
    return Assignment(owner=owner, resource=resource, device_id=device_id)


def instance(number: str, profile: str = "1g.10gb", uuid: str = "GPU-1") -> Subject:
    return Subject(uuid=uuid, instance=number, profile=profile, index="0", device="nvidia0")


def owners_of(owners: Owners, uuid: str, number: str = "") -> list[Owner]:
    return [holder.owner for holder in owners.of(DeviceKey(uuid=uuid, instance=number))]


def reasons(owners: Owners) -> dict[str, str]:
    return {match.assignment.device_id: match.reason for match in owners.matches}


def test_several_shares_in_one_container_are_one_holder() -> None:
    owners = build_owners([given(A, "GPU-1::0"), given(A, "GPU-1::1"), given(B, "GPU-1::2")])
    assert owners.of(DeviceKey(uuid="GPU-1")) == (
        Holder(owner=A, resource="nvidia.com/gpu", shared=True),
        Holder(owner=B, resource="nvidia.com/gpu", shared=True),
    )


@pytest.mark.parametrize("ids", [("GPU-1", "GPU-1::0"), ("GPU-1::0", "GPU-1::1")])
def test_who_has_a_share_of_a_device_shares_it_whatever_else_it_has(ids: tuple[str, ...]) -> None:
    for resources in (("a", "b"), ("b", "a")):
        owners = build_owners([given(A, *each) for each in zip(ids, resources, strict=True)])
        (holder,) = owners.of(DeviceKey(uuid="GPU-1"))
        assert holder == Holder(owner=A, resource=holder.resource, shared=True)
    (whole,) = build_owners([given(A, "GPU-1", "a"), given(A, "GPU-1", "b")]).of(DeviceKey(uuid="GPU-1"))
    assert not whole.shared


@pytest.mark.parametrize(
    ("ids", "offered", "shared"),
    [
        (["GPU-1::0"], ["GPU-1::0"], False),  # nobody else can have a part of it
        (["GPU-1::0"], ["GPU-1::0", "GPU-1::1"], True),
        (["GPU-1::0"], [], True),
        (["GPU-1::0", "GPU-1::1"], ["GPU-1::0"], True),  # there were two a moment ago
    ],
)
def test_the_only_share_of_a_device_is_all_of_it(ids: list[str], offered: list[str], shared: bool) -> None:
    allocatable = {"nvidia.com/gpu": dict.fromkeys(offered, 1)}
    owners = build_owners([given(A, device_id) for device_id in ids], {}, None, allocatable)
    assert [holder.shared for holder in owners.of(DeviceKey(uuid="GPU-1"))] == [shared]


def test_whoever_holds_a_gpu_holds_its_instances_but_not_the_reverse() -> None:
    owners = build_owners([given(A, "GPU-1"), given(B, "MIG-2")])
    assert owners_of(owners, "GPU-1", "7") == [A]
    assert owners_of(owners, "MIG-2") == [B]
    assert owners_of(owners, "GPU-2") == []


def test_resources_are_selected_by_globs() -> None:
    resources = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "intel.com/nic")
    assert [is_meant(resource, ["nvidia.com/*"]) for resource in resources] == [True, True, False]
    assert [is_meant(resource, ["*/gpu", "intel.*"]) for resource in resources] == [True, False, True]


def test_an_assignment_without_samples_says_why() -> None:
    owners = build_owners(
        [given(A, "GPU-1"), given(A, "GPU-2"), given(A, "MIG-3"), given(A, "MIG-4"), given(A, "tpu0")],
        {Subject(uuid="GPU-1", instance="7"): 3, Subject(uuid="MIG-4"): 2, Subject(): 1},
    )
    assert reasons(owners) == {
        "GPU-1": "",
        "GPU-2": Unmatched.NO_SAMPLE,
        "MIG-3": Unmatched.MIG_UNRESOLVED,
        "MIG-4": "",
        "tpu0": Unmatched.UNKNOWN_ID,
    }
    assert {match.assignment.device_id: match.samples for match in owners.matches if match.samples} == {
        "GPU-1": 3,
        "MIG-4": 2,
    }


def test_the_inventory_resolves_a_mig_id_which_never_means_the_parent() -> None:
    subjects = {Subject(uuid="GPU-1", index="0"): 4, instance("7"): 3, instance("8"): 3}
    knowledge = Knowledge(inventory=INVENTORY)
    owners = build_owners([given(A, "MIG-a", SMALL), given(B, "MIG-b::0", SMALL)], subjects, knowledge)
    assert (owners_of(owners, "GPU-1", "7"), owners_of(owners, "GPU-1", "8")) == ([A], [B])
    assert owners_of(owners, "GPU-1") == []
    assert [holder.shared for holder in owners.of(DeviceKey(uuid="GPU-1", instance="8"))] == [True]
    assert [match.samples for match in owners.matches] == [3, 3]
    # one that the inventory does not know is no other's instance
    unknown = build_owners([given(A, "MIG-c", SMALL)], {instance("7"): 3}, knowledge)
    assert reasons(unknown) == {"MIG-c": Unmatched.MIG_UNRESOLVED}
    assert owners_of(unknown, "GPU-1", "7") == []


def test_without_an_inventory_a_profiles_only_instance_is_its_only_id() -> None:
    big = instance("2", "3g.40gb")
    one = build_owners([given(A, "MIG-x", SMALL)], {instance("7"): 3, big: 3, Subject(uuid="GPU-1"): 1})
    assert owners_of(one, "GPU-1", "7") == [A]
    assert (owners_of(one, "GPU-1", "2"), owners_of(one, "GPU-1")) == ([], [])
    two_instances = build_owners([given(A, "MIG-x", SMALL)], {instance("7"): 3, instance("8"): 3})
    two_ids = build_owners([given(A, "MIG-x", SMALL), given(B, "MIG-y", SMALL)], {instance("7"): 3})
    other_profile = build_owners([given(A, "MIG-x", "nvidia.com/mig-2g.20gb")], {instance("7"): 3})
    no_profile = build_owners([given(A, "MIG-x")], {instance("7"): 3})
    for owners in (two_instances, two_ids, other_profile, no_profile):
        assert set(reasons(owners).values()) == {Unmatched.MIG_UNRESOLVED}
        assert owners_of(owners, "GPU-1", "7") == []
    # two shares of one instance are one id
    shares = [given(A, "MIG-x::0", f"{SMALL}.shared"), given(B, "MIG-x::1", f"{SMALL}.shared")]
    assert owners_of(build_owners(shares, {instance("7"): 3}), "GPU-1", "7") == [A, B]
    plus = build_owners([given(A, "MIG-x", "nvidia.com/mig-1g.10gb.me")], {instance("9", "1g.10gb+me"): 3})
    assert owners_of(plus, "GPU-1", "9") == [A]


def test_a_profile_is_no_help_where_sources_contradict_each_other() -> None:
    def owners(*, is_contradiction: bool) -> Owners:
        doubt = InventoryDoubt(
            trouble=Trouble("", ""), leaves_out=frozenset({"MIG-x"}), is_contradiction=is_contradiction
        )
        knowledge = Knowledge(inventory=Inventory(doubts=(doubt,)))
        return build_owners([given(A, "MIG-x", SMALL)], {instance("7"): 3}, knowledge)

    assert owners_of(owners(is_contradiction=False), "GPU-1", "7") == [A]
    assert reasons(owners(is_contradiction=True)) == {"MIG-x": Unmatched.MIG_UNRESOLVED}


def test_the_old_form_names_the_instance_itself() -> None:
    owners = build_owners([given(A, "MIG-GPU-1/7/0")], {instance("7"): 3, Subject(uuid="GPU-1"): 1})
    assert (owners_of(owners, "GPU-1", "7"), owners_of(owners, "GPU-1")) == ([A], [])


def test_ids_by_number_are_looked_up_in_the_samples() -> None:
    # the number of a device's name is not always its index
    subjects = {
        Subject(uuid="GPU-x", index="0", device="nvidia1"): 5,
        Subject(uuid="GPU-y", index="1", device="nvidia0"): 5,
        Subject(uuid="GPU-y", index="1", device="nvidia0", instance="3"): 5,
    }
    ids = ["nvidia0", "nvidia1/vgpu2", "nvidia0/gi3", "0/vgpu", "nvidia7"]
    owners = build_owners([given(A, device_id) for device_id in ids], subjects)
    keys = {match.assignment.device_id: match.key for match in owners.matches}
    assert keys == {
        "nvidia0": DeviceKey(uuid="GPU-y"),
        "nvidia1/vgpu2": DeviceKey(uuid="GPU-x"),
        "nvidia0/gi3": DeviceKey(uuid="GPU-y", instance="3"),
        "0/vgpu": DeviceKey(uuid="GPU-x"),
        "nvidia7": DeviceKey(uuid="nvidia7"),
    }
    assert reasons(owners)["nvidia7"] == Unmatched.NO_SAMPLE
    # the shell version's pages have no names of devices
    oldest = build_owners([given(A, "nvidia1")], {Subject(uuid="GPU-y", index="1"): 5})
    assert owners_of(oldest, "GPU-y") == [A]
    # two vendors' pages both have a GPU 0
    both = build_owners([given(A, "0/vgpu")], {Subject(uuid="GPU-x", index="0"): 1, Subject(uuid="amd", index="0"): 1})
    assert reasons(both) == {"0/vgpu": Unmatched.AMBIGUOUS}
    by_inventory = build_owners([given(A, "0/vgpu")], {Subject(uuid="GPU-1"): 1}, Knowledge(inventory=INVENTORY))
    assert owners_of(by_inventory, "GPU-1") == [A]


# issue 7, line 41
@pytest.mark.parametrize(
    ("resource", "profile"),
    [
        ("nvidia.com/mig-1g.10gb", "1g.10gb"),
        ("nvidia.com/mig-1g.10gb.me.shared", "1g.10gb.me"),
        ("nvidia.com/gpu", ""),
        ("nvidia.com/gpu.shared", ""),
    ],
)
def test_the_profile_that_a_resource_names(resource: str, profile: str) -> None:
    assert profile_of_resource(resource) == profile


# issue 7, line 34
@pytest.mark.parametrize(
    ("device_id", "seen"),
    [
        ("0/vgpu", Subject(index="0", device="nvidia0")),
        ("0/vgpu", Subject(index="0", device="card7")),
        ("0/vgpu", Subject(index="0")),
        ("nvidia0", Subject(index="0", device="nvidia0")),
        ("nvidia0/vgpu1", Subject(index="0", device="nvidia0")),
        ("nvidia0/vgpu1", Subject(index="0")),
    ],
)
@pytest.mark.parametrize("with_inventory", [False, True])
def test_an_id_by_number_and_samples_without_uuid(device_id: str, seen: Subject, with_inventory: bool) -> None:
    known = Inventory(gpus=(InventoryGpu(uuid="GPU-x", index="0"),)) if with_inventory else Inventory()
    owners = build_owners([given(A, device_id)], {seen: 3}, Knowledge(inventory=known))
    assert [holder.owner for holder in owners.of(seen.key)] == [A]
    # beside samples that have one, theirs is the device
    both = build_owners([given(A, "0/vgpu")], {seen: 3, Subject(uuid="GPU-x", index="0"): 5}, Knowledge())
    assert [holder.owner for holder in both.of(DeviceKey(uuid="GPU-x"))] == [A]


def test_a_bare_uuid_is_found_as_it_is_too() -> None:
    bare = "72ff740f-0000-1000-804c-3b58bf67050e"
    assert owners_of(build_owners([given(A, bare)], {Subject(uuid=bare): 1}), bare) == [A]
    assert owners_of(build_owners([given(A, bare)], {Subject(uuid=f"GPU-{bare}"): 1}), f"GPU-{bare}") == [A]


def test_a_page_of_another_node() -> None:
    elsewhere = {Subject(uuid=f"GPU-{number}"): 9 for number in range(10, 18)}
    assigned = [given(A, "GPU-1"), given(B, "GPU-2::0"), given(B, "tpu")]
    assert reasons(build_owners(assigned, elsewhere)) == {
        "GPU-1": Unmatched.OTHER_NODE,
        "GPU-2::0": Unmatched.OTHER_NODE,
        "tpu": Unmatched.UNKNOWN_ID,
    }
    # one of them in the page is enough, and a page without UUIDs says nothing
    assert reasons(build_owners(assigned, {**elsewhere, Subject(uuid="GPU-2"): 1}))["GPU-1"] == Unmatched.NO_SAMPLE
    assert reasons(build_owners(assigned, {Subject(index="0"): 1}))["GPU-1"] == Unmatched.UNNAMED
    # a MIG id that nothing resolves is no evidence of anything
    assert reasons(build_owners([given(A, "MIG-x"), given(B, "nvidia7")], {**elsewhere, Subject(index="0"): 1})) == {
        "MIG-x": Unmatched.MIG_UNRESOLVED,
        "nvidia7": Unmatched.NO_SAMPLE,
    }


@pytest.mark.parametrize("unread", [UNREAD, UNREAD_OWNED])
def test_on_a_page_with_too_many_devices_nobody_can_say_what_is_there(unread: Subject) -> None:
    assert reasons(build_owners([given(A, "GPU-1")], {Subject(uuid="GPU-9"): 1, unread: 1})) == {
        "GPU-1": Unmatched.TOO_MANY_DEVICES
    }


# issue 7, line 11
def test_a_page_that_names_this_node_is_not_another_nodes() -> None:
    def why(host: str, node: str, uuid: str = "GPU-10") -> str:
        page = {Subject(uuid=uuid, host=host): 9, Subject(host="ti"): 1}
        return reasons(build_owners([given(A, "GPU-1")], page, Knowledge(node=node)))["GPU-1"]

    assert why("ti", "ti") == Unmatched.NO_SAMPLE
    # the name of dcgm-exporter's pod, where it was started without NODE_NAME, says nothing
    assert why("dcgm-exporter-x7k2p", "ti") == Unmatched.OTHER_NODE
    assert why("", "") == Unmatched.OTHER_NODE


# issue 7, line 41
def test_an_id_by_number_says_nothing_of_the_node() -> None:
    elsewhere = {Subject(uuid="GPU-10", index="0", device="nvidia0"): 9}
    # another node's nvidia0 does not make its page this node's, nor does a number that the page lacks another node's
    assert reasons(build_owners([given(A, "GPU-1"), given(B, "nvidia0")], elsewhere)) == {
        "GPU-1": Unmatched.OTHER_NODE,
        "nvidia0": "",
    }
    assert reasons(build_owners([given(B, "nvidia7")], elsewhere)) == {"nvidia7": Unmatched.NO_SAMPLE}


# issue 8: a file system's uuid says nothing of GPUs
def test_what_is_no_gpu_shows_neither_another_node_nor_this_one() -> None:
    volume = Subject(uuid="6f1f2a5c-0000-4a5b-9c5d-3e8f1a2b3c4d", host="n1")
    assert reasons(build_owners([given(A, "GPU-1")], {volume: 9})) == {"GPU-1": Unmatched.NO_SAMPLE}
    elsewhere = {volume: 9, Subject(uuid="GPU-10", host="pod-x"): 9}
    assert reasons(build_owners([given(A, "GPU-1")], elsewhere, Knowledge(node="n1"))) == {
        "GPU-1": Unmatched.OTHER_NODE
    }
    # nor does it hide a GPU that goes by such a label alone, once the kubelet names it
    bare = {Subject(uuid="1"): 9, Subject(uuid="GPU-10"): 9}
    assert reasons(build_owners([given(A, "GPU-1"), given(B, "GPU-2")], bare)) == {
        "GPU-1": "",
        "GPU-2": Unmatched.NO_SAMPLE,
    }


# issue 7, line 41
def test_an_instance_shows_whose_the_page_is_as_a_gpu_does() -> None:
    both = [given(A, "GPU-7"), given(B, "MIG-a", SMALL)]
    # in samples by its own id, or by its GPU's through the inventory
    assert reasons(build_owners(both, {Subject(uuid="MIG-a"): 1}))["GPU-7"] == Unmatched.NO_SAMPLE
    knowledge = Knowledge(inventory=INVENTORY)
    assert reasons(build_owners(both, {instance("7"): 1}, knowledge))["GPU-7"] == Unmatched.NO_SAMPLE
    assert reasons(build_owners(both[1:], {Subject(uuid="GPU-9"): 1}, knowledge)) == {"MIG-a": Unmatched.OTHER_NODE}


# issue 7, line 41
def test_an_id_that_several_devices_could_be_says_nothing_of_the_node() -> None:
    two = {Subject(uuid="GPU-10", index="0"): 9, Subject(uuid="amd", index="0"): 9}
    assert reasons(build_owners([given(A, "0/vgpu"), given(B, "GPU-1")], two)) == {
        "0/vgpu": Unmatched.AMBIGUOUS,
        "GPU-1": Unmatched.OTHER_NODE,
    }


# issue 7, line 7
def test_whatever_way_several_containers_came_to_a_device_they_share_it() -> None:
    claim = Claim(namespace="ml", name="c", driver="gpu.nvidia.com", pool="n", device="gpu-0")
    knowledge = Knowledge(slices={("gpu.nvidia.com", "n", "gpu-0"): SliceDevice(uuid="GPU-1")})

    def held(*found: Assignment) -> list[tuple[Owner, bool]]:
        holders = build_owners(found, {}, knowledge).of(DeviceKey(uuid="GPU-1"))
        return [(holder.owner, holder.shared) for holder in holders]

    by_claim = [
        Assignment(owner=owner, resource=claim.driver, device_id=claim.device_id, claim=claim) for owner in (A, B)
    ]
    assert held(by_claim[0]) == [(A, False)]
    assert held(*by_claim) == [(A, True), (B, True)]
    assert held(by_claim[0], given(B, "GPU-1")) == [(A, True), (B, True)]
    assert held(by_claim[0], given(A, "GPU-1")) == [(A, False)]


def test_a_part_of_an_instance_is_a_share_of_it() -> None:
    owners = build_owners([given(A, "MIG-GPU-1/7/0", "nvidia.com/mig-1c.3g.20gb")])
    assert [holder.shared for holder in owners.of(DeviceKey(uuid="GPU-1", instance="7"))] == [True]
