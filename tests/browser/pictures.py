"""The pictures of the docs: the page in front of the demo, as Chromium shows it, and the dashboards, which are drawn.

The folder is the one argument.

The demo lives for a while first, so that the lines have something to show.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.browser.dashboards import draw
from tests.browser.table import opened
from tests.support.chromium import Tab, chromium
from tests.support.demo import demo

LIVES_SECONDS = 75.0
NODE = ("--mig", "--shared=3", "--collect-interval=1", "--speed=4", "--node-name=gpu-node-1")
CLUSTER = ("--nodes=5", "--collect-interval=1", "--speed=0.2")


class Picture(NamedTuple):
    name: str
    width: int
    height: int
    dark: bool = False
    scroll_to: str = ""


OF_NODE = (
    Picture("page-light", 1280, 860),
    Picture("page-dark", 1280, 860, dark=True),
    Picture("page-narrow", 390, 860),
)
OF_CLUSTER = (Picture("page-cluster", 1280, 860),)
# by name the row of Grafana's grid down to which it is drawn
DASHBOARDS = {"cluster": 21, "idle": 31}


async def take(tab: Tab, url: str, pictures: tuple[Picture, ...], folder: Path) -> None:
    """Open the page once, and take all pictures of it after a while."""
    await tab.look(width=1280)
    await opened(tab, url)
    await asyncio.sleep(LIVES_SECONDS)
    for picture in pictures:
        await tab.look(width=picture.width, height=picture.height, dark=picture.dark)
        await tab.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        (folder / f"{picture.name}.png").write_bytes(await tab.picture())
        print(f"{folder / picture.name}.png")


async def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with demo(*NODE) as node, demo(*CLUSTER) as cluster:
        async with chromium() as browser:
            # one after the other: a tab behind another one asks for nothing
            for url, pictures in ((node, OF_NODE), (cluster, OF_CLUSTER)):
                async with browser.tab() as tab:
                    await take(tab, f"{url}/", pictures, folder)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as work:
        for file in draw(Path(sys.argv[1]), Path(work), DASHBOARDS, nodes=3, hours=2):
            print(file)
