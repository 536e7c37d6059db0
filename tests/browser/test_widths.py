"""The page at every width that people have, from a telephone to a wide screen: nothing that matters is cut."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import axe
from tests.browser.longest import pages_of_the_longest
from tests.browser.table import opened
from tests.support.chromium import Tab
from tests.support.demo import demo
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session")]

WIDTHS = (360, 390, 768, 961, 1000, 1024, 1100, 1180, 1280, 1600)
CARDS = 960  # and less: every line is a card
LEAST_OF_A_POD = 140  # pixels, of which a name such as ml/trainer-0 takes some 90
# Cells whose text, or what is drawn in them, is wider than they are. A pod, a workload and a node may have any name.
CUT = """
[...document.querySelectorAll("#devices :is(th, td):not(.pod, .workload, .node)")]
  .filter((each) => each.clientWidth && each.scrollWidth > each.clientWidth)
  .map((each) => `${each.className}: ${each.innerText}`)
"""
HELD_BY = """
[...document.querySelectorAll("#devices td.pod")].filter((each) => each.innerText)
  .map((each) => [each.clientWidth, each.scrollWidth])
"""
# Figures and words that are broken in the middle, and stand in two lines.
BROKEN = """
[...document.querySelectorAll("#devices td :is(.value, .none, .badge)")]
  .filter((each) => each.getClientRects().length > 1).map((each) => each.innerText)
"""
# Where the figures of each column begin, in pixels: at one place, whatever other figures a line lacks.
PLACES = """
Object.fromEntries(["utilisation", "memory", "power", "temperature"].map((name) => [name,
  [...new Set([...document.querySelectorAll(`#devices td.${name}:not(:empty)`)]
    .map((each) => Math.round(each.getBoundingClientRect().left)))]]))
"""
# Names of pods and nodes of which a part is not to be seen: cut at the right, or below a cell's last line.
NAMES_CUT = """
[...document.querySelectorAll("#devices :is(a.pod, .node a)")].filter((each) => {
  const [own, box] = [each, each.closest("th, td")].map((part) => part.getBoundingClientRect());
  const range = document.createRange();
  range.selectNodeContents(each);
  return [...range.getClientRects()].some(({right, bottom}) =>
    right > box.right || bottom > 1 + Math.min(own.bottom, box.bottom));
}).map((each) => each.innerText)
"""
# How far the table's head is below the tools while the table is scrolled under both, in pixels.
HEAD_BELOW_TOOLS = """
document.querySelector("#devices thead th").getBoundingClientRect().top
  - document.getElementById("tools").getBoundingClientRect().bottom
"""


DEMOS = {
    "node": ("--mig=1", "--shared=2", "--fail=1", "--collect-interval=1", "--strangers=1"),
    "cluster": ("--nodes=2", "--mig=1", "--shared=2", "--collect-interval=1"),
}


@pytest.fixture
def base(which: str) -> Iterator[str]:
    with demo(*DEMOS[which]) as address:
        yield address


async def objects(base: str) -> list[dict[str, Any]]:
    def get() -> Any:
        try:
            with urllib.request.urlopen(f"{base}/container/metrics", timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError:  # the cluster role has not asked any node yet
            return []

    rows: list[dict[str, Any]] = await asyncio.to_thread(get)
    return rows


# issue 22, line 11; issue 22, line 12
@pytest.mark.parametrize("which", DEMOS)
async def test_who_holds_a_gpu_can_be_read_at_every_width_and_nothing_is_cut(tab: Tab, base: str, which: str) -> None:
    async def has_pods() -> bool:
        return any(row["pod"] for row in await objects(base)) and (
            which == "cluster" or any(row["health"] == "gone" for row in await objects(base))
        )

    await until(has_pods)
    await opened(tab, f"{base}/?fold=none")
    await tab.run("document.getElementById('pause').click()")
    for width in WIDTHS:
        await tab.look(width=width, dark=width in (1000, 1180))
        assert await tab.run("document.documentElement.scrollWidth <= window.innerWidth"), width
        assert await tab.run(CUT) == [], width
        cells = await tab.run(HELD_BY)
        assert cells, width
        assert min(shown for shown, _ in cells) >= LEAST_OF_A_POD, width
        if width <= CARDS:
            assert all(wanted <= shown for shown, wanted in cells), width


# issue 22, line 11; issue 22, line 12; issue 22, "Must show" 3
@pytest.mark.parametrize(
    ("which", "dark"), [("node/", False), ("node/cut", True), ("cluster/", True), ("cluster/cut", False)]
)
async def test_the_longest_that_a_line_says_can_be_read_at_every_width(tab: Tab, which: str, dark: bool) -> None:
    async with pages_of_the_longest() as address:
        await opened(tab, f"{address}/{which}?fold=none")
        for width in WIDTHS:
            await tab.look(width=width, dark=dark)
            overflows, *wrong, places = await tab.run(
                f"[document.documentElement.scrollWidth > window.innerWidth, {CUT}, {NAMES_CUT}, {BROKEN}, {PLACES}]"
            )
            assert not overflows, width
            assert wrong == [[], [], []], width
            assert all(len(of_column) == 1 for of_column in places.values()), width
        assert await axe.violations(tab) == []


# issue 22, "Must show" 3
async def test_the_head_of_the_table_is_never_under_the_tools(tab: Tab) -> None:
    async with pages_of_the_longest() as address:
        await opened(tab, f"{address}/cluster/?fold=none")
        for width in (width for width in WIDTHS if width > CARDS):
            await tab.look(width=width, height=300)
            for words in ("", "The exporter answers with status 503; the table shows its last answer."):
                await tab.run(f"document.getElementById('status').textContent = {json.dumps(words)}")
                await tab.run(
                    "scrollTo(0, document.querySelector('#devices').getBoundingClientRect().top + scrollY + 60)"
                )
                await tab.until(f"Math.abs({HEAD_BELOW_TOOLS}) < 1")
