"""The terminal: keys without Enter, the alternate screen, its size, signals. The program always restores it."""

import os
import select
import signal
import sys
import termios
import threading
import tty
from codecs import getincrementaldecoder
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

# Switch to the alternate screen, hide the cursor, do not wrap at the right edge; and undo all that.
_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
_LEAVE = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_READ_BYTES = 1024
_SMALLEST = (1, 2)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_HANDLED = (*_ENDING, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)
_SEQUENCES = {
    "up": ("\x1b[A", "\x1bOA"),
    "down": ("\x1b[B", "\x1bOB"),
    "page up": ("\x1b[5~",),
    "page down": ("\x1b[6~",),
    "home": ("\x1b[H", "\x1bOH", "\x1b[1~"),
    "end": ("\x1b[F", "\x1bOF", "\x1b[4~"),
    "escape": ("\x1b",),
    "enter": ("\r", "\n"),
    "backspace": ("\x7f", "\x08"),
    "quit": ("\x03", "\x04"),
}
_NAMED = {sequence: name for name, sequences in _SEQUENCES.items() for sequence in sequences}
_MOST_OF_A_SEQUENCE = 16


class Ended(Exception):
    """The program must end, by a signal or since the terminal is gone."""

    def __init__(self, signum: int = signal.SIGHUP) -> None:
        super().__init__(signum)
        self.signum = signum


class Terminal:
    """A terminal that shows one picture at a time. Make it with `opened`.

    `size`, `show` and `wait` raise Ended if the terminal is gone, and `wait` also at a signal that ends the program.
    """

    def __init__(self) -> None:
        self._in = sys.stdin.fileno()
        self._out = sys.stdout.fileno()
        self._before = termios.tcgetattr(self._in)
        self._awake, self._waker = os.pipe()
        os.set_blocking(self._awake, False)
        os.set_blocking(self._waker, False)
        self._shown: Sequence[str] = ()
        self._closing = threading.Lock()
        self._is_closed = False

    def wake(self) -> None:
        """End a wait, from another thread. That may outlive the terminal, so this does nothing after `close`."""
        # a full pipe ends the wait, too
        with self._closing, suppress(BlockingIOError):
            if not self._is_closed:
                os.write(self._waker, b"\0")

    def size(self) -> tuple[int, int]:
        """The terminal's columns and lines."""
        try:
            columns, lines = os.get_terminal_size(self._out)
        except OSError as error:
            raise Ended from error
        # a serial line says 0
        return max(columns or 80, _SMALLEST[0]), max(lines or 24, _SMALLEST[1])

    def show(self, lines: Sequence[str]) -> None:
        """Show these lines, which fit. Only lines that differ are sent, since the connection may be slow."""
        sent = []
        if len(lines) != len(self._shown):
            sent.append("\x1b[2J")
            self._shown = [""] * len(lines)
        for number, (line, before) in enumerate(zip(lines, self._shown, strict=True), start=1):
            if line != before:
                # the line is cleared first: clearing after a full line would delete its last character
                sent.append(f"\x1b[{number};1H\x1b[2K{line}\x1b[0m")
        self._shown = lines
        self._write("".join(sent))

    def wait(self, seconds: float | None) -> bytes:
        """Wait for keys of the user, and return them; b"" if something else ended the wait, or the time is over."""
        ready, _, _ = select.select([self._in, self._awake], [], [], seconds)
        if self._awake in ready:
            for signum in os.read(self._awake, _READ_BYTES):
                self._obey(signum)
        if self._in not in ready:
            return b""
        try:
            data = os.read(self._in, _READ_BYTES)
        except OSError as error:
            raise Ended from error
        if not data:
            raise Ended
        return data

    def _obey(self, signum: int) -> None:
        if signum in _ENDING:
            raise Ended(signum)
        if signum == signal.SIGTSTP:
            self.leave()
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTSTP)  # returns when the shell continues the program
            signal.signal(signal.SIGTSTP, _note)
            self.enter()
        elif signum == signal.SIGCONT:
            self.enter()
        elif signum == signal.SIGWINCH:
            self._shown = ()

    def enter(self) -> None:
        """Take over the terminal."""
        tty.setcbreak(self._in, termios.TCSANOW)
        self._shown = ()
        self._write(_ENTER)

    def leave(self) -> None:
        """Give the terminal back as it was."""
        with suppress(Ended):
            self._write(_LEAVE)
        with suppress(termios.error):
            termios.tcsetattr(self._in, termios.TCSANOW, self._before)

    def close(self) -> None:
        """Close the pipe. After that its descriptors may belong to other files."""
        with self._closing:
            self._is_closed = True
            os.close(self._awake)
            os.close(self._waker)

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except OSError as error:
            raise Ended from error


def _note(signum: int, frame: FrameType | None) -> None:
    """Do nothing. Python itself writes the signal's number into the pipe, from which the loop reads it."""


@contextmanager
def opened() -> Iterator[Terminal]:
    """Take over this program's terminal until the block ends, in whatever way."""
    terminal = Terminal()
    before = {signum: signal.signal(signum, _note) for signum in _HANDLED}
    waker = signal.set_wakeup_fd(terminal._waker, warn_on_full_buffer=False)  # noqa: SLF001 - they are one
    try:
        terminal.enter()
        yield terminal
    finally:
        terminal.leave()
        signal.set_wakeup_fd(waker)
        for signum, handler in before.items():
            signal.signal(signum, handler)
        terminal.close()


class Keys:
    """A decoder of keys, from bytes in pieces that may end anywhere."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("ignore")
        self._rest = ""

    @property
    def is_waiting(self) -> bool:
        """Whether a sequence has begun. If nothing follows soon, it was the Escape key."""
        return bool(self._rest)

    def feed(self, data: bytes) -> Iterator[str]:
        """The keys that are complete now."""
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        while text:
            length = _length(text)
            if not length:
                self._rest = text
                return
            key = text[:length]
            text = text[length:]
            if key in _NAMED:
                yield _NAMED[key]
            elif key.isprintable():
                yield key

    def flush(self) -> Iterator[str]:
        """The key of a sequence that did not go on."""
        if self._rest:
            self._rest = ""
            yield "escape"


def _length(text: str) -> int:
    """The length of the first key in a text; 0 while it is not known."""
    if text[0] != "\x1b":
        return 1
    if len(text) == 1:
        return 0
    if text[1] not in "[O":
        return 1  # the Escape key, and then another one
    for at, char in enumerate(text[2:_MOST_OF_A_SEQUENCE], start=2):
        if "@" <= char <= "~":
            return at + 1
    return 0 if len(text) < _MOST_OF_A_SEQUENCE else len(text)
