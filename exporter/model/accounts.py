"""Accounts: the amounts that containers have had of the node's GPUs. Accounting keeps them, and outputs show them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
        labels: labels of the container's pod (pod_uid, label_…, workload_…), which go out with the amounts.
        allocated_ratio: the part of a physical GPU that the container holds now; None if it no longer holds any.
        amounts: by name, in whole numbers of small units, so that sums are exact. An amount that no page has shown so
            far is missing. accounts/amounts/ lists all of them.
        by_label: the amounts that are counted by a label, such as XIDs by number: by name, then by the label's value.
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accounts:
    """The accounts at the last look that counted, in stable order. Another look that counts makes another object.

    Attributes:
        gap_ns: the time since `began_ns` in which nothing could be seen, by the source that was missing.
        capacity: the number of physical GPUs, by model.
        allocated: the part of these GPUs that containers hold (0 to 1), by model.
    """

    rows: tuple[Account, ...] = ()
    gap_ns: Mapping[str, int] = field(default_factory=lambda: MappingProxyType(dict.fromkeys(GAPS, 0)))
    capacity: Mapping[str, int] = field(default_factory=nothing)
    allocated: Mapping[str, float] = field(default_factory=nothing)
    began_ns: int | None = None
