"""ELF files (System V ABI, chapters 4 and 5, for 64 bits and little-endian).

First, where functions stand in one, for uprobes. A uprobe is put at an offset of the file; a symbol has an address,
which the program headers translate to an offset.

The files are those of containers, so nothing in them is trusted: every size and number has a limit, and every place is
read by pread, a piece at a time. They are not mapped into memory, where a file that shrinks would end the exporter with
SIGBUS. pyelftools makes an object of every symbol: seconds for a large program's hundred thousand. Here the table of
strings is searched for the names, and then the table of symbols for the places of those names.

Then, the section headers of a file that may be GPU code (cubin), or have some: of its gigabytes a few tables are read.
"""

import os
import re
import struct
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from exporter.errors import ExporterError, Malformed, MalformedReason

ElfReason = Literal[
    "not_elf", "other_architecture", "too_large", "too_slow", "too_many_places", "damaged", "no_functions"
]

# Symbols and strings of one table together. Chromium with all of its symbols has some 100 MB.
MOST_TABLE_BYTES = 128 * 1024 * 1024
MOST_SEGMENTS = 1_024
# A linker writes one segment with code. Each symbol is looked up in all of them.
MOST_CODE_SEGMENTS = 16
# How long one file may be searched, in seconds of this thread on a CPU: that the machine is busy is not its fault.
MOST_SECONDS = 1.0
# The linker merges names by their ends: unsetenv may hold setenv. No linker writes one name more often than this.
MOST_PLACES = 4_096
MOST_VERSIONS = 16
# Places of all functions: each costs the kernel time for every mapping of the file. CUDA's libraries have some 40.
MOST_PROBED = 96
_PIECE_BYTES = 24 * 43_690  # 1 MiB, in whole symbols

_MACHINES = {"x86_64": 62, "aarch64": 183}
_MAGIC = b"\x7fELF"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
_64_BITS_LITTLE_ENDIAN = b"\x02\x01"
_PROGRAMS = frozenset({2, 3})  # an executable, a shared object
_LOADED, _EXECUTABLE = 1, 1
SYMBOL_TABLE, _STRINGS, _DYNAMIC_SYMBOLS = 2, 3, 11
_UNDEFINED = 0
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
# st_info: binding (local, global, weak) and type (2 is a function, 1 a variable). A local variable is another one than
# what libraries know by its name; a local function may be what the linker has made of a global one.
_FUNCTIONS = frozenset({0x02, 0x12, 0x22})
_VARIABLES = frozenset({0x11, 0x21})


class BadElf(ExporterError):
    """A file in which no function can be found; `reason` says why."""

    def __init__(self, reason: ElfReason) -> None:
        super().__init__(reason)
        self.reason: ElfReason = reason


# Offset and size of a table of symbols, and those of its strings, in bytes of the file.
_SymbolTable = tuple[int, int, int, int]


def function_offsets(file: int, wanted: Collection[str], machine: str | None = None) -> Mapping[str, tuple[int, ...]]:
    """The places in the file of those of the wanted functions that it has, in ascending order.

    `file` is a descriptor; where it stands does not matter. `machine` is this machine's unless given. A function has
    several places where the file has several versions of it. Raises BadElf: it has none of them, or cannot be read as
    an ELF file of this machine, or not in time. OSError: reading fails.
    """
    elf = _SymbolSearch(file, machine)
    places: dict[str, set[int]] = {}
    for name, address in elf.symbols(frozenset(wanted), _FUNCTIONS):
        if (offset := elf.offset_of(address)) is not None:
            of_name = places.setdefault(name, set())
            of_name.add(offset)
            if len(of_name) > MOST_VERSIONS:
                raise BadElf("damaged")
    if not places:
        raise BadElf("no_functions")
    if len(set().union(*places.values())) > MOST_PROBED:
        raise BadElf("too_many_places")
    return {name: tuple(sorted(of_name)) for name, of_name in places.items()}


def variable_address(
    file: int, names: Collection[str], mapped: int, machine: str | None = None, most_table_bytes: int = MOST_TABLE_BYTES
) -> int | None:
    """How far a variable is from where the file is mapped; None where the file has no variable of these names.

    `mapped` is the offset of an executable mapping: the variable's address in the process is the mapping's start plus
    what this returns. A file with a larger table of symbols than `most_table_bytes` is not searched. Raises BadElf: it
    cannot be read as an ELF file of this machine, or has no such executable segment. OSError: reading fails.
    """
    elf = _SymbolSearch(file, machine, most_table_bytes)
    symbol = next(elf.symbols(frozenset(names), _VARIABLES), None)
    return None if symbol is None else symbol[1] - elf.address_of(mapped)


