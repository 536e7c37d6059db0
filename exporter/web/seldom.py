"""Log lines for what anybody can cause at will: one of a kind each minute, with how many were left out."""

import logging
import time

from exporter.log import log

EVERY_SECONDS = 60.0


class Seldom:
    """Writes the first line of a kind at once, and the next one when a minute has passed."""

    def __init__(self) -> None:
        self._kinds: dict[str, tuple[float, int]] = {}  # when the last one was written, and how many were not since

    def warn(self, kind: str, message: str, **fields: object) -> None:
        """A warning; `kind` is one of a few words, since all kinds are remembered."""
        now = time.monotonic()
        written, left_out = self._kinds.get(kind, (-EVERY_SECONDS, 0))
        if now - written < EVERY_SECONDS:
            self._kinds[kind] = (written, left_out + 1)
            return
        self._kinds[kind] = (now, 0)
        if left_out:
            fields["left_out_since_the_last"] = left_out
        log(logging.WARNING, message, **fields)
