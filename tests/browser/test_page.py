"""The page of a node in a real Chromium, in front of `demo --mig --shared 3 --strangers 1` as a user starts it."""

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import axe
from tests.browser.table import differences, expected, of_objects, opened, read
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
        with urllib.request.urlopen(f"{base}/container/metrics", timeout=30) as answer:
            return json.load(answer)

    return await asyncio.to_thread(get)


# issue 12, "Must show" 1
async def test_the_table_matches_container_metrics(tab: Tab, node: str) -> None:
    async def is_measured() -> bool:
        return any("used_by" in row for row in await objects(node))

    await until(is_measured)
    await opened(tab, f"{node}/")
    rows: list[dict[str, Any]] = []

    async def is_as_the_objects_say() -> bool:
        """Values change with time: between two looks at the objects there are those of the page."""
        before = await objects(node)
        await tab.open(f"{node}/?fold=none")
        seen = await read(tab)
        rows[:] = await objects(node)
        return any(differences(seen, expected(each)) == [] for each in (before, rows))

    await until(is_as_the_objects_say)
    # issue 18, line 4
    strangers = {f"{user['namespace']}/{user['pod']}" for row in rows for user in row.get("used_by", ())}
    assert any(stranger.startswith("research/") for stranger in strangers)
    facts = await tab.run("[...document.querySelectorAll('.facts dl')].map((each) => each.textContent).join()")
    assert [stranger for stranger in strangers if f"used by {stranger}, which does not hold it" not in facts] == []
    kinds = {row["entity"] for row in rows}
    assert kinds == {"gpu", "mig-parent", "mig"}
    assert any(row["gpu_shared"] for row in rows)
    # two answers make a line
    paths = "[...document.querySelectorAll('.utilisation .spark path')].map((each) => each.getAttribute('d') || '')"
    await tab.until(f"{paths}.filter((each) => /^M.*L/.test(each)).length > {paths}.length / 2")


# issue 12, "Must show" 1
async def test_the_filter_leaves_what_matches_and_says_how_much(tab: Tab, node: str) -> None:
    await opened(tab, f"{node}/")
    # by the keyboard alone: the skip to the field, the words, the list beside it
    await tab.run("document.getElementById('filter').focus()")
    await tab.do("Input.insertText", text="1g.10gb GPU 7")
    assert await tab.until("document.getElementById('status').textContent") == "7 of 14 GPUs and instances match"
    rows = await read(tab)
    assert [row["kind"] for row in rows] == ["gpu", *["instance"] * 7]
    await tab.run("document.getElementById('filter').value = 'no such pod'")
    await tab.run("document.getElementById('filter').dispatchEvent(new Event('input', {bubbles: true}))")
    await tab.until("document.querySelectorAll('#devices tbody tr').length === 0")
    await tab.run("document.getElementById('filter').value = ''")
    for show in ("held", "free", "idle", ""):
        await tab.run(f"document.getElementById('show').value = '{show}'")
        await tab.run("document.getElementById('show').dispatchEvent(new Event('change', {bubbles: true}))")
        await tab.until(f"document.querySelector('#show [selected]').value === '{show}'")
        rows = of_objects(await read(tab))
        states = {row["state"].partition(",")[0].removesuffix(" before") for row in rows}
        nobodys = {"free", "used outside Kubernetes", "broken", "holder unknown"}
        assert {
            "held": not states & nobodys,
            "free": states <= {"free"},
            "idle": rows == [] or "held but idle" in states,
            "": bool(rows),
        }[show], (show, states)


def address(tab: Tab) -> Any:
    return tab.run("location.search")


# issue 32, Must show 1
async def test_eight_gpus_have_a_line_each_and_a_view_survives_a_reload(tab: Tab, node: str) -> None:
    await opened(tab, f"{node}/?fold=gpu")
    rows = await read(tab)
    assert [row["gpu"] for row in rows] == [
        f"{'▸ ' * bool(row['folds'])}GPU {number}" for number, row in enumerate(rows)
    ]
    assert len(rows) == 8
    # a long name with a badge behind it takes a second line before it is cut
    lines = "[...document.querySelectorAll('#devices tr:not(:has(.others))')].map((each) => each.offsetHeight)"
    assert max(await tab.run(lines)) <= 30
    assert await tab.run("document.getElementById('devices').getBoundingClientRect().bottom") < 900

    # by the keyboard: a GPU unfolds, and the link that was pressed keeps the focus
    await tab.run("document.querySelector('.fold').focus()")
    await tab.press("Enter")
    await tab.until("document.activeElement.getAttribute('aria-expanded') === 'true'")
    assert len(await read(tab)) > 8
    # by a click: the lowest utilisation first, at the second
    for order in ("descending", "ascending"):
        await tab.run("document.querySelector('th.utilisation a').click()")
        await tab.until(f"document.querySelector('th.utilisation').ariaSort === '{order}'")
    await tab.run("document.getElementById('filter').focus()")
    await tab.do("Input.insertText", text="H100")
    await tab.until("location.search.includes('filter=H100')")
    search = await address(tab)
    assert "sort=utilisation" in search
    assert "but=" in search

    def view() -> Any:
        return tab.run(
            "[document.getElementById('filter').value, document.querySelector('th.utilisation').ariaSort,"
            " document.querySelectorAll('[aria-expanded=true]').length]"
        )

    await opened(tab, f"{node}/{search}")
    assert await view() == ["H100", "ascending", 1]
    await tab.run("document.querySelector('[aria-expanded=true]').click()")
    await tab.until("document.querySelectorAll('[aria-expanded=true]').length === 0")
    await tab.run("history.back()")
    await tab.until("document.querySelectorAll('[aria-expanded=true]').length === 1")
    assert await address(tab) == search