class _SymbolSearch:
    def __init__(self, file: int, machine: str | None, most_table_bytes: int = MOST_TABLE_BYTES) -> None:
        self._file = file
        self._until = time.thread_time() + MOST_SECONDS
        self._most_table_bytes = most_table_bytes
        self._size = os.fstat(file).st_size
        header = os.pread(file, _HEADER.size, 0)
        if len(header) < _HEADER.size or header[:4] != _MAGIC:
            raise BadElf("not_elf")
        identity, kind, of_machine, _, _, segments, sections, _, _, segment_size, segment_count, *shape = (
            _HEADER.unpack(header)
        )
        if identity[4:6] != _64_BITS_LITTLE_ENDIAN or of_machine != _MACHINES.get(machine or os.uname().machine):
            raise BadElf("other_architecture")
        if kind not in _PROGRAMS:
            raise BadElf("not_elf")
        if segment_size != _SEGMENT.size or shape[0] not in {0, _SECTION.size}:
            raise BadElf("damaged")
        if segment_count > MOST_SEGMENTS:
            raise BadElf("too_large")
        # parts of the file with code
        self._segments: list[tuple[int, int, int]] = [
            (offset, address, file_bytes)
            for kind, flags, offset, address, _, file_bytes, _, _ in _SEGMENT.iter_unpack(
                self._read(segments, segment_count * _SEGMENT.size)
            )
            if kind == _LOADED and flags & _EXECUTABLE
        ]
        if len(self._segments) > MOST_CODE_SEGMENTS:
            raise BadElf("too_large")
        # 65,535 sections at most: with more, their number stands elsewhere and is 0 here
        self._tables = self._find_tables(self._read(sections, shape[1] * _SECTION.size))

    def symbols(self, wanted: frozenset[str], kinds: frozenset[int]) -> Iterator[tuple[str, int]]:
        """Name and address of each symbol that is wanted, of these kinds and defined here."""
        for offset, size, strings_offset, strings_size in self._tables:
            names = self._places_of_names(strings_offset, strings_size, wanted)
            if not names:
                continue
            for symbols in self._pieces(offset, size - size % SYMBOL.size, 0):
                for name, info, _, section, address, _ in SYMBOL.iter_unpack(symbols):
                    if name in names and info in kinds and section != _UNDEFINED:
                        yield names[name], address

    def offset_of(self, address: int) -> int | None:
        """The place in the file of an address with code; None where there is no code."""
        for begin, begin_address, file_bytes in self._segments:
            if 0 <= address - begin_address < file_bytes:
                offset = begin + address - begin_address
                return offset if offset < self._size else None
        return None

    def address_of(self, offset: int) -> int:
        """The address of a place in the file at which an executable mapping begins."""
        for begin, begin_address, file_bytes in self._segments:
            # a mapping begins at a page, so up to a page before its segment
            if begin - _PAGE_BYTES < offset < begin + file_bytes:
                return begin_address + offset - begin
        raise BadElf("damaged")

    def _find_tables(self, sections: bytes) -> list[_SymbolTable]:
        """The tables of symbols, of which a file has one of each kind."""
        headers = list(_SECTION.iter_unpack(sections))
        tables: dict[int, _SymbolTable] = {}
        for _, kind, _, _, offset, size, link, _, _, entry_size in headers:
            if kind not in {SYMBOL_TABLE, _DYNAMIC_SYMBOLS} or kind in tables:
                continue
            if entry_size != SYMBOL.size or link >= len(headers) or headers[link][1] != _STRINGS:
                raise BadElf("damaged")
            strings_offset, strings_size = headers[link][4:6]
            if size + strings_size > self._most_table_bytes:
                raise BadElf("too_large")
            tables[kind] = offset, size, strings_offset, strings_size
        return list(tables.values())

    def _places_of_names(self, offset: int, size: int, wanted: frozenset[str]) -> dict[int, str]:
        """The wanted names by where they stand in the table's strings."""
        pattern, ends, longest = _search_for(wanted)
        places: dict[int, str] = {}
        for number, strings in enumerate(self._pieces(offset, size, longest)):
            for match in pattern.finditer(strings):
                end = number * _PIECE_BYTES + match.end(1)
                places.update((end - len(name), name) for name in ends[match[1]])
                if len(places) > MOST_PLACES:
                    raise BadElf("damaged")
        return places

    def _pieces(self, offset: int, size: int, overlap: int) -> Iterator[bytes]:
        """A part of the file, piece by piece, each with the first bytes of the next one."""
        if offset + size > self._size:
            raise BadElf("damaged")
        for at in range(offset, offset + size, _PIECE_BYTES):
            if time.thread_time() > self._until:
                raise BadElf("too_slow")
            yield self._read(at, min(_PIECE_BYTES + overlap, offset + size - at))

    def _read(self, offset: int, size: int) -> bytes:
        if offset + size <= self._size and len(content := os.pread(self._file, size, offset)) == size:
            return content
        raise BadElf("damaged")  # or it has shrunk meanwhile


