"""The counters of errors on links: NVLink's, and the replays of PCIe. One table for accounts and for health.

Sources: dcgm_fields.h of DCGM 3.3 to 4.6 and go-dcgm's names up to 4.6.1, for dcgm-exporter 3.3 to 4.9. GPUs before
Hopper count in the fields 400 to 496, Hopper in 497 to 499, Blackwell in 1200 to 1220. A field may have several names:
the one with the link at its end (…_L5), the one for all links, and since DCGM 4.6 one of each with the link as the
label `nvlink`.

No error is counted by bandwidths, by bit error rates, by the histogram of forward error correction (FEC_HISTORY), or by
symbols that came wrong, which that correction mends; nor by EFFECTIVE_ERRORS, which nvml.h calls deprecated.

Tests: tests/ownership/test_link_errors.py.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

LinkErrorKind = Literal[
    "replay",
    "recovery",
    "recovery_failed",
    "crc",
    "crc_flit",
    "crc_data",
    "ecc_data",
    "rx_error",
    "malformed_packet",
    "buffer_overrun",
    "remote",
    "general",
    "link_integrity",
    "tx_discard",
    "link_down",
    "pcie_replay",
]
MOST_LINKS: Final = 64
"""No GPU has more NVLinks: Blackwell has 18, Rubin 36 (dcgm_fields.h)."""
LABEL: Final = "nvlink"
"""The label of dcgm-exporter's rows of one link."""
_ALL_LINKS: Final = "all"
# the links that have a name of their own: DCGM has none with more for newer GPUs
_NAMED_LINKS: Final = 18


class LinkErrorWords(NamedTuple):
    """What a kind of errors is called: one of them, and several. `is_fault`: the link is not well if it grows.

    A CRC error is mended by a replay, and is seen as that.
    """

    singular: str
    plural: str
    is_fault: bool = True


KINDS: Final[Mapping[LinkErrorKind, LinkErrorWords]] = {
    "replay": LinkErrorWords("replay", "replays"),
    "recovery": LinkErrorWords("recovery", "recoveries"),
    "recovery_failed": LinkErrorWords("failed recovery", "failed recoveries"),
    "crc": LinkErrorWords("CRC error", "CRC errors", is_fault=False),
    "crc_flit": LinkErrorWords("CRC error of flow control", "CRC errors of flow control", is_fault=False),
    "crc_data": LinkErrorWords("CRC error of data", "CRC errors of data", is_fault=False),
    "ecc_data": LinkErrorWords("ECC error of data", "ECC errors of data"),
    "rx_error": LinkErrorWords("bad packet", "bad packets"),
    "malformed_packet": LinkErrorWords("malformed packet", "malformed packets"),
    "buffer_overrun": LinkErrorWords("packet dropped for lack of space", "packets dropped for lack of space"),
    "remote": LinkErrorWords("packet that the other end marked as bad", "packets that the other end marked as bad"),
    "general": LinkErrorWords("packet with a wrong header", "packets with a wrong header"),
    "link_integrity": LinkErrorWords(
        "time that local errors passed their limit", "times that local errors passed their limit"
    ),
    "tx_discard": LinkErrorWords("discarded packet", "discarded packets", is_fault=False),
    "link_down": LinkErrorWords("time that the link went down", "times that the link went down"),
    "pcie_replay": LinkErrorWords("replay of PCIe", "replays of PCIe", is_fault=False),
}


class LinkCounter(NamedTuple):
    """What a family counts.

    `counter` tells two counters of the same kind apart. DCGM reads the replays of one link from the same counter of
    NVML before Hopper and on it, so it is one counter, although its sum has a name for each.
    `link` is the number in the family's name; "" if a label says it, or if the family counts all links.
    """

    kind: LinkErrorKind
    counter: str
    link: str = ""


# by the row's name in dcgm/table.json; the first word is the kind, the second one tells counters of a kind apart
_ROWS: Mapping[str, LinkCounter] = {
    "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": LinkCounter("crc_flit", "crc_flit"),
    "DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": LinkCounter("crc_data", "crc_data"),
    "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": LinkCounter("replay", "replay"),
    "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": LinkCounter("recovery", "recovery"),
    "DEV_NVLINK_ERROR_DL_CRC": LinkCounter("crc", "crc"),
    "DEV_NVLINK_ERROR_DL_REPLAY": LinkCounter("replay", "replay"),
    "DEV_NVLINK_ERROR_DL_RECOVERY": LinkCounter("recovery", "recovery"),
    "DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL": LinkCounter("ecc_data", "ecc_data"),
    # an event is a recovery, however it ended: NewErrors counts it once
    "DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS": LinkCounter("recovery", "recovery_event"),
    "DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS": LinkCounter("recovery", "recovery_successful"),
    "DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS": LinkCounter("recovery_failed", "recovery_failed"),
    "DEV_NVLINK_COUNT_RX_ERRORS": LinkCounter("rx_error", "rx_error"),
    "DEV_NVLINK_COUNT_RX_MALFORMED_PACKET_ERRORS": LinkCounter("malformed_packet", "malformed_packet"),
    "DEV_NVLINK_COUNT_RX_BUFFER_OVERRUN_ERRORS": LinkCounter("buffer_overrun", "buffer_overrun"),
    "DEV_NVLINK_COUNT_RX_REMOTE_ERRORS": LinkCounter("remote", "remote"),
    "DEV_NVLINK_COUNT_RX_GENERAL_ERRORS": LinkCounter("general", "general"),
    "DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS": LinkCounter("link_integrity", "link_integrity"),
    "DEV_NVLINK_COUNT_TX_DISCARDS": LinkCounter("tx_discard", "tx_discard"),
    "DEV_NVLINK_PPCNT_PHYSICAL_LINK_DOWN_COUNTER": LinkCounter("link_down", "link_down"),
    "DEV_PCIE_REPLAY_COUNTER": LinkCounter("pcie_replay", "pcie_replay"),
}
ROWS: Final = frozenset(_ROWS)
"""The rows of the table of fields that count errors of links."""
# the names of one link: before DCGM 4.6 with the link at the end, since then before _TOTAL
_BY_LINK: Mapping[str, str] = {
    "DEV_NVLINK_CRC_FLIT_ERROR": "crc_flit",
    "DEV_NVLINK_CRC_DATA_ERROR": "crc_data",
    "DEV_NVLINK_REPLAY_ERROR": "replay",
    "DEV_NVLINK_RECOVERY_ERROR": "recovery",
}


