"""The strict reader of a configuration file's sections: an unknown key, or a value of another kind, is an error.

An error names the place, the key, and what is allowed. It shows no value, since these files hold secrets.
exporter/reading.py does not read them, since its errors show the value.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from exporter.errors import ConfigError


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
        self._content: Mapping[str, Any] = content
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
        inner = Section(self._take(key, None), f"{self._where}: {key}")
        self._inner.append(inner)
        return inner

    def text(self, key: str, default: str = "") -> str:
        """The text at a key."""
        text: str = self._take(key, default, lambda value: isinstance(value, str), "a text")
        return text

    def line(self, key: str) -> str:
        """The text at a key, which must be one printable line, for a header."""
        text = self.text(key)
        if not text.isprintable():
            raise self.error(key, "must be one line of printable text")
        return text

    def texts(self, key: str) -> tuple[str, ...]:
        """The texts in the list at a key."""

        def is_list(value: object) -> bool:
            return isinstance(value, list) and all(isinstance(item, str) for item in value)

        return tuple(self._take(key, (), is_list, "a list of texts"))

    def flag(self, key: str, *, default: bool) -> bool:
        """The boolean at a key."""
        return bool(self._take(key, default, lambda value: isinstance(value, bool), "true or false"))

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

    def _take(self, key: str, default: object, fits: Callable[[object], bool] = lambda _: True, what: str = "") -> Any:  # noqa: ANN401 - what a file holds can be anything
        self._keys.add(key)
        value = self._content.get(key)
        if value is not None and not fits(value):
            raise self.error(key, f"must be {what}")
        return default if value is None else value
