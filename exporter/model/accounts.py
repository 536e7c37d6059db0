"""Accounts: the amounts that containers have had of the node's GPUs. Accounting keeps them, and outputs show them.

Tests: tests/accounts/test_out_of_memory.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from exporter.model.devices import AddedLabels, DeviceKey
from exporter.model.nothing import nothing
from exporter.model.pods import Owner

# The source that was missing in a time when nothing could be seen: the kubelet, a page of samples, the exporter itself.
Gap = Literal["exporter", "kubelet", "page"]
GAPS: Final[tuple[Gap, ...]] = ("exporter", "kubelet", "page")


# Every look makes an Account for every row. Making a NamedTuple takes a sixth of the time of a frozen dataclass.
class Account(NamedTuple):
    """A container's use of a device, counted up; with `owner` None, the times in which nobody held the device.

    Attributes:
        owner: the container; None for nobody.
        labels: labels of the container's pod (pod_uid, label_…, queue, workload_…), which go out with the amounts.
        allocated_ratio: the part of a physical GPU that the container holds now; None if it no longer holds any.
        amounts: by name, in whole numbers of small units, so that sums are exact. An amount that no page has shown so
            far is missing. accounts/amounts/ lists all of them.
        by_label: the amounts that are counted by labels, such as XIDs by number: by name, then by the labels' values as
            one text (`joined_values` of accounts/entries.py).
        began_ns: when all amounts were 0, in ns since 1970 by the machine's present clock. None if that is not known,
            or if the labels have changed since: the account then goes on with a series that another account began.
        idle_since_ns: since when the container has held the device idle without a break; None while it uses the device,
            and while that is not known.
    """

    owner: Owner | None
    device: DeviceKey
    labels: AddedLabels
    allocated_ratio: float | None
    amounts: Mapping[str, int]
    by_label: Mapping[str, Mapping[str, int]]
    began_ns: int | None = None
    idle_since_ns: int | None = None


class Suspicion(StrEnum):
    """How much speaks for it that a container ended for lack of GPU memory, the most first (docs/health.md)."""

    LIKELY = "likely"
    SUSPECTED = "suspected"
    POSSIBLE = "possible"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectedOutOfMemory:
    """The end of a container that may have lacked memory of a GPU, with what speaks for it.

    Attributes:
        owner: the container.
        device: the device of those that it held whose memory was fullest.
        ended_ns: its end, in ns since 1970; the kubelet says whole seconds.
        exit_code: its exit code.
        suspicion: how much speaks for it.
        used_mib: the most memory of the device in use that a look saw in the minute before the end.
        all_mib: all memory of the device.
        seen_before_ns: how long before the end that look was.
        own_mib: the memory of the container's own processes at that look; None if nobody measures it.
        neighbour: the other container that used the most of it then; None if there was none, or nobody measures it.
        neighbour_mib: its memory.
        failed_allocations: the allocations that failed for lack of memory about then, by the CUDA probe.
        xids: XIDs of programs on the GPU about then, in order: they may be the cause of the end, or come of it.
        more_devices: the number of its other devices of which the same may be said.
    """

    owner: Owner
    device: DeviceKey
    ended_ns: int
    exit_code: int
    suspicion: Suspicion
    used_mib: float
    all_mib: float
    seen_before_ns: int
    own_mib: float | None = None
    neighbour: Owner | None = None
    neighbour_mib: float = 0.0
    failed_allocations: int = 0
    xids: tuple[int, ...] = ()
    more_devices: int = 0

    @property
    def ratio(self) -> float:
        """The part of the device's memory that was in use, from 0 to 1."""
        return self.used_mib / self.all_mib

    @property
    def ended_at_seconds(self) -> float:
        """The end, in seconds since 1970."""
        return self.ended_ns / 1e9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accounts:
    """The accounts at the last look that counted, in stable order. Another look that counts makes another object.

    Attributes:
        gap_ns: the time since `began_ns` in which nothing could be seen, by the source that was missing.
        capacity: the number of physical GPUs, by model.
        allocated: the part of these GPUs that containers hold (0 to 1), by model.
        suspicions: the last ends of containers that may have lacked GPU memory, the newest first.
    """

    rows: tuple[Account, ...] = ()
    gap_ns: Mapping[str, int] = field(default_factory=lambda: MappingProxyType(dict.fromkeys(GAPS, 0)))
    capacity: Mapping[str, int] = field(default_factory=nothing)
    allocated: Mapping[str, float] = field(default_factory=nothing)
    began_ns: int | None = None
    suspicions: tuple[SuspectedOutOfMemory, ...] = ()
