"""Faults of this program that a process or a file of a container brings about: they cost that one, and are logged."""

import logging

from exporter.log import log


class FaultLog:
    """Logs some of them: whoever brings them about does not choose how much is logged."""

    def __init__(self) -> None:
        self._count = 0

    def note(self, error: Exception, **about: object) -> None:
        """Log the 1st, 2nd, 4th, 8th and so on."""
        self._count += 1
        if self._count.bit_count() == 1:
            log(logging.ERROR, "the CUDA probe leaves out what made it fail: report it", error, **about)
