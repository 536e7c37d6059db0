"""The picture of `top` in the docs, as SVG with colours, and its samples in kubectl.md: what a terminal shows of it.

The picture's file is the one argument; kubectl.md is beside its folder. The picture and the strip are of the demo's
cluster, the table and the last minutes of a node of the demo.
"""

import os
import re
import shlex
import subprocess
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
COLUMNS_OF_SAMPLES, LINES_OF_SAMPLES, LINES_OF_MINUTES = 80, 24, 14
LIVES_SECONDS = 60.0
# most of the five minutes that its charts have
NODE_LIVES_SECONDS = 240.0
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
        folders = Path(work) / "samples", Path(work) / "picture"
        for folder in folders:
            folder.mkdir()
        with tmux(folders[0], COLUMNS_OF_SAMPLES, LINES_OF_SAMPLES) as of_node:
            of_node.enter(shlex.join([*PROGRAM, "--url", node]))
            began = time.monotonic()
            with tmux(folders[1], COLUMNS, LINES) as of_cluster:
                file.write_text(picture(of_cluster, cluster))
            put(page, "top-nodes", strip(cluster))
            time.sleep(max(0.0, began + NODE_LIVES_SECONDS - time.monotonic()))
            samples(of_node, page)


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


def strip(url: str) -> list[str]:
    """What stands above the table in front of the cluster."""
    environ = {**os.environ, "COLUMNS": str(COLUMNS_OF_SAMPLES), "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
    once = subprocess.run(
        [*PROGRAM, "--once", "--url", url], env=environ, check=True, stdout=subprocess.PIPE, text=True
    )
    lines = once.stdout.splitlines()
    return lines[: next(number for number, line in enumerate(lines) if line.startswith("NODE"))]


def samples(pane: Tmux, page: Path) -> None:
    """The table of a node, and the last minutes of its second GPU."""
    put(page, "top", shown(pane))
    # a tall terminal has charts of several lines
    pane.resize(COLUMNS_OF_SAMPLES, LINES_OF_MINUTES)
    pane.type("Down", "Enter")
    # the processes are asked for only now
    pane.until(lambda screen: any(line.startswith("GPU") and "COMMAND" in line for line in screen))
    pane.until(lambda screen: any("python3" in line for line in screen))
    put(page, "top-last-minutes", shown(pane))


def shown(pane: Tmux) -> list[str]:
    """What the terminal shows, without the lines that are empty."""
    return [_DCGM.sub("dcgm:127.0.0.1:9401", line) for line in pane.screen() if line.strip()]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
