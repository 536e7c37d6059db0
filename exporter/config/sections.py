"""The strict reader of a configuration file's sections: an unknown key, or a value of another kind, is an error.

The readers are those of exporter/reading.py, but for their words: these files hold secrets, so an error names the
place, the key and what is allowed, and shows no value.

Tests: tests/config/test_named_files.py.
"""

import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter import reading
from exporter.errors import ConfigError

if TYPE_CHECKING:
    from exporter.lenient import AnyObject

_TEXT = reading.text(r"[\s\S]*", "a text", sys.maxsize)
_TEXTS = reading.each(_TEXT, sys.maxsize)


class Section:
    """A mapping in a file, iterable by keys. Callers take key by key; `close` refuses the keys that nobody took."""

    def __init__(self, content: object, where: str) -> None:
        """`where` names this place in errors. A `content` of None has no keys.

        Raises ConfigError: `content` is no mapping, or has a key that is no text.
        """
        if content is None:
            content = {}
        if not isinstance(content, Mapping) or not all(isinstance(key, str) for key in content):
            raise ConfigError(f"{where}: it must hold keys and values")
        self.is_given = bool(content)
        self._content: AnyObject = content
        self._where = where
        self._keys: set[str] = set()
        self._inner: list[Section] = []

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def error(self, key: str, says: str) -> ConfigError:
        """An error about a key. The caller raises it."""
        return ConfigError(f"{self._where}: {key} {says}")

    def section(self, key: str) -> "Section":
        """The mapping at a key. `close` of this section closes it, too."""
        inner = Section(self._take(key), f"{self._where}: {key}")
        self._inner.append(inner)
        return inner

    def text(self, key: str, default: str = "") -> str:
        """The text at a key."""
        return str(self._read(key, _TEXT, "a text", default))

    def line(self, key: str) -> str:
        """The text at a key, which must be one printable line, for a header."""
        text = self.text(key)
        if not text.isprintable():
            raise self.error(key, "must be one line of printable text")
        return text

    def texts(self, key: str) -> tuple[str, ...]:
        """The texts in the list at a key."""
        return tuple(self._read(key, _TEXTS, "a list of texts", ()))

    def flag(self, key: str, *, default: bool) -> bool:
        """The boolean at a key."""
        return bool(self._read(key, reading.flag, "true or false", default))

    def one_of(self, key: str, allowed: Collection[str], *, default: str) -> str:
        """The word at a key, which must be in `allowed`."""
        text = self.text(key, default)
        if text not in allowed:
            raise self.error(key, f"must be one of {', '.join(filter(None, allowed))}")
        return text

    def file(self, key: str, folder: Path) -> str:
        """The path of a file; a relative path begins in `folder`, the configuration file's. "" if none is given."""
        text = self.text(key)
        return str(folder / text) if text else ""

    def close(self) -> None:
        """Refuse keys that nobody took, first in the sections inside. Raises ConfigError: there is such a key."""
        for inner in self._inner:
            inner.close()
        for key in self:
            if key not in self._keys:
                raise self.error(repr(key), f"is not a key of this file; the keys are {', '.join(sorted(self._keys))}")

    def _read(self, key: str, read_value: reading.Reader, what: str, default: object) -> Any:  # noqa: ANN401 - what a reader returns
        value = self._take(key)
        try:
            return default if value is None else read_value(value, key)
        except reading.Invalid:
            raise self.error(key, f"must be {what}") from None

    def _take(self, key: str) -> object:
        self._keys.add(key)
        return self._content.get(key)
