"""What real drivers and kernels have printed (tests/data/kernel-log), and what hostile programs may have printed."""

import json
import re
from typing import Any

import pytest

from exporter.dcgm.xids import OTHER_XID, XIDS
from exporter.model.kernel import KernelEvent, pci_address
from exporter.sources.kernel_log.kernel_lines import EventReader, Record, may_be_event, read_record
from tests.support.places import DATA

WHOLE = "0000:65:00.0"


def read(*messages: str, prefix: str = "3,{},1000000,-;") -> list[KernelEvent]:
    """The events of these messages, one record each."""
    reader = EventReader()
    lines = [(prefix.format(number) + message).encode() for number, message in enumerate(messages, 1)]
    records = [record for line in lines if may_be_event(line) and (record := read_record(line))]
    return [event for record in records if (event := reader.read(record))]


LINES = [line for line in (DATA / "kernel-log" / "lines.txt").read_text().splitlines() if not line.startswith("#")]
FORMS: list[tuple[str, dict[str, Any]]] = [
    (message, json.loads(expected)) for message, expected in zip(LINES[::2], LINES[1::2], strict=True)
]


# issue 30, line 2
@pytest.mark.parametrize(("message", "expected"), FORMS, ids=[message[:60] for message, _ in FORMS])
def test_a_real_line_is_read(message: str, expected: dict[str, Any]) -> None:
    (event,) = read(message)
    usual: dict[str, Any] = {
        "kind": "xid",
        "code": None,
        "address": WHOLE,
        "severity": "",
        "instance": "",
        "pid": None,
        "process": "",
    }
    usual |= {"sequence": 1, "booted_us": 1_000_000, "text": event.text}
    assert event == KernelEvent(**{**usual, **expected})


# issue 30, line 2
@pytest.mark.parametrize(
    "message",
    [
        # lines beside an event
        "NVRM: GPU 0000:65:00.0: GPU has fallen off the bus.",
        "NVRM: GPU Board Serial Number: 0322716036227",
        "NVRM: The NVIDIA probe routine failed for 1 device(s).",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Severity 0 Engine instance 32 Sub-engine instance 00",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Data {0x00140004, 0x00100000, 0x00000000}",
        "pcieport 0000:00:03.1: AER: Correctable error message received from 0000:65:00.0",
        "nvidia 0000:65:00.0:   device [10de:2330] error status/mask=00000001/0000e000",
        # cut
        "NVRM: Xid (PCI:0000:65:00): 7",
        "NVRM: Xid (PCI:0000:65:00): 79",
        "NVRM: Xid (PCI:0000:65",
        "NVRM: Xid (PCI:0000:66:00): abc, pid=2280636",
        "NVRM: Xid error: xyz, invalid data",
        # what a program may have logged of it: its name stands first, and has 15 bytes
        "NVRM: Xid (PCI:[4711]: segfault at 0 ip 00007f sp 00007f error 4 in x[400000+1000]",
        "python3[1]: NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.",
        " NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.",
    ],
)
def test_another_line_is_no_event(message: str) -> None:
    assert read(message) == []


# issue 30, line 2
def test_a_lost_gpu_may_be_printed_in_three_records() -> None:
    lost, unsupported, interrupted = (
        ("NVRM: The NVIDIA GPU 0000:b3:00.0", "NVRM: (PCI ID: 10de:26b5) installed in this system has", end)
        for end in (
            "NVRM: fallen off the bus and is not responding to commands.",
            "NVRM: not supported by open nvidia.ko",
            "NVRM: loading NVIDIA UNIX Open Kernel Module",
        )
    )
    (event,) = read(*lost)
    assert (event.kind, event.address, event.sequence) == ("lost", "0000:b3:00.0", 3)
    assert read(*unsupported) == []
    assert read(*interrupted, "nvidia-nvswitch0: open", "NVRM: fallen off the bus") == []


# issue 30, line 2
def test_hostile_text_is_made_printable_and_short() -> None:
    name = r"\x1b[2J\x0aNVRM: X"
    (event,) = read(f"NVRM: Xid (PCI:0000:65:00): 13, pid=7, name={name}, \\xff\\xe2\\x80\\xae" + "x" * 100_000)
    assert (event.code, event.pid) == (13, 7)
    assert event.process == "[2J NVRM: X"
    assert event.text.isprintable()
    assert len(event.text) <= 400


def test_a_name_with_a_comma_costs_only_the_text() -> None:
    (event,) = read("NVRM: Xid (PCI:0000:65:00): 13, pid=7, name=a), 79, x, Ch 00000001")
    assert (event.code, event.pid, event.process) == (13, 7, "a)")


def test_the_driver_names_a_gpu_beside_its_first_error() -> None:
    reader = EventReader()
    for number, line in enumerate(
        (
            b"NVRM: GPU at PCI:0000:65:00: GPU-660D987e-5b28-3bf6-2a2d-1d5ecae7f6df",
            b"NVRM: GPU at 0000:03:00: GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7",
            b"NVRM: GPU at 0000:04:00: GPU-b850f46d",
        )
    ):
        assert reader.read(Record(number, 1, line)) is None
    assert reader.uuids == {
        "0000:65:00.0": "GPU-660d987e-5b28-3bf6-2a2d-1d5ecae7f6df",
        "0000:03:00.0": "GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7",
    }


def test_a_record_has_its_number_and_time_in_every_age_of_linux() -> None:
    for prefix in (
        b"6,339,5140900,-;",
        b"6,339,5140900,-,caller=T123;",
        b"30,339,5140900,c;",
        b"6,339,5140900,-,a=1,b=2;",
    ):
        assert read_record(prefix + b"a;b") == (339, 5140900, b"a;b")
    for line in (
        b"",
        b"NVRM: Xid",
        b"6,339;x",
        b"6,-1,5,-;x",
        b"6,339,5.5,-;x",
        b"6," + b"9" * 50 + b",5,-;x",
        b" A=b",
    ):
        assert read_record(line) is None


@pytest.mark.parametrize("text", ["00000000:65:00.0", "0000:65:00", "0000:65:00.0", "0000:65"])
def test_an_address_has_one_form(text: str) -> None:
    assert pci_address(text) == WHOLE
    assert pci_address("000000018:0A:1f.3".removeprefix("0")) == "0018:0a:1f.3"


def test_the_catalogue_says_of_each_xid_what_to_do() -> None:
    for number, xid in XIDS.items():
        assert xid.name
        assert number == 0 or (xid.cause and xid.remedy), number
    assert 35 <= len(XIDS) <= 120
    assert {79, 62, 48, 63, 64, 74, 94, 95, 119, 120, 149, 154} <= XIDS.keys()
    assert re.search("https://", OTHER_XID.remedy)
