"""What one look says of a GPU's links: its NVLinks, the fabric behind them, and its PCIe link.

Tests: tests/ownership/test_link_states.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

from exporter.model.nothing import nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieLink:
    """A GPU's PCIe link; a number is None if no source says it.

    `most_lanes` and `highest_generation` are what card and slot can do together, `generation_of_card` is the card's own
    (nvml.h: nvmlDeviceGetMaxPcieLinkWidth, nvmlDeviceGetMaxPcieLinkGeneration, nvmlDeviceGetGpuMaxPcieLinkGeneration).
    """

    lanes: int | None = None
    most_lanes: int | None = None
    generation: int | None = None
    highest_generation: int | None = None
    generation_of_card: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """NVLink's fabric as a GPU sees it; a number is None if no source says it.

    `manager` is a dcgmFabricManagerStatus_t (dcgm_structs.h), which NVML's state and status make, too. `mask` and
    `summary` are nvml.h's NVML_GPU_FABRIC_HEALTH_MASK_… and …_SUMMARY_….
    """

    manager: int | None = None
    mask: int | None = None
    summary: int | None = None


_Facts = TypeVar("_Facts", PcieLink, Fabric)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLinks:
    """A GPU's links.

    Attributes:
        states: of each NVLink by its number, nvml.h's NVML_NVLINK_STATE_…: 0 down, 1 up, 2 asleep.
        counters: errors of single links that NVML counts, by `counter_name` of dcgm/links.py.
        peers: to what an NVLink leads, in words, as far as NVML says it: `GPU 1`, `the NVSwitch`.
    """

    states: Mapping[str, int] = field(default_factory=nothing)
    counters: Mapping[str, int] = field(default_factory=nothing)
    peers: Mapping[str, str] = field(default_factory=nothing)
    pcie: PcieLink = field(default_factory=PcieLink)
    fabric: Fabric = field(default_factory=Fabric)

    def beside(self, other: "GpuLinks") -> "GpuLinks":
        """What both say. If both say a number, this one's counts."""
        return replace(
            self,
            states={**other.states, **self.states},
            counters={**other.counters, **self.counters},
            peers={**other.peers, **self.peers},
            pcie=_merged(self.pcie, other.pcie),
            fabric=_merged(self.fabric, other.fabric),
        )


def _merged(own: _Facts, other: _Facts) -> _Facts:
    names = [column.name for column in fields(own)]
    lacking = {name: getattr(other, name) for name in names if getattr(own, name) is None}
    return replace(own, **lacking)
