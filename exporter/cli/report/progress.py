"""How far a long command is: a line on a terminal that is written over, and nothing where nobody looks."""

import shutil
from types import TracebackType
from typing import Self, TextIO

from exporter.report.words import clean, fit

_BAR = 24


class Progress:
    """Entered around the work; leaves no trace on the terminal when that is done."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_shown = stream.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._put("")

    def note(self, done: int, of: int) -> None:
        """So many parts of so many are done."""
        filled = _BAR * done // of
        self._put(f"asking Prometheus  {'#' * filled}{'.' * (_BAR - filled)}  {done} of {of}")

    def say(self, text: str) -> None:
        """Something to know while one waits, on a line of its own; it is said to a log, too."""
        self._put("")
        print(clean(text, 400), file=self._stream, flush=True)

    def _put(self, text: str) -> None:
        if self._is_shown:
            columns = shutil.get_terminal_size().columns - 1
            self._stream.write("\r" + fit(clean(text), columns) + "\r" + text[:columns])
            self._stream.flush()
