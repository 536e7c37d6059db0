"""Troubles and exceptions: a `Trouble` says in words what is wrong.

The source that meets a foreign exception (grpc, aiohttp) translates it into one of these. A trouble is worded where it
is met, and every output shows that text.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from exporter.wording import one_line

T = TypeVar("T")
UnavailableReason = Literal[
    "refused",
    "missing",
    "permission",
    "unauthorized",
    "unreachable",
    "rate_limited",
    "http_status",
    "stale",
    "tls",
    "unwritable",
]
MalformedReason = Literal["garbage", "oversize", "truncated", "no_samples", "encoding"]


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault or an oddity, and its remedy. Its subject stands beside it.

    Message and remedy do not repeat each other. Both may have parts that a peer sent, line ends included.

    Attributes:
        reason: a word for labels, statuses and alerts; "" if only people read the trouble.
        message: what is wrong.
        remedy: what to do; "" if nobody can do anything.
    """

    reason: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        """Message and remedy on one line."""
        return one_line(f"{self.message} -> {self.remedy}" if self.remedy else self.message)


class ExporterError(Exception):
    """The root of all exceptions that this program raises on purpose."""


class ConfigError(ExporterError):
    """The configuration cannot be used. The text is one line: the key, the value and what is allowed."""


class PortTaken(ExporterError):
    """The program cannot listen on an address: it is taken, or not allowed."""


class DuplicateKey(ExporterError):
    """A file has a key of a mapping twice. Neither value counts, since the choice would be arbitrary."""

    def __init__(self, key: object, line: int | None = None) -> None:
        """`line` counts from 1."""
        where = "" if line is None else f" (the second time in line {line})"
        super().__init__(f"the key {key!r} is there twice{where}; give each key once")


class SourceError(ExporterError):
    """An attempt of a source failed. Its text is the message of its trouble, and each subclass has its own reasons.

    `retry_after_seconds` is the pause that the peer asks for; None if it asks for none.
    """

    retry_after_seconds: float | None = None

    def __init__(self, reason: str, message: str, *, remedy: str) -> None:
        super().__init__(message)
        self.trouble = Trouble(reason, message, remedy)

    @property
    def reason(self) -> str:
        """The trouble's reason."""
        return self.trouble.reason


class Unavailable(SourceError):
    """The peer is not there, or refuses to answer."""

    def __init__(
        self, reason: UnavailableReason, message: str, *, remedy: str, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(reason, message, remedy=remedy)
        self.retry_after_seconds = retry_after_seconds


class TimedOut(SourceError):
    """No answer came within the time allowed."""

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__("deadline", message, remedy=remedy)


class SlowAnswer(TimedOut):
    """There was a connection, but no whole answer came in time."""


class HttpRefusal(Unavailable):
    """The answer has a status other than 200. `content` is the JSON object in its body; {} if there is none."""

    status = 0
    content: Mapping[str, Any] = MappingProxyType({})


class Malformed(SourceError):
    """An answer came, but it cannot be used."""

    def __init__(self, reason: MalformedReason, message: str, *, remedy: str) -> None:
        super().__init__(reason, message, remedy=remedy)


class Unsupported(SourceError):
    """The peer does not know the interface."""

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__("unimplemented", message, remedy=remedy)


def read_flag(flag: str, text: str, reader: Callable[[str], T], takes: str) -> T:
    """The value that `reader` makes of a flag's text. Raises ConfigError: the reader refuses the text."""
    try:
        return reader(text)
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"{flag}: {text!r} is not allowed; it takes {takes}") from error
