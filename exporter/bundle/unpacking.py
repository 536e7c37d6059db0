"""The members of an untrusted .tar.gz, in memory. Nothing is extracted, and only plain files of plain names are taken.

The form is ustar (POSIX.1-2017, pax, "ustar Interchange Format"): a header of 512 bytes, then the content, filled up to
a multiple of 512. tarfile reads more forms, and the whole of an extended header into memory before it asks whether it
may.

Tests: tests/bundle/test_damaged_bundles.py.
"""

import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from exporter.errors import ExporterError
from exporter.wording import escaped

MOST_PACKED_BYTES = 20 * 1024 * 1024
MOST_UNPACKED_BYTES = 48 * 1024 * 1024
MOST_MEMBERS = 20_000
_BLOCK = 512
_CHUNK = 64 * 1024
_GZIP = 31  # wbits of zlib: a gzip header, and a checksum at the end
_MOST_SHOWN = 80
_COPY = "copy the file again, whole and as binary, or take the bundle again"
_FILE, _FOLDER, _EXTENDED = ("0", "\0", "7"), "5", ("x", "g")
_KINDS = {"1": "a hard link", "2": "a symbolic link", "3": "a device", "4": "a device", "6": "a pipe"}


class DamagedBundle(ExporterError):
    """A bundle cannot be read. The text is one line: what is wrong, and what to do."""


def members_of(path: Path) -> dict[str, bytes]:
    """The content of each plain file in an archive, by its name without the top folder.

    Raises DamagedBundle: it is no such archive, is damaged, is too large, or has a member that no bundle has.
    """
    try:
        with _opened(path) as file:
            return _members(_Unpacked(file))
    except OSError as error:
        raise DamagedBundle(f"{escaped(str(path))}: it cannot be read: {error.strerror}") from error
    except DamagedBundle as error:
        raise DamagedBundle(f"{escaped(str(path))}: {error}") from None


def _opened(path: Path) -> BinaryIO:
    """Open a plain file: a pipe would be waited for. Raises OSError, DamagedBundle."""
    if path.exists() and not path.is_file():
        raise DamagedBundle("it is no plain file")

    return path.open("rb")


class _Unpacked:
    """What a gzip file holds, unpacked as it is asked for."""

    def __init__(self, file: BinaryIO) -> None:
        self._pieces = _pieces(file)
        self._piece = memoryview(b"")

    def take(self, count: int) -> bytes:
        """The next `count` bytes, or fewer at the end. Raises DamagedBundle."""
        taken = BytesIO()  # which gives its content away without a copy
        left = count
        while left:
            if not self._piece:
                self._piece = memoryview(next(self._pieces, b""))
            if not self._piece:
                break
            written = taken.write(self._piece[:left])
            self._piece = self._piece[written:]
            left -= written

        return taken.getvalue()


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    """Unpack a gzip file piece by piece. Raises DamagedBundle: it is damaged, or too large."""
    unpacker = zlib.decompressobj(_GZIP)
    packed = unpacked = 0
    while not unpacker.eof:
        chunk = file.read(_CHUNK)
        if not chunk:
            what = "it is cut off" if packed else "it is empty"
            raise DamagedBundle(f"{what} -> {_COPY}")
        packed += len(chunk)
        if packed > MOST_PACKED_BYTES:
            raise DamagedBundle(f"it is larger than {MOST_PACKED_BYTES >> 20} MiB, as no bundle is")
        while chunk and not unpacker.eof:
            try:
                piece = unpacker.decompress(chunk, _CHUNK)
            except zlib.error as error:
                what = "it is damaged" if unpacked else "it is no .tar.gz"
                raise DamagedBundle(f"{what} (gzip) -> {_COPY}") from error
            chunk = unpacker.unconsumed_tail
            unpacked += len(piece)
            if unpacked > MOST_UNPACKED_BYTES:
                raise DamagedBundle(f"unpacked it is larger than {MOST_UNPACKED_BYTES >> 20} MiB, as no bundle is")
            if piece:
                yield piece

    if unpacker.unused_data.strip(b"\0") or file.read(_CHUNK).strip(b"\0"):
        raise DamagedBundle(f"something follows its end -> {_COPY}")


def _members(unpacked: _Unpacked) -> dict[str, bytes]:
    """Read the members of a tar. Raises DamagedBundle."""
    members: dict[str, bytes] = {}
    count = 0
    while True:
        header = unpacked.take(_BLOCK)
        if len(header) < _BLOCK:
            raise DamagedBundle(f"it is cut off (tar) -> {_COPY}")
        if not header.strip(b"\0"):
            break
        count += 1
        if count > MOST_MEMBERS:
            raise DamagedBundle(f"it has more than {MOST_MEMBERS} files, as no bundle has")
        kind = chr(header[156])
        name = _name(header, kind)
        size = _octal(header, 124, 12)
        content = unpacked.take(size)
        unpacked.take(-size % _BLOCK)
        if len(content) < size:
            raise DamagedBundle(f"its file {_shown(name)} is cut off -> {_COPY}")
        if kind in _FILE:
            below = name.partition("/")[2]
            if below in members:
                raise DamagedBundle(f"its file {_shown(name)} is there twice")
            members[below] = content

    while unpacked.take(_CHUNK):  # up to the checksum
        pass

    return members


def _name(header: bytes, kind: str) -> str:
    """A member's name. Raises DamagedBundle: the header is damaged, or is of something that no bundle has."""
    checked = header[:148] + b" " * 8 + header[156:]
    if _octal(header, 148, 8) != sum(checked):
        raise DamagedBundle(f"it is damaged, or no .tar.gz (a tar header's checksum) -> {_COPY}")

    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    name = _text(header[:100])
    whole = f"{prefix}/{name}" if prefix else name
    if kind not in (*_FILE, _FOLDER, *_EXTENDED):
        raise DamagedBundle(f"its member {_shown(whole)} is {_KINDS.get(kind, 'no plain file')}, as no bundle has")

    if kind in _FILE and not _is_plain(whole):
        raise DamagedBundle(f"its file {_shown(whole)} has a name that leads out of its folder, as no bundle has")

    return whole


def _is_plain(name: str) -> bool:
    """Whether a name stays in the archive's top folder."""
    parts = name.split("/")
    return len(parts) > 1 and all(part not in ("", ".", "..") for part in parts) and "\\" not in name


def _text(raw: bytes) -> str:
    """A text of a header: up to the first zero."""
    return raw.partition(b"\0")[0].decode("utf-8", "backslashreplace")


def _octal(header: bytes, start: int, length: int) -> int:
    """A number of a header. Raises DamagedBundle: it is none."""
    digits = header[start : start + length].strip(b" \0")
    if not digits or digits.strip(b"01234567"):
        raise DamagedBundle(f"it is damaged, or no .tar.gz (a number in a tar header) -> {_COPY}")

    return int(digits, 8)


def _shown(name: str) -> str:
    """A member's name, as an error shows it."""
    return escaped(name, _MOST_SHOWN)
