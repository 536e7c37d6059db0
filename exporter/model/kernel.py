"""Errors of GPUs and NVSwitches in the kernel's log.

Tests: tests/ownership/test_kernel_events.py.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from exporter.model.devices import DeviceKey
from exporter.model.pods import Owner, PodName

# An XID of a GPU, an SXID of an NVSwitch, a GPU that the driver could not reach when it looked for GPUs, an error of
# PCI Express (AER).
EventKind = Literal["xid", "sxid", "lost", "pcie"]
Severity = Literal["", "corrected", "nonfatal", "fatal"]


_PCI = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2})(?::([0-9a-f]{2})(?:\.([0-7]))?)?", re.IGNORECASE)


def pci_address(text: str) -> str:
    """A PCI address as Linux writes it (0000:65:00.0), made of 00000000:65:00.0, 0000:65:00 or 0000:65.

    "" for other text.
    """
    match = _PCI.fullmatch(text)
    if match is None:
        return ""
    domain, bus, slot, function = match.groups()
    return f"{domain.lstrip('0').zfill(4)}:{bus}:{slot or '00'}.{function or '0'}".lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvent:
    """One error, as a record of the kernel's log says it.

    `sequence` is the record's number, `booted_us` its time in microseconds since the machine has booted (without time
    asleep). `address` is the device's address on PCI: 0000:65:00.0. `code` is the number of an XID or SXID, otherwise
    None. `instance` is the GPU_I_ID; "" if the error concerns the whole GPU. `pid` is the host's pid. If the driver
    does not say whose channel it was, `pid` is None and `process` is "". `text` is the rest of the record, printable
    and on one line.
    """

    kind: EventKind
    sequence: int
    booted_us: int
    address: str
    code: int | None = None
    severity: Severity = ""
    instance: str = ""
    pid: int | None = None
    process: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEvent:
    """An event with its moment (seconds since 1970), its GPU ("" if it is not known) and the GPU's holders then.

    `holders` is None if the GPU changed hands about that time, so that nobody can say who held it. `container` is the
    container of the process, if the exporter measures which processes run on the GPU. `pod_uids` are the UIDs of the
    holders' pods, as far as they are known: another pod may bear the same name by now.
    """

    event: KernelEvent
    at_seconds: float
    uuid: str = ""
    index: str = ""
    holders: tuple[Owner, ...] | None = ()
    container: Owner | None = None
    pod_uids: tuple[tuple[PodName, str], ...] = ()


# The number of XIDs, by device, holder (None: nobody, or several) and the XID's number.
XidCounts = Mapping[tuple[DeviceKey, Owner | None, int], int]
