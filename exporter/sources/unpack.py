"""An answer's body as it was before it was packed for the way, with limits on what comes and on what comes out."""

import zlib

from exporter.errors import Malformed

_PROXY = "is there a proxy in between that packs answers? Let it pass them on as they are, or packed with gzip"


class Unpacker:
    """gzip, of one member or of several (RFC 1952, 2.2: a proxy that joins packed pieces sends such)."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)

    @property
    def is_whole(self) -> bool:
        """Whether the last member has come to its end."""
        return self._stream.eof

    def unpack(self, data: bytes, most: int) -> bytes:
        """What comes out of the next piece, no more than `most` bytes (at least 1) of it: a bomb is not unpacked.

        Raises:
            Malformed: it is not gzip.
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


def unpacker_of(encoding: str) -> Unpacker | None:
    """What undoes a Content-Encoding; None where there is nothing to undo.

    Raises:
        Malformed: the encoding is another one.
    """
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return Unpacker()
        case other:
            raise Malformed("encoding", f"Content-Encoding {other[:20]!r} was not asked for", remedy=_PROXY)


class Body:
    """What has come of an answer so far, unpacked, with a limit on either."""

    def __init__(self, encoding: str, most_bytes: int) -> None:
        """`encoding` is the answer's Content-Encoding, "" where there is none.

        Raises:
            Malformed: the encoding is another one than gzip.
        """
        self.size = 0
        self._unpacker = unpacker_of(encoding)
        self._most_bytes = most_bytes
        self._came = 0
        self._pieces: list[bytes] = []

    @property
    def is_packed(self) -> bool:
        """Whether it comes packed."""
        return self._unpacker is not None

    @property
    def is_whole(self) -> bool:
        """Whether nothing was cut off of what is packed."""
        return self._unpacker is None or self._unpacker.is_whole

    def add(self, chunk: bytes) -> bool:
        """Take what came next; whether that is still no more than allowed.

        Raises:
            Malformed: it is not gzip, and was to be.
        """
        self._came += len(chunk)
        # one byte more than allowed is enough to know
        data = self._unpacker.unpack(chunk, self._most_bytes - self.size + 1) if self._unpacker else chunk
        self.size += len(data)
        self._pieces.append(data)
        # what is packed is counted too: an endless row of empty members unpacks to nothing
        return max(self._came, self.size) <= self._most_bytes

    def forget(self) -> None:
        """Hold nothing of it any more."""
        self._pieces.clear()
        self.size = 0

    def __bytes__(self) -> bytes:
        return b"".join(self._pieces)
