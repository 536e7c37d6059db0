"""Devices of DRA claims by the CDI specs that drivers write for them, without any API."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from exporter.config.strict_yaml import load_plain
from exporter.model.device_ref import DeviceRef
from exporter.model.devices import (
    Assignment,
    CdiPlace,
    Claim,
    DeviceKey,
    Inventory,
    InventoryGpu,
    PodResources,
    SliceDevice,
)
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.model.snapshot import LookContext
from exporter.ownership.admin_access import NO_CLAIMS
from exporter.ownership.current import CurrentOwners
from exporter.ownership.explain import Explainer
from exporter.ownership.inventories import SourceInventory, inventory_of, put_together, read_mig_minors, read_spec
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.owners import (
    Knowledge,
    Unmatched,
    needs_slices,
    read_assignment,
)
from exporter.ownership.requests import Requests
from exporter.ownership.retention import Retained, answered, settled
from exporter.sources.kubelet.pod_resources import parse
from exporter.sources.kubernetes.node_objects import read_pod
from tests.support.owners import build_owners

DATA = Path(__file__).parent.parent / "data/claims-1.36.2"
# index 2 and 3 have each other's device minors
UUIDS = [f"GPU-01000100-0000-0000-0000-00000000000{number}" for number in (0, 1, 3, 2, 4, 5, 6, 7)]
DRIVER = Inventory(gpus=tuple(InventoryGpu(uuid=uuid, device=f"nvidia{minor}") for minor, uuid in enumerate(UUIDS)))
UID = "c8593c85-440d-4156-b199-aea592ff83df"
KIND = "k8s.gpu.nvidia.com/claim"
CAPS = "/dev/nvidia-caps/nvidia-cap"
PLACES = read_mig_minors("gpu3/gi9/access 480\ngpu3/gi9/ci0/access 481\ngpu3/gi10/access 489\n", set(range(1000)))
A = Owner(namespace="ml", pod="train-0", container="main")
B = Owner(namespace="ml", pod="train-1", container="main")


def known(specs: dict[str, Any]) -> Inventory:
    cdi = inventory_of({file: read_spec(content) for file, content in specs.items()}, PLACES)
    return put_together([SourceInventory(name="driver", inventory=DRIVER), SourceInventory(name="cdi", inventory=cdi)])


def recorded(name: str) -> tuple[list[Assignment], Inventory]:
    specs = {path.name: load_plain(path.read_text()) for path in DATA.glob("*.yaml")}
    answer = parse((DATA / f"{name}.list.pb").read_bytes(), claims=True)
    return [assignment for assignment in answer.assignments if assignment.claim], known(specs)


# issue 18, line 1
@pytest.mark.parametrize(
    ("name", "holders"),
    [
        ("one-gpu", {0: ["trainer-0/main"]}),
        ("two-gpus", {0: ["trainer-0/main"], 4: ["trainer-1/main"], 5: ["trainer-1/main"]}),
        ("two-requests", {6: ["pair-0/main", "pair-0/side"], 1: ["pair-0/main", "pair-0/side"]}),
        ("shares", {2: ["share-0/main", "share-1/main"]}),
    ],
)
def test_recorded_claims_are_named_by_their_specs_alone(name: str, holders: dict[int, list[str]]) -> None:
    assignments, inventory = recorded(name)
    owners = build_owners(assignments, {}, Knowledge(inventory=inventory, places=inventory.places))
    named = {
        key.uuid: [f"{holder.owner.pod}/{holder.owner.container}" for holder in of]
        for key, of in owners.holders.items()
    }
    for minor, expected in holders.items():
        assert named[UUIDS[minor]] == expected
    with_spec = [each for each in assignments if each.claim and set(each.claim.cdi_names) <= inventory.places.keys()]
    assert with_spec
    assert not any(needs_slices(assignment, inventory.places) for assignment in with_spec)


# issue 18, line 1
@pytest.mark.parametrize("says", ["status", "nothing", "of_another_pod"])
def test_a_containers_status_says_which_request_of_a_claim_it_got(says: str) -> None:
    assignments, inventory = recorded("two-requests")
    pod = read_pod(json.loads((DATA / "pair-0.json").read_text()))
    assert [device.resource for device in pod.allocated["main"]] == ["claim:g/left"]
    if says == "nothing":
        pod = replace(pod, allocated={})
    pods = {("default", "pair-0" if says != "of_another_pod" else "pair-1"): pod}
    of = Requests().of_their_containers(frozenset(assignments), pods)
    owners = build_owners(of, {}, Knowledge(inventory=inventory, places=inventory.places))
    named = {minor: [holder.owner.container for holder in owners.of(DeviceKey(uuid=UUIDS[minor]))] for minor in (6, 1)}
    assert named == ({6: ["main"], 1: ["side"]} if says == "status" else {6: ["main", "side"], 1: ["main", "side"]})
    assert owners.of(DeviceKey(uuid=UUIDS[0])), "another pod's claim stays"


def spec(name: str, *paths: str, kind: str = KIND, common: tuple[str, ...] = ()) -> dict[str, Any]:
    def edits(paths: tuple[str, ...]) -> dict[str, Any]:
        return {"deviceNodes": [{"path": path} for path in paths]}

    everybody = ("/dev/nvidiactl", "/dev/nvidia-uvm", *common)
    devices = [{"name": name, "containerEdits": edits(paths)}]
    return {"kind": kind, "devices": devices, "containerEdits": edits(everybody)}


def given(owner: Owner, *cdi_names: str, device: str = "gpu-3", driver: str = "gpu.nvidia.com") -> Assignment:
    claim = Claim(namespace="ml", name="gpu", driver=driver, pool="node-1", device=device, cdi_names=cdi_names)
    return Assignment(owner=owner, resource=driver, device_id=claim.device_id, claim=claim)


WHOLE, CUT = f"{UID}-gpu-3", f"{UID}-gpu-3-mig-1g10gb-19-4"
RENAMED = {
    "kind": KIND,
    "devices": [
        {
            "name": WHOLE,
            "containerEdits": {"deviceNodes": [{"path": "/dev/x", "hostPath": "/run/nvidia/driver/dev/nvidia3"}]},
        }
    ],
}
TWO = (spec(WHOLE, "/dev/nvidia3"), spec(f"{UID}-gpu-5", "/dev/nvidia5"))
PAIR = {"kind": KIND, "devices": [device for one in TWO for device in one["devices"]]}
# the edits that NVIDIA's driver adds to a device that clients of an MPS server share
MPS = {
    "kind": KIND,
    "devices": [
        {
            "name": WHOLE,
            "containerEdits": {
                "env": ["CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"],
                "deviceNodes": [{"path": "/dev/nvidia3"}],
                "mounts": [
                    {"hostPath": f"/var/lib/mps/{UID}/{at}", "containerPath": f"/{at}", "options": ["rw", "bind"]}
                    for at in ("dev/shm", "tmp/nvidia-mps")
                ],
            },
        }
    ],
}
MIG = "MIG-11111111-2222-3333-4444-555555555555"
GPU_3 = DeviceKey(uuid=UUIDS[3])


# issue 18, line 1
@pytest.mark.parametrize(
    ("specs", "name", "key", "reason"),
    [
        pytest.param([spec(WHOLE, "/dev/nvidia3")], f"{KIND}={WHOLE}", GPU_3, "no_sample", id="a whole GPU"),
        pytest.param(
            [spec(CUT, "/dev/nvidia3", f"{CAPS}480", f"{CAPS}481")],
            f"{KIND}={CUT}",
            DeviceKey(uuid=UUIDS[3], instance="9"),
            "no_sample",
            id="a MIG instance, cut for the claim",
        ),
        pytest.param(
            [
                spec(CUT, "/dev/nvidia3", f"{CAPS}480", f"{CAPS}481"),
                spec(MIG, "/dev/nvidia3", f"{CAPS}480", f"{CAPS}481", kind="nvidia.com/gpu"),
            ],
            f"{KIND}={CUT}",
            DeviceKey(uuid=UUIDS[3], instance="9"),
            "no_sample",
            id="a MIG instance that was there before, by the toolkit's spec, too",
        ),
        pytest.param(
            [spec(CUT, "/dev/nvidia3", f"{CAPS}998")],
            f"{KIND}={CUT}",
            None,
            "claim_unresolved",
            id="no such cap listed",
        ),
        pytest.param(
            [spec(CUT, "/dev/nvidia3", f"{CAPS}480", f"{CAPS}489")],
            f"{KIND}={CUT}",
            None,
            "claim_unresolved",
            id="the nodes of two instances",
        ),
        pytest.param(
            [spec(WHOLE, "/dev/nvidia3", "/dev/nvidia4")], f"{KIND}={WHOLE}", None, "claim_unresolved", id="two GPUs"
        ),
        pytest.param([RENAMED], f"{KIND}={WHOLE}", GPU_3, "no_sample", id="a driver root of another name"),
        pytest.param(
            [spec("d1", "/dev/nvidia3", kind="gpu.example.com/any")],
            "gpu.example.com/any=d1",
            GPU_3,
            "no_sample",
            id="another driver's spec",
        ),
        pytest.param(
            [spec(WHOLE, "/dev/vfio/17", common=("/dev/vfio/vfio",))],
            f"{KIND}={WHOLE}",
            DeviceKey(uuid="gpu-3"),
            "vfio",
            id="vfio: a virtual machine's",
        ),
        pytest.param(
            [spec(WHOLE, "/dev/vfio/devices/vfio0", common=("/dev/iommu",))],
            f"{KIND}={WHOLE}",
            DeviceKey(uuid="gpu-3"),
            "vfio",
            id="vfio by iommufd",
        ),
        pytest.param([MPS], f"{KIND}={WHOLE}", GPU_3, "no_sample", id="MPS"),
        pytest.param(
            [PAIR], f"{KIND}={UID}-gpu-5", DeviceKey(uuid=UUIDS[5]), "no_sample", id="the second device of a claim"
        ),
        pytest.param(
            [spec("nic-0", "/dev/infiniband/uverbs0", kind="dra.net/dev")],
            "dra.net/dev=nic-0",
            None,
            "no_gpu",
            id="a network device",
        ),
        pytest.param(
            [spec(WHOLE, "/dev/nvidia3", common=("/dev/nvidia4", "/dev/nvidia5"))],
            f"{KIND}={WHOLE}",
            GPU_3,
            "no_sample",
            id="what all devices of a spec get, MPS and the like, is none of theirs",
        ),
        pytest.param(
            [spec(WHOLE, "/dev/nvidia3"), spec(WHOLE, "/dev/nvidia3")],
            f"{KIND}={WHOLE}",
            GPU_3,
            "no_sample",
            id="a stale file that says the same",
        ),
        pytest.param(
            [spec(WHOLE, "/dev/nvidia3"), spec(WHOLE, "/dev/nvidia5")],
            f"{KIND}={WHOLE}",
            None,
            "claim_unresolved",
            id="a hostile file that says something else",
        ),
        pytest.param(
            [spec(WHOLE, "/dev/nvidia99")], f"{KIND}={WHOLE}", None, "claim_unresolved", id="a GPU that nobody lists"
        ),
        pytest.param([spec(WHOLE, "/dev/nvidia3")], f"{KIND}={CUT}", None, "claim_unresolved", id="another's spec"),
    ],
)
def test_a_claims_device_by_its_spec(
    specs: list[dict[str, Any]], name: str, key: DeviceKey | None, reason: str
) -> None:
    inventory = known({f"{number}.yaml": content for number, content in enumerate(specs)})
    knowledge = Knowledge(inventory=inventory, places=inventory.places)
    driver = "gpu.nvidia.com" if name.startswith(KIND) else name.partition("/")[0]
    held = [given(owner, name, driver=driver) for owner in (A, B)]
    owners = build_owners(held, {Subject(uuid=UUIDS[0]): 1}, knowledge)
    assert {(match.key, match.reason) for match in owners.matches} == {(key, reason)}
    assert [holder.owner for holder in owners.of(key or GPU_3)] == ([A, B] if key else [])
    assert all(holder.shared for holder in owners.of(key or GPU_3))
    why = Explainer(owners, (), LookContext(), inventory, kubelet_answered=True).assigned(owners.matches[0])
    assert why is not None


@pytest.mark.parametrize(
    ("of_slice", "reason"),
    [
        (SliceDevice(uuid=UUIDS[3], kind="gpu"), "no_sample"),
        (SliceDevice(uuid=UUIDS[4], kind="gpu"), "contradicted"),
        (SliceDevice(kind="gpu"), "no_sample"),
        (SliceDevice(uuid="MIG-1", kind="mig", parent_uuid=UUIDS[4]), "contradicted"),
        (SliceDevice(uuid="MIG-1", kind="mig", parent_uuid=UUIDS[3]), "no_sample"),
        (SliceDevice(uuid=UUIDS[3], kind="vfio"), "contradicted"),
    ],
)
def test_a_slice_that_contradicts_the_spec_names_nobody(of_slice: SliceDevice, reason: str) -> None:
    inventory = known({"a": spec(WHOLE, "/dev/nvidia3")})
    slices = {("gpu.nvidia.com", "node-1", "gpu-3"): of_slice}
    knowledge = Knowledge(inventory=inventory, places=inventory.places, slices=slices)
    owners = build_owners([given(A, f"{KIND}={WHOLE}")], {}, knowledge)
    (match,) = owners.matches
    assert match.reason == reason
    assert bool(owners.of(GPU_3)) == (reason == "no_sample")
    if reason == Unmatched.CONTRADICTED:
        why = Explainer(owners, (), LookContext(), inventory, kubelet_answered=True).assigned(match)
        assert why is not None
        assert "/dev/nvidia3" in why.message


def test_another_vendors_gpu_is_what_its_slice_says() -> None:
    inventory = known({"a": spec("d1", "/dev/dri/card1", kind="intel.com/gpu")})
    held = given(A, "intel.com/gpu=d1", driver="gpu.intel.com")
    assert needs_slices(held, inventory.places)
    slices = {("gpu.intel.com", "node-1", "gpu-3"): SliceDevice(uuid="0000-1", kind="gpu")}
    knowledge = Knowledge(inventory=inventory, places=inventory.places, slices=slices)
    (match,) = build_owners([held], {}, knowledge).matches
    assert (match.key, match.reason) == (DeviceKey(uuid="0000-1"), Unmatched.NO_SAMPLE)


def test_a_spec_that_is_gone_counts_while_an_assignment_names_it() -> None:
    owners = CurrentOwners(LabelPolicy())
    held = frozenset([given(A, f"{KIND}={WHOLE}")])
    owners.update(held, {}, inventory=known({"a": spec(WHOLE, "/dev/nvidia3")}))
    owners.update(held, {}, inventory=known({}))
    assert owners.owners.of(GPU_3)
    after_reload = CurrentOwners(LabelPolicy(), places=owners.knowledge.places)
    after_reload.update(held, {}, inventory=known({}))
    assert after_reload.owners.of(GPU_3)
    owners.update(frozenset(), {}, inventory=known({}))
    assert owners.knowledge.places == {}
    owners.update(held, {}, inventory=known({}))
    assert not owners.owners.of(GPU_3)


# issue 18, line 2
def test_a_list_with_some_of_the_pods_takes_nobody_elses_claim_away() -> None:
    """As a kubelet answers for a moment after its start: by their specs, two claims' GPUs are not the same one."""
    other = f"{UID}-gpu-4"
    inventory = known({"a": spec(WHOLE, "/dev/nvidia3"), "b": spec(other, "/dev/nvidia4")})
    read = partial(read_assignment, knowledge=Knowledge(inventory=inventory, places=inventory.places))
    of_a, of_b = given(A, f"{KIND}={WHOLE}"), given(B, f"{KIND}={other}", device="gpu-4")
    # the same GPU by another claim
    anew = given(replace(A, pod="new"), f"{KIND}={WHOLE}", device="gpu-3-anew")
    all_pods, some, of_new_pod = (
        PodResources(
            assignments=frozenset(each), listed=frozenset((one.owner.namespace, one.owner.pod) for one in each)
        )
        for each in ([of_a, of_b], [of_a], [anew])
    )
    before = answered(Retained(), all_pods, now=0.0, reconnected=False, read=read)
    assert answered(before, some, now=1.0, reconnected=True, read=read).assignments == {of_a, of_b}
    assert answered(before, of_new_pod, now=1.0, reconnected=True, read=read).assignments == {anew, of_b}


