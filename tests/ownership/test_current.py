"""What is worked out again when an input of the owners changes, and what stays the same object."""

import re
from collections.abc import Mapping
from dataclasses import replace
from math import inf

import pytest

from exporter.dividing.sharing import CounterBook
from exporter.model.device_ref import DeviceRef
from exporter.model.devices import Assignment, CdiPlace, Claim, DeviceKey, Inventory, InventoryGpu
from exporter.model.grants import Given, Grant, Word
from exporter.model.pages import Page, Subject
from exporter.model.pods import AllocatedDevice, Owner, PodInfo, PodOfName
from exporter.ownership.admin_access import NO_CLAIMS, KnownClaims
from exporter.ownership.current import CurrentOwners
from exporter.ownership.labels import SPLIT, LabelPolicy, PodLabelPolicy
from exporter.ownership.pods_of_names import Listing, PodsOfOwners
from exporter.ownership.requests import Requests

A = Owner(namespace="ml", pod="a", container="main")
HELD = frozenset({Assignment(owner=A, resource="nvidia.com/gpu", device_id="GPU-1")})
GPU, OTHER = Subject(uuid="GPU-1"), Subject(uuid="GPU-2")
LISTING = Listing(asked_at_seconds=5.0)
EMPTY = Inventory()


def pods(**labels: str) -> Mapping[tuple[str, str], tuple[PodOfName, ...]]:
    pod = PodInfo(namespace="ml", name="a", uid="u-1", labels=labels)
    return {A.pod_key: (PodOfName(pod=pod, since=0.0, until=inf, is_first=True),)}


def labels_of(owners: CurrentOwners) -> dict[str, str]:
    (rows,) = owners.attribution([(b"power", GPU)])
    return {name: text for name, text in rows.each[0].labels if name not in {"pod", "namespace", "container"}}


def test_samples_gain_the_labels_of_pods_that_a_policy_names() -> None:
    policy = LabelPolicy(has_pod_labels=True)
    owners = CurrentOwners(policy, PodLabelPolicy(with_uid=True, patterns=(re.compile("te.*"),), limit=1))
    kueue, subjects = "kueue.x-k8s.io/cluster-queue-name", {GPU: 1}

    def update(of: Mapping[tuple[str, str], tuple[PodOfName, ...]]) -> object:
        return owners.update(HELD, subjects, inventory=EMPTY, pods_of_names=of, listing=LISTING)

    red = pods(team="red", tenant="x", **{kueue: "q"})
    first = update(red)
    assert labels_of(owners) == {"pod_uid": "u-1", "label_team": "red"}
    assert owners.label_problems == {"limit": 1}
    of_pod = dict(owners.pod_labels[A.pod_key])
    assert (of_pod.pop("label_team"), of_pod.pop("pod_uid"), [*of_pod.values()]) == ("red", "u-1", ["q"])
    before = owners.pod_labels
    assert update(red) is first
    assert update(pods(team="red", tenant="x", **{kueue: "q"})) is first, "equal labels are the same object"
    assert owners.pod_labels is before
    assert update(pods(team="blue")) is not first
    assert labels_of(owners) == {"pod_uid": "u-1", "label_team": "blue"}
    assert owners.label_problems == {}
    assert owners.pod_labels == {A.pod_key: (("pod_uid", "u-1"), ("label_team", "blue"))}


def test_without_a_policy_only_the_queue_of_a_pod_is_known() -> None:
    owners = CurrentOwners(LabelPolicy())
    of = pods(team="red", **{"kueue.x-k8s.io/cluster-queue-name": "q"})
    owners.update(HELD, {GPU: 1}, inventory=EMPTY, pods_of_names=of, listing=LISTING)
    assert labels_of(owners) == {}
    assert [text for _, text in owners.pod_labels[A.pod_key]] == ["q"]


def test_nothing_is_made_anew_while_nothing_changed() -> None:
    owners, subjects = CurrentOwners(LabelPolicy()), {GPU: 1}
    first = owners.update(HELD, subjects, inventory=EMPTY)
    facts, held_by = owners.knowledge, owners.owners
    assert owners.update(HELD, subjects, inventory=EMPTY) is first
    assert owners.owners is held_by
    owners.update(frozenset(), subjects, inventory=EMPTY)
    assert owners.knowledge is facts, "other assignments alone change no fact"
    owners.update(frozenset(), subjects, inventory=Inventory(gpus=(InventoryGpu(uuid="GPU-1"),)))
    assert [gpu.uuid for gpu in owners.knowledge.inventory.gpus] == ["GPU-1"]
    claims = KnownClaims()
    owners.update(frozenset(), subjects, inventory=EMPTY, claims=claims)
    assert owners.knowledge.claims is claims


def test_the_place_of_a_claim_s_device_is_learnt_with_the_claim() -> None:
    """The inventory is the same object: it had the place before."""
    claim = Claim(namespace="ml", name="c", driver="gpu.nvidia.com", pool="n", device="gpu-3", cdi_names=("k=x",))
    held = frozenset({Assignment(owner=A, resource=claim.driver, device_id=claim.device_id, claim=claim)})
    inventory = Inventory(gpus=(InventoryGpu(uuid="GPU-1", device="nvidia3"),), places={"k=x": CdiPlace(minor="3")})
    owners, subjects = CurrentOwners(LabelPolicy()), {GPU: 1}
    owners.update(frozenset(), subjects, inventory=inventory)
    assert owners.knowledge.places == {}
    owners.update(held, subjects, inventory=inventory)
    assert [holder.owner for holder in owners.owners.of(GPU.key)] == [A]
    owners.learn({"k=y": CdiPlace(minor="4")}, NO_CLAIMS)
    assert owners.knowledge.places == {"k=x": CdiPlace(minor="3"), "k=y": CdiPlace(minor="4")}


