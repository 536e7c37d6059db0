"""The reader of a file's GPU code: all kernels in all fatbins of a program, with limits on the work.

Only `doctor` uses it: kernels have too many names to be values of a label.

A cubin is the ELF file of GPU code for an architecture. NVIDIA documents the tools that show it (cuobjdump, nvdisasm),
not the format. The fields were found in files of ptxas 11.8, 12.4, 12.9 and 13.0 for sm_35 to sm_120, beside the output
of `ptxas -v`; the tests compare the two. A kernel is a function whose symbol is marked as an entry. The section
.text.<kernel> has its code. The sections .nv.shared.<kernel> and .nv.constant<bank>.<kernel> name that section by its
index (sh_info). .nv.info has the other facts about a function, by its symbol.
"""

import struct
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from exporter.errors import Malformed, Unavailable
from exporter.model.nothing import nothing
from exporter.probe.elf import (
    SYMBOL,
    SYMBOL_TABLE,
    BadBinary,
    ByteRegion,
    Elf,
    ElfSection,
    in_memory,
    read_elf,
    read_table,
)
from exporter.probe.fatbin import MAGIC_BYTES, MOST_IMAGE_BYTES, Image, read_images, unpack
from exporter.sources.source import Clock

EM_CUDA = 190
_RELOCATABLE = 1  # ET_REL: not yet linked with other GPU code
_NEW_OS_ABI = 0x41  # since CUDA 13.0; 0x33 before
# STT_FUNC in st_info, STO_CUDA_ENTRY in st_other
_FUNCTION = 2
_ENTRY = 0x10

# Since sm_90 the system takes this much of each block's static shared memory. Neither ptxas nor this module counts it.
_RESERVED_SHARED_BYTES = 1024
_RESERVES_SINCE = 90

# .nv.info is a list of attributes: form, number, then a value of two bytes, or for one form its length and bytes
_ATTRIBUTE = struct.Struct("<BBH")
_LENGTH_AND_BYTES = 4  # EIFMT_SVAL
_OF_FUNCTION = struct.Struct("<II")  # symbol, value
# EIATTR_REGCOUNT, _FRAME_SIZE, _MIN_STACK_SIZE
_REGISTERS = 0x2F
_FRAME_BYTES = 0x11
_STACK_BYTES = 0x12

MOST_INFO_BYTES = 8 << 20
# Templates of templates have names of some 4,000 characters.
MOST_NAME_BYTES = 8192
_MOST_BYTES_OF_NAMES = 64 << 20


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's resources; None if the file does not say.

    Attributes:
        name: the kernel's name.
        code_bytes: the size of its code.
        registers: the registers of each thread.
        shared_bytes: the static shared memory of each block; a launch may ask for more.
        constant_bytes: the size of the kernel's constant banks.
        stack_bytes: the stack of each thread.
    """

    name: str
    code_bytes: int
    registers: int | None
    shared_bytes: int
    constant_bytes: int
    stack_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cubin:
    """The kernels of a cubin for the architecture `number`. A relocatable cubin is not yet linked with other code."""

    number: int
    is_relocatable: bool
    kernels: tuple[Kernel, ...]


def read_cubin(reader: ByteRegion, most_kernels: int) -> Cubin:
    """The kernels of a cubin, in the file's order.

    Raises:
        Malformed: it is no cubin, its tables are too large or not at their places, or it has over `most_kernels`.
        OSError: see `ByteRegion`.
    """
    elf = read_elf(reader)
    if elf.machine != EM_CUDA:
        raise BadBinary("garbage", f"it is an ELF file for machine {elf.machine}, not for GPUs ({EM_CUDA})")
    number = (elf.flags >> 8 if elf.os_abi == _NEW_OS_ABI else elf.flags) & 0xFF
    is_relocatable = elf.kind == _RELOCATABLE
    registers, stacks = _of_functions(reader, elf)
    reserved = _RESERVED_SHARED_BYTES if number >= _RESERVES_SINCE and not is_relocatable else 0
    shared = _bytes_by_code(elf, b".nv.shared.")
    constant = _bytes_by_code(elf, b".nv.constant")
    kernels: list[Kernel] = []
    name_bytes = 0
    for symbol, name, in_section in _entries(reader, elf):
        name_bytes += len(name)
        if len(kernels) == most_kernels or name_bytes > _MOST_BYTES_OF_NAMES:
            raise BadBinary("oversize", "it has more kernels than are read of one file")
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


def _entries(reader: ByteRegion, elf: Elf) -> Iterator[tuple[int, str, int]]:
    """Each kernel's index of its symbol, name, and index of the section with its code."""
    table = next((section for section in elf.sections if section.kind == SYMBOL_TABLE), None)
    if table is None:
        return
    if table.link >= len(elf.sections):
        raise BadBinary("garbage", f"its symbols have their names in section {table.link}, of {len(elf.sections)}")
    names = read_table(reader, elf.sections[table.link])
    symbols = read_table(reader, table)
    symbols = symbols[: len(symbols) - len(symbols) % SYMBOL.size]
    for number, (name_at, kind, other, in_section, _, _) in enumerate(SYMBOL.iter_unpack(symbols)):
        if other & _ENTRY and kind & 0xF == _FUNCTION and in_section < len(elf.sections):
            yield number, _name(names, name_at), in_section