@lru_cache(maxsize=8)
def _search_for(wanted: frozenset[str]) -> tuple[re.Pattern[bytes], Mapping[bytes, tuple[str, ...]], int]:
    """One pattern for all names, whose group is a name, and how long a match may be.

    Between these: for each name those that it ends with, which so stand at the same place. What all names begin with
    stands before the choice, so that the search skips quickly.
    """
    names = sorted(wanted)
    common = os.path.commonprefix(names)  # noqa: RUF071 - no paths, and of these it does what is wanted
    choice = "|".join(re.escape(name[len(common) :]) for name in names)
    ends = {name.encode(): tuple(other for other in names if name.endswith(other)) for name in names}
    pattern = re.compile(f"({re.escape(common)}(?:{choice}))\0".encode())
    return pattern, ends, max(map(len, names), default=0) + 1


class BadBinary(Malformed):
    """Such a file cannot be read."""

    def __init__(self, reason: MalformedReason, message: str) -> None:
        remedy = "give it a program, a library, an object, a fatbin or a cubin, whole and as the compiler wrote it"
        super().__init__(reason, message, remedy=remedy)


class ByteRegion:
    """Bytes that can be read at any place: a file's, or some in memory, or a part of these with places of its own."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        """`read` is asked for a place and for bytes that are there."""
        self._read = read
        self.size = size

    def read(self, offset: int, size: int) -> bytes:
        """Exactly so many bytes. Raises Malformed: they are not there. OSError: the file cannot be read."""
        self._check(offset, size)
        return self._read(offset, size)

    def part(self, offset: int, size: int) -> "ByteRegion":
        """So many of the bytes. Raises Malformed: they are not there."""
        self._check(offset, size)
        return ByteRegion(lambda place, most: self.read(offset + place, most), size)

    def _check(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise BadBinary("truncated", f"{size} bytes at {offset:#x} are named, and there are {self.size} in all")


def in_memory(data: bytes | bytearray) -> ByteRegion:
    """Bytes that were unpacked, or those of a test."""
    return ByteRegion(lambda offset, size: bytes(data[offset : offset + size]), len(data))


def in_file(descriptor: int) -> ByteRegion:
    """An open file. It is not mapped into memory: if it became shorter, a signal would end the exporter."""

    def read(offset: int, size: int) -> bytes:
        pieces = []
        while size:
            piece = os.pread(descriptor, size, offset)
            if not piece:
                raise BadBinary("truncated", "it became shorter while it was read")
            pieces.append(piece)
            offset, size = offset + len(piece), size - len(piece)
        return b"".join(pieces)

    return ByteRegion(read, os.fstat(descriptor).st_size)


_INDEX_ELSEWHERE = 0xFFFF  # SHN_XINDEX: the first section's header says which
# A cubin has some five sections a kernel. A file with more than this was made to keep a reader busy.
_MOST_SECTIONS = 500_000
_MOST_SECTION_BYTES = 64 << 20


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


def read_elf(reader: ByteRegion) -> Elf:
    """A file's header and those of its sections. Raises Malformed: no ELF of 64 bits, or a bad table; OSError."""
    if reader.size < len(_MAGIC) or reader.read(0, len(_MAGIC)) != _MAGIC:
        raise BadBinary("garbage", "it is not an ELF file")
    head = _HEADER.unpack(reader.read(0, _HEADER.size))
    identity, kind, machine, _, _, _, table_at, flags, _, _, _, entry_size, count, names_in = head
    if identity[4:6] != _64_BITS_LITTLE_ENDIAN:
        raise BadBinary("garbage", "it is an ELF file, and not one of 64 bits, little-endian")
    if not table_at:
        return Elf(machine=machine, kind=kind, os_abi=identity[7], flags=flags, sections=(), names=b"")
    if entry_size != _SECTION.size:
        raise BadBinary("garbage", f"its section headers have {entry_size} bytes, not {_SECTION.size}")
    first = ElfSection._make(_SECTION.unpack(reader.read(table_at, _SECTION.size)))
    count = count or first.size
    if count > _MOST_SECTIONS:
        raise BadBinary("oversize", f"it has {count} sections; {_MOST_SECTIONS} is the most that is read")
    sections = tuple(map(ElfSection._make, _SECTION.iter_unpack(reader.read(table_at, count * _SECTION.size))))
    names_in = first.link if names_in == _INDEX_ELSEWHERE else names_in
    if names_in >= len(sections):
        raise BadBinary("garbage", f"its sections have their names in section {names_in}, of {len(sections)}")
    names = read_table(reader, sections[names_in])
    return Elf(machine=machine, kind=kind, os_abi=identity[7], flags=flags, sections=sections, names=names)


def read_table(reader: ByteRegion, section: ElfSection, most_bytes: int = _MOST_SECTION_BYTES) -> bytes:
    """What stands in a section. Raises Malformed: more than `most_bytes`, or not all there. OSError."""
    if section.size > most_bytes:
        raise BadBinary("oversize", f"a table of {section.size} bytes; {most_bytes} is the most that is read")
    return reader.read(section.offset, section.size)
