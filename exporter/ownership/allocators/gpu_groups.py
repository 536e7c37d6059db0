"""KAI Scheduler and Run:ai: pods with fractions share the GPU of a reservation pod, which uses nothing of it.

The scheduler makes a reservation pod for each GPU that it divides. That pod holds the whole GPU, and its label
`runai-gpu-group` names a group. A pod with a part of the GPU has the same group in a label, and asks the kubelet for
nothing. These facts come from KAI's sources: pkg/common/constants, pkg/common/resources/gpu_sharing.go,
pkg/binder/binding/resourcereservation/resource_reservation.go, pkg/binder/common/gpu_access.go and
pkg/binder/plugins/gpusharing/gpu-request/gpu_request_validator.go.
"""

import re
from collections.abc import Collection
from typing import Final

from exporter.model.grants import Grant
from exporter.model.pods import Owner, PodInfo
from exporter.ownership.allocators.said import MOST_MIB, Unreadable, shown

KAI: Final = "KAI Scheduler"
GROUP_LABEL: Final = "runai-gpu-group"
# of pods with parts of several GPUs: runai-gpu-group/<group>=<group>
GROUP_LABELS: Final = f"{GROUP_LABEL}/"
FRACTION: Final = "gpu-fraction"
MEMORY: Final = "gpu-memory"
DEVICES: Final = "gpu-fraction-num-devices"
CONTAINER: Final = "gpu-fraction-container-name"
RESERVED: Final = "run.ai/reserve_for_gpu_index"
GROUP_ANNOTATIONS: Final = frozenset({FRACTION, MEMORY, DEVICES, CONTAINER, RESERVED})
RESERVATION_NAMESPACES: Final = frozenset({"kai-resource-reservation", "runai-reservation"})
RESERVATION_CONTAINER: Final = "resource-reservation"
_MOST_DEVICES = 1024
_WHOLE_NUMBER = re.compile(r"[0-9]{1,12}")
_DECIMAL_NUMBER = re.compile(r"[0-9]*\.?[0-9]+(?:[eE]-?[0-9]{1,2})?|[0-9]+\.")


def is_reservation(owner: Owner, namespaces: Collection[str] = RESERVATION_NAMESPACES) -> bool:
    """Whether a container only reserves a GPU for the pods of a group.

    It does so in the schedulers' `namespaces` alone: elsewhere anybody could write the label, and hold a GPU that no
    account counts.
    """
    return owner.container == RESERVATION_CONTAINER and owner.namespace in namespaces


def reserves(pod: PodInfo) -> bool:
    """Whether a pod reserves a GPU for the pods of a group."""
    return GROUP_LABEL in pod.labels and any(one.name == RESERVATION_CONTAINER for one in pod.containers)


def groups_of(pod: PodInfo) -> tuple[str, ...]:
    """The groups of a pod, in stable order. Each stands for one GPU of the node; () if the pod has no part of any."""
    labels = pod.labels
    groups = {group for label, group in labels.items() if label == GROUP_LABEL or label.startswith(GROUP_LABELS)}
    return tuple(sorted(groups - {""}))


def fraction_of(pod: PodInfo) -> Grant:
    """The part that a pod has of the GPU of each of its groups.

    Raises Unreadable: an annotation is not as KAI's admission takes it, or the groups are not those of all GPUs that
    the pod asks for. The scheduler writes the groups of a pod's GPUs one by one.
    """
    annotations = pod.annotations
    wanted = _count(annotations.get(DEVICES, "1"), DEVICES, _MOST_DEVICES)
    groups = len(groups_of(pod))
    if groups != wanted:
        raise Unreadable(f"{DEVICES} is {wanted}, and the pod has {groups} of the labels {GROUP_LABEL}")
    if FRACTION in annotations:
        return Grant(allocator=KAI, fraction=_fraction(annotations[FRACTION]))
    if MEMORY in annotations:
        return Grant(allocator=KAI, memory_mib=float(_count(annotations[MEMORY], MEMORY, int(MOST_MIB))))
    return Grant(allocator=KAI)


def container_of(pod: PodInfo) -> str:
    """The container that has the pod's part of GPUs: the one that an annotation names, else the first.

    An init container has it only by name. Raises Unreadable: the pod has no such container.
    """
    name = pod.annotations.get(CONTAINER)
    for container in pod.containers:
        if container.name == name or (name is None and not container.is_init):
            return container.name
    raise Unreadable(f"{CONTAINER} is {shown(name)}, which no container is" if name else "the pod has no container")


def _fraction(text: str) -> float:
    fraction = float(text) if len(text) <= len("0.123456789012345678") and _DECIMAL_NUMBER.fullmatch(text) else 0.0
    if not 0 < fraction < 1:
        raise Unreadable(f"{FRACTION} is {shown(text)}; it must be above 0 and below 1")
    return fraction


def _count(text: str, name: str, most: int) -> int:
    number = int(text) if _WHOLE_NUMBER.fullmatch(text) else 0
    if not 0 < number <= most:
        raise Unreadable(f"{name} is {shown(text)}; it must be a whole number from 1 to {most}")
    return number
