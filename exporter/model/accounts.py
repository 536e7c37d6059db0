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
_NO_COUNTS: Mapping[str, int] = MappingProxyType({})


# Each look makes one for every row, and a NamedTuple is made in a sixth of a frozen dataclass' time.
class Account(NamedTuple):
    """What one container has had of one device, or what nobody has (`owner` None).

    Times are in nanoseconds of a physical GPU, energy in microjoules: whole numbers, so that sums are exact. None is
    what nothing on the page told so far. `allocated_ratio` is the part of a physical GPU that is held now, None where
    it is held no longer. `labels` are those of the pod that go with it (pod_uid, label_…, workload_…). `xids` counts
    errors by XID, `throttled_ns` times by reason. `observed_ns` is the part of `allocated_ns` whose activity is known.
    """

    owner: Owner | None
    device: DeviceKey
    labels: AddedLabels = ()
    allocated_ratio: float | None = None
    allocated_ns: int | None = None
    active_ns: int | None = None
    idle_ns: int | None = None
    energy_uj: int | None = None
    xids: Mapping[str, int] = _NO_COUNTS
    throttled_ns: Mapping[str, int] = _NO_COUNTS
    observed_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accounts:
    """The accounts at the moment of the last look that counted, in stable order. Another moment's are another object.

    `gap_ns` is for how long nothing could be seen, by what was missing. `capacity` counts physical GPUs by model,
    `allocated` says which part of them is held (0 to 1).
    """

    rows: tuple[Account, ...] = ()
    gap_ns: Mapping[str, int] = field(default_factory=lambda: MappingProxyType(dict.fromkeys(GAPS, 0)))
    capacity: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    allocated: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
