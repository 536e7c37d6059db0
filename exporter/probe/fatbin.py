"""The reader of fatbins, in which a program carries its GPU code for several architectures.

A container has a header (16 bytes: magic, version, size of this header, size of the rest) and entries. Each entry has a
header of its own and an image: PTX, which the driver compiles, or a cubin, which runs as it is. NVIDIA documents
cuobjdump, not the format; the fields were found in the output of nvcc 10.2 to 13.0 (tests/data/cuda/).

The system's liblz4 and libzstd unpack images. Debian, Ubuntu, Fedora, RHEL and the image have them. Both get a limit on
the size of their output.
"""

import struct
from collections.abc import Iterator, Mapping
from ctypes import CDLL, byref, c_char, c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

from exporter.errors import Unavailable
from exporter.probe.elf import BadBinary, ByteRegion

MAGIC = 0xBA55ED50
MAGIC_BYTES = MAGIC.to_bytes(4, "little")
_VERSION = 1
_CONTAINER = struct.Struct("<IHHQ")
# kind, version, size of the header, stored size of the image (with padding), its packed size, offset of the compiler's
# options, version of the image (2), architecture, offset and length of the source's name, flags
_ENTRY = struct.Struct("<HHIQIIHHIIIQ")
_UNPACKED_SIZE = struct.Struct("<Q")
_UNPACKED_SIZE_AT = 56

_LZ4 = 0x2000
_ZSTD = 0x8000
# sm_90a, sm_100f
_OF_THIS_MODEL = 0x100000
_OF_THIS_FAMILY = 0x200000
_KINDS = {1: "PTX", 2: "cubin", 8: "LTO IR"}

# The largest library of NVIDIA's (cuBLASLt 13) has some 3,000 containers with 5,400 entries.
MOST_CONTAINERS = 100_000
# The most padding between containers. They begin at multiples of 8 bytes, with older linkers at larger multiples.
_MOST_PADDING = 4096


class Compression(Enum):
    """The packing of an image. Its value is for people. nvcc before 12.8 packs only by LZ4."""

    LZ4 = "LZ4"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The image of an entry, which is not yet read.

    Attributes:
        kind: "cubin", "PTX", "LTO IR", or a text such as "kind 16" if it is not known.
        number: the number of the architecture, such as 90.
        architecture: its name, with the model's letter, such as "90a".
        offset: where the image begins.
        size: its stored size in bytes.
        compression: its packing; None for none.
        unpacked_size: its size in bytes after unpacking; 0 if it is not packed.
    """

    kind: str
    number: int
    architecture: str
    offset: int
    size: int
    compression: Compression | None
    unpacked_size: int


def read_images(reader: ByteRegion) -> Iterator[Image]:
    """The images in the containers of a section, one after the other.

    Raises Malformed: it is no section of containers; OSError: the file cannot be read.
    """
    place = _after_padding(reader, 0)
    containers = 0
    while place < reader.size:
        magic, version, header_size, size = _CONTAINER.unpack(reader.read(place, _CONTAINER.size))
        if magic != MAGIC:
            raise BadBinary("garbage", f"at {place:#x} stands {magic:#010x}, where a fatbin begins with {MAGIC:#010x}")
        if version != _VERSION or header_size < _CONTAINER.size:
            raise BadBinary("garbage", f"a fatbin of version {version}, of which nothing is known")
        end = place + header_size + size
        if end > reader.size:
            raise BadBinary("truncated", f"a fatbin of {size} bytes at {place:#x}, of which not all are there")
        containers += 1
        if containers > MOST_CONTAINERS:
            raise BadBinary("oversize", f"more than {MOST_CONTAINERS} fatbins")
        yield from _read_container(reader, place + header_size, end)
        place = _after_padding(reader, end)


def _read_container(reader: ByteRegion, place: int, end: int) -> Iterator[Image]:
    """The images between `place` and `end` (offsets in bytes). Raises BadBinary: an entry's sizes do not fit."""
    while place + _ENTRY.size <= end:
        head = _ENTRY.unpack(reader.read(place, _ENTRY.size))
        kind, _, header_size, size, packed_size, _, _, _, number, _, _, flags = head
        if header_size < _ENTRY.size or place + header_size + size > end:
            raise BadBinary("garbage", f"the entry at {place:#x} is longer than the fatbin that it is in")
        compression = Compression.ZSTD if flags & _ZSTD else Compression.LZ4 if flags & _LZ4 else None
        unpacked_size = 0
        if compression is not None:
            if header_size < _UNPACKED_SIZE_AT + _UNPACKED_SIZE.size or packed_size > size:
                raise BadBinary("garbage", f"the entry at {place:#x} is packed, and does not say how large")
            at = place + _UNPACKED_SIZE_AT
            (unpacked_size,) = _UNPACKED_SIZE.unpack(reader.read(at, _UNPACKED_SIZE.size))
        letter = "a" if flags & _OF_THIS_MODEL else "f" if flags & _OF_THIS_FAMILY else ""
        yield Image(
            kind=_KINDS.get(kind, f"kind {kind}"),
            number=number,
            architecture=f"{number}{letter}",
            offset=place + header_size,
            size=size if compression is None else packed_size,
            compression=compression,
            unpacked_size=unpacked_size,
        )
        place += header_size + size