def counter_of(row_name: str) -> LinkCounter | None:
    """What a row of the table of fields counts; None if it counts no errors of links."""
    return _ROWS.get(row_name)


def families_of_one_link() -> Iterator[tuple[str, LinkCounter]]:
    """The families of single links, by their whole names. The name says the link, or for …_PER_LINK_TOTAL the label."""
    kinds: Mapping[str, LinkErrorKind] = {counter.counter: counter.kind for counter in _ROWS.values()}
    for stem, counter in _BY_LINK.items():
        yield f"DCGM_FI_{stem}_PER_LINK_TOTAL", LinkCounter(kinds[counter], counter)
        for number in range(_NAMED_LINKS):
            link = str(number)
            of_link = LinkCounter(kinds[counter], counter, link)
            yield f"DCGM_FI_{stem}_COUNT_L{link}", of_link
            yield f"DCGM_FI_{stem}_L{link}_TOTAL", of_link


def link_number(text: str) -> str:
    """The link of a label's text, as it is in JSON and on /metrics; "" if that is no link's number."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MOST_LINKS))
    return str(int(text)) if is_number and int(text) < MOST_LINKS else ""


def count_text(kind: LinkErrorKind, number: int) -> str:
    """A number of errors of a kind, in words: 200 replays."""
    words = KINDS[kind]
    return f"{number:,} {words.singular if number == 1 else words.plural}"


KIND_OF: Final[Mapping[str, LinkErrorKind]] = {counter.counter: counter.kind for counter in _ROWS.values()}
"""The kind of errors that a counter counts."""


def counter_name(counter: str, link: str) -> str:
    """A counter of one link, or of all links ("")."""
    return f"{counter}/{link}"


def counter_name_of_row(counter: str, link: str, label: str) -> str:
    """The `counter_name` of a row, whose link is in the family's name (`link`) or in the label nvlink (`label`).

    Without either it counts all links. "" if the label is no link's number.
    """
    number = link or link_number(label)
    return "" if label and not number else counter_name(counter, number)


class NewErrors:
    """The errors of a GPU's links that are new at a read, by kind and link, of the growth of its counters.

    Counters overlap: two of a link may count the same errors (recoveries, by how they ended), and a counter of the
    whole GPU counts those of all links, of which a page may list only some: on Hopper the fields 497 to 499 are sums
    of what fields of single links count (DcgmCacheManager.cpp asks NVML for NVML_NVLINK_ERROR_DL_… of each). DCGM
    reads them one after the other, so that an error may be in one now, and in the other one at the next read.

    So an error that a counter shows first is new, and another counter of the same errors that follows shows nothing
    new. `behind` has by how much each counter still has to grow for that, by `counter_name`; without zeros.
    """

    def __init__(self, behind: dict[str, int]) -> None:
        self._behind = behind

    def of(self, grown: Mapping[str, int]) -> dict[tuple[LinkErrorKind, str], int]:
        """The new errors, of the growth of every counter that was read before, by `counter_name`; 0 if not this time.

        What a sum shows beyond its links is of the link "".
        """
        by_place: defaultdict[tuple[LinkErrorKind, str], dict[str, int]] = defaultdict(dict)
        for name, number in grown.items():
            counter, _, link = name.partition("/")
            by_place[KIND_OF[counter], link][name] = number
        errors: dict[tuple[LinkErrorKind, str], int] = {}
        of_links: dict[LinkErrorKind, int] = {}
        for (kind, link), counters in by_place.items():
            if link:
                errors[kind, link] = self._most(counters)
                of_links[kind] = of_links.get(kind, 0) + errors[kind, link]
        for (kind, link), counters in by_place.items():
            if not link and kind in of_links:
                self._beside_links(kind, counters, of_links[kind], errors)
            elif not link:
                errors[kind, ""] = self._most(counters)
        return errors

    def _beside_links(
        self,
        kind: LinkErrorKind,
        sums: Mapping[str, int],
        of_links: int,
        errors: dict[tuple[LinkErrorKind, str], int],
    ) -> None:
        """Add the errors that only sums show, and take out those of links that sums have shown before."""
        new = self._most({**sums, f"{kind}/{_ALL_LINKS}": of_links})
        errors[kind, ""] = max(0, new - of_links)
        too_many = max(0, of_links - new)
        for place in [place for place in errors if place[0] == kind and place[1]]:
            less = min(too_many, errors[place])
            errors[place] -= less
            too_many -= less

    def _most(self, grown: Mapping[str, int]) -> int:
        """The errors that are new by any of several counters of the same errors."""
        behind = self._behind
        new = max(0, *(number - behind.get(name, 0) for name, number in grown.items()))
        if len(grown) > 1:
            for name, number in grown.items():
                still = behind.pop(name, 0) + new - number
                if still:
                    behind[name] = still
        return new
