"""The files that flags name: open regular files only, read YAML (which includes JSON), and see that a file changed.

Whoever opens or reads a FIFO waits for a writer that may never come, and the whole program would wait.
"""

import errno
import json
import os
import stat
from typing import BinaryIO

from exporter.errors import ConfigError, DuplicateKey

Identity = tuple[int, int, int, int]
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading; links are followed. Raises OSError: it cannot be opened, or is no regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'something else')}, not a file")
    return os.fdopen(descriptor, "rb")


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """The content of a file. Raises OSError: see `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def read_at_most(path: str, most_bytes: int) -> bytes:
    """The content of a file. Raises OSError: see `open_regular`; ValueError: it has more bytes."""
    with open_regular(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it has more than {most_bytes} bytes")
    return content


def check_regular(path: str | os.PathLike[str]) -> None:
    """Check a file that a library will open by its path. Raises OSError: see `open_regular`."""
    open_regular(path).close()


def identity_of(path: str) -> Identity | None:
    """Device, inode, size and time of change (ns) of a file; None if there is none.

    Links are followed, since a ConfigMap changes when a link gets another target.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - one system call, also on every scrape
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


_REMEDIES = {
    errno.ENOENT: "name one that is there, and in a container mount it",
    errno.EACCES: "let the exporter's user read it",
    errno.EINVAL: "name the file itself",
}


def read_structured(path: str, flag: str) -> object:
    """The content of a YAML or JSON file. Raises ConfigError: it cannot be read, is neither, or has a key twice."""
    try:
        text = read_regular(path).decode()
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "name another")
        raise ConfigError(f"{flag}: {path!r} cannot be read: {error.strerror}; {remedy}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{flag}: {path!r} cannot be read: it is no UTF-8") from error
    try:
        content: object = json.loads(text, object_pairs_hook=unique_keys)
    except DuplicateKey as error:
        raise ConfigError(f"{flag}: {path!r}: {error}") from error
    except (ValueError, RecursionError):
        content = _read_yaml(text, path, flag)
    return content


def unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The mapping of these pairs, for json.loads. Raises DuplicateKey: a key is there twice."""
    values: dict[str, object] = {}
    for key, value in pairs:
        if key in values:
            raise DuplicateKey(key)
        values[key] = value
    return values


def as_yaml(content: object) -> str:
    """Plain data as YAML. Keys keep their order."""
    import yaml  # noqa: PLC0415 - see _read_yaml

    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)


def _read_yaml(text: str, path: str, flag: str) -> object:
    # it takes 1 MiB of memory, so only a YAML file imports it
    import yaml  # noqa: PLC0415

    from exporter.config.strict_yaml import explained, load_once  # noqa: PLC0415

    try:
        content: object = load_once(text)
    except DuplicateKey as error:
        raise ConfigError(f"{flag}: {path!r}: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{flag}: {path!r} is not YAML: {explained(error)}") from error
    return content