def _after_padding(reader: ByteRegion, place: int) -> int:
    """The offset at which the next container may begin; the end of the section if only a little padding follows."""
    following = reader.read(place, min(_MOST_PADDING, reader.size - place))
    zeros = len(following) - len(following.lstrip(b"\0"))
    if zeros == len(following) < _MOST_PADDING:
        return reader.size
    return place + zeros


# the system's library, its function, and the types of the function's result and arguments
_LIBRARIES: Mapping[Compression, tuple[str, str, Any, tuple[Any, ...]]] = {
    Compression.LZ4: ("liblz4.so.1", "LZ4_decompress_safe", c_int, (c_char_p, c_void_p, c_int, c_int)),
    Compression.ZSTD: ("libzstd.so.1", "ZSTD_decompress", c_size_t, (c_void_p, c_size_t, c_char_p, c_size_t)),
}
# The most bytes that a packed byte can become: with LZ4 by its format, with zstd by a block of 128 KiB from 4 bytes.
_MOST_TIMES = {Compression.LZ4: 255, Compression.ZSTD: 32_768}
MOST_IMAGE_BYTES = 256 << 20


def unpack(compression: Compression, packed: bytes, size: int) -> bytearray:
    """Unpack an image to `size` bytes.

    Raises:
        Unavailable: the library for this packing is not on this machine.
        Malformed: the bytes are not packed so, have another size unpacked, or `size` is above MOST_IMAGE_BYTES.
    """
    if size > MOST_IMAGE_BYTES:
        raise BadBinary("oversize", f"an image of {size} bytes; {MOST_IMAGE_BYTES} is the most that is unpacked")
    if not 0 < size <= _MOST_TIMES[compression] * len(packed):
        raise BadBinary("garbage", f"{size} bytes cannot come out of {len(packed)} by {compression.value}")
    decompress = _decompress(compression)
    unpacked = bytearray(size)
    room = byref(c_char.from_buffer(unpacked))
    if compression is Compression.LZ4:
        came_out = decompress(packed, room, len(packed), size)
    else:
        came_out = decompress(room, size, packed, len(packed))
    if came_out != size:
        raise BadBinary("garbage", f"packed by {compression.value}, and not {size} bytes came out")
    return unpacked


@cache
def _decompress(compression: Compression) -> Any:  # noqa: ANN401 - a function of C has no types
    name, function, result, arguments = _LIBRARIES[compression]
    try:
        decompress: Any = getattr(CDLL(name), function)
    except (OSError, AttributeError) as error:
        raise Unavailable("missing", f"{name} is not on this machine", remedy=f"install {name}") from error
    decompress.restype = result
    decompress.argtypes = arguments
    return decompress