def test_the_owners_of_a_page_that_is_away_are_those_of_the_last_update() -> None:
    owners = CurrentOwners(LabelPolicy())
    owners.update(HELD, {OTHER: 1}, inventory=EMPTY)
    of_page = owners.owners_of({GPU: 3})
    assert [holder.owner for holder in of_page.of(GPU.key)] == [A]
    assert [match.samples for match in of_page.matches] == [3]
    assert [match.samples for match in owners.owners.matches] == [0]


def test_an_attribution_is_kept_while_somebody_asks_for_its_sources() -> None:
    owners, subjects = CurrentOwners(LabelPolicy()), {"one": {GPU: 1}, "other": {OTHER: 1}}

    def update(of: str) -> object:
        return owners.update(HELD, subjects[of], inventory=EMPTY, of=of)

    one, other = update("one"), update("other")
    assert one is not other
    assert update("one") is one
    assert update("other") is other
    owners.keep({"one", "other"})
    assert (update("one"), update("other")) == (one, other)
    owners.keep({"other"})
    assert update("one") is not one
    owners.keep(())
    assert update("other") is not other


def test_what_a_reload_hands_over_goes_on() -> None:
    book, of_owners, requests = CounterBook(), PodsOfOwners(), Requests()
    owners = CurrentOwners(
        LabelPolicy(), book=book, pods_of_owners=of_owners, node="n", requests=requests, gpus=frozenset({"GPU-7"})
    )
    assert (owners.book, owners.pods_of_owners, owners.requests) == (book, of_owners, requests)
    assert owners.knowledge.node == "n"
    assert owners.gpus == {"GPU-7"}
    owners.update(frozenset(), {GPU: 1}, inventory=EMPTY)
    assert len(owners.gpus) == 2, "it has seen another one"
    evidence: Mapping[tuple[Owner, str], tuple[Given, ...]] = {(A, ""): ()}
    owners.update(HELD, {GPU: 1}, inventory=EMPTY, evidence=evidence)
    assert owners.evidence is evidence


@pytest.mark.parametrize("has_pages", [True, False])
def test_divided_counters_advance_with_the_pages_that_are_joined(*, has_pages: bool) -> None:
    owners = CurrentOwners(LabelPolicy(sharing=SPLIT))
    values = []
    for moment, energy in ((1.0, b"100"), (2.0, b"130")):
        page = Page(source="dcgm", body=b"", read_at_seconds=0.0, moment=moment)
        attribution = owners.update(HELD, {GPU: 1}, inventory=EMPTY, pages=[page] if has_pages else [])
        (rows,) = attribution([(b"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", GPU)])
        assert rows.values is not None
        values.append([*rows.values(b"series", energy)])
    assert owners.owners.of(DeviceKey(uuid="GPU-1"))
    assert values == [[b"0", b"0"], [b"30", b"0"] if has_pages else [b"0", b"0"]]


def test_a_word_on_a_token_decides_whose_its_device_is() -> None:
    held = frozenset({Assignment(owner=A, resource="nvidia.com/gpu", device_id="GPU-1-3")})
    token = next(iter(held))
    ref = DeviceRef(form="NVIDIA_VISIBLE_DEVICES", uuid="GPU-2", shared=True)
    given = Given(source="checkpoint", refs=(ref,), grants=(Grant(allocator="HAMi"),))
    word = replace(token, word=Word(grant=Grant(allocator="HAMi"), source="checkpoint", ref=ref))
    owners = CurrentOwners(LabelPolicy())
    owners.update(frozenset({word}), {GPU: 1, OTHER: 1}, inventory=EMPTY)
    assert [holder.owner for holder in owners.owners.of(OTHER.key)] == [A]
    x = "GPU-9567a9e7-341e-bb7e-fcf5-788d8caa50f9"
    held = frozenset({replace(token, device_id=f"{x}-3")})
    subjects = {Subject(uuid=x): 1, OTHER: 1}
    owners.update(held, subjects, inventory=EMPTY)
    assert owners.owners.of(OTHER.key) == ()
    owners.update(held, subjects, inventory=EMPTY, evidence={(A, "nvidia.com/gpu"): (given,)})
    assert [holder.owner for holder in owners.owners.of(OTHER.key)] == [A]


def test_a_container_holds_the_devices_of_a_claim_that_it_asked_for() -> None:
    claims = [
        Claim(namespace="ml", name="c", driver="gpu.nvidia.com", pool="n", device=name, cdi_names=(f"k={name}",))
        for name in ("x", "y")
    ]
    held = frozenset(Assignment(owner=A, resource=of.driver, device_id=of.device_id, claim=of) for of in claims)
    gpus = tuple(InventoryGpu(uuid=f"GPU-{minor}", device=f"nvidia{minor}") for minor in (1, 2))
    inventory = Inventory(gpus=gpus, places={"k=x": CdiPlace(minor="1"), "k=y": CdiPlace(minor="2")})
    ((named,),) = pods().values()
    got = (AllocatedDevice(resource="claim:c", device_id="k=x"),)
    of_names = {A.pod_key: (replace(named, pod=replace(named.pod, allocated={"main": got})),)}
    owners = CurrentOwners(LabelPolicy())
    owners.update(held, {GPU: 1, OTHER: 1}, inventory=inventory, pods_of_names=of_names, listing=LISTING)
    assert [bool(owners.owners.of(subject.key)) for subject in (GPU, OTHER)] == [True, False]
