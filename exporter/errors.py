"""What can go wrong, as a small tree: a bad configuration, or a source that did not answer well.

Foreign exceptions (grpc, aiohttp) are translated into these once, in the source that meets them. Every
`SourceError` carries a `reason` from a closed set, so that logs and counters speak of the same thing, and a text that
names what to do.
"""

from typing import ClassVar


class ExporterError(Exception):
    """The root of everything this program raises on purpose."""


class ConfigError(ExporterError):
    """The configuration cannot be used. The text is one line: the key, the value and what is allowed."""


class DuplicateKey(ExporterError):
    """A file gives one key of one mapping twice: which value counts would be chance."""

    def __init__(self, key: object, line: int | None = None) -> None:
        """`line` counts from 1."""
        where = "" if line is None else f" (the second time in line {line})"
        super().__init__(f"the key {key!r} is there twice{where}; give each key once")


class SourceError(ExporterError):
    """A source failed this time. `reason` is from the closed set of its class."""

    reasons: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self, reason: str, message: str, *, remedy: str = "", retry_after_seconds: float | None = None
    ) -> None:
        """`remedy` is what to do, where the message does not say it.

        `retry_after_seconds` is how long the source asks to be left alone, where it says so.
        """
        if reason not in self.reasons:
            raise ValueError(f"{reason!r} is not a reason of {type(self).__name__}")
        super().__init__(message)
        self.reason = reason
        self.remedy = remedy
        self.retry_after_seconds = retry_after_seconds


class Unavailable(SourceError):
    """There is nobody to talk to, or it refuses to talk."""

    reasons = frozenset(
        {
            "refused",
            "missing",
            "permission",
            "unauthorized",
            "unreachable",
            "rate_limited",
            "http_status",
            "stale",
            "tls",
        }
    )


class TimedOut(SourceError):
    """No answer within the time allowed."""

    reasons = frozenset({"deadline"})


class Malformed(SourceError):
    """An answer came, and it cannot be used."""

    reasons = frozenset({"garbage", "oversize", "truncated", "no_samples", "encoding"})


class Unsupported(SourceError):
    """The peer does not know the interface."""

    reasons = frozenset({"unimplemented"})
