"""The picture of `top` in the docs: what a terminal shows of it in front of the demo's cluster, as SVG with colours.

The file is the one argument.
"""

import re
import shlex
import sys
import tempfile
import time
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.support.demo import demo
from tests.support.tmux import tmux

COLUMNS, LINES = 108, 30
LIVES_SECONDS = 60.0
CLUSTER = ("--nodes=5", "--shared=1", "--collect-interval=1", "--speed=0.5")
# rich names a font of another site, which the picture of a page may not fetch
_FONT_FACE = re.compile(r"@font-face \{.*?\}\n", re.DOTALL)


def main(file: Path) -> None:
    with demo(*CLUSTER) as url, tempfile.TemporaryDirectory() as folder, tmux(Path(folder), COLUMNS, LINES) as pane:
        time.sleep(LIVES_SECONDS)
        pane.enter(shlex.join([sys.executable, "-m", "exporter", "top", "--url", url]))
        pane.until_it_says("gpu-node-2")
        pane.type("Down", "Down", "Down")
        pane.until_it_says("gpu-node-1 3")
        time.sleep(1)
        colored = pane.run("capture-pane", "-p", "-e")
        pane.type("q")
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    for line in colored.splitlines():
        console.print(Text.from_ansi(line), no_wrap=True, crop=True)
    svg = console.export_svg(title="top", theme=MONOKAI, unique_id="top")
    lines = _FONT_FACE.sub("", svg).replace("Fira Code", "ui-monospace").splitlines()
    file.write_text("".join(f"{line.rstrip()}\n" for line in lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
