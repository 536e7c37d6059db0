"""Images of a fatbin as they were before they were packed, by the system's libraries.

Every Debian, Ubuntu, Fedora and RHEL has liblz4 and libzstd: its package manager or systemd needs them. So does the
image. Both are told how large their output may become, and write no further.
"""

import ctypes
from functools import cache

from exporter.errors import Malformed, Unavailable
from exporter.sources.cuda_probe.fatbin import Compression
from exporter.sources.cuda_probe.reader import REMEDY

_LIBRARIES = {Compression.LZ4: "liblz4.so.1", Compression.ZSTD: "libzstd.so.1"}
# The most that comes out of one byte: of LZ4 by its format, of zstd a block of 128 KiB from 4 bytes.
_MOST_TIMES = {Compression.LZ4: 255, Compression.ZSTD: 32_768}
MOST_IMAGE_BYTES = 256 << 20


def unpack(compression: Compression, packed: bytes, size: int) -> bytearray:
    """The `size` bytes that were packed.

    Raises:
        Unavailable: the library for this is not on this machine.
        Malformed: it is not packed so, or another size comes out, or it is more than MOST_IMAGE_BYTES.
    """
    if size > MOST_IMAGE_BYTES:
        raise Malformed(
            "oversize", f"an image of {size} bytes; {MOST_IMAGE_BYTES} is the most that is unpacked", remedy=REMEDY
        )
    if not 0 < size <= _MOST_TIMES[compression] * len(packed):
        raise Malformed(
            "garbage", f"{size} bytes cannot come out of {len(packed)} by {compression.value}", remedy=REMEDY
        )
    library = _library(compression)
    unpacked = bytearray(size)
    room = ctypes.byref(ctypes.c_char.from_buffer(unpacked))
    if compression is Compression.LZ4:
        came_out = library.LZ4_decompress_safe(packed, room, len(packed), size)
    else:
        came_out = library.ZSTD_decompress(room, size, packed, len(packed))
    if came_out != size:
        raise Malformed("garbage", f"packed by {compression.value}, and not {size} bytes came out", remedy=REMEDY)
    return unpacked


@cache
def _library(compression: Compression) -> ctypes.CDLL:
    name = _LIBRARIES[compression]
    try:
        library = ctypes.CDLL(name)
        if compression is Compression.LZ4:
            library.LZ4_decompress_safe.argtypes = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int
            library.LZ4_decompress_safe.restype = ctypes.c_int
        else:
            sizes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t
            library.ZSTD_decompress.argtypes = sizes
            library.ZSTD_decompress.restype = ctypes.c_size_t
    except (OSError, AttributeError) as error:
        raise Unavailable("missing", f"{name} is not on this machine", remedy=f"install {name}") from error
    return library
