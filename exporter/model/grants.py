"""What an allocator gave a container, by its own word and by what the node shows.

An allocator is a scheduler with a device plugin of its own, whose device ids do not say which GPU a container has
(ownership/allocators).

Tests: tests/ownership/test_words.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from exporter.errors import Trouble
from exporter.model.device_ref import DeviceRef
from exporter.model.nothing import NOTHING
from exporter.model.pods import Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The part of one device that an allocator gave a container. None stands for what the allocator does not say.

    Attributes:
        allocator: the allocator's name in ownership/allocators.
        memory_mib: the device's memory, in MiB.
        cores_percent: the device's compute, in percent; 100 is all of it.
        fraction: the part of the device, from 0 to 1, of an allocator that counts in fractions.
    """

    allocator: str
    memory_mib: float | None = None
    cores_percent: float | None = None
    fraction: float | None = None


def together(one: Grant | None, other: Grant | None) -> Grant | None:
    """What a container was given of a device by two shares of it."""
    if one is None or other is None:
        return one or other
    return Grant(
        allocator=one.allocator,
        memory_mib=_sum(one.memory_mib, other.memory_mib),
        cores_percent=_sum(one.cores_percent, other.cores_percent),
        fraction=_sum(one.fraction, other.fraction),
    )


def _sum(one: float | None, other: float | None) -> float | None:
    """None if either is not known."""
    return None if one is None or other is None else one + other


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What tells the device of an assignment whose id does not: an allocator's annotation, or evidence on the node.

    Attributes:
        grant: the part of the device, and the allocator that gave it.
        source: who says it: an annotation's name, or one of the sources of evidence (`Given.source`).
        ref: the device; None if there is no word that counts.
        trouble: why no word counts or, beside a `ref`, what contradicts it.
        is_of_id: whether the container's ids name the same device or, if the ids are the `source`, whether the
            annotation does; None if they name none.
        is_unlisted: the kubelet has handed out nothing for it. The
            allocator alone says that the container has a device.
    """

    grant: Grant
    source: str = ""
    ref: DeviceRef | None = None
    trouble: Trouble | None = None
    is_of_id: bool | None = None
    is_unlisted: bool = False

    @property
    def names_device(self) -> bool:
        """Whether it tells the device. A `ref` that still has an allocator only says whose share it is."""
        return self.ref is not None and self.ref.names_device and not self.ref.allocator


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The devices that a container really has, as the node shows without any allocator's word.

    Attributes:
        source: who shows it, as people read it: "the kubelet's checkpoint", "the environment", "NVML".
        refs: the devices, in the order in which the source names them. An entry is a GPU or a MIG instance.
        grants: what the source says of the part of each device, in the same order; () if it says nothing.
        is_whole: the source names all devices of the container. NVML shows only those with a process.
    """

    source: str
    refs: tuple[DeviceRef, ...]
    grants: tuple[Grant, ...] = ()
    is_whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointEntry:
    """What a device plugin gave a container for one resource, as the kubelet keeps it in its checkpoint.

    `ids` are the device ids that the kubelet picked, as ownership/counted_ids.py keeps those that count. `given` is
    None if the plugin's answer names no devices.
    """

    pod_uid: str
    container: str
    resource: str
    ids: frozenset[str]
    given: Given | None


# What the node shows of each container and resource, the best source first. "" stands for every resource.
Evidence = Mapping[tuple[Owner, str], tuple[Given, ...]]
NO_EVIDENCE: Evidence = NOTHING
