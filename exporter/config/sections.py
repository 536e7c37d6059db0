"""Reading the sections of a configuration file strictly: an unknown key, or a value of another kind, is an error.

An error names where, the key, and what is allowed. It shows no value, since these files hold secrets. That is why they
are not read by exporter/reading.py, whose errors show the value.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from exporter.errors import ConfigError


class Section:
    """A mapping in a file, iterable by keys. They are taken one by one; `close` refuses those that nobody took."""

    def __init__(self, content: object, where: str) -> None:
        """`where` names this place in errors; None has no keys. Raises ConfigError: it is no mapping of texts."""
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
        """An error about one key."""
        return ConfigError(f"{self._where}: {key} {says}")

    def section(self, key: str) -> "Section":
        """A mapping inside this one, which is closed with it."""
        inner = Section(self._take(key, None), f"{self._where}: {key}")
        self._inner.append(inner)
        return inner

    def text(self, key: str, default: str = "") -> str:
        """A text."""
        text: str = self._take(key, default, lambda value: isinstance(value, str), "a text")
        return text

    def line(self, key: str) -> str:
        """A text that is one line, as what stands in a header must be."""
        text = self.text(key)
        if not text.isprintable():
            raise self.error(key, "must be one line of printable text")
        return text

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""

        def is_list(value: object) -> bool:
            return isinstance(value, list) and all(isinstance(item, str) for item in value)

        return tuple(self._take(key, (), is_list, "a list of texts"))

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        return bool(self._take(key, default, lambda value: isinstance(value, bool), "true or false"))

    def one_of(self, key: str, allowed: Collection[str], *, default: str) -> str:
        """One of a few words."""
        text = self.text(key, default)
        if text not in allowed:
            raise self.error(key, f"must be one of {', '.join(filter(None, allowed))}")
        return text

    def file(self, key: str, folder: Path) -> str:
        """The path of a file; a relative one begins in the configuration file's folder. "" where none is given."""
        text = self.text(key)
        return str(folder / text) if text else ""

    def close(self) -> None:
        """Refuse the keys that nobody took, those of sections inside first. Raises ConfigError: there is one."""
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
