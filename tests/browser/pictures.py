"""The pictures of the docs: the page in front of the demo and the report's, as Chromium shows them, and dashboards.

The folder of the pictures is the one argument; the sample in report.md, beside that folder, is made anew, too. Which
names each PNG shows is written to names.json: a test holds them to those that the demo has.

The demo lives for a while first, so that the lines have something to show.
"""

import asyncio
import hashlib
import json
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tests.browser.dashboards import Hours, draw, hours_of_nodes
from tests.browser.samples import put
from tests.browser.table import opened
from tests.support.chromium import Tab, chromium
from tests.support.demo import demo

LIVES_SECONDS = 75.0
SETTLES_SECONDS = 180.0
NODE = ("--mig", "--shared=3", "--collect-interval=1", "--speed=4", "--node-name=gpu-node-1")
CLUSTER = ("--nodes=5", "--seed=6", "--collect-interval=1", "--speed=0.2")
PRICES = ("--price-per-gpu-hour", "2.50", "--price-per-kwh", "0.30")
MOST_WASTEFUL = 3  # workloads in the sample of the report


class Picture(NamedTuple):
    name: str
    width: int
    height: int
    dark: bool = False


OF_NODE = (
    Picture("page-light", 1280, 860),
    Picture("page-dark", 1280, 860, dark=True),
    Picture("page-narrow", 390, 860),
)
OF_CLUSTER = (Picture("page-cluster", 1280, 860),)
OF_REPORT = Picture("report", 900, 1400)
# by name the row of Grafana's grid down to which it is drawn
DASHBOARDS = {"cluster": 21, "idle": 31}
# The names that can be seen of pods on the page, and of groups in the report.
SEEN = """
[...document.querySelectorAll("a.pod, tbody th[scope=row]:not(.gpu, .node)")].filter((each) => {
  const {top, bottom} = each.getBoundingClientRect();
  return top >= 0 && bottom <= innerHeight;
}).map((each) => each.textContent).filter((name) => name !== "(nobody)")
"""


# Moments that pass, and that no picture is to be about: a GPU has just changed hands.
UNSETTLED = "document.querySelector('#devices tr:is(.before, .older), #devices .others')"


async def take(tab: Tab, picture: Picture, folder: Path) -> None:
    """Take one picture of what is open, and note the names in it."""
    await tab.look(width=picture.width, height=picture.height, dark=picture.dark)
    png, names = b"", None
    # the page looks again every few seconds: the names are those of the picture if they did not change meanwhile
    while not png or await tab.run(SEEN) != names:
        await tab.until(f"!({UNSETTLED})", SETTLES_SECONDS)
        await tab.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        names = await tab.run(SEEN)
        png = await tab.picture()
    file = folder / f"{picture.name}.png"
    file.write_bytes(png)
    noted = folder / "names.json"
    seen = json.loads(noted.read_text()) if noted.exists() else {}
    seen[file.name] = {"sha256": hashlib.sha256(png).hexdigest(), "names": sorted(set(names))}
    noted.write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n")
    print(file)


async def of_the_page(folder: Path) -> None:
    """The page of a node, and that of several."""
    with demo(*NODE) as node, demo(*CLUSTER) as cluster:
        async with chromium() as browser:
            # one after the other: a tab behind another one asks for nothing
            for url, pictures in ((node, OF_NODE), (cluster, OF_CLUSTER)):
                async with browser.tab() as tab:
                    await tab.look(width=1280)
                    await opened(tab, f"{url}/")
                    await asyncio.sleep(LIVES_SECONDS)
                    for picture in pictures:
                        await take(tab, picture, folder)


def report(lived: Hours, *more: str) -> str:
    """What `report` prints of these hours."""
    begin, end = (datetime.fromtimestamp(at, UTC).isoformat() for at in (lived.begin, lived.end))
    span = ("--prometheus", lived.server.base, "--from", begin, "--to", end)
    command = [sys.executable, "-m", "exporter", "report", *span, *PRICES, *more]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def shortened(table: str) -> list[str]:
    """The report as the docs have it: of the workloads that use least, the first ones."""
    lines = table.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("workload ")) + 2
    rest = lines.index("", first)
    return [*lines[: first + MOST_WASTEFUL], "…", *lines[rest:]]


async def of_the_report(folder: Path, work: Path, lived: Hours) -> None:
    """The report's page, and its sample in the docs."""
    page = work / "report.html"
    page.write_text(report(lived, "--format", "html"))
    async with chromium() as browser, browser.tab() as tab:
        await tab.open(page.as_uri())
        await tab.do("Emulation.setScrollbarsHidden", hidden=True)
        await take(tab, OF_REPORT, folder)
    put(folder.parent / "report.md", "report", shortened(report(lived)))


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(of_the_page(folder))
    with tempfile.TemporaryDirectory() as work, hours_of_nodes(Path(work), nodes=3, hours=2) as lived:
        for file in draw(folder, lived, DASHBOARDS):
            print(file)
        asyncio.run(of_the_report(folder, Path(work), lived))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