# issue 18, line 2
def test_a_list_with_some_of_the_pods_takes_no_share_by_a_claim_away() -> None:
    """The kubelet names no share, and both claims' device is gpu-2."""
    assignments, inventory = recorded("shares")
    read = partial(read_assignment, knowledge=Knowledge(inventory=inventory, places=inventory.places))
    first, *others = sorted(assignments, key=lambda one: one.order)
    everybody, some = (
        PodResources(assignments=frozenset(each), listed=frozenset(("default", one.owner.pod) for one in each))
        for each in ([first, *others], [first])
    )
    before = answered(Retained(), everybody, now=0.0, reconnected=False, read=read)
    assert answered(before, some, now=1.0, reconnected=True, read=read).assignments == before.assignments


# issue 18, line 2
def test_whom_a_new_claims_spec_displaces_is_displaced_once_it_is_read() -> None:
    """An instance that was cut anew has the number of the one before, and its claim's device another name."""
    cut_anew = f"{UID}-gpu-3-mig-3g40gb-9-4"
    nodes = ("/dev/nvidia3", f"{CAPS}480", f"{CAPS}481")
    of_a = given(A, f"{KIND}={CUT}", device="gpu-3-mig-1g10gb-19-4")
    of_b = given(B, f"{KIND}={cut_anew}", device="gpu-3-mig-3g40gb-9-4")
    # a device plugin's id, and one of another container that is not listed yet
    plain = Assignment(owner=replace(A, pod="plain"), resource="nvidia.com/gpu", device_id=UUIDS[5])
    waiting = Assignment(owner=replace(A, pod="waiting"), resource="nvidia.com/gpu", device_id=UUIDS[6])
    before, after = (known(specs).places for specs in ({"a": spec(CUT, *nodes)}, {"b": spec(cut_anew, *nodes)}))
    owners = CurrentOwners(LabelPolicy(), places=before)

    def read(assignment: Assignment) -> DeviceRef | None:
        return read_assignment(assignment, owners.knowledge)

    answers = (
        PodResources(assignments=frozenset(held), listed=frozenset(("ml", one.owner.pod) for one in held))
        for held in ([of_a, waiting], [of_b, plain])
    )
    state = answered(Retained(), next(answers), now=0.0, reconnected=False, read=read)
    state = answered(state, next(answers), now=1.0, reconnected=True, read=read)
    assert state.assignments == {of_a, of_b, waiting, plain}
    assert settled(state, read, after.keys()) is state
    owners.learn(after, NO_CLAIMS)
    assert settled(state, read, set()) is state
    state = settled(state, read, after.keys())
    assert state.assignments == {of_b, waiting, plain}
    assert state.unlisted == {waiting: 0.0}
    assert settled(replace(state, unlisted={}), read, after.keys()).unlisted == {}


def test_places_of_specs() -> None:
    specs = {"a": spec(WHOLE, "/dev/nvidia3"), "b": spec("vf", "/dev/vfio/1"), "c": spec("2", "/dev/nvidia1")}
    inventory = known(specs)
    assert inventory.places == {
        f"{KIND}={WHOLE}": CdiPlace(minor="3"),
        f"{KIND}=vf": CdiPlace(minor=""),
        f"{KIND}=2": CdiPlace(minor="1"),
    }
