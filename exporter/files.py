"""The files that flags name: reading YAML, of which JSON is a part, and seeing that one has changed."""

import json
import os

from exporter.errors import ConfigError
from exporter.regular import read_regular

Identity = tuple[int, int, int, int]


def identity_of(path: str) -> Identity | None:
    """What tells a file from what was there before: device, inode, size, time of change (ns). None: there is none.

    Symbolic links are followed: a ConfigMap or a Secret changes by one of them.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - one system call, also on every scrape
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def read_structured(path: str, flag: str) -> object:
    """The content of a YAML or JSON file.

    Raises:
        ConfigError: it cannot be read, or is neither.
    """
    try:
        text = read_regular(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{flag}: {path!r} cannot be read: {why}") from error
    try:
        content: object = json.loads(text)
    except (ValueError, RecursionError):
        content = _read_yaml(text, path, flag)
    return content


def _read_yaml(text: str, path: str, flag: str) -> object:
    import yaml  # noqa: PLC0415 - 1 MiB of memory that only such a file is worth

    try:
        content: object = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise ConfigError(f"{flag}: {path!r} is not YAML: {why}") from error
    return content
