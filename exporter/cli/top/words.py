"""Text in cells of a terminal: made harmless, measured, cut; and bars.

Names come from pods, from a page or from a command line, and may hold anything. Nothing that a terminal obeys, and
nothing that changes the order or the height of what stands beside it, reaches the screen.
"""

import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from rich.cells import cell_len

MOST_CHARS = 400  # of one name: Kubernetes allows 253, and a command line may be a page long
# Control characters, formats (bidirectional marks, joiners), surrogates, private, unassigned, line and paragraph ends.
_UNSAFE = frozenset(["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"])
_STACKED = frozenset(["Mn", "Me"])  # accents without a letter of their own, which some write by the dozen
_RIGHT_TO_LEFT = frozenset(["R", "AL", "AN"])  # a terminal may turn the rest of the line round with them


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """The characters beside letters and digits. `bar` holds the parts of a cell from the least to a whole one."""

    bar: str = "▏▎▍▌▋▊▉█"
    ellipsis: str = "…"
    unknown: str = "\N{REPLACEMENT CHARACTER}"
    branch: str = "├"
    last: str = "└"
    degrees: str = "°C"
    down: str = "▼"
    up: str = "▲"
    dot: str = "·"


UNICODE = Glyphs()
ASCII = Glyphs(bar="#", ellipsis="~", unknown="?", branch="|", last="`", degrees="C", down="v", up="^", dot="-")


@lru_cache(maxsize=4096)
def harmless(text: str, glyphs: Glyphs) -> str:
    """A text on one line, of printable characters from left to right; in ASCII where the glyphs are."""
    if text.isascii() and text.isprintable():
        return text[:MOST_CHARS]
    shown = []
    for char in unicodedata.normalize("NFC", text[:MOST_CHARS]):
        category = unicodedata.category(char)
        if category in _STACKED:
            continue
        is_safe = category not in _UNSAFE and unicodedata.bidirectional(char) not in _RIGHT_TO_LEFT
        is_safe = is_safe and (glyphs is not ASCII or char.isascii())
        # another kind of space may be as wide as it likes
        shown.append((" " if category == "Zs" else char) if is_safe else glyphs.unknown)
    return "".join(shown)


def width_of(text: str) -> int:
    """The cells that a harmless text takes."""
    return len(text) if text.isascii() else cell_len(text)


def cut(text: str, width: int, glyphs: Glyphs, *, keeps_end: int = 0) -> str:
    """At most so many cells; an ellipsis stands for what is left out, before the last `keeps_end` characters."""
    if width_of(text) <= width:
        return text
    if width <= 0:
        return ""
    end = text[-keeps_end:] if keeps_end and width > 2 * keeps_end + 1 else ""
    left = width - width_of(glyphs.ellipsis) - width_of(end)
    kept = []
    for char in text:
        left -= width_of(char)
        if left < 0:
            break
        kept.append(char)
    return "".join(kept) + glyphs.ellipsis + end


def pad(text: str, width: int, *, right: bool = False) -> str:
    """A text with spaces after it, or before it with `right`, up to a width."""
    space = " " * (width - width_of(text))
    return space + text if right else text + space


def bar(ratio: float, width: int, glyphs: Glyphs) -> str:
    """A bar of at most `width` cells, without the space after it. What is not nothing is seen."""
    parts = len(glyphs.bar)
    ratio = min(max(ratio, 0.0), 1.0)
    eighths = round(ratio * width * parts)
    if ratio and not eighths:
        eighths = 1
    whole, rest = divmod(eighths, parts)
    return glyphs.bar[-1] * whole + (glyphs.bar[rest - 1] if rest else "")
