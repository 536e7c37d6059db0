"""Opening the files that flags name, regular ones only.

To open a FIFO, or to read from it, waits for a writer who may never come, and the whole program waits with it.
"""

import errno
import os
import stat
from typing import BinaryIO

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """The file, open for reading. Symbolic links are followed.

    Raises:
        OSError: it cannot be opened, or is a FIFO, a directory, a device.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'something else')}, not a file")
    return os.fdopen(descriptor, "rb")


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """The content of a file.

    Raises:
        OSError: see `open_regular`.
    """
    with open_regular(path) as file:
        return file.read()


def check_regular(path: str | os.PathLike[str]) -> None:
    """For a file that a library opens by its path.

    Raises:
        OSError: see `open_regular`.
    """
    open_regular(path).close()
