"""A cubin: the ELF file of GPU code for one architecture, and what its kernels take.

NVIDIA documents the tools that show this (cuobjdump, nvdisasm), not the format. The fields were found in what ptxas
11.8, 12.4, 12.9 and 13.0 write for sm_35 to sm_120, next to the figures that `ptxas -v` prints; the tests hold both
together. A kernel is a function whose symbol is marked as an entry. Its code is in the section .text.<kernel>; sections
that belong to it, .nv.shared.<kernel> and .nv.constant<bank>.<kernel>, name that section by its index (sh_info). What
else is known of a function stands in .nv.info, by its symbol.
"""

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from exporter.errors import Malformed
from exporter.sources.cuda_probe.reader import REMEDY, Reader
from exporter.sources.cuda_probe.sections import Elf, Section, read_elf, read_table

EM_CUDA = 190
_RELOCATABLE = 1  # ET_REL: not yet linked with other GPU code
_NEW_OS_ABI = 0x41  # since CUDA 13.0; 0x33 before
_SYMBOL_TABLE = 2  # SHT_SYMTAB
_FUNCTION, _ENTRY = 2, 0x10  # STT_FUNC in st_info, STO_CUDA_ENTRY in st_other
_SYMBOL = struct.Struct("<IBBHQQ")

# Since sm_90 each block has so much of its static shared memory for the system; ptxas does not count it, nor do we.
_RESERVED_SHARED_BYTES, _RESERVES_SINCE = 1024, 90

# .nv.info is a list of attributes: form, number, then a value of two bytes, or for one form its length and bytes
_ATTRIBUTE = struct.Struct("<BBH")
_LENGTH_AND_BYTES = 4  # EIFMT_SVAL
_OF_FUNCTION = struct.Struct("<II")  # symbol, value
_REGISTERS, _FRAME_BYTES, _STACK_BYTES = 0x2F, 0x11, 0x12  # EIATTR_REGCOUNT, _FRAME_SIZE, _MIN_STACK_SIZE

MOST_INFO_BYTES = 8 << 20
# Templates of templates have names of some 4,000 characters.
MOST_NAME_BYTES = 8192
_MOST_BYTES_OF_NAMES = 64 << 20


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a kernel takes. None where the file does not say.

    `registers` and `stack_bytes` are each thread's, `shared_bytes` each block's, what is asked for at launch not
    included. `constant_bytes` is in the kernel's own banks: its parameters, and constants that the compiler made.
    """

    name: str
    code_bytes: int
    registers: int | None
    shared_bytes: int
    constant_bytes: int
    stack_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cubin:
    """The kernels of a cubin. It is relocatable where it is still to be linked with other GPU code."""

    number: int
    is_relocatable: bool
    kernels: tuple[Kernel, ...]


def read_cubin(reader: Reader, most_kernels: int) -> Cubin:
    """The kernels of a cubin, in the file's order.

    Raises:
        Malformed: it is none, or its tables are not where it says, or too large; it has more than `most_kernels`.
        OSError: see `Reader`.
    """
    elf = read_elf(reader)
    if elf.machine != EM_CUDA:
        raise Malformed(
            "garbage", f"it is an ELF file for machine {elf.machine}, not for GPUs ({EM_CUDA})", remedy=REMEDY
        )
    number = (elf.flags >> 8 if elf.os_abi == _NEW_OS_ABI else elf.flags) & 0xFF
    is_relocatable = elf.kind == _RELOCATABLE
    registers, stacks = _of_functions(reader, elf)
    reserved = _RESERVED_SHARED_BYTES if number >= _RESERVES_SINCE and not is_relocatable else 0
    shared, constant = _bytes_by_code(elf, b".nv.shared."), _bytes_by_code(elf, b".nv.constant")
    kernels: list[Kernel] = []
    name_bytes = 0
    for symbol, name, in_section in _entries(reader, elf):
        name_bytes += len(name)
        if len(kernels) == most_kernels or name_bytes > _MOST_BYTES_OF_NAMES:
            raise Malformed("oversize", "it has more kernels than are read of one file", remedy=REMEDY)
        code = elf.sections[in_section]
        kernels.append(
            Kernel(
                name=name,
                code_bytes=code.size,
                registers=registers.get(symbol, (code.info >> 24) or None),
                shared_bytes=max(shared[in_section] - reserved, 0),
                constant_bytes=constant[in_section],
                stack_bytes=stacks.get(symbol),
            )
        )
    return Cubin(number=number, is_relocatable=is_relocatable, kernels=tuple(kernels))


def _entries(reader: Reader, elf: Elf) -> Iterator[tuple[int, str, int]]:
    """Of each kernel the index of its symbol, its name, and the index of the section with its code."""
    table = next((section for section in elf.sections if section.kind == _SYMBOL_TABLE), None)
    if table is None:
        return
    if table.link >= len(elf.sections):
        raise Malformed(
            "garbage", f"its symbols have their names in section {table.link}, of {len(elf.sections)}", remedy=REMEDY
        )
    names = read_table(reader, elf.sections[table.link])
    symbols = read_table(reader, table)
    symbols = symbols[: len(symbols) - len(symbols) % _SYMBOL.size]
    for number, (name_at, kind, other, in_section, _, _) in enumerate(_SYMBOL.iter_unpack(symbols)):
        if other & _ENTRY and kind & 0xF == _FUNCTION and in_section < len(elf.sections):
            yield number, _name(names, name_at), in_section


def _name(names: bytes, place: int) -> str:
    end = names.find(b"\0", place, place + MOST_NAME_BYTES)
    return names[place : end if end >= 0 else place + MOST_NAME_BYTES].decode("ascii", "backslashreplace")


def _bytes_by_code(elf: Elf, prefix: bytes) -> Counter[int]:
    """The sizes of the sections whose names begin so, summed for each section of code that they belong to."""
    sizes: Counter[int] = Counter()
    for section in elf.sections:
        if section.info and elf.begins_with(section, prefix):
            sizes[section.info] += section.size
    return sizes


def _of_functions(reader: Reader, elf: Elf) -> tuple[dict[int, int], dict[int, int]]:
    """Registers and stack of each function, by the index of its symbol."""
    registers: dict[int, int] = {}
    frames: dict[int, int] = {}
    stacks: dict[int, int] = {}
    by_attribute = {_REGISTERS: registers, _FRAME_BYTES: frames, _STACK_BYTES: stacks}
    section = next((section for section in elf.sections if elf.is_named(section, b".nv.info")), None)
    if section is not None:
        for attribute, value in _attributes(reader, section):
            if attribute in by_attribute and len(value) >= _OF_FUNCTION.size:
                symbol, count = _OF_FUNCTION.unpack_from(value)
                by_attribute[attribute][symbol] = count
    return registers, {**frames, **stacks}


def _attributes(reader: Reader, section: Section) -> Iterator[tuple[int, bytes]]:
    """The attributes that have bytes, until the end or until one is longer than what is there."""
    data, place = read_table(reader, section, MOST_INFO_BYTES), 0
    while place + _ATTRIBUTE.size <= len(data):
        form, number, length = _ATTRIBUTE.unpack_from(data, place)
        place += _ATTRIBUTE.size
        if form == _LENGTH_AND_BYTES:
            yield number, data[place : place + length]
            place += length
