"""The files that flags name: reading YAML, of which JSON is a part, and seeing that one has changed."""

import json
import os

from exporter.config.regular import read_regular
from exporter.errors import ConfigError, DuplicateKey

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
        ConfigError: it cannot be read, is neither, or has a key twice.
    """
    try:
        text = read_regular(path).decode()
    except OSError as error:
        raise ConfigError(f"{flag}: {path!r} cannot be read: {error.strerror}") from error
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
    """For json.loads: a mapping has each key once.

    Raises:
        DuplicateKey: it has not.
    """
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise DuplicateKey(key)
        found[key] = value
    return found


def _read_yaml(text: str, path: str, flag: str) -> object:
    # 1 MiB of memory that only such a file is worth
    import yaml  # noqa: PLC0415

    from exporter.config.strict_yaml import load_once  # noqa: PLC0415

    try:
        content: object = load_once(text)
    except DuplicateKey as error:
        raise ConfigError(f"{flag}: {path!r}: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise ConfigError(f"{flag}: {path!r} is not YAML: {why}") from error
    return content
