"""What containers have had of the node's GPUs: what accounting keeps, and outputs show."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from exporter.model.devices import AddedLabels, DeviceKey
from exporter.model.pods import Owner

# What was missing when nothing could be seen: the kubelet's word, a page of samples, or the exporter itself.
Gap = Literal["exporter", "kubelet", "page"]
GAPS: Final[tuple[Gap, ...]] = ("exporter", "kubelet", "page")


# Each look makes one for every row, and a NamedTuple is made in a sixth of a frozen dataclass' time.
class Account(NamedTuple):
    """What one container has had of one device, or what nobody had (`owner` None).

    `labels` are the pod's that go with it (pod_uid, label_…, workload_…). `allocated_ratio` is the part of a physical
    GPU that the container holds now, None where it holds none any more. `amounts` are by name, whole numbers of small
    units, so that sums are exact; one that no page has shown so far is missing. `by_label` has the amounts that are
    counted by a label, such as XIDs by number: by name, then by the label's value. accounts/amounts/ lists all.

    `began_ns` is when all of it was 0, in ns since 1970 by the machine's clock as it is set now. None: it is not known,
    or the labels have changed since, so that the series which they make now goes on with what another one has counted.
    `idle_since_ns` is since when the container has held the device idle without a break; None while it is used, and
    while that is not known.
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
    """The accounts at the moment of the last look that counted, in stable order. Another moment's are another object.

    `gap_ns` is for how long nothing could be seen since `began_ns`, by what was missing. `capacity` counts physical
    GPUs by model, `allocated` says which part of them is held (0 to 1).
    """

    rows: tuple[Account, ...] = ()
    gap_ns: Mapping[str, int] = field(default_factory=lambda: MappingProxyType(dict.fromkeys(GAPS, 0)))
    capacity: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    allocated: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    began_ns: int | None = None