def _name(names: bytes, place: int) -> str:
    end = names.find(b"\0", place, place + MOST_NAME_BYTES)
    return names[place : end if end >= 0 else place + MOST_NAME_BYTES].decode("ascii", "backslashreplace")


def _bytes_by_code(elf: Elf, prefix: bytes) -> Counter[int]:
    """The sum of the sizes of sections with this prefix, by the section of code that they belong to."""
    sizes: Counter[int] = Counter()
    for section in elf.sections:
        if section.info and elf.begins_with(section, prefix):
            sizes[section.info] += section.size
    return sizes


def _of_functions(reader: ByteRegion, elf: Elf) -> tuple[dict[int, int], dict[int, int]]:
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


def _attributes(reader: ByteRegion, section: ElfSection) -> Iterator[tuple[int, bytes]]:
    """The attributes that have bytes, up to the end, or up to an attribute that is cut off."""
    data = read_table(reader, section, MOST_INFO_BYTES)
    place = 0
    while place + _ATTRIBUTE.size <= len(data):
        form, number, length = _ATTRIBUTE.unpack_from(data, place)
        place += _ATTRIBUTE.size
        if form == _LENGTH_AND_BYTES:
            yield number, data[place : place + length]
            place += length


_MOST_REASONS = 20
# The sections for a program's fatbins: for linked fatbins, and for fatbins of `nvcc -rdc=true` before they are linked.
_SECTIONS = (b".nv_fatbin", b"__nv_relfatbin")
_NOBITS = 8  # SHT_NOBITS: a section without content, as in a file with debug information alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits on the work for a file. The rest of the file stays unread, and the answer says so."""

    images: int = 200_000
    kernels: int = 100_000
    name_bytes: int = 64 << 20
    unpacked_bytes: int = 4 << 30
    seconds: float = 10.0


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel for an architecture. `number` is the number in the architecture's name: 90 of "90a"."""

    number: int
    architecture: str
    kernel: Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaBinary:
    """The GPU code of a file.

    Attributes:
        kernels: the kernels by name, then by architecture. Several with the same name and architecture differ.
        cubins: the architectures of machine code, with or without kernels.
        ptx: the architectures of PTX, which the driver compiles.
        lto: the architectures of code for a linker.
        unread: the numbers of images that were not read, by reason.
        ended_early: the limit that ended the reading; "" if all was looked at.
    """

    kernels: tuple[Compiled, ...] = ()
    cubins: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    lto: tuple[str, ...] = ()
    unread: Mapping[str, int] = field(default_factory=nothing)
    ended_early: str = ""


def read_cuda_binary(
    reader: ByteRegion,
    limits: Limits = LIMITS,
    clock: Clock = time.monotonic,
) -> CudaBinary:
    """The GPU code of a program, library, object, fatbin or cubin.

    Raises Malformed: there is none; OSError: the file cannot be read.
    """
    reading = _BinaryReading(limits, clock)
    if reader.size >= len(MAGIC_BYTES) and reader.read(0, len(MAGIC_BYTES)) == MAGIC_BYTES:
        reading.read_fatbins(reader)
    elif (elf := read_elf(reader)).machine == EM_CUDA:
        reading.read_cubin(reader, "")
    else:
        named = [section for name in _SECTIONS for section in elf.sections if elf.is_named(section, name)]
        filled = [section for section in named if section.size and section.kind != _NOBITS]
        if not filled:
            raise BadBinary("no_samples", "it has no GPU code of CUDA's (no section .nv_fatbin)")
        for section in filled:
            reading.read_fatbins(reader.part(section.offset, section.size))
    return reading.result()


def _order(compiled: Compiled) -> tuple[str, int, str, tuple[int, ...]]:
    kernel = compiled.kernel
    numbers = kernel.code_bytes, kernel.shared_bytes, kernel.constant_bytes, kernel.registers, kernel.stack_bytes
    return kernel.name, compiled.number, compiled.architecture, tuple(-1 if it is None else it for it in numbers)


class _EndedEarly(Exception):
    """A limit is reached. The text names it."""


