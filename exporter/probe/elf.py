"""The readers of ELF files (System V ABI, chapters 4 and 5, for 64 bits and little-endian).

The first reader finds functions in a file, for uprobes. A uprobe needs an offset in the file; a symbol has an address,
which the program headers translate to an offset.

The files belong to containers, so nothing in them is trusted: every size and number has a limit, and pread reads a
piece at a time. They are not mapped into memory, where a file that shrinks would end the exporter with SIGBUS.
pyelftools makes an object of every symbol, which takes seconds for the hundred thousand of a large program. This reader
searches the table of strings for the names, and then the table of symbols for the places of those names.

The second reader reads the section headers of a file that is or has GPU code (cubin): a few tables of gigabytes.
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

# The most bytes of a table's symbols and strings together. Chromium with all its symbols has some 100 MB.
MOST_TABLE_BYTES = 128 * 1024 * 1024
MOST_SEGMENTS = 1_024
# The most segments with code. A linker writes one; each symbol is looked up in all of them.
MOST_CODE_SEGMENTS = 16
# The longest search of a file, in CPU seconds of this thread: the file is not to blame for a busy machine.
MOST_SECONDS = 1.0
# The most places of names. A linker stores a name inside a longer one with the same end, as setenv inside unsetenv.
MOST_PLACES = 4_096
MOST_VERSIONS = 16
# The most places of all functions. Each costs the kernel time for every mapping of the file. CUDA's libraries have
# some 40.
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
_LOADED = 1
_EXECUTABLE = 1
SYMBOL_TABLE = 2
_STRINGS = 3
_DYNAMIC_SYMBOLS = 11
_UNDEFINED = 0
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
# st_info: binding (local, global, weak) and type (2 is a function, 1 a variable). A local variable is not the variable
# that libraries mean by its name; a local function may be a global function that the linker has made local.
_FUNCTIONS = frozenset({0x02, 0x12, 0x22})
_VARIABLES = frozenset({0x11, 0x21})


class BadElf(ExporterError):
    """No function can be found in a file. `reason` says why."""

    def __init__(self, reason: ElfReason) -> None:
        super().__init__(reason)
        self.reason: ElfReason = reason


# Offset and size of a table of symbols, and those of its strings, in bytes of the file.
_SymbolTable = tuple[int, int, int, int]


def function_offsets(file: int, wanted: Collection[str], machine: str | None = None) -> Mapping[str, tuple[int, ...]]:
    """The offsets of the wanted functions that the file has, in ascending order.

    A function has several offsets if the file has several versions of it. `file` is a descriptor at any position.
    `machine` is this machine's architecture unless it is given.

    Raises:
        BadElf: the file has none of the functions, is no ELF file of this machine, or takes too long.
        OSError: the file cannot be read.
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
    """The distance of a variable from a mapping of the file; None if the file has no variable of these names.

    The variable's address in a process is the start of the mapping plus this distance. `mapped` is the offset in the
    file at which the executable mapping begins. A table of symbols above `most_table_bytes` is not searched.

    Raises:
        BadElf: the file is no ELF file of this machine, or has no such executable segment.
        OSError: the file cannot be read.
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
        # the parts of the file with code
        self._segments: list[tuple[int, int, int]] = [
            (offset, address, file_bytes)
            for kind, flags, offset, address, _, file_bytes, _, _ in _SEGMENT.iter_unpack(
                self._read(segments, segment_count * _SEGMENT.size)
            )
            if kind == _LOADED and flags & _EXECUTABLE
        ]
        if len(self._segments) > MOST_CODE_SEGMENTS:
            raise BadElf("too_large")
        # at most 65,535 sections: a larger number stands elsewhere, and this field is 0
        self._tables = self._find_tables(self._read(sections, shape[1] * _SECTION.size))

    def symbols(self, wanted: frozenset[str], kinds: frozenset[int]) -> Iterator[tuple[str, int]]:
        """The name and address of each wanted symbol of these kinds that the file defines."""
        for offset, size, strings_offset, strings_size in self._tables:
            names = self._places_of_names(strings_offset, strings_size, wanted)
            if not names:
                continue
            for symbols in self._pieces(offset, size - size % SYMBOL.size, 0):
                for name, info, _, section, address, _ in SYMBOL.iter_unpack(symbols):
                    if name in names and info in kinds and section != _UNDEFINED:
                        yield names[name], address

    def offset_of(self, address: int) -> int | None:
        """The offset in the file of an address with code; None if there is no code."""
        for begin, begin_address, file_bytes in self._segments:
            if 0 <= address - begin_address < file_bytes:
                offset = begin + address - begin_address
                return offset if offset < self._size else None
        return None

    def address_of(self, offset: int) -> int:
        """The address of the offset in the file at which an executable mapping begins."""
        for begin, begin_address, file_bytes in self._segments:
            # a mapping begins at a page's start, so it may begin up to a page before its segment
            if begin - _PAGE_BYTES < offset < begin + file_bytes:
                return begin_address + offset - begin
        raise BadElf("damaged")

    def _find_tables(self, sections: bytes) -> list[_SymbolTable]:
        """The tables of symbols. A file has one of each kind."""
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
        """The wanted names, by their offsets in the table's strings."""
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
        """A part of the file, piece by piece. Each piece ends with the first `overlap` bytes of the next piece."""
        if offset + size > self._size:
            raise BadElf("damaged")
        for at in range(offset, offset + size, _PIECE_BYTES):
            if time.thread_time() > self._until:
                raise BadElf("too_slow")
            yield self._read(at, min(_PIECE_BYTES + overlap, offset + size - at))

    def _read(self, offset: int, size: int) -> bytes:
        if offset + size <= self._size and len(content := os.pread(self._file, size, offset)) == size:
            return content
        raise BadElf("damaged")  # or the file has shrunk meanwhile


