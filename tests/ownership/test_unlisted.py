"""Containers that hold GPUs of which the kubelet lists nothing: by KAI's and Run:ai's groups, and by Koordinator."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from exporter.model.device_ref import DeviceRef
from exporter.model.devices import Assignment, Inventory, InventoryGpu, Owners
from exporter.model.grants import Given, Grant
from exporter.model.pages import Subject
from exporter.model.pods import Owner, PodContainer, PodInfo, PodsByName
from exporter.ownership.allocators.allocator_table import ALLOCATORS
from exporter.ownership.allocators.json_words import read_koordinator
from exporter.ownership.allocators.said import Said
from exporter.ownership.explain import of_look
from exporter.ownership.owners import Knowledge, Unmatched
from exporter.ownership.unlisted import UnlistedHolders
from tests.support.owners import build_owners

GPUS = [f"GPU-{number}567a9e7-341e-bb7e-fcf5-788d8caa50f9" for number in range(3)]
PAGE = {Subject(uuid=gpu, index=str(number)): 3 for number, gpu in enumerate(GPUS)}
# the driver counts minor numbers in another order than NVML counts GPUs
INVENTORY = Inventory(gpus=tuple(InventoryGpu(uuid=gpu, device=f"nvidia{2 - n}") for n, gpu in enumerate(GPUS)))
KAI = "kai-resource-reservation"


def a_pod(namespace: str, name: str, *containers: str, **more: Any) -> PodInfo:
    spec = tuple(PodContainer(name=container, resources=more.pop("asks", frozenset())) for container in containers)
    return PodInfo(namespace=namespace, name=name, uid=name, containers=spec, **{"labels": {}, **more})


def by_name(*pods: PodInfo) -> PodsByName:
    return {(pod.namespace, pod.name): pod for pod in pods}


def reservation(gpu: int, group: str, namespace: str = KAI) -> tuple[Assignment, PodInfo]:
    """A reservation pod, and what the kubelet gave it."""
    owner = Owner(namespace=namespace, pod=f"gpu-reservation-{group}", container="resource-reservation")
    pod = a_pod(namespace, owner.pod, owner.container, labels={"runai-gpu-group": group})
    return Assignment(owner=owner, resource="nvidia.com/gpu", device_id=GPUS[gpu]), pod


def worker(name: str, *groups: str, container: str = "", **annotations: str) -> PodInfo:
    labels = {"runai-gpu-group": groups[0]} if len(groups) == 1 else {f"runai-gpu-group/{g}": g for g in groups}
    written = {key.replace("_", "-"): text for key, text in annotations.items()}
    if len(groups) > 1:
        written["gpu-fraction-num-devices"] = str(len(groups))
    if container:
        written["gpu-fraction-container-name"] = container
    return a_pod("ml", name, "main", "side", labels=labels, annotations=written)


def owners_of(assignments: list[Assignment], pods: PodsByName) -> Owners:
    with_them = UnlistedHolders().of(frozenset(assignments), pods)
    return build_owners(with_them, PAGE, Knowledge(inventory=INVENTORY))


def holders(owners: Owners) -> Mapping[int, list[tuple[str, str, Grant | None]]]:
    return {
        GPUS.index(key.uuid): [(holder.owner.pod, holder.owner.container, holder.grant) for holder in of_key]
        for key, of_key in owners.holders.items()
    }


def test_the_pods_of_a_group_hold_the_gpu_that_its_reservation_pod_has() -> None:
    held, reserving = reservation(1, "g")
    pods = by_name(
        reserving, worker("a", "g", gpu_fraction="0.25"), worker("b", "g", container="side", gpu_memory="2000")
    )
    owners = owners_of([held], pods)
    assert holders(owners) == {
        1: [
            ("a", "main", Grant(allocator="KAI Scheduler", fraction=0.25)),
            ("b", "side", Grant(allocator="KAI Scheduler", memory_mib=2000)),
        ]
    }
    (look,) = owners.looks
    assert (look.assignment.owner, of_look(look)[0]) == (held.owner, "reservation")
    assert all(holder.shared for holder in next(iter(owners.holders.values())))


def test_a_pod_of_several_groups_holds_a_part_of_several_gpus() -> None:
    one, of_one = reservation(0, "g")
    other, of_other = reservation(2, "h")
    owners = owners_of([one, other], by_name(of_one, of_other, worker("a", "g", "h", gpu_fraction="0.5")))
    assert [*holders(owners)] == [0, 2]


@pytest.mark.parametrize("namespace", [KAI, "runai-reservation"])
def test_without_pods_a_reserved_gpu_has_no_owner(namespace: str) -> None:
    held, _ = reservation(1, "g", namespace)
    owners = owners_of([held], {})
    (match,) = owners.matches
    assert (owners.holders, match.reason) == ({}, Unmatched.ALLOCATOR)
    assert match.assignment.word is not None
    assert match.assignment.word.trouble is not None
    assert "let the exporter read pods" in match.assignment.word.trouble.remedy
    assert not [*owners.contradictions]


@pytest.mark.parametrize(
    ("pod", "says"),
    [
        (worker("a", "h", gpu_fraction="0.5"), "no reservation pod of its group is known"),
        (worker("a", "g", gpu_fraction="half"), "gpu-fraction is 'half'"),
        (worker("a", "g", gpu_fraction="0.5", container="x"), "gpu-fraction-container-name is 'x'"),
    ],
)
def test_a_word_that_leads_nowhere_names_nobody(pod: PodInfo, says: str) -> None:
    held, reserving = reservation(1, "g")
    owners = owners_of([held], by_name(reserving, pod))
    (match,) = owners.matches
    assert (owners.holders, match.reason) == ({}, Unmatched.ALLOCATOR)
    assert match.assignment.word is not None
    assert match.assignment.word.trouble is not None
    assert says in match.assignment.word.trouble.message
    # nothing shows another device
    assert not [*owners.contradictions]


def test_a_label_makes_no_holder_where_no_gpu_is_reserved() -> None:
    """Anybody can write it: free GPUs would be unknown by it, in every cluster."""
    pods = by_name(worker("a", "h", gpu_fraction="0.5"))
    words = UnlistedHolders()
    none: frozenset[Assignment] = frozenset()
    assert words.of(none, pods) is none
    held, reserving = reservation(1, "g")
    words.of(frozenset([held]), by_name(reserving, *pods.values()))
    # the reservation pod has gone before the pods that share its GPU, which seems free
    (left,) = words.of(none, pods)
    assert left.owner.pod == "a"


def words_of(*pods: PodInfo) -> UnlistedHolders:
    """What it makes of these pods where the kubelet lists nothing."""
    unlisted = UnlistedHolders()
    unlisted.of(frozenset(), by_name(*pods))
    return unlisted


@pytest.mark.parametrize(("containers", "container"), [(("main", "side"), "main"), ((), "")])
def test_a_part_that_cannot_be_read_is_the_first_containers(containers: tuple[str, ...], container: str) -> None:
    held, reserving = reservation(1, "g")
    broken = a_pod("ml", "a", *containers, labels={"runai-gpu-group": "g"}, annotations={"gpu-fraction": "half"})
    owners = owners_of([held], by_name(reserving, broken))
    (match,) = owners.matches
    assert match.assignment.owner == Owner(namespace="ml", pod="a", container=container)
    assert match.assignment.word is not None
    assert match.assignment.word.is_unlisted


def test_a_part_for_a_container_that_is_not_there_is_the_first_ones() -> None:
    held, reserving = reservation(1, "g")
    owners = owners_of([held], by_name(reserving, worker("a", "g", container="x")))
    assert [match.assignment.owner.container for match in owners.matches] == ["main"]


def test_a_reservation_that_nothing_reads_leaves_its_groups_gpu_clear() -> None:
    held, reserving = reservation(1, "g")
    owner = replace(held.owner, pod="gpu-reservation-new")
    unread = replace(held, owner=owner, device_id="slot 1")
    pods = by_name(reserving, replace(reserving, name=owner.pod), worker("a", "g", gpu_fraction="0.5"))
    assert [*holders(owners_of([held, unread], pods))] == [1]


def test_the_only_pod_with_a_part_of_a_gpu_has_a_share_of_it() -> None:
    held, reserving = reservation(1, "g")
    owners = owners_of([held], by_name(reserving, worker("a", "g", gpu_fraction="0.5")))
    assert [holder.shared for of in owners.holders.values() for holder in of] == [True]
    assert [match.assignment.resource for match in owners.matches] == ["gpu-fraction"]


def test_a_reservation_by_an_id_that_nothing_reads_names_no_gpu() -> None:
    held, reserving = reservation(1, "g")
    held = replace(held, device_id="slot 1")
    owners = owners_of([held], by_name(reserving, worker("a", "g", gpu_fraction="0.5")))
    assert (owners.holders, owners.looks) == ({}, ())
    troubles = {
        match.assignment.owner.pod: match.assignment.word.trouble.message
        for match in owners.matches
        if match.assignment.word and match.assignment.word.trouble
    }
    assert "reserves its GPU for a group of pods" in troubles["gpu-reservation-g"]
    assert "no reservation pod of its group is known" in troubles["a"]


def test_the_holders_are_those_of_which_the_kubelet_lists_nothing() -> None:
    held, reserving = reservation(1, "g")
    unlisted = UnlistedHolders()
    assert unlisted.holding == frozenset()
    made = unlisted.of(frozenset([held]), by_name(reserving, worker("a", "g", gpu_fraction="0.5")))
    (holder,) = unlisted.holding
    assert holder in made
    assert (holder.owner.pod, holder.word and holder.word.is_unlisted) == ("a", True)
    assert {each.owner.pod for each in made} == {"a", "gpu-reservation-g"}
    looking = next(each for each in made if each is not holder)
    assert looking.word is not None
    assert (looking.word.is_unlisted, looking.word.source) == (False, "the label runai-gpu-group")


KEY = "scheduling.koordinator.sh/device-allocated"


def of_koordinator(*minors: object, **more: Any) -> PodInfo:
    text = json.dumps({"gpu": [{"minor": minor} for minor in minors]})
    return a_pod("ml", "a", "main", annotations={KEY: text}, **{"asks": frozenset({"koordinator.sh/gpu"}), **more})


def test_each_gpu_of_koordinators_word_is_an_assignment() -> None:
    owners = owners_of([], by_name(of_koordinator(2, 0)))
    assert [*holders(owners)] == [0, 2]
    assert [(match.assignment.device_id, match.assignment.resource) for match in owners.matches] == [
        ("0", "koordinator.sh/gpu*"),
        ("1", "koordinator.sh/gpu*"),
    ]


@pytest.mark.parametrize(("containers", "container"), [(("main", "side"), "main"), ((), "")])
def test_an_annotation_that_cannot_be_read_is_the_first_containers(containers: tuple[str, ...], container: str) -> None:
    (held,) = words_of(a_pod("ml", "a", *containers, annotations={KEY: "x"})).holding
    assert held.owner == Owner(namespace="ml", pod="a", container=container)
    assert (held.resource, held.device_id) == ("koordinator.sh/gpu*", "")
    assert held.word is not None
    assert held.word.is_unlisted
    assert held.word.trouble is not None
    assert held.word.trouble.message == f"the annotation {KEY} cannot be believed: 'x' is no JSON"
    assert held.word.ref == DeviceRef(form=f"the annotation {KEY}", allocator="Koordinator", shared=True)


def test_an_annotation_is_read_again_only_when_it_or_the_containers_change() -> None:
    """To read one may take milliseconds."""
    read: list[str] = []

    def reading(text: str) -> Said:
        read.append(text)
        return read_koordinator(text)

    koordinator = ALLOCATORS["Koordinator"]
    written = replace(koordinator.annotations[0], grammar=reading)
    unlisted = UnlistedHolders(allocators={"Koordinator": replace(koordinator, annotations=(written,))})
    none: frozenset[Assignment] = frozenset()
    of_gpu_2, of_gpu_0 = of_koordinator(2), of_koordinator(0)
    for pod in (of_gpu_2, of_koordinator(2), of_gpu_0, of_gpu_0):
        unlisted.of(none, by_name(pod))
    assert read == [of_gpu_2.annotations[KEY], of_gpu_0.annotations[KEY]]
    # no container asks for a GPU any more
    unlisted.of(none, by_name(of_koordinator(0, asks=frozenset())))
    assert len(read) == 3
    assert [held.word and held.word.ref and held.word.ref.minor for held in unlisted.holding] == [""]
    # a pod that has gone is forgotten
    assert unlisted.of(none, {}) is none
    unlisted.of(none, by_name(of_gpu_0))
    assert len(read) == 4


def test_evidence_on_the_resource_beats_koordinators_word() -> None:
    pod = of_koordinator(2)
    key = Owner(namespace="ml", pod="a", container="main"), "koordinator.sh/gpu*"
    shown = Given(source="the environment", refs=(DeviceRef(form="", uuid=GPUS[1]),))
    owners = build_owners(UnlistedHolders().of(frozenset(), by_name(pod), {key: (shown,)}, INVENTORY), PAGE)
    assert [*holders(owners)] == [1]
    assert [*owners.contradictions]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_holds_nothing(phase: str) -> None:
    held, reserving = reservation(1, "g")
    ended = a_pod("ml", "a", "main", labels={"runai-gpu-group": "g"}, annotations={"gpu-fraction": "0.5"}, phase=phase)
    owners = owners_of([held], by_name(reserving, ended))
    assert (owners.holders, owners.matches) == ({}, ())


def test_koordinators_word_names_gpus_by_minor_number() -> None:
    given = {"gpu": [{"minor": 2, "resources": {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory": "8Gi"}}]}
    annotations = {"scheduling.koordinator.sh/device-allocated": json.dumps(given)}
    pod = a_pod("ml", "a", "main", annotations=annotations, asks=frozenset({"koordinator.sh/gpu-core"}))
    owners = owners_of([], by_name(pod))
    assert holders(owners) == {0: [("a", "main", Grant(allocator="Koordinator", memory_mib=8192, cores_percent=50))]}


def test_koordinators_word_on_network_cards_alone_makes_no_holder() -> None:
    annotations = {"scheduling.koordinator.sh/device-allocated": json.dumps({"rdma": [{"minor": 0, "resources": {}}]})}
    owners = owners_of([], by_name(a_pod("ml", "a", "main", annotations=annotations)))
    assert (owners.holders, owners.matches) == ({}, ())


def test_a_group_whose_reservation_pods_have_two_gpus_leads_nowhere() -> None:
    """A reservation pod that is on its way out still has its GPU when the next one of its group comes."""
    held, reserving = reservation(1, "g")
    owner = replace(held.owner, pod="gpu-reservation-new")
    new = replace(held, owner=owner, device_id=GPUS[2]), replace(reserving, name=owner.pod)
    owners = owners_of([held, new[0]], by_name(reserving, new[1], worker("a", "g", gpu_fraction="0.5")))
    assert holders(owners) == {}
    assert [match.reason for match in owners.matches] == [Unmatched.ALLOCATOR]


@pytest.mark.parametrize(
    ("seen", "gpus", "is_contradicted"),
    [((), [1], False), ((1,), [1], False), ((2,), [2], True), ((1, 2), [1], False)],
)
def test_processes_on_another_gpu_beat_the_label(
    seen: tuple[int, ...], gpus: list[int], *, is_contradicted: bool
) -> None:
    held, reserving = reservation(1, "g")
    pods = by_name(reserving, worker("a", "g", gpu_fraction="0.5"))
    refs = tuple(DeviceRef(form="", uuid=GPUS[gpu]) for gpu in seen)
    key = Owner(namespace="ml", pod="a", container="main"), ""
    evidence = {key: (Given(source="NVML", refs=refs, is_whole=False),)}
    owners = build_owners(UnlistedHolders().of(frozenset([held]), pods, evidence, INVENTORY), PAGE)
    half = Grant(allocator="KAI Scheduler", fraction=0.5)
    assert holders(owners) == {gpu: [("a", "main", half)] for gpu in gpus}
    assert bool([*owners.contradictions]) is is_contradicted


def test_the_kubelets_word_comes_before_koordinators() -> None:
    given = {"gpu": [{"minor": 2, "resources": {"koordinator.sh/gpu-core": "100"}}]}
    annotations = {"scheduling.koordinator.sh/device-allocated": json.dumps(given)}
    pod = a_pod("ml", "a", "main", annotations=annotations, asks=frozenset({"nvidia.com/gpu"}))
    assert [*holders(owners_of([], by_name(pod)))] == [0]
    owner = Owner(namespace="ml", pod="a", container="main")
    listed = Assignment(owner=owner, resource="nvidia.com/gpu", device_id=GPUS[1])
    owners = owners_of([listed], by_name(pod))
    assert holders(owners) == {1: [("a", "main", None)]}
    assert [match.reason for match in owners.matches] == [""]


def test_nothing_is_made_anew_while_nothing_changes() -> None:
    held, reserving = reservation(1, "g")
    unlisted, assignments = UnlistedHolders(), frozenset([held])
    before = unlisted.of(assignments, by_name(reserving, worker("a", "g", gpu_fraction="0.5")))
    assert unlisted.of(assignments, by_name(reserving, worker("a", "g", gpu_fraction="0.5"))) is before
    after = unlisted.of(assignments, by_name(reserving, worker("b", "g", gpu_fraction="0.5")))
    assert {assignment.owner.pod for assignment in after} == {"gpu-reservation-g", "b"}


def test_a_node_without_allocators_keeps_its_assignments() -> None:
    assignments = frozenset(
        [
            Assignment(
                owner=Owner(namespace="ml", pod="a", container="main"), resource="nvidia.com/gpu", device_id=GPUS[0]
            )
        ]
    )
    assert UnlistedHolders().of(assignments, by_name(a_pod("ml", "a", "main"))) is assignments
