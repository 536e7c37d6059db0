"""What owners are measured to use, as rows read it. Where nothing is measured nothing more is imported."""

from typing import TYPE_CHECKING

from exporter.model.devices import DeviceKey
from exporter.model.pods import Owner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.model.measured import Measured

# a device and one of its owners
Share = tuple[DeviceKey, Owner]


class MeasuredShares:
    """What owners are measured to use, for rows: by device and owner, only what is known.

    The rows of a page read it while the page is written. `followed_by` changes the values in place as long as it is
    known of the same owners, so that rows need not be made anew.
    """

    def __init__(self, measured: "Measured | None" = None) -> None:
        self.memory_bytes: Mapping[Share, int] = {}
        self.sm_ratios: Mapping[Share, float] = {}
        if measured is not None:
            self.memory_bytes = {
                of: use.memory_bytes for of, use in measured.uses.items() if use.memory_bytes is not None
            }
            self.sm_ratios = {of: use.sm_ratio for of, use in measured.uses.items() if use.sm_ratio is not None}

    def __bool__(self) -> bool:
        return bool(self.memory_bytes or self.sm_ratios)

    def followed_by(self, measured: "Measured | None") -> "MeasuredShares":
        """What is in force from now on: this very object with other values, or another one."""
        now = MeasuredShares(measured)
        if (now.memory_bytes.keys(), now.sm_ratios.keys()) != (self.memory_bytes.keys(), self.sm_ratios.keys()):
            return now
        self.memory_bytes, self.sm_ratios = now.memory_bytes, now.sm_ratios
        return self
