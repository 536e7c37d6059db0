"""The NVLinks of a simulated GPU, and the errors that they count. Pure: all of it follows from seeds and the time.

What a healthy link counts is little. An operator's sweeps of 320 GPUs with 18 links each (marin-community/marin, issue
9086) found every counter at 0 but those of one link, which failed five days later: it had recovered three times in 21
minutes. Here one in twenty of the healthy links has a replay a day besides, since a replay repairs a bit that came
wrong, and no link is free of those. They never recover.

Which families show it depends on the hardware (nvml.h, and DCGM's dcgm_fields.h): up to Ampere NVML counts CRC errors,
replays and recoveries; on Hopper the data link layer (`DL`) does; since Blackwell packets and recoveries are counted.

Tests: tests/simulator/test_links.py.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.simulator.job_phases import chance

_NOISY = 0.05  # the part of the healthy links that has replays
_REPLAY_SECONDS = 86_400.0  # the mean time between two of them
_MOST_BEFORE = 40  # replays from before the simulation began
_REPLAYS_A_RECOVERY = 100
_HOUR = 3600.0


class SimulatedLinkErrors(NamedTuple):
    """What a link, or all links of a GPU, counted since the driver was loaded."""

    crc_flit: int = 0
    crc_data: int = 0
    replays: int = 0
    recoveries: int = 0


class BadLink(NamedTuple):
    """What is wrong with a link since `began` (seconds of the machine).

    It has `per_hour` replays, twice as many after each `doubles_seconds`, and recovers now and then. One that flaps
    goes down and recovers every `flaps_seconds`.
    """

    began: float
    per_hour: float = 0.0
    doubles_seconds: float = math.inf
    flaps_seconds: float = math.inf

    def replays(self, seconds: float) -> float:
        """The replays from its beginning to a moment of the machine."""
        past = max(0.0, seconds - self.began)
        if math.isinf(self.doubles_seconds):
            return self.per_hour * past / _HOUR
        mean_life = self.doubles_seconds / math.log(2)
        return self.per_hour / _HOUR * mean_life * math.expm1(past / mean_life)

    def recoveries(self, seconds: float) -> int:
        """The recoveries from its beginning to a moment of the machine."""
        past = max(0.0, seconds - self.began)
        return int(self.replays(seconds) / _REPLAYS_A_RECOVERY) + int(past / self.flaps_seconds)


@dataclass(slots=True)
class SimulatedLinks:
    """The links of a GPU, by its UUID. `bad` are those with something wrong; `loaded` is when the driver was loaded."""

    uuid: str
    bad: dict[int, BadLink] = field(default_factory=dict)
    loaded: float = -math.inf

    def errors(self, link: int, seconds: float) -> SimulatedLinkErrors:
        """What a link has counted up to a moment of the machine (seconds)."""
        now = self._since_ever(link, seconds)
        if math.isinf(self.loaded):
            return now
        before = self._since_ever(link, self.loaded)
        return SimulatedLinkErrors(*(late - early for late, early in zip(now, before, strict=True)))

    def all_errors(self, links: int, seconds: float) -> SimulatedLinkErrors:
        """What the GPU's first `links` links have counted together."""
        return SimulatedLinkErrors(*map(sum, zip(*(self.errors(link, seconds) for link in range(links)), strict=True)))

    def _since_ever(self, link: int, seconds: float) -> SimulatedLinkErrors:
        replays = 0
        recoveries = 0
        if chance(self.uuid, link, "noisy") < _NOISY:
            begun = chance(self.uuid, link, "replays")
            replays = int(_MOST_BEFORE * begun) + int(seconds / _REPLAY_SECONDS + begun)
        if link in self.bad:
            replays += int(self.bad[link].replays(seconds))
            recoveries = self.bad[link].recoveries(seconds)
        # most replays are for a flow control unit, some for data
        return SimulatedLinkErrors(
            crc_flit=replays - replays // 8, crc_data=replays // 8, replays=replays, recoveries=recoveries
        )


