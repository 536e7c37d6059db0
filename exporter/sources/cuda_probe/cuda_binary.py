"""What GPU code a file has: all kernels in all fatbins of a program, with limits on the work.

Nothing of this is read while the exporter runs: kernels have too many names to be values of a label.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from exporter.errors import Malformed, Unavailable
from exporter.sources.cuda_probe.cubin import EM_CUDA, Kernel, read_cubin
from exporter.sources.cuda_probe.fatbin import MAGIC_BYTES, Compression, Image, read_images
from exporter.sources.cuda_probe.reader import REMEDY, InMemory, Part, Reader
from exporter.sources.cuda_probe.sections import read_elf
from exporter.sources.cuda_probe.unpacking import MOST_IMAGE_BYTES, unpack

_MOST_REASONS = 20
# What nvcc puts the fatbins of a program into: those that are linked, and those of `nvcc -rdc=true` before that.
_SECTIONS = (b".nv_fatbin", b"__nv_relfatbin")
_NOBITS = 8  # SHT_NOBITS: a section of a file with debug information alone, whose content is elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that one file may cost. What is beyond stays unread, and the answer says so."""

    images: int = 200_000
    kernels: int = 100_000
    name_bytes: int = 64 << 20
    unpacked_bytes: int = 4 << 30
    seconds: float = 10.0


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel for one architecture. `number` is the architecture's: 90 of "90a"."""

    number: int
    architecture: str
    kernel: Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaBinary:
    """The GPU code of a file. Kernels are sorted by name, then by architecture; several of one name differ.

    `cubins`, `ptx` and `lto` are the architectures that there is machine code for (be it without a kernel), PTX that
    the driver compiles, and code that a linker compiles. `unread` counts the images that were not read, by the reason.
    `ended_early` is why not all was looked at; "" where all was.
    """

    kernels: tuple[Compiled, ...] = ()
    cubins: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    lto: tuple[str, ...] = ()
    unread: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    ended_early: str = ""


def read_cuda_binary(
    reader: Reader,
    limits: Limits = LIMITS,
    unpacking: Callable[[Compression, bytes, int], bytes | bytearray] = unpack,
    clock: Callable[[], float] = time.monotonic,
) -> CudaBinary:
    """The GPU code of a program, a library or an object; also of a fatbin or a cubin by itself.

    Raises:
        Malformed: it is none of these, or has no GPU code, or none that can be read.
        OSError: see `Reader`.
    """
    reading = _Reading(limits, unpacking, clock)
    if reader.size >= len(MAGIC_BYTES) and reader.read(0, len(MAGIC_BYTES)) == MAGIC_BYTES:
        reading.read_fatbins(reader)
        return reading.result()
    elf = read_elf(reader)
    if elf.machine == EM_CUDA:
        reading.read_cubin(reader, "")
        return reading.result()
    named = [section for name in _SECTIONS for section in elf.sections if elf.is_named(section, name)]
    filled = [section for section in named if section.size and section.kind != _NOBITS]
    if not filled:
        raise Malformed("no_samples", "it has no GPU code of CUDA's (no section .nv_fatbin)", remedy=REMEDY)
    for section in filled:
        reading.read_fatbins(Part(reader, section.offset, section.size))
    return reading.result()


def _order(compiled: Compiled) -> tuple[str, int, str, tuple[int, ...]]:
    kernel = compiled.kernel
    numbers = kernel.code_bytes, kernel.shared_bytes, kernel.constant_bytes, kernel.registers, kernel.stack_bytes
    return kernel.name, compiled.number, compiled.architecture, tuple(-1 if it is None else it for it in numbers)


class _EndedEarly(Exception):
    """A limit is reached; the text says which."""


class _Reading:
    """One file's reading: what was found so far, and what is left of the limits."""

    def __init__(
        self,
        limits: Limits,
        unpacking: Callable[[Compression, bytes, int], bytes | bytearray],
        clock: Callable[[], float],
    ) -> None:
        self._limits, self._unpacking, self._clock = limits, unpacking, clock
        self._until = clock() + limits.seconds
        self._images = self._kernels = self._name_bytes = self._unpacked_bytes = 0
        self._linked: set[Compiled] = set()
        self._relocatable: set[Compiled] = set()
        self._architectures: dict[str, set[tuple[int, str]]] = {"cubin": set(), "PTX": set(), "LTO IR": set()}
        self._unread: Counter[str] = Counter()
        self._ended_early = ""

    def read_fatbins(self, reader: Reader) -> None:
        """All images of a section. What breaks one leaves the others; what breaks a container ends the section."""
        if self._ended_early:
            return
        try:
            self._look_at_the_clock()  # sections may be many, one over the other, and without an image
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

    def read_cubin(self, reader: Reader, architecture: str) -> None:
        """The kernels of a cubin; "" for an architecture that only it can say.

        Raises:
            Malformed: see the function of the same name.
        """
        cubin = read_cubin(reader, self._limits.kernels - self._kernels)
        self._kernels += len(cubin.kernels)
        self._name_bytes += sum(len(kernel.name) for kernel in cubin.kernels)
        if not architecture:
            architecture = str(cubin.number)
            self._architectures["cubin"].add((cubin.number, architecture))
        known = self._relocatable if cubin.is_relocatable else self._linked
        known.update(Compiled(cubin.number, architecture, kernel) for kernel in cubin.kernels)

    def result(self) -> CudaBinary:
        """What was found.

        Raises:
            Malformed: nothing was found.
        """
        linked = {(compiled.architecture, compiled.kernel.name) for compiled in self._linked}
        kernels = self._linked | {
            compiled
            for compiled in self._relocatable
            if (compiled.architecture, compiled.kernel.name) not in linked  # the same before it was linked
        }
        cubins, ptx, lto = (
            tuple(architecture for _, architecture in sorted(found)) for found in self._architectures.values()
        )
        if not (cubins or ptx or lto):
            raise Malformed(
                "no_samples", next(iter(self._unread), self._ended_early or "its fatbins are empty"), remedy=REMEDY
            )
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

    def _read_image(self, reader: Reader, image: Image) -> None:
        if image.kind not in self._architectures:
            raise Malformed("garbage", "of this nothing is known", remedy=REMEDY)
        self._architectures[image.kind].add((image.number, image.architecture))
        if image.kind != "cubin":
            return
        if image.compression is None:
            self.read_cubin(Part(reader, image.offset, image.size), image.architecture)
        else:
            if image.size > MOST_IMAGE_BYTES:  # packed, it is no larger than unpacked; a sparse file can claim any size
                raise Malformed(
                    "oversize", f"{image.size} bytes; {MOST_IMAGE_BYTES} is the most that is unpacked", remedy=REMEDY
                )
            packed = reader.read(image.offset, image.size)
            unpacked = self._unpacking(image.compression, packed, image.unpacked_size)
            self.read_cubin(InMemory(unpacked), image.architecture)
