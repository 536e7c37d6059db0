"""What owners are measured to use, as rows read it. Where nothing is measured nothing more is imported."""

from types import MappingProxyType
from typing import TYPE_CHECKING

from exporter.model.devices import DeviceKey
from exporter.model.pods import Owner

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from exporter.model.measured import Measured

# a device and one of its owners
Share = tuple[DeviceKey, Owner]


class MeasuredShares:
    """What owners are measured to use, for rows: by device and owner, only what is known.

    `nobodys_sm_ratios` is what the processes of nobody use, by device; 0 where there are none. `sm_ns` is as in
    `Measured`. The rows of a page read it while the page is written. `followed_by` changes the values in place as long
    as they are known of the same owners, so that rows need not be made anew.
    """

    def __init__(self, measured: "Measured | None" = None) -> None:
        self.memory_bytes: Mapping[Share, int] = {}
        self.sm_ratios: Mapping[Share, float] = {}
        self.nobodys_sm_ratios: Mapping[DeviceKey, float] = {}
        self.sm_ns: Mapping[DeviceKey, Mapping[Owner | None, int]] = MappingProxyType({})
        if measured is not None:
            uses, nobodys = measured.uses, measured.nobodys
            self.memory_bytes = {of: use.memory_bytes for of, use in uses.items() if use.memory_bytes is not None}
            self.sm_ratios = {of: use.sm_ratio for of, use in uses.items() if use.sm_ratio is not None}
            devices = dict.fromkeys(device for device, _ in uses)
            ratios = {device: nobodys[device].sm_ratio if device in nobodys else 0.0 for device in devices}
            self.nobodys_sm_ratios = {device: ratio for device, ratio in ratios.items() if ratio is not None}
            self.sm_ns = measured.sm_ns

    def __bool__(self) -> bool:
        return bool(self.memory_bytes or self.sm_ratios)

    def have_memory(self, shares: "Iterable[Share]") -> bool:
        """Whether the memory of all of these is known."""
        return all(share in self.memory_bytes for share in shares)

    def have_sm(self, shares: "Iterable[Share]") -> bool:
        """Whether the utilisation of all of these is known."""
        return all(share in self.sm_ratios for share in shares)

    def followed_by(self, measured: "Measured | None") -> "MeasuredShares":
        """What is in force from now on: this very object with other values, or another one."""
        now = MeasuredShares(measured)
        if (
            now.memory_bytes.keys() != self.memory_bytes.keys()
            or now.sm_ratios.keys() != self.sm_ratios.keys()
            or now.nobodys_sm_ratios.keys() != self.nobodys_sm_ratios.keys()
        ):
            return now
        self.memory_bytes, self.sm_ratios = now.memory_bytes, now.sm_ratios
        self.nobodys_sm_ratios, self.sm_ns = now.nobodys_sm_ratios, now.sm_ns
        return self
