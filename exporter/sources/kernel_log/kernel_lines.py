r"""Lines of /dev/kmsg → errors of GPUs and NVSwitches. Pure.

A record is `<priority>,<sequence>,<microseconds>,<flags>[,…];<message>` on one line (Linux' ABI/testing/dev-kmsg).
Lines after it that begin with a blank describe its device. The kernel writes bytes that are not printable as \xNN.

A form must match from the beginning of a message. A program may have its own name logged there (`<name>[<pid>]:
segfault …`), but a name has at most 15 bytes, which is too short to look like one of these forms.

    NVRM: Xid (PCI:0000:65:00 GPU-I:05): 94, pid=7194, name=python3, Contained: …      a GPU
    nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up    an NVSwitch
    nvidia 0000:65:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=…     the kernel itself
    nvidia 0000:65:00.0: AER: aer_status: 0x00100000, aer_mask: 0x00000000             the firmware, by the kernel
    NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: …) installed in this system has\nNVRM: fallen off the bus and …

kernel_rc.c of NVIDIA's open kernel modules prints XIDs. With MIG it prints the instances. For an unknown process it
prints `pid='<unknown>', name=<unknown>` up to R565, and nothing since then. Drivers of ten years ago print no `PCI:`,
no pid or no name. Two more lines give the numbers of an SXID. nv-pci.c prints a lost GPU in one record of three lines,
or in three records.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from exporter.model.kernel import EventKind, KernelEvent, Severity, pci_address
from exporter.wording import one_line

MOST_TEXT = 400  # characters
MOST_GPUS = 256
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")
_PCI = r"(?P<address>[0-9a-f]{4,8}:[0-9a-f]{2}(?::[0-9a-f]{2}(?:\.[0-7])?)?)"
_PROCESS = r"(?: pid=(?:(?P<pid>\d{1,10})|'?<[^>]*>'?),?)?(?: name=(?P<process>[^,]*),?)?"
_LOST = "fallen off the bus"
_SENTENCE = f"NVRM: The NVIDIA GPU {_PCI}"
_XID = (
    rf"NVRM: Xid \((?:PCI:)?{_PCI}(?: GPU-I:0*(?P<instance>\d+))?(?: [^)]*)?\): (?P<code>\d{{1,4}}),{_PROCESS}"
    r" ?(?P<text>(?:\w+ (?P<severity>Fatal|Nonfatal) )?.*)"  # XIDs of NVLink since Blackwell have a severity
)
_SXID = (
    rf"nvidia-nvswitch\d+:? SXid \(PCI:{_PCI}\): (?P<code>\d{{1,6}}), (?P<severity>Fatal|Non-fatal), "
    r"(?P<text>.*)"
)
_AER = (
    rf"[\w-]+ {_PCI}: (?:AER: )?"
    r"(?P<text>(?:PCIe Bus Error: severity=(?P<severity>[\w-]+(?: \([\w-]+\))?)|aer_status: ).*)"
)
_FORMS: Mapping[EventKind, re.Pattern[str]] = {
    "xid": re.compile(_XID, re.IGNORECASE | re.DOTALL),
    "sxid": re.compile(_SXID, re.IGNORECASE | re.DOTALL),
    "pcie": re.compile(_AER, re.IGNORECASE | re.DOTALL),
    "lost": re.compile(rf"{_SENTENCE}(?P<text>.*{_LOST}.*)", re.IGNORECASE | re.DOTALL),
}
_BEGUN = re.compile(_SENTENCE, re.IGNORECASE)
_UUID = re.compile(rf"NVRM: GPU at (?:PCI:)?{_PCI}: (?P<uuid>GPU-[0-9a-f-]{{36}})", re.IGNORECASE)
# parts of the words that stand for a severity: Linux 6.11 changed Corrected to Correctable, Uncorrected (Fatal) to
# Uncorrectable (Fatal), and so on
_SEVERITIES: tuple[tuple[str, Severity], ...] = (
    ("non", "nonfatal"),
    ("fatal", "fatal"),
    ("uncorrect", "nonfatal"),
    ("correct", "corrected"),
)
_MARKS = (b";NVRM: ", b";nvidia-nvswitch", b"PCIe Bus Error", b"aer_status")
_FIELDS = 4
_DIGITS = 19


class Record(NamedTuple):
    """A record: its number, its time in microseconds since the machine booted, and its message."""

    sequence: int
    booted_us: int
    message: bytes


def read_record(line: bytes) -> Record | None:
    """The record of a line; None if the line is no record."""
    prefix, _, message = line.partition(b";")
    fields = prefix.split(b",")
    if len(fields) < _FIELDS or not all(field.isdigit() and len(field) <= _DIGITS for field in fields[:3]):
        return None
    return Record(int(fields[1]), int(fields[2]), message)


class EventReader:
    """Reads records one after the other. `uuids` are the UUIDs that the driver printed with a GPU's first XID."""

    def __init__(self) -> None:
        self.uuids: dict[str, str] = {}
        self._begun = ""  # the begin of a sentence that may go on in the next record

    def read(self, record: Record) -> KernelEvent | None:
        """The event of a record; None if the record is no error of a GPU or NVSwitch."""
        text = _ESCAPE.sub(lambda escape: bytes([int(escape[1], 16)]), record.message).decode("utf-8", "replace")
        begun = self._begun
        self._begun = ""
        for kind, form in _FORMS.items():
            if match := form.match(text):
                return _event(kind, record, match)
        if (named := _UUID.match(text)) and len(self.uuids) < MOST_GPUS:
            self.uuids[pci_address(named["address"])] = "GPU-" + named["uuid"][4:].lower()
        elif _BEGUN.match(text):
            self._begun = text
        elif begun and text.startswith("NVRM: ") and len(begun) < MOST_TEXT:
            whole = f"{begun} {text}"
            if match := _FORMS["lost"].match(whole):
                return _event("lost", record, match)
            self._begun = whole
        return None


def may_be_event(line: bytes) -> bool:
    """Whether a line may be an event. It is cheap, and most lines are none."""
    return any(mark in line for mark in _MARKS)


def _event(kind: EventKind, record: Record, match: re.Match[str]) -> KernelEvent:
    """The event in a record whose text has matched the pattern of its kind. A group that is absent gives "" or None."""
    values = {name: value or "" for name, value in match.groupdict().items()}
    word = values.get("severity", "").lower()
    return KernelEvent(
        kind=kind,
        sequence=record.sequence,
        booted_us=record.booted_us,
        address=pci_address(values["address"]),
        code=int(values["code"]) if values.get("code") else None,
        severity=next((severity for part, severity in _SEVERITIES if part in word), ""),
        instance=values.get("instance", ""),
        pid=int(values["pid"]) if values.get("pid") else None,
        process=one_line(values.get("process", "")[:MOST_TEXT]).replace("<unknown>", ""),
        text=one_line(values["text"][:MOST_TEXT]),
    )
