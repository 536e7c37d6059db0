"""Bytes of a CUDA binary, and the section headers of an ELF file: a program, a library, an object, or GPU code (cubin).

Of such a file's gigabytes a few tables are read. The form is that of the System V ABI, chapter 4, for 64 bits.
"""

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from exporter.errors import Malformed, MalformedReason


class BadBinary(Malformed):
    """Such a file cannot be read."""

    def __init__(self, reason: MalformedReason, message: str) -> None:
        remedy = "give it a program, a library, an object, a fatbin or a cubin, whole and as the compiler wrote it"
        super().__init__(reason, message, remedy=remedy)


class ProbeReader(Protocol):
    """Bytes that can be read at any place: of a file, or in memory."""

    @property
    def size(self) -> int:
        """How many there are."""

    def read(self, offset: int, size: int) -> bytes:
        """Exactly so many bytes. Raises Malformed: they are not there. OSError: the file cannot be read."""


class InMemory:
    """Bytes that were unpacked, or those of a test."""

    def __init__(self, data: bytes | bytearray) -> None:
        self._data = data
        self.size = len(data)

    def read(self, offset: int, size: int) -> bytes:
        """See `ProbeReader`."""
        _check(offset, size, self.size)
        return bytes(self._data[offset : offset + size])


class InFile:
    """An open file. It is not mapped into memory: if it became shorter, a signal would end the exporter."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        """See `ProbeReader`."""
        _check(offset, size, self.size)
        pieces = []
        while size:
            piece = os.pread(self._descriptor, size, offset)
            if not piece:
                raise BadBinary("truncated", "it became shorter while it was read")
            pieces.append(piece)
            offset, size = offset + len(piece), size - len(piece)
        return b"".join(pieces)


class ProbePart:
    """A part of other bytes, whose places count from its beginning."""

    def __init__(self, whole: ProbeReader, offset: int, size: int) -> None:
        _check(offset, size, whole.size)
        self._whole, self._offset = whole, offset
        self.size = size

    def read(self, offset: int, size: int) -> bytes:
        """See `ProbeReader`."""
        _check(offset, size, self.size)
        return self._whole.read(self._offset + offset, size)


def _check(offset: int, size: int, there: int) -> None:
    if offset < 0 or size < 0 or offset + size > there:
        raise BadBinary("truncated", f"{size} bytes at {offset:#x} are named, and there are {there} in all")


ELF_MAGIC = b"\x7fELF"
_HEADER = struct.Struct("<4sBBBBB7xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_64_BITS, _LITTLE_ENDIAN = 2, 1
_INDEX_ELSEWHERE = 0xFFFF  # SHN_XINDEX: the first section's header says which

# A cubin has some five sections a kernel. A file with more than this was made to keep a reader busy.
MOST_SECTIONS = 500_000
MOST_TABLE_BYTES = 64 << 20


class ElfSection(NamedTuple):
    """A section header, in the order of its fields in the file. `name_at` is a place in the table of names."""

    name_at: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Elf:
    """What an ELF file says of itself, and its sections. `kind` is e_type, `names` the table of sections' names."""

    machine: int
    kind: int
    os_abi: int
    flags: int
    sections: Sequence[ElfSection]
    names: bytes

    def is_named(self, section: ElfSection, name: bytes) -> bool:
        """Whether this is the section's whole name."""
        return self.names.startswith(name + b"\0", section.name_at)

    def begins_with(self, section: ElfSection, prefix: bytes) -> bool:
        """Whether the section's name begins with these bytes."""
        return self.names.startswith(prefix, section.name_at)


def read_elf(reader: ProbeReader) -> Elf:
    """A file's header and those of its sections. Raises Malformed: no ELF of 64 bits, or a bad table; OSError."""
    if reader.size < len(ELF_MAGIC) or reader.read(0, len(ELF_MAGIC)) != ELF_MAGIC:
        raise BadBinary("garbage", "it is not an ELF file")
    head = _HEADER.unpack(reader.read(0, _HEADER.size))
    _, bits, order, _, os_abi, _, kind, machine, _, _, _, table_at, flags, _, _, _, entry_size, count, names_in = head
    if (bits, order) != (_64_BITS, _LITTLE_ENDIAN):
        raise BadBinary("garbage", "it is an ELF file, and not one of 64 bits, little-endian")
    if not table_at:
        return Elf(machine=machine, kind=kind, os_abi=os_abi, flags=flags, sections=(), names=b"")
    if entry_size != _SECTION.size:
        raise BadBinary("garbage", f"its section headers have {entry_size} bytes, not {_SECTION.size}")
    first = ElfSection._make(_SECTION.unpack(reader.read(table_at, _SECTION.size)))
    count = count or first.size
    if count > MOST_SECTIONS:
        raise BadBinary("oversize", f"it has {count} sections; {MOST_SECTIONS} is the most that is read")
    sections = tuple(map(ElfSection._make, _SECTION.iter_unpack(reader.read(table_at, count * _SECTION.size))))
    names_in = first.link if names_in == _INDEX_ELSEWHERE else names_in
    if names_in >= len(sections):
        raise BadBinary("garbage", f"its sections have their names in section {names_in}, of {len(sections)}")
    names = read_table(reader, sections[names_in])
    return Elf(machine=machine, kind=kind, os_abi=os_abi, flags=flags, sections=sections, names=names)


def read_table(reader: ProbeReader, section: ElfSection, most_bytes: int = MOST_TABLE_BYTES) -> bytes:
    """What stands in a section. Raises Malformed: more than `most_bytes`, or not all there. OSError."""
    if section.size > most_bytes:
        raise BadBinary("oversize", f"a table of {section.size} bytes; {most_bytes} is the most that is read")
    return reader.read(section.offset, section.size)