@lru_cache(maxsize=8)
def _search_for(wanted: frozenset[str]) -> tuple[re.Pattern[bytes], Mapping[bytes, tuple[str, ...]], int]:
    """A pattern for all names, the names that each name ends with, and the longest match.

    The pattern's group is a name. A name also has the names that it ends with. The common beginning of all names stands
    before the choice, so that the search skips quickly.
    """
    names = sorted(wanted)
    common = os.path.commonprefix(names)  # noqa: RUF071 - no paths, and of these it does what is wanted
    choice = "|".join(re.escape(name[len(common) :]) for name in names)
    ends = {name.encode(): tuple(other for other in names if name.endswith(other)) for name in names}
    pattern = re.compile(f"({re.escape(common)}(?:{choice}))\0".encode())
    return pattern, ends, max(map(len, names), default=0) + 1


class BadBinary(Malformed):
    """A file with GPU code cannot be read."""

    def __init__(self, reason: MalformedReason, message: str) -> None:
        remedy = "give it a program, a library, an object, a fatbin or a cubin, whole and as the compiler wrote it"
        super().__init__(reason, message, remedy=remedy)


class ByteRegion:
    """Bytes that can be read at any offset: a file, bytes in memory, or a part of one of these."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        """`read` gets an offset and a number of bytes. It is only called for bytes within `size`."""
        self._read = read
        self.size = size

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes. Raises Malformed: the region is shorter; OSError: the file cannot be read."""
        self._check(offset, size)
        return self._read(offset, size)

    def part(self, offset: int, size: int) -> "ByteRegion":
        """A part of the region, with its own offsets. Raises Malformed: the region is shorter."""
        self._check(offset, size)
        return ByteRegion(lambda place, most: self.read(offset + place, most), size)

    def _check(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise BadBinary("truncated", f"{size} bytes at {offset:#x} are named, and there are {self.size} in all")


def in_memory(data: bytes | bytearray) -> ByteRegion:
    """The region of bytes in memory."""
    return ByteRegion(lambda offset, size: bytes(data[offset : offset + size]), len(data))


def in_file(descriptor: int) -> ByteRegion:
    """The region of an open file, which is not mapped: if the file became shorter, a signal would end the exporter."""

    def read(offset: int, size: int) -> bytes:
        pieces = []
        while size:
            piece = os.pread(descriptor, size, offset)
            if not piece:
                raise BadBinary("truncated", "it became shorter while it was read")
            pieces.append(piece)
            offset += len(piece)
            size -= len(piece)
        return b"".join(pieces)

    return ByteRegion(read, os.fstat(descriptor).st_size)


_INDEX_ELSEWHERE = 0xFFFF  # SHN_XINDEX: the first section's header has the index
# A cubin has some five sections for each kernel. A file with more than this was made to keep a reader busy.
_MOST_SECTIONS = 500_000
_MOST_SECTION_BYTES = 64 << 20


class ElfSection(NamedTuple):
    """A section header, with its fields in the file's order. `name_at` is an offset in the table of names."""

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
    """The header of an ELF file, and its sections. `kind` is e_type, `names` the table of the sections' names."""

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
    """Read a file's header and section headers.

    Raises Malformed: it is no ELF file of 64 bits, or has a bad table; OSError: the file cannot be read.
    """
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
    """The content of a section.

    Raises Malformed: it is larger than `most_bytes`, or cut off; OSError: the file cannot be read.
    """
    if section.size > most_bytes:
        raise BadBinary("oversize", f"a table of {section.size} bytes; {most_bytes} is the most that is read")
    return reader.read(section.offset, section.size)