class _BinaryReading:
    """The reading of a file: the code found so far, and the work done so far."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._until = clock() + limits.seconds
        self._images = self._kernels = self._name_bytes = self._unpacked_bytes = 0
        self._linked: set[Compiled] = set()
        self._relocatable: set[Compiled] = set()
        self._architectures: dict[str, set[tuple[int, str]]] = {"cubin": set(), "PTX": set(), "LTO IR": set()}
        self._unread: Counter[str] = Counter()
        self._ended_early = ""

    def read_fatbins(self, reader: ByteRegion) -> None:
        """Read all images of a section. A damaged image is left out; a damaged container ends the section."""
        if self._ended_early:
            return
        try:
            self._look_at_the_clock()  # a file may have many overlapping sections without images
            for image in read_images(reader):
                self._spend(image)
                try:
                    self._read_image(reader, image)
                except (Malformed, Unavailable) as error:
                    compressed = f" compressed ({image.compression.value})" if image.compression else ""
                    self._leave(f"{image.kind}{compressed}, not read: {error}")
        except _EndedEarly as error:
            self._ended_early = str(error)
        except Malformed as error:
            self._leave(f"fatbin, not read to its end: {error}")

    def read_cubin(self, reader: ByteRegion, architecture: str) -> None:
        """Read the kernels of a cubin. With the architecture "" its own number counts. Raises: see `read_cubin`."""
        cubin = read_cubin(reader, self._limits.kernels - self._kernels)
        self._kernels += len(cubin.kernels)
        self._name_bytes += sum(len(kernel.name) for kernel in cubin.kernels)
        if not architecture:
            architecture = str(cubin.number)
            self._architectures["cubin"].add((cubin.number, architecture))
        architectures = self._relocatable if cubin.is_relocatable else self._linked
        architectures.update(Compiled(cubin.number, architecture, kernel) for kernel in cubin.kernels)

    def result(self) -> CudaBinary:
        """The code that was found. Raises Malformed: there is none."""
        linked = {(compiled.architecture, compiled.kernel.name) for compiled in self._linked}
        kernels = self._linked | {
            compiled
            for compiled in self._relocatable
            if (compiled.architecture, compiled.kernel.name) not in linked  # a linked kernel comes in both forms
        }
        cubins, ptx, lto = (
            tuple(architecture for _, architecture in sorted(of_kind)) for of_kind in self._architectures.values()
        )
        if not (cubins or ptx or lto):
            raise BadBinary("no_samples", next(iter(self._unread), self._ended_early or "its fatbins are empty"))
        return CudaBinary(
            kernels=tuple(sorted(kernels, key=_order)),
            cubins=cubins,
            ptx=ptx,
            lto=lto,
            unread=MappingProxyType(dict(self._unread)),
            ended_early=self._ended_early,
        )

    def _spend(self, image: Image) -> None:
        self._images += 1
        limits = self._limits
        if image.kind == "cubin" and image.compression is not None:
            self._unpacked_bytes += min(image.unpacked_size, MOST_IMAGE_BYTES)
        if self._images > limits.images:
            raise _EndedEarly(f"it has more than {limits.images} images")
        if self._kernels >= limits.kernels:
            raise _EndedEarly(f"it has {limits.kernels} kernels or more")
        if self._name_bytes > limits.name_bytes:
            raise _EndedEarly(f"its kernels' names have more than {limits.name_bytes} bytes")
        if self._unpacked_bytes > limits.unpacked_bytes:
            raise _EndedEarly(f"more than {limits.unpacked_bytes} bytes would have to be unpacked")
        self._look_at_the_clock()

    def _look_at_the_clock(self) -> None:
        if self._clock() > self._until:
            raise _EndedEarly(f"it took more than {self._limits.seconds:g} s")

    def _leave(self, why: str) -> None:
        self._unread[why if why in self._unread or len(self._unread) < _MOST_REASONS else "for other reasons"] += 1

    def _read_image(self, reader: ByteRegion, image: Image) -> None:
        """Note an image's architecture, and read its kernels if it is a cubin. Raises BadBinary or Unavailable."""
        if image.kind not in self._architectures:
            raise BadBinary("garbage", "of this nothing is known")
        self._architectures[image.kind].add((image.number, image.architecture))
        if image.kind != "cubin":
            return
        if image.compression is None:
            self.read_cubin(reader.part(image.offset, image.size), image.architecture)
        else:
            # a packed image is no larger than unpacked; a sparse file can claim any size
            if image.size > MOST_IMAGE_BYTES:
                raise BadBinary("oversize", f"{image.size} bytes; {MOST_IMAGE_BYTES} is the most that is unpacked")
            packed = reader.read(image.offset, image.size)
            unpacked = unpack(image.compression, packed, image.unpacked_size)
            self.read_cubin(in_memory(unpacked), image.architecture)