Counts = Mapping[str, Callable[[SimulatedLinkErrors], int]]
_NVML: Counts = {
    "CRC_FLIT_ERROR": lambda errors: errors.crc_flit,
    "CRC_DATA_ERROR": lambda errors: errors.crc_data,
    "REPLAY_ERROR": lambda errors: errors.replays,
    "RECOVERY_ERROR": lambda errors: errors.recoveries,
}
_DATA_LINK: Counts = {
    "ERROR_DL_CRC": lambda errors: errors.crc_flit + errors.crc_data,
    "ERROR_DL_REPLAY": lambda errors: errors.replays,
    "ERROR_DL_RECOVERY": lambda errors: errors.recoveries,
}
_NEVER = ("RX_MALFORMED_PACKET_ERRORS", "RX_BUFFER_OVERRUN_ERRORS", "RX_REMOTE_ERRORS", "RX_GENERAL_ERRORS")
_PACKETS: Counts = {
    "COUNT_LINK_RECOVERY_EVENTS": lambda errors: errors.recoveries,
    "COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS": lambda errors: errors.recoveries,
    "COUNT_LINK_RECOVERY_FAILED_EVENTS": lambda _: 0,
    "COUNT_RX_ERRORS": lambda errors: errors.recoveries,
    **{f"COUNT_{name}": lambda _: 0 for name in (*_NEVER, "LOCAL_LINK_INTEGRITY_ERRORS", "TX_DISCARDS")},
}
_PORT: Counts = {
    "PPCNT_PHYSICAL_SUCCESSFUL_RECOVERY_EVENTS": lambda errors: errors.recoveries,
    "PPCNT_PHYSICAL_LINK_DOWN_COUNTER": lambda _: 0,
}
# since DCGM 4.6
_NEWER_OF_PORT = {
    "PPCNT_PHYSICAL_SUCCESSFUL_RECOVERY_EVENTS": "PPCNT_PHYSICAL_RECOVERY_SUCCESSFUL_TOTAL",
    "PPCNT_PHYSICAL_LINK_DOWN_COUNTER": "PPCNT_PHYSICAL_LINK_DOWN_TOTAL",
}
_DEV = "DCGM_FI_DEV_NVLINK_"
Labels = tuple[tuple[str, str], ...]


class LinkFamily(NamedTuple):
    """A family of links: its name up to DCGM 4.5 and since 4.6, and whether it has a row for each link.

    A row has the link's number in the label nvlink. In other families it is in the name.
    """

    name: str
    newer: str
    has_rows: bool


@dataclass(frozen=True, slots=True)
class NvlinkHardware:
    """NVLinks of a generation of GPUs: how many a GPU has, and what is counted of the GPU and of each link."""

    links: int
    of_gpu: Counts
    of_link: Counts

    def totals(self, links: SimulatedLinks, seconds: float) -> Iterator[tuple[str, int]]:
        """The GPU's counts, each by its family's older name."""
        errors = links.all_errors(self.links, seconds)
        for name, count in self.of_gpu.items():
            yield f"{_DEV}{name}{'_COUNT_TOTAL' if name in _NVML else ''}", count(errors)

    def by_link(self, links: SimulatedLinks, seconds: float) -> Iterator[tuple[str, int | list[tuple[Labels, int]]]]:
        """The counts of each link, by the names of `families`."""
        errors = [links.errors(link, seconds) for link in range(self.links)]
        for name, count in self.of_link.items():
            yield _rows_of(name), [((("nvlink", str(link)),), count(own)) for link, own in enumerate(errors)]
            if name in _NVML:
                yield from ((_name_of(name, link), count(own)) for link, own in enumerate(errors))

    def families(self) -> Iterator[LinkFamily]:
        """The families of its links. NVML's counts have rows since DCGM 4.6 alone."""
        for name in self.of_link:
            if name not in _NVML:
                yield LinkFamily(_rows_of(name), f"{_DEV}{_NEWER_OF_PORT[name]}", has_rows=True)
                continue
            yield LinkFamily("", _rows_of(name), has_rows=True)
            yield from (
                LinkFamily(_name_of(name, link), f"{_DEV}{name}_L{link}_TOTAL", has_rows=False)
                for link in range(self.links)
            )


def _rows_of(name: str) -> str:
    return f"{_DEV}{name}_PER_LINK_TOTAL" if name in _NVML else f"{_DEV}{name}"


def _name_of(name: str, link: int) -> str:
    return f"{_DEV}{name}_COUNT_L{link}"


AMPERE = NvlinkHardware(12, _NVML, _NVML)
HOPPER = NvlinkHardware(18, _DATA_LINK, _NVML)
BLACKWELL = NvlinkHardware(18, _PACKETS, _PORT)
