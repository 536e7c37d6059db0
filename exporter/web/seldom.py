"""Log lines that clients can cause at will: at most one of a kind each minute, with the number of those left out."""

import logging
import time

from exporter.log import log

EVERY_SECONDS = 60.0


class Seldom:
    """Writes the first line of a kind at once, and the next line of it after EVERY_SECONDS."""

    def __init__(self) -> None:
        self._kinds: dict[
            str, tuple[float, int]
        ] = {}  # when the last line was written, and how many were left out since

    def warn(self, kind: str, message: str, **fields: object) -> None:
        """Log a warning, or count it as left out. Use few kinds, since all are remembered."""
        now = time.monotonic()
        written, left_out = self._kinds.get(kind, (-EVERY_SECONDS, 0))
        if now - written < EVERY_SECONDS:
            self._kinds[kind] = (written, left_out + 1)
            return
        self._kinds[kind] = (now, 0)
        if left_out:
            fields["left_out_since_the_last"] = left_out
        log(logging.WARNING, message, **fields)
