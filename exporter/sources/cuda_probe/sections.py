"""The section headers of an ELF file of 64 bits: a CUDA program, a library, an object, or GPU code (a cubin).

System V ABI, chapter 4: file header, section headers, string tables. Programs and GPUs of 32 bits are long out of use.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exporter.errors import Malformed
from exporter.sources.cuda_probe.reader import REMEDY, Reader

ELF_MAGIC = b"\x7fELF"
_HEADER = struct.Struct("<4sBBBBB7xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_64_BITS, _LITTLE_ENDIAN = 2, 1
_INDEX_ELSEWHERE = 0xFFFF  # SHN_XINDEX: the first section's header says which

# A cubin has some five sections a kernel. What is above has been made to keep a reader busy.
MOST_SECTIONS = 500_000
MOST_TABLE_BYTES = 64 << 20


class Section(NamedTuple):
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
    sections: Sequence[Section]
    names: bytes

    def is_named(self, section: Section, name: bytes) -> bool:
        """Whether this is the section's whole name."""
        return self.names.startswith(name + b"\0", section.name_at)

    def begins_with(self, section: Section, prefix: bytes) -> bool:
        """Whether the section's name begins with these bytes."""
        return self.names.startswith(prefix, section.name_at)


def read_elf(reader: Reader) -> Elf:
    """The header of an ELF file and those of its sections.

    Raises:
        Malformed: it is no ELF file of 64 bits, or its tables are not where it says, or too large.
        OSError: see `Reader`.
    """
    if reader.size < len(ELF_MAGIC) or reader.read(0, len(ELF_MAGIC)) != ELF_MAGIC:
        raise Malformed("garbage", "it is not an ELF file", remedy=REMEDY)
    head = _HEADER.unpack(reader.read(0, _HEADER.size))
    _, bits, order, _, os_abi, _, kind, machine, _, _, _, table_at, flags, _, _, _, entry_size, count, names_in = head
    if (bits, order) != (_64_BITS, _LITTLE_ENDIAN):
        raise Malformed("garbage", "it is an ELF file, and not one of 64 bits, little-endian", remedy=REMEDY)
    if not table_at:
        return Elf(machine=machine, kind=kind, os_abi=os_abi, flags=flags, sections=(), names=b"")
    if entry_size != _SECTION.size:
        raise Malformed("garbage", f"its section headers have {entry_size} bytes, not {_SECTION.size}", remedy=REMEDY)
    first = Section._make(_SECTION.unpack(reader.read(table_at, _SECTION.size)))
    count = count or first.size
    if count > MOST_SECTIONS:
        raise Malformed("oversize", f"it has {count} sections; {MOST_SECTIONS} is the most that is read", remedy=REMEDY)
    sections = tuple(map(Section._make, _SECTION.iter_unpack(reader.read(table_at, count * _SECTION.size))))
    names_in = first.link if names_in == _INDEX_ELSEWHERE else names_in
    if names_in >= len(sections):
        raise Malformed(
            "garbage", f"its sections have their names in section {names_in}, of {len(sections)}", remedy=REMEDY
        )
    names = read_table(reader, sections[names_in])
    return Elf(machine=machine, kind=kind, os_abi=os_abi, flags=flags, sections=sections, names=names)


def read_table(reader: Reader, section: Section, most_bytes: int = MOST_TABLE_BYTES) -> bytes:
    """What stands in a section.

    Raises:
        Malformed: it is larger than `most_bytes`, or not all there.
        OSError: see `Reader`.
    """
    if section.size > most_bytes:
        raise Malformed(
            "oversize", f"a table of {section.size} bytes; {most_bytes} is the most that is read", remedy=REMEDY
        )
    return reader.read(section.offset, section.size)
