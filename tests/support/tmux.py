"""A real terminal that tests can look at and type into: tmux, with a server and a configuration of its own."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.components import real
from tests.support.waiting import PATIENCE_SECONDS, wait_until


class Tmux:
    """One pane, in which a shell waits."""

    def __init__(self, program: Path, socket: Path) -> None:
        self._command = [str(program), "-u", "-f", "/dev/null", "-S", str(socket)]

    def run(self, *arguments: str) -> str:
        ended = subprocess.run(
            [*self._command, *arguments], capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
        )
        return ended.stdout

    def type(self, *keys: str) -> None:
        """Press keys, by tmux's names for them."""
        self.run("send-keys", *keys)

    def enter(self, line: str) -> None:
        """Type a command line for the shell."""
        self.run("send-keys", "-l", line)
        self.type("Enter")

    def screen(self) -> list[str]:
        return self.run("capture-pane", "-p").splitlines()

    def resize(self, columns: int, lines: int) -> None:
        self.run("resize-window", "-x", str(columns), "-y", str(lines))

    def told(self, name: str) -> str:
        """What tmux knows of the pane, such as alternate_on."""
        return self.run("display-message", "-p", f"#{{{name}}}").strip()

    def until(self, shows: Callable[[list[str]], object]) -> list[str]:
        """The screen once it shows what it should."""
        screen: list[str] = []

        def is_shown() -> object:
            nonlocal screen
            screen = self.screen()
            return shows(screen)

        wait_until(is_shown, why=lambda: "\n".join(screen))
        return screen

    def until_it_says(self, text: str) -> list[str]:
        return self.until(lambda screen: any(text in line for line in screen))


@contextmanager
def tmux(folder: Path, columns: int, lines: int) -> Iterator[Tmux]:
    pane = Tmux(real("tmux"), folder / "tmux")
    environ = {"LC_ALL": "C.UTF-8", "PS1": "$ ", "ENV": "", "TERM": "xterm-256color", "PATH": os.environ["PATH"]}
    given = [part for name, text in environ.items() for part in ("-e", f"{name}={text}")]
    pane.run("new-session", "-d", "-x", str(columns), "-y", str(lines), *given, "/bin/sh")
    try:
        yield pane
    finally:
        pane.run("kill-server")