# issue 32, Must show 1
async def test_the_head_and_the_filter_stay_in_sight(tab: Tab, node: str) -> None:
    await tab.look(width=1280, height=400)
    await opened(tab, f"{node}/?fold=none")
    await tab.run("window.scrollTo(0, 300)")
    places = await tab.run(
        "[document.getElementById('filter'), document.querySelector('th.utilisation')]"
        ".map((each) => each.getBoundingClientRect().top)"
    )
    assert all(0 <= top < 80 for top in places), places


# issue 32, Must show 1
async def test_a_line_leads_to_the_pods_own_view_and_back(tab: Tab, node: str) -> None:
    await opened(tab, f"{node}/?show=held")
    pod = await tab.run("document.querySelector('#devices a.pod').innerText")
    await tab.run("document.querySelector('#devices a.pod').click()")
    await tab.until("document.getElementById('pod') !== null")
    assert await tab.run("document.querySelector('h1').innerText") == await tab.run("document.title") == f"Pod {pod}"
    assert {row["pod"].removesuffix(" used by others, too") for row in of_objects(await read(tab))} == {pod}
    namespace, _, name = pod.partition("/")
    assert f"kubectl gpu why {name} -n {namespace}" in await tab.run("document.getElementById('pod').innerText")
    await tab.until("document.getElementById('accounts')?.innerText.includes('pod_gpu_allocated_seconds_total')")
    assert await axe.violations(tab) == []
    await tab.run("document.getElementById('back').click()")
    await tab.until("document.getElementById('pod') === null")
    assert await address(tab) == "?show=held"


async def test_every_control_can_be_reached_and_used_by_the_keyboard(tab: Tab, node: str) -> None:
    await opened(tab, f"{node}/")
    reached = []
    for _ in range(24):
        await tab.press("Tab")
        reached.append(await tab.run("document.activeElement.id || document.activeElement.localName"))
        visible = await tab.run("getComputedStyle(document.activeElement).outlineStyle !== 'none'")
        assert visible, reached
        if reached[-1] == "pause":
            await tab.press("Enter")
    assert reached[6:10] == ["filter", "show", "fold", "pause"]
    assert {"a", "summary"} <= {*reached[10:]}, "the head's links, and what a GPU's name has"
    # paused: nothing moves until somebody wants it to
    assert await tab.run("document.getElementById('pause').textContent") == "Go on updating"
    before = await tab.run("document.getElementById('devices').outerHTML")
    await asyncio.sleep(4)
    assert await tab.run("document.getElementById('devices').outerHTML") == before
    await tab.run("document.getElementById('pause').click()")
    await tab.until(f"document.getElementById('devices').outerHTML !== {json.dumps(before)}")


# issue 12, "Must show" 1
async def test_no_rule_of_accessibility_is_broken_and_nothing_overflows(tab: Tab, node: str) -> None:
    await opened(tab, f"{node}/")
    await tab.run(
        "for (const each of document.querySelectorAll('.facts')) each.open = each.closest('tr').rowIndex === 1"
    )
    boxes = "[...document.querySelectorAll('body *:not(thead *, td *, .seen)')]"
    for width, dark in ((1280, False), (390, False), (320, True)):
        await tab.look(width=width, dark=dark)
        assert await tab.run("document.documentElement.scrollWidth <= window.innerWidth"), width
        assert await tab.run(f"Math.max(...{boxes}.map((each) => each.getBoundingClientRect().right))") <= width
        if width != 390:
            assert await axe.violations(tab) == [], width


async def test_without_javascript_it_is_the_same_table(tab: Tab, node: str) -> None:
    await tab.do("Emulation.setScriptExecutionDisabled", value=True)

    async def is_the_same() -> bool:
        before = await objects(node)
        await tab.open(f"{node}/")
        seen = await read(tab)
        return any(differences(seen, expected(rows)) == [] for rows in (before, await objects(node)))

    await until(is_the_same)
    # filter, order and folding are a form and links
    await tab.open(f"{node}/?show=held&sort=-utilisation")
    assert await tab.run("document.querySelector('th.utilisation').ariaSort") == "descending"
    assert await tab.run("document.getElementById('pause').hidden && !document.getElementById('apply').hidden")
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
