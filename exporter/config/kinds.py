"""Kinds of values: what a setting's text becomes, and what is allowed, in words."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from exporter.config.parsers import (
    MAX_SOCKET_PATH_BYTES,
    absolute_path,
    duration,
    family_name,
    positive_duration,
    positive_integer,
    ratio,
    regex,
    socket_path,
)

T = TypeVar("T")
W = TypeVar("W", bound=str)


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A parser, which raises ValueError for a text that is not allowed; `allowed` for errors, `metavar` for --help."""

    parse: Callable[[str], T]
    allowed: str
    metavar: str


def choice(meanings: Mapping[str, T]) -> Kind[T]:
    """One of a few words, each of which stands for a value."""

    def parse(text: str) -> T:
        if text not in meanings:
            raise ValueError
        return meanings[text]

    *others, last = meanings
    return Kind(parse, f"{', '.join(others)} or {last}", "|".join(meanings))


def one_of(*words: W) -> Kind[W]:
    """One of a few words, which stands for itself."""
    return choice({word: word for word in words})


_A_DURATION = "a duration such as 500ms, 5s or 1m"
DURATION = Kind(duration, _A_DURATION, "DURATION")
POSITIVE_DURATION = Kind(positive_duration, f"{_A_DURATION}, above 0", "DURATION")
FILE = Kind(absolute_path, "an absolute path", "FILE")
SOCKET = Kind(socket_path, f"an absolute path of at most {MAX_SOCKET_PATH_BYTES} bytes", "PATH")
NUMBER = Kind(positive_integer, "a whole number above 0", "NUMBER")
RATIO = Kind(ratio, "a number from 0 to 1", "RATIO")
REGEX = Kind(regex, "a regular expression", "REGEX")
FAMILY = Kind(family_name, "a family's name", "NAME")
