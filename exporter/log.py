"""The log: each line is an event with a fixed message and varying fields, as logfmt or JSON.

`log.warning("source failed", source=name)` writes a line, as do `log.info`, `log.error` and `log.debug`.
"""

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import MappingProxyType

LOG = logging.getLogger("pod_gpu_exporter")
RARELY_SECONDS = 60.0
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
    """Log to standard error from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if log_format == "json" else _Logfmt())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    LOG.setLevel({"warn": "WARNING"}.get(level, level.upper()))


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
