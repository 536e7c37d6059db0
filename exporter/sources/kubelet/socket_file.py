"""What the file system says of a socket: it tells apart what a failed connection alone does not."""

import re
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketFile:
    """Where a socket is, or should be.

    `is_mount_point` says that the file itself is mounted into this container, not the folder that it is in.
    """

    path: str
    folder_exists: bool
    is_mount_point: bool

    @property
    def folder(self) -> str:
        """Where the socket lies."""
        return self.path.rpartition("/")[0] or "/"


def look_at(socket: str, mounts: Path = MOUNTS) -> SocketFile:
    """What is known of the socket's file. `mounts` is in the form of /proc/self/mountinfo (proc(5))."""
    path = Path(socket)
    try:
        points = {_unescape(line.split()[4]) for line in mounts.read_text(encoding="utf-8").splitlines() if line}
    except (OSError, UnicodeDecodeError, IndexError):
        points = set()
    return SocketFile(
        path=socket,
        folder_exists=_is_folder(path.parent),
        is_mount_point=socket in points or str(path.resolve()) in points,
    )


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except PermissionError:
        return True  # behind a folder that may not be looked into: what is missing is the right


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)
