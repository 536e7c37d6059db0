"""The picture of `top` in the docs, as SVG with colours, and its sample in kubectl.md: what a terminal shows of it.

The picture's file is the one argument; kubectl.md is beside its folder. The picture is of the demo's cluster, and the
sample of a node of the demo.
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

from tests.browser.samples import put
from tests.support.demo import demo
from tests.support.tmux import Tmux, tmux

COLUMNS, LINES = 108, 30
COLUMNS_OF_SAMPLE, LINES_OF_SAMPLE = 80, 24
LIVES_SECONDS = 60.0
CLUSTER = ("--nodes=5", "--shared=1", "--collect-interval=1", "--speed=0.5")
NODE = (
    *("--gpus=4", "--mig=1", "--shared=1", "--collect-interval=1"),
    *("--node-name=gpu-node-1", "--processes.expose=on"),
)
PROGRAM = (sys.executable, "-m", "exporter", "top")
# rich names a font of another site, which the picture of a page may not fetch
_FONT_FACE = re.compile(r"@font-face \{.*?\}\n", re.DOTALL)
# where dcgm-exporter is on a node; that of the demo has another port each time
_DCGM = re.compile(r"dcgm:127\.0\.0\.1:\d+")


def main(file: Path) -> None:
    page = file.parent.parent / "kubectl.md"
    with demo(*NODE) as node, demo(*CLUSTER) as cluster, tempfile.TemporaryDirectory() as work:
        folders = Path(work) / "sample", Path(work) / "picture"
        for folder in folders:
            folder.mkdir()
        with tmux(folders[0], COLUMNS_OF_SAMPLE, LINES_OF_SAMPLE) as of_node:
            of_node.enter(shlex.join([*PROGRAM, "--url", node]))
            with tmux(folders[1], COLUMNS, LINES) as of_cluster:
                file.write_text(picture(of_cluster, cluster))
            put(page, "top", shown(of_node))


def picture(pane: Tmux, url: str) -> str:
    """The SVG of `top` in front of the cluster, with a line chosen."""
    time.sleep(LIVES_SECONDS)
    pane.enter(shlex.join([*PROGRAM, "--url", url]))
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
    return "".join(f"{line.rstrip()}\n" for line in lines)


def shown(pane: Tmux) -> list[str]:
    """What the terminal shows, without the lines that are empty."""
    return [_DCGM.sub("dcgm:127.0.0.1:9401", line) for line in pane.screen() if line.strip()]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
