"""Lines → what a terminal is sent. With rich, which knows what colours a terminal has."""

from collections.abc import Sequence
from typing import TextIO

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from exporter.cli.top.columns import Line

# The sixteen colours that users choose for their terminals, so that it is readable on light and dark.
_STYLES = {
    name: Style.parse(text)
    for name, text in {
        "title": "bold",
        "head": "bold reverse",
        "status": "reverse",
        "label": "bold",
        "dim": "dim",
        "idle": "bold black on yellow",
        "idle.number": "bold yellow",
        "idle.owner": "yellow",
        "owner": "cyan",
        "load": "green",
        "busy": "bold green",
        "memory": "blue",
        "full": "magenta",
        "warn": "yellow",
        "bad": "bold red",
        "good": "green",
    }.items()
}
_COLORS = {"standard": ColorSystem.STANDARD, "256": ColorSystem.EIGHT_BIT, "truecolor": ColorSystem.TRUECOLOR}


class Painter:
    """Makes text of lines: plain where `stream` is no terminal, without colours where the user wants none."""

    def __init__(self, stream: TextIO, *, no_color: bool) -> None:
        console = Console(file=stream, no_color=no_color or None)
        self._system = _COLORS.get(console.color_system or "")
        self._styles = {name: style.without_color if console.no_color else style for name, style in _STYLES.items()}

    def text(self, line: Line) -> str:
        """A line without its end. What follows the last character is left away."""
        spans = [(span.text, self._styles.get(span.style)) for span in line]
        while spans and not spans[-1][0].strip() and not _is_seen(spans[-1][1]):
            spans.pop()
        if spans and not _is_seen(spans[-1][1]):
            spans[-1] = (spans[-1][0].rstrip(), spans[-1][1])
        if self._system is None:
            return "".join(text for text, _ in spans).rstrip()
        return "".join(style.render(text, color_system=self._system) if style else text for text, style in spans)

    def lines(self, lines: Sequence[Line]) -> str:
        """Lines with their ends."""
        return "".join(f"{self.text(line)}\n" for line in lines)


def _is_seen(style: Style | None) -> bool:
    """Whether a space has a look with this style."""
    return style is not None and bool(style.reverse or style.bgcolor)
