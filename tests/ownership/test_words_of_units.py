"""Ids that count units of devices: which devices they mean, and how many units of each."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from exporter.model.device_ref import DeviceRef
from exporter.model.devices import Assignment, DeviceKey
from exporter.model.grants import Given, Grant, Word
from exporter.model.pods import PodContainer, PodInfo
from exporter.ownership.allocators.allocator_table import ALLOCATORS
from exporter.ownership.words import Words
from tests.ownership.test_words import GPUS, INVENTORY, MAIN, NVML, PAGE, UUIDS, hami, shows
from tests.support.owners import build_owners

MEM, ALLOCATION = "aliyun.com/gpu-mem", "scheduler.framework.gpushare.allocation"


def gpushare(allocation: str | None, evidence: Sequence[Given] = ()) -> list[tuple[int | None, int, str]]:
    """Of a container with 8 units of memory by 3 and 5 ids: the GPU, the count and the trouble of each assignment."""
    units = [
        Assignment(owner=MAIN, resource=MEM, device_id=f"{GPUS[n]}-_-0", count=count) for n, count in ((0, 3), (1, 5))
    ]
    annotations = {} if allocation is None else {ALLOCATION: allocation}
    container = PodContainer(name="main", resources=frozenset({MEM}))
    info = PodInfo(namespace="ml", name="a", uid="1", labels={}, annotations=annotations, containers=(container,))
    pods = {} if allocation is None else {("ml", "a"): info}
    made = Words().of(frozenset(units), pods, {(MAIN, MEM): tuple(evidence)}, INVENTORY)
    owners = build_owners(made, PAGE)
    return sorted(
        (
            GPUS.index(match.key.uuid) if match.key else None,
            match.assignment.count,
            match.assignment.word.trouble.message if match.assignment.word and match.assignment.word.trouble else "",
        )
        for match in owners.matches
    )


@pytest.mark.parametrize(
    ("allocation", "evidence", "expected"),
    [
        ('{"0":{"2":8}}', [], [(2, 8, "")]),
        # of one GPU all ids count, whatever the annotation counts
        ('{"0":{"2":5}}', [], [(2, 8, "")]),
        ('{"0":{"2":2,"3":6}}', [], [(2, 2, ""), (3, 6, "")]),
        (None, [shows(3)], [(3, 8, "")]),
        (None, [shows(3, is_whole=False)], [(3, 8, "")]),
        # how many GPUs it has is not known, and one is likely
        (None, [shows(1, 3, is_whole=False), shows(2, is_whole=False)], [(2, 8, "")]),
        # evidence of more GPUs than the annotation names
        ('{"0":{"2":8}}', [shows(1, 3)], [(2, 8, "")]),
        ('{"0":{"2":8}}', [shows(2)], [(2, 8, "")]),
    ],
)
def test_ids_that_count_units_of_a_gpu(
    allocation: str | None, evidence: Sequence[Given], expected: list[tuple[int, int, str]]
) -> None:
    assert gpushare(allocation, evidence) == expected


@pytest.mark.parametrize(
    ("allocation", "evidence", "why"),
    [
        (None, [], "gpushare's scheduler chose the GPU and wrote it on the pod (the annotation"),
        (None, [shows(1, 3, is_whole=False)], "gpushare's scheduler chose the GPU and wrote it on the pod"),
        (None, [shows()], "gpushare's scheduler chose the GPU and wrote it on the pod"),
        # two GPUs, and nothing says which part is whose
        (None, [shows(1, 3)], "it counts 0 units for this container, and the kubelet handed out 8"),
        ('{"0":{"2":2,"3":5}}', [], "it counts 7 units for this container, and the kubelet handed out 8"),
        ("x", [], "cannot be believed: 'x' is no JSON"),
    ],
)
def test_ids_that_count_units_of_gpus_that_nobody_knows(
    allocation: str | None, evidence: Sequence[Given], why: str
) -> None:
    """The ids stay as they are, each with the reason."""
    made = gpushare(allocation, evidence)
    assert [(gpu, count) for gpu, count, _ in made] == [(None, 3), (None, 5)]
    assert all(why in message for _, _, message in made)


def test_a_process_elsewhere_beats_what_units_are_counted_of() -> None:
    why = f"the annotation {ALLOCATION} says {GPUS[2]}, {GPUS[3]}, and NVML shows {GPUS[1]}, which counts"
    made = gpushare('{"0":{"2":2,"3":6}}', [shows(1, source=NVML, is_whole=False)])
    assert made == [(1, 3, why), (1, 5, why)]


def test_units_without_amounts_are_of_one_gpu_alone() -> None:
    resource = "volcano.sh/vgpu-memory"
    units = [Assignment(owner=MAIN, resource=resource, device_id=f"{UUIDS[n]}-memory-{n}") for n in (1, 0)]
    container = PodContainer(name="main", resources=frozenset({resource}))
    of_pod = PodInfo(namespace="ml", name="a", uid="1", labels={}, containers=(container,))

    def made(*gpus: int) -> list[Assignment]:
        written = {"volcano.sh/vgpu-ids-new": hami(gpus)}
        pods = {("ml", "a"): replace(of_pod, annotations=written)}
        return sorted(Words().of(frozenset(units), pods), key=lambda each: each.device_id)

    (one,) = made(2)
    assert (one.device_id, one.count) == (f"{UUIDS[0]}-memory-0", 2), "the first id stands for all"
    both = made(2, 3)
    assert [each.device_id for each in both] == [f"{UUIDS[n]}-memory-{n}" for n in (0, 1)]
    for each in both:
        assert each.word is not None
        assert each.word.trouble is not None
        assert "it counts 0 units for this container, and the kubelet handed out 2" in each.word.trouble.message


@pytest.mark.parametrize(("offered", "mib"), [(80, 8192), (81920, 8), (0, None)])
def test_ids_that_count_memory_are_gib_or_mib_by_how_many_a_gpu_has(offered: int, mib: int | None) -> None:
    word = Word(grant=Grant(allocator="gpushare"), ref=DeviceRef(form="", uuid=GPUS[0], shared=True))
    held = Assignment(owner=MAIN, resource="aliyun.com/gpu-mem", device_id=f"{UUIDS[1]}-_-0", count=8, word=word)
    on_offer = {f"{gpu}-_-0": offered for gpu in UUIDS} if offered else {}
    owners = build_owners([held], PAGE, allocatable={"aliyun.com/gpu-mem": on_offer})
    (holder,) = owners.holders[DeviceKey(uuid=GPUS[0])]
    assert holder.grant == Grant(allocator="gpushare", memory_mib=mib)


def test_volcanos_memory_ids_count_units_and_its_number_ids_do_not() -> None:
    resources = ("volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "nvidia.com/gpu")
    assert [ALLOCATORS["Volcano"].counts_units(resource) for resource in resources] == [False, True, False]
