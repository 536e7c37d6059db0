"""The body of an answer, unpacked, with limits on its size before and after.

Tests: tests/sources/pages/test_url.py.
"""

import zlib

from exporter.errors import Malformed

_PROXY = "is there a proxy in between that packs answers? Let it pass them on as they are, or packed with gzip"


class Unpacker:
    """Unpacks gzip of one or several members (RFC 1952, 2.2; a proxy that joins packed pieces sends several)."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)

    @property
    def is_whole(self) -> bool:
        """Whether the last member has ended."""
        return self._stream.eof

    def unpack(self, data: bytes, most: int) -> bytes:
        """The next piece, unpacked to at most `most` bytes (1 or more), since it may be a bomb.

        Raises Malformed: it is no gzip.
        """
        pieces = []
        try:
            while data and most > 0:
                if self._stream.eof:
                    self._stream = zlib.decompressobj(wbits=31)
                piece = self._stream.decompress(data, most)
                pieces.append(piece)
                most -= len(piece)
                data = self._stream.unused_data
        except zlib.error as error:
            raise Malformed("encoding", f"not gzip, though it says so: {error}", remedy=_PROXY) from error
        return b"".join(pieces)


class Body:
    """The part of an answer that has come so far, unpacked. The same limit holds for its size before and after."""

    def __init__(self, encoding: str, most_bytes: int) -> None:
        """`encoding` is the answer's Content-Encoding, or "". Raises Malformed: it is not gzip."""
        self.size = 0
        self.is_forgotten = False
        self._unpacker: Unpacker | None
        match encoding.strip().lower():
            case "" | "identity":
                self._unpacker = None
            case "gzip" | "x-gzip":
                self._unpacker = Unpacker()
            case other:
                raise Malformed("encoding", f"Content-Encoding {other[:20]!r} was not asked for", remedy=_PROXY)
        self._most_bytes = most_bytes
        self._came = 0
        self._pieces: list[bytes] = []

    @property
    def is_packed(self) -> bool:
        """Whether the answer comes packed."""
        return self._unpacker is not None

    @property
    def is_whole(self) -> bool:
        """Whether the answer is not packed, or its packed data has come to its end."""
        return self._unpacker is None or self._unpacker.is_whole

    def add(self, chunk: bytes) -> bool:
        """Add the next bytes. Returns whether the answer is still within the limit. Raises Malformed: it is no gzip."""
        self._came += len(chunk)
        # one byte more than allowed shows that it is too large
        data = self._unpacker.unpack(chunk, self._most_bytes - self.size + 1) if self._unpacker else chunk
        self.size += len(data)
        self._pieces.append(data)
        # packed bytes count, too: an endless row of empty members unpacks to nothing
        return max(self._came, self.size) <= self._most_bytes

    def forget(self) -> None:
        """Drop the part that has come, to free its memory."""
        self._pieces.clear()
        self.size = 0
        self.is_forgotten = True

    def __bytes__(self) -> bytes:
        return b"".join(self._pieces)
