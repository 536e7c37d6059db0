"""What a terminal sends → keys: a character, or the name of one such as "up". Pure.

The sequences are those of xterm, which tmux, screen, the Linux console and every newer terminal send too.
"""

from codecs import getincrementaldecoder
from collections.abc import Iterator

_NAMED = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1bOH": "home",
    "\x1bOF": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x03": "quit",
    "\x04": "quit",
}
_MOST_OF_A_SEQUENCE = 16


class Keys:
    """Bytes as they come, in pieces that may end anywhere."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("ignore")
        self._rest = ""

    @property
    def is_waiting(self) -> bool:
        """Whether a sequence has begun: if nothing follows soon, it was the Escape key."""
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
            key, text = text[:length], text[length:]
            if key in _NAMED:
                yield _NAMED[key]
            elif key.isprintable():
                yield key

    def flush(self) -> Iterator[str]:
        """What began and was not continued."""
        if self._rest:
            self._rest = ""
            yield "escape"


def _length(text: str) -> int:
    """How much of a text its first key is; 0 while it is not known."""
    if text[0] != "\x1b":
        return 1
    if len(text) == 1:
        return 0
    if text[1] not in "[O":
        return 1  # Escape, and another key
    for at, char in enumerate(text[2:_MOST_OF_A_SEQUENCE], start=2):
        if "@" <= char <= "~":
            return at + 1
    return 0 if len(text) < _MOST_OF_A_SEQUENCE else len(text)
