"""KAI's and Run:ai's pods, as KAI's sources make them: labels, annotations and the reservation pod."""

import re
from collections.abc import Mapping

import pytest

from exporter.model.grants import Grant
from exporter.model.pods import Owner, PodContainer, PodInfo
from exporter.ownership.allocators.allocator_table import ANNOTATIONS
from exporter.ownership.allocators.gpu_groups import (
    GROUP_ANNOTATIONS,
    KAI,
    container_of,
    fraction_of,
    groups_of,
    is_reservation,
    reserves,
)
from exporter.ownership.allocators.said import Unreadable

GROUP = {"runai-gpu-group": "a-group"}
TWO_GROUPS = {"runai-gpu-group/b": "b", "runai-gpu-group/a": "a"}
CONTAINERS = (PodContainer(name="init", is_init=True), PodContainer(name="main"), PodContainer(name="side"))


def pod(
    labels: Mapping[str, str] = GROUP,
    annotations: Mapping[str, str] | None = None,
    containers: tuple[PodContainer, ...] = CONTAINERS,
) -> PodInfo:
    return PodInfo(
        namespace="ml", name="a", uid="u", labels=labels, annotations=annotations or {}, containers=containers
    )


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, ()),
        (GROUP, ("a-group",)),
        (TWO_GROUPS, ("a", "b")),
        ({**GROUP, "runai-gpu-group/a-group": "a-group"}, ("a-group",)),
        ({"runai-gpu-group": "", "runai-gpu-groups": "x"}, ()),
    ],
)
def test_groups(labels: Mapping[str, str], expected: tuple[str, ...]) -> None:
    assert groups_of(pod(labels)) == expected


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        (GROUP, {"gpu-fraction": "0.5"}, Grant(allocator=KAI, fraction=0.5)),
        (GROUP, {"gpu-fraction": ".25"}, Grant(allocator=KAI, fraction=0.25)),
        (GROUP, {"gpu-fraction": "0.123456789012345678"}, Grant(allocator=KAI, fraction=0.123456789012345678)),
        (GROUP, {"gpu-memory": "10485760"}, Grant(allocator=KAI, memory_mib=10485760)),
        (GROUP, {"gpu-memory": "2000"}, Grant(allocator=KAI, memory_mib=2000)),
        (TWO_GROUPS, {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}, Grant(allocator=KAI, fraction=0.5)),
        (GROUP, {}, Grant(allocator=KAI)),
    ],
)
def test_the_part_of_each_gpu(labels: Mapping[str, str], annotations: dict[str, str], expected: Grant) -> None:
    assert fraction_of(pod(labels, annotations)) == expected


@pytest.mark.parametrize(
    ("labels", "annotations", "why"),
    [
        *((GROUP, {"gpu-fraction": text}, "gpu-fraction is") for text in ("", "0", "1", "1.5", "-0.5", "x", "nan")),
        *((GROUP, {"gpu-fraction": text}, "gpu-fraction is") for text in ("1e-", "0x1", "9" * 9999, "\u0660.\u0665")),
        (GROUP, {"gpu-fraction": "0.1234567890123456789"}, "it must be above 0 and below 1"),
        (GROUP, {"gpu-memory": "10485761"}, "gpu-memory is '10485761'; it must be a whole number from 1 to 10485760"),
        (GROUP, {"gpu-fraction-num-devices": "1024"}, "is 1024, and the pod has 1 of the labels"),
        (GROUP, {"gpu-fraction-num-devices": "1025"}, "is '1025'; it must be a whole number from 1 to 1024"),
        *((GROUP, {"gpu-memory": text}, "gpu-memory is") for text in ("", "0", "-1", "1.5", "2Gi", "9" * 99, "\u0663")),
        (GROUP, {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}, "gpu-fraction-num-devices is '0'"),
        (
            {"runai-gpu-group/a": "a"},
            {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"},
            "gpu-fraction-num-devices is 2, and the pod has 1 of the labels",
        ),
        ({}, {"gpu-fraction": "0.5"}, "the pod has 0 of the labels"),
    ],
)
def test_a_part_that_cannot_be_read(labels: Mapping[str, str], annotations: dict[str, str], why: str) -> None:
    with pytest.raises(Unreadable, match=re.escape(why)) as raised:
        fraction_of(pod(labels, annotations))
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, "main"),
        ({"gpu-fraction-container-name": "side"}, "side"),
        ({"gpu-fraction-container-name": "init"}, "init"),
    ],
)
def test_the_container_with_the_part(annotations: dict[str, str], expected: str) -> None:
    assert container_of(pod(annotations=annotations)) == expected


@pytest.mark.parametrize(
    ("of_pod", "why"),
    [
        (
            pod(annotations={"gpu-fraction-container-name": "other"}),
            "gpu-fraction-container-name is 'other', which no container is",
        ),
        (pod(containers=()), "the pod has no container"),
        # an init container has the part only by name
        (pod(containers=CONTAINERS[:1]), "the pod has no container"),
    ],
)
def test_a_container_that_is_not_there(of_pod: PodInfo, why: str) -> None:
    with pytest.raises(Unreadable, match=f"^{re.escape(why)}$"):
        container_of(of_pod)


@pytest.mark.parametrize(
    ("namespace", "container", "namespaces", "expected"),
    [
        ("kai-resource-reservation", "resource-reservation", None, True),
        ("runai-reservation", "resource-reservation", None, True),
        # whoever may write pods elsewhere could hold a GPU that no account counts
        ("gpus", "resource-reservation", None, False),
        ("gpus", "resource-reservation", ("gpus",), True),
        ("kai-resource-reservation", "resource-reservation", ("gpus",), False),
        ("kai-resource-reservation", "main", None, False),
    ],
)
def test_the_reservation_pod(
    namespace: str, container: str, namespaces: tuple[str, ...] | None, *, expected: bool
) -> None:
    owner = Owner(namespace=namespace, pod="gpu-reservation-n1-x", container=container)
    assert is_reservation(owner, *([] if namespaces is None else [namespaces])) == expected


RESERVING = (PodContainer(name="other"), PodContainer(name="resource-reservation"))


@pytest.mark.parametrize(
    ("labels", "containers", "expected"),
    [
        (GROUP, RESERVING, True),
        # a pod that shares the GPU has the label, too
        (GROUP, CONTAINERS, False),
        ({}, RESERVING, False),
        (GROUP, (), False),
    ],
)
def test_a_pod_that_reserves_a_gpu(
    labels: Mapping[str, str], containers: tuple[PodContainer, ...], *, expected: bool
) -> None:
    assert reserves(pod(labels, containers=containers)) is expected


def test_the_annotations_are_kept_of_pods() -> None:
    assert GROUP_ANNOTATIONS <= ANNOTATIONS
