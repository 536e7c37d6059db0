"""CUDA binaries put together by hand: what no compiler writes. What nvcc writes is in tests/data/cuda/."""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from exporter.probe.cuda_binary import Kernel
from exporter.probe.elf import ByteRegion
from tests.support.places import DATA

CUDA = DATA / "cuda"
PTX, CUBIN, LTO = 1, 2, 8
LZ4, ZSTD = 0x2000, 0x8000
EM_X86_64, EM_CUDA = 62, 190

# of the kernels in kernels.cu
PARAMETER_BYTES = {
    "saxpy": 24, "_Z9block_sumPKfPf": 16, "_Z12on_the_stackIdLi64EEvPKi3BigPT_": 176, "given_shared": 16, "calls": 8,
}  # fmt: skip
# ptxas no longer says for these: where a kernel's parameters begin in its bank of constants, and end it
PARAMETERS_AT = {90: 0x210, 120: 0x380}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    name: bytes
    data: bytes = b""
    kind: int = 1
    info: int = 0
    link: int = 0
    size: int | None = None  # another than that of `data`
    offset: int | None = None


def elf(
    sections: Sequence[Section], *, machine: int = EM_X86_64, kind: int = 2, flags: int = 0, os_abi: int = 0
) -> bytes:
    """An ELF file with these sections, from index 1 on, and after them the one with their names."""
    names, places = b"\0", []
    for name in (*(section.name for section in sections), b".shstrtab"):
        places.append(len(names))
        names += name + b"\0"
    body, headers = b"", [bytes(64)]
    for section, place in zip((*sections, Section(name=b".shstrtab", data=names, kind=3)), places, strict=True):
        offset = 64 + len(body) if section.offset is None else section.offset
        size = len(section.data) if section.size is None else section.size
        fields = place, section.kind, 0, 0, offset, size, section.link, section.info, 1, 0
        headers.append(struct.pack("<IIQQQQIIQQ", *fields))
        body += section.data
    last = len(headers) - 1
    head = struct.pack(
        "<4sBBBBB7xHHIQQQIHHHHHH",
        b"\x7fELF", 2, 1, 1, os_abi, 0, kind, machine, 1, 0, 0, 64 + len(body), flags, 64, 0, 0, 64, last + 1, last,
    )  # fmt: skip
    return head + body + b"".join(headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    name: bytes = b"f"
    other: int = 0x10  # a kernel
    code: int = 1  # the index of its section
    name_at: int | None = None  # a place in the table of names, where the name itself is not written


def cubin(functions: Sequence[Function], sections: Sequence[Section], **fields: int) -> bytes:
    """A cubin for sm_80 with these sections, then the symbols of these functions, from index 1 on."""
    names, symbols = b"\0", bytes(24)
    for function in functions:
        name_at = len(names) if function.name_at is None else function.name_at
        symbols += struct.pack("<IBBHQQ", name_at, 0x12, function.other, function.code, 0, 0)
        names += function.name + b"\0" if function.name_at is None else b""
    tables = [
        Section(name=b".strtab", data=names, kind=3),
        Section(name=b".symtab", data=symbols, kind=2, link=len(sections) + 1),
    ]
    return elf([*sections, *tables], **{"machine": EM_CUDA, "flags": 0x500550, "os_abi": 0x33, **fields})


def attributes(*triples: tuple[int, int, int]) -> bytes:
    """.nv.info: of each triple the attribute, the symbol and the value."""
    return b"".join(struct.pack("<BBHII", 4, attribute, 8, symbol, value) for attribute, symbol, value in triples)


def entry(
    image: bytes, kind: int = CUBIN, number: int = 80, flags: int = 0x11, unpacked: int = 0, header: int = 64
) -> bytes:
    padded = image + bytes(-len(image) % 8)
    packed = len(image) if unpacked else 0
    fields = kind, 0x101, header, len(padded), packed, 0, 0, 1, number, 0, 0, flags, 0, unpacked
    return (struct.pack("<HHIQIIHHIIIQQQ", *fields) + bytes(64))[:header] + padded


def fatbin(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def program(*fatbins: bytes, name: bytes = b".nv_fatbin") -> bytes:
    return elf([Section(name=b".text", data=b"code"), Section(name=name, data=b"".join(fatbins))])


class Counted(ByteRegion):
    """Counts the bytes that it gave. What reaches beyond the end is refused, and costs nothing."""

    def __init__(self, data: bytes) -> None:
        super().__init__(self._give, len(data))
        self._data = data
        self.asked = 0

    def _give(self, offset: int, size: int) -> bytes:
        self.asked += size
        return self._data[offset : offset + size]


def said_by_ptxas(text: str, number: int) -> dict[str, Kernel]:
    """The figures of `ptxas -v`, by kernel; of code it says nothing."""
    kernels = {}
    for part in text.split("Compiling entry function ")[1:]:
        name = part.split("'")[1]
        frame = re.search(rf"properties for {re.escape(name)}\s+(\d+) bytes stack frame", part)
        used = re.search(r"Used (\d+) registers.*", part)
        assert frame is not None
        assert used is not None
        shared = re.search(r"(\d+) bytes smem", used[0])
        constants = [int(found) for found in re.findall(r"(\d+) bytes cmem\[\d+\]", used[0])]
        kernels[name] = Kernel(
            name=name,
            code_bytes=0,
            registers=int(used[1]),
            shared_bytes=int(shared[1]) if shared else 0,
            constant_bytes=sum(constants) or PARAMETERS_AT[number] + PARAMETER_BYTES[name],
            stack_bytes=int(frame[1]),
        )
    return kernels
