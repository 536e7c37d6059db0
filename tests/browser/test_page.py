"""The page of a node in a real Chromium, in front of `demo --mig --shared 3 --strangers 1` as a user starts it."""

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import axe
from tests.browser.table import UPDATED, differences, expected, opened, read
from tests.support.chromium import Tab
from tests.support.demo import demo
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    # values and owners change while somebody looks
    with demo("--mig", "--shared=3", "--strangers=1", "--collect-interval=1", "--speed=3") as base:
        yield base


async def objects(base: str) -> Any:
    def get() -> Any:
        with urllib.request.urlopen(f"{base}/container/metrics", timeout=10) as answer:
            return json.load(answer)

    return await asyncio.to_thread(get)


# issue 12, "Must show" 1
async def test_the_table_matches_container_metrics(tab: Tab, node: str) -> None:
    async def is_measured() -> bool:
        return any("used_by" in row for row in await objects(node))

    await until(is_measured)
    await opened(tab, f"{node}/")
    said = await tab.run(UPDATED)
    await tab.until(f"{UPDATED} !== {json.dumps(said)}")
    # paused, so that the answer and the table are of one moment
    await tab.run("document.getElementById('pause').click()")
    rows = json.loads(await tab.answer(f"{node}/container/metrics"))
    assert differences(await read(tab), expected(rows)) == []
    # issue 18, line 4
    strangers = {f"{user['namespace']}/{user['pod']}" for row in rows for user in row.get("used_by", ())}
    assert any(stranger.startswith("ml-research/") for stranger in strangers)
    shown = "".join(row["Pod"] for row in await read(tab))
    assert [stranger for stranger in strangers if f"used by {stranger}, which does not hold it" not in shown] == []
    kinds = {row["entity"] for row in rows}
    assert kinds == {"gpu", "mig-parent", "mig"}
    assert any(row["gpu_shared"] for row in rows)
    # two answers make a line
    paths = await tab.run("[...document.querySelectorAll('.spark path')].map((each) => each.getAttribute('d'))")
    assert sum("L" in path for path in paths) > len(paths) / 2
    assert all(path.startswith("M") for path in paths)


# issue 12, "Must show" 1
async def test_what_changes_is_on_the_page_without_a_reload(tab: Tab, node: str) -> None:
    await opened(tab, f"{node}/")
    shown = "[...document.querySelectorAll('#devices .pod')].map((each) => each.textContent).join()"
    first = await tab.run(shown)
    await tab.until(f"{shown} !== {json.dumps(first)}")

    async def is_as_the_objects_say() -> bool:
        pods = [row["pod"] for row in await objects(node) if row["pod"]]
        return bool(await tab.run(shown) == ",".join(pods))

    await until(is_as_the_objects_say)


# issue 12, "Must show" 1
async def test_the_filter_leaves_what_matches_and_says_how_much(tab: Tab, node: str) -> None:
    await opened(tab, f"{node}/")
    # by the keyboard alone: the skip to the field, the words, the list beside it
    await tab.run("document.getElementById('filter').focus()")
    await tab.do("Input.insertText", text="1g.10gb GPU 7")
    rows = await read(tab)
    assert len(rows) == 7
    assert all("MIG" in row["GPU"] for row in rows)
    assert await tab.until("document.getElementById('status').textContent") == "7 of 15 GPUs and instances match"
    await tab.run("document.getElementById('filter').value = 'no such pod'")
    await tab.run("document.getElementById('filter').dispatchEvent(new Event('input'))")
    assert await read(tab) == []
    await tab.run("document.getElementById('filter').value = ''")
    for show in ("held", "free", "idle", "all"):
        await tab.run(f"document.getElementById('show').value = '{show}'")
        await tab.run("document.getElementById('show').dispatchEvent(new Event('change'))")
        rows = await read(tab)
        free = [row for row in rows if row["Pod"] in ("free", "used around Kubernetes", "cut into instances")]
        assert {"held": free == [], "free": {row["Pod"] for row in rows} == {"free"}, "all": len(rows) > len(free)}.get(
            show, True
        )
        if show == "idle":
            names = {row["GPU"] for row in rows if "held but idle" in row["Pod"]}
            assert names == {row["GPU"] for row in rows}


async def test_every_control_can_be_reached_and_used_by_the_keyboard(tab: Tab, node: str) -> None:
    await opened(tab, f"{node}/")
    reached = []
    for _ in range(12):
        await tab.press("Tab")
        reached.append(
            await tab.run("document.activeElement.id || document.activeElement.closest('details')?.id || 'link'")
        )
        visible = await tab.run("getComputedStyle(document.activeElement).outlineStyle !== 'none'")
        assert visible, reached
        if reached[-1] == "pause":
            await tab.press("Enter")
    assert reached[:4] == ["sources", "filter", "show", "pause"]
    assert "link" in reached
    # paused: nothing moves until somebody wants it to
    assert await tab.run("document.getElementById('pause').textContent") == "Go on updating"
    before = await tab.run("document.getElementById('devices').outerHTML")
    await asyncio.sleep(4)
    assert await tab.run("document.getElementById('devices').outerHTML") == before
    await tab.run("document.getElementById('pause').click()")
    await tab.until(f"document.getElementById('devices').outerHTML !== {json.dumps(before)}")


# issue 12, "Must show" 1
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (320, True)])
async def test_no_rule_of_accessibility_is_broken_and_nothing_overflows(
    tab: Tab, node: str, width: int, *, dark: bool
) -> None:
    await tab.look(width=width, dark=dark)
    await opened(tab, f"{node}/")
    await tab.run("document.getElementById('sources').open = true")
    assert await axe.violations(tab) == []
    assert await tab.run("document.documentElement.scrollWidth <= window.innerWidth")
    boxes = "[...document.querySelectorAll('body *:not(thead *)')].map((each) => each.getBoundingClientRect().right)"
    assert await tab.run(f"Math.max(...{boxes})") <= width


async def test_without_javascript_it_is_the_same_table(tab: Tab, node: str) -> None:
    await tab.do("Emulation.setScriptExecutionDisabled", value=True)

    async def is_the_same() -> bool:
        before = await objects(node)
        await tab.open(f"{node}/")
        seen = await read(tab)
        return any(differences(seen, expected(rows)) == [] for rows in (before, await objects(node)))

    await until(is_the_same)
    assert await tab.run("document.getElementById('tools').hidden")
    assert {url.partition("?")[0].rpartition("/")[2] for url in tab.asked} <= {"", "page.css", "page.js"} | {
        url.rpartition("/")[2] for url in tab.asked if url.startswith("data:")
    }


async def test_the_browser_asks_once_for_each_version_of_a_file(tab: Tab, node: str) -> None:
    for _ in range(2):
        await opened(tab, f"{node}/")
    kept = [url for url in tab.asked if "/static/" in url]
    assert all("?v=" in url for url in kept)
    sizes = await tab.run(
        "performance.getEntriesByType('resource').filter((each) => each.name.includes('/static/'))"
        ".map((each) => each.transferSize)"
    )
    assert sizes == [0, 0]
