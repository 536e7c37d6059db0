"""The page of the cluster role in a real Chromium, in front of `demo --nodes 3`."""

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.browser import axe
from tests.browser.table import differences, expected, opened, read
from tests.support.chromium import Tab
from tests.support.demo import demo
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session")]

NODES, GPUS = 3, 4


def have_all_answered(base: str) -> bool:
    """Whether every node has answered."""
    try:
        with urllib.request.urlopen(f"{base}/container/metrics", timeout=30) as answer:
            return len({row["node_name"] for row in json.load(answer)}) == NODES
    except urllib.error.HTTPError:
        return False


# issue 12, "Must show" 1
async def test_the_page_of_several_nodes(tab: Tab) -> None:
    with demo(f"--nodes={NODES}", f"--gpus={GPUS}", "--shared=0", "--mig=0") as base:
        await until(lambda: asyncio.to_thread(have_all_answered, base))
        rows: list[dict[str, Any]] = []

        async def is_as_the_objects_say() -> bool:
            seen: list[list[dict[str, Any]]] = []
            for _ in range(2):
                await tab.open(f"{base}/container/metrics")
                seen.append(json.loads(await tab.answer(f"{base}/container/metrics")))
                if len(seen) == 1:
                    await opened(tab, f"{base}/?fold=none")
                    lines = await read(tab)
            rows[:] = seen[1]
            return any(differences(lines, expected(each)) == [] for each in seen)

        await until(is_as_the_objects_say)
        await opened(tab, f"{base}/?fold=node")
        strips = await tab.run(
            "[...document.querySelectorAll('#strips li')].map((each) =>"
            " [each.querySelector('a').innerText, each.querySelectorAll('.cell').length, each.innerText])"
        )
        names = [f"gpu-node-{number}" for number in range(1, NODES + 1)]
        assert [strip[:2] for strip in strips] == [[name, GPUS] for name in names]
        assert all("used" in words or "free" in words for *_, words in strips), "a screen reader hears the states"
        assert [(line["kind"], line["folds"]) for line in await read(tab)] == [("node", "false")] * NODES
        for width, dark in ((1280, False), (390, True)):
            await tab.look(width=width, dark=dark)
            assert await axe.violations(tab) == []
            assert await tab.run("document.documentElement.scrollWidth <= window.innerWidth")
        # a node unfolds
        await tab.look(width=1280)
        await tab.run("document.querySelector('tr.node .fold').click()")
        await tab.until(f"document.querySelectorAll('tr.d1').length >= {GPUS}")

        # one node, by its link, and one device, by its cell
        await opened(tab, await tab.run("document.querySelectorAll('#strips li > a')[2].href"))
        assert {row["node"] for row in await read(tab)} == {"gpu-node-3"}
        assert await tab.run("document.querySelector('h1').innerText") == "GPUs of gpu-node-3"
        assert await tab.run("document.getElementById('figure-gpus').textContent") == str(GPUS)
        await tab.run("document.querySelectorAll('#strips li')[1].querySelectorAll('.cell')[3].click()")
        await tab.until("document.querySelector('tr:target .name')?.innerText === 'GPU 3'")
        assert await tab.run("document.querySelector('h1').innerText") == "GPUs of gpu-node-2"
