"""The rows of a shared device whose owners' use is measured: each owner's own value, and what nobody's is."""

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from exporter.accounting.measured import FREE, MEMORY, UTILIZATION, WORK, memory_texts, utilization_texts, work_texts
from exporter.attribution.labels import SPLIT
from exporter.attribution.measured_shares import MeasuredShares
from exporter.model.devices import DeviceKey
from exporter.model.pages import Row, Rows, ShareValues
from exporter.model.pods import Owner


class _How(Enum):
    MEMORY = auto()
    FREE = auto()
    UTILIZATION = auto()
    WORK = auto()


# how a family's values are made, and the unit of memory or of utilisation; equal ones make the same rows
Measurable = tuple[_How, int]


class MeasuredRows:
    """Makes the rows of families that are measured, while `shares` know of the owners."""

    def __init__(self, shares: MeasuredShares, sharing: str, nobodys: Row) -> None:
        """`nobodys` is the row without an owner."""
        self._shares = shares
        self._nobodys = nobodys
        self._nobody = Rows((nobodys,))
        measurable: dict[bytes, Measurable] = {family: (_How.MEMORY, unit) for family, unit in MEMORY.items()}
        measurable |= {family: (_How.UTILIZATION, full) for family, full in UTILIZATION.items()}
        if sharing == SPLIT:
            measurable |= dict.fromkeys(FREE, (_How.FREE, 0))
            measurable |= dict.fromkeys(WORK, (_How.WORK, 0))
        self.measurable: Mapping[bytes, Measurable] = measurable

    def of(
        self, measurable: Measurable, device: DeviceKey, owners: Sequence[Owner], rows: Sequence[Row]
    ) -> Rows | None:
        """The rows of a device with their values; None where not all of them are known.

        `rows` are those of `owners`. The one without an owner comes last, where the values add up.
        """
        known, shares = self._shares, [(device, owner) for owner in owners]
        match measurable:
            case _How.MEMORY, unit if known.have_memory(shares):
                return Rows((*rows, self._nobodys), _memory_values(known, device, owners, unit))
            case _How.FREE, _ if known.have_memory(shares):
                return self._nobody
            case _How.UTILIZATION, full if known.have_sm(shares):
                return Rows(tuple(rows), _utilization_values(known, device, owners, full))
            case _How.WORK, _ if known.have_sm(shares) and device in known.nobodys_sm_ratios:
                return Rows((*rows, self._nobodys), _work_values(known, device, owners))
        return None

    def times(self, device: DeviceKey) -> Mapping[Owner | None, int] | None:
        """For how long the kernels of each owner have run, by the measurement of this moment; None for unknown."""
        return self._shares.sm_ns.get(device)


def _memory_values(known: MeasuredShares, device: DeviceKey, owners: Sequence[Owner], unit_bytes: int) -> ShareValues:
    def values(_: bytes, value: bytes) -> list[bytes]:
        return memory_texts(value, [known.memory_bytes[device, owner] for owner in owners], unit_bytes)

    return values


def _utilization_values(known: MeasuredShares, device: DeviceKey, owners: Sequence[Owner], full: int) -> ShareValues:
    def values(_: bytes, value: bytes) -> list[bytes]:
        return utilization_texts(value, [known.sm_ratios[device, owner] for owner in owners], full)

    return values


def _work_values(known: MeasuredShares, device: DeviceKey, owners: Sequence[Owner]) -> ShareValues:
    def values(_: bytes, value: bytes) -> list[bytes]:
        ratios = [known.sm_ratios[device, owner] for owner in owners]
        return work_texts(value, ratios, known.nobodys_sm_ratios[device])

    return values
