"""Bytes of a CUDA binary, read where they are needed: such files have gigabytes, of which a few tables say all."""

import os
from typing import Protocol

from exporter.errors import Malformed

# of every error of what reads such a file
REMEDY = "give it a program, a library, an object, a fatbin or a cubin, whole and as the compiler wrote it"


class Reader(Protocol):
    """Bytes that can be read at any place: of a file, or in memory."""

    @property
    def size(self) -> int:
        """How many there are."""

    def read(self, offset: int, size: int) -> bytes:
        """Exactly so many bytes.

        Raises:
            Malformed: there are not so many at this place.
            OSError: the file cannot be read.
        """


class InMemory:
    """Bytes that were unpacked, or those of a test."""

    def __init__(self, data: bytes | bytearray) -> None:
        self._data = data
        self.size = len(data)

    def read(self, offset: int, size: int) -> bytes:
        """See `Reader`."""
        _check(offset, size, self.size)
        return bytes(self._data[offset : offset + size])


class InFile:
    """An open file. It is not mapped: who shortens a file that is mapped ends the program that reads it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        """See `Reader`."""
        _check(offset, size, self.size)
        pieces = []
        while size:
            piece = os.pread(self._descriptor, size, offset)
            if not piece:
                raise Malformed("truncated", "it became shorter while it was read", remedy=REMEDY)
            pieces.append(piece)
            offset, size = offset + len(piece), size - len(piece)
        return b"".join(pieces)


class Part:
    """A part of other bytes, with places of its own."""

    def __init__(self, whole: Reader, offset: int, size: int) -> None:
        _check(offset, size, whole.size)
        self._whole, self._offset = whole, offset
        self.size = size

    def read(self, offset: int, size: int) -> bytes:
        """See `Reader`."""
        _check(offset, size, self.size)
        return self._whole.read(self._offset + offset, size)


def _check(offset: int, size: int, there: int) -> None:
    if offset < 0 or size < 0 or offset + size > there:
        raise Malformed(
            "truncated", f"{size} bytes at {offset:#x} are named, and there are {there} in all", remedy=REMEDY
        )
