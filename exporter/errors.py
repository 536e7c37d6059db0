"""What can go wrong: a `Trouble` in words, and the exceptions.

Foreign exceptions (grpc, aiohttp) are translated into these once, in the source that meets them. A trouble is worded
where it is met, and every output shows that text.
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
    """What is wrong, or odd, and what to do about it. What it is about stands beside it.

    `reason` is one word for labels, statuses and alerts; "" where only people read it. `message` says what is so, and
    `remedy` what to do; "" where nothing can be done. Message and remedy do not repeat each other. Both may hold what
    a peer sent, line ends included.
    """

    reason: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        """Message and remedy on one line, whatever a peer put into them."""
        return one_line(f"{self.message} -> {self.remedy}" if self.remedy else self.message)


class ExporterError(Exception):
    """The root of everything this program raises on purpose."""


class ConfigError(ExporterError):
    """The configuration cannot be used. The text is one line: the key, the value and what is allowed."""


class PortTaken(ExporterError):
    """An address to listen on is taken, or not allowed."""


class DuplicateKey(ExporterError):
    """A file gives one key of a mapping twice. Which of the two values would count is chance, so neither does."""

    def __init__(self, key: object, line: int | None = None) -> None:
        """`line` counts from 1."""
        where = "" if line is None else f" (the second time in line {line})"
        super().__init__(f"the key {key!r} is there twice{where}; give each key once")


class SourceError(ExporterError):
    """A source failed this time. Its text is the message of its trouble, and each subclass has its own set of reasons.

    `retry_after_seconds` is how long the peer asks to be left alone; None where it does not say.
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
    """There is nobody to talk to, or it refuses to talk."""

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
    """There was a connection, and no whole answer came in time."""


class HttpRefusal(Unavailable):
    """A status other than 200. `content` is what the peer says in JSON, as far as it does; {} where it does not."""

    status = 0
    content: Mapping[str, Any] = MappingProxyType({})


class Malformed(SourceError):
    """An answer came, and it cannot be used."""

    def __init__(self, reason: MalformedReason, message: str, *, remedy: str) -> None:
        super().__init__(reason, message, remedy=remedy)


class Unsupported(SourceError):
    """The peer does not know the interface."""

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__("unimplemented", message, remedy=remedy)


def read_flag(flag: str, text: str, reader: Callable[[str], T], takes: str) -> T:
    """What a flag's text means. Raises ConfigError where the reader refuses it."""
    try:
        return reader(text)
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"{flag}: {text!r} is not allowed; it takes {takes}") from error
