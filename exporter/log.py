"""The log: each line is an event with a fixed message and varying fields, as logfmt or JSON.

`log.warning("source failed", source=name)` writes a line, as do `log.info`, `log.error` and `log.debug`.
"""

import json
import logging
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import MappingProxyType
from typing import TextIO

LOG = logging.getLogger("pod_gpu_exporter")
RARELY_SECONDS = 60.0
MOST_LINES_KEPT = 1_000
MOST_CHARS_KEPT = 512 * 1024  # a line is ASCII
_ABOUT: ContextVar[Mapping[str, object]] = ContextVar("_ABOUT", default=MappingProxyType({}))


def log(level: int, message: str, error: BaseException | None = None, /, **fields: object) -> None:
    """Log an event: a fixed message, and varying fields. An `error` is logged with its trace."""
    LOG.log(level, message, exc_info=error, extra={"fields": {**_ABOUT.get(), **fields}})


info = partial(log, logging.INFO)
warning = partial(log, logging.WARNING)
error = partial(log, logging.ERROR)


@contextmanager
def about(**fields: object) -> Iterator[None]:
    """Add these fields to events of this block, and of tasks and servers that begin in it."""
    token = _ABOUT.set({**_ABOUT.get(), **fields})
    try:
        yield
    finally:
        _ABOUT.reset(token)


def debugging() -> bool:
    """Whether the level debug is on."""
    return LOG.isEnabledFor(logging.DEBUG)


def debug(message: str, /, **fields: object) -> None:
    """Log an event of the level debug. It is cheap while the level is off, since every scrape calls it."""
    if debugging():
        log(logging.DEBUG, message, **fields)


def start_logging(level: str, log_format: str) -> None:
    """Log to standard error from now on. The last lines are kept, too, also over a reload, which calls this again."""
    handler = KeepingHandler(sys.stderr)
    handler.setFormatter(_Json() if log_format == "json" else _Logfmt())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)

    LOG.setLevel({"warn": "WARNING"}.get(level, level.upper()))


def last_lines() -> tuple[str, ...]:
    """The last lines of the log, oldest first: at most MOST_LINES_KEPT, and MOST_CHARS_KEPT with their ends."""
    return _LAST_LINES.all()


class LastLines:
    """The last lines of a log. Lines are added by one thread at a time, as a handler does."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._chars = 0

    def add(self, line: str) -> None:
        """Add a line, and forget the oldest ones that are too many. A long line is cut."""
        kept = line[: MOST_CHARS_KEPT - 1]
        self._lines.append(kept)
        self._chars += len(kept) + 1

        while len(self._lines) > MOST_LINES_KEPT or self._chars > MOST_CHARS_KEPT:
            self._chars -= len(self._lines.popleft()) + 1

    def all(self) -> tuple[str, ...]:
        """The lines, oldest first."""
        return tuple(self._lines)


_LAST_LINES = LastLines()


class KeepingHandler(logging.StreamHandler[TextIO]):
    """The handler of a stream that also keeps the last lines."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's line, which is kept, too."""
        line = super().format(record)
        _LAST_LINES.add(line)
        return line


class RareLog:
    """Logs the first line of a kind at once, and further lines at most every RARELY_SECONDS."""

    def __init__(self) -> None:
        # the time of the last line, and the number of lines left out since
        self._kinds: dict[str, tuple[float, int]] = {}

    def warn(self, kind: str, message: str, **fields: object) -> None:
        """Log a warning, or count it as left out. Use few kinds, since all are remembered."""
        now = time.monotonic()
        written, left_out = self._kinds.get(kind, (-RARELY_SECONDS, 0))
        if now - written < RARELY_SECONDS:
            self._kinds[kind] = (written, left_out + 1)
            return

        self._kinds[kind] = (now, 0)
        if left_out:
            fields["left_out_since_the_last"] = left_out

        warning(message, **fields)


class _EventFormatter(logging.Formatter):
    """The base class of formatters. It gives them time, level, message and fields of a record, in this order."""

    def event(self, record: logging.LogRecord) -> dict[str, object]:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        event: dict[str, object] = {"ts": moment, "level": record.levelname.lower(), "msg": record.getMessage()}
        if record.name != LOG.name:
            event["logger"] = record.name

        event.update(getattr(record, "fields", {}))
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)

        return event


class _Json(_EventFormatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self.event(record), default=str)


class _Logfmt(_EventFormatter):
    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{key}={_logfmt_value(str(value))}" for key, value in self.event(record).items())


def _logfmt_value(text: str) -> str:
    # json's quoting also keeps control characters, such as terminal escapes, out of the log
    plain = text.isascii() and text.isprintable() and text and not set(text) & {" ", '"', "=", "\\"}
    return text if plain else json.dumps(text)
