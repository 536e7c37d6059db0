"""The page of the cluster role in a real Chromium, in front of `demo --nodes 5`."""

import asyncio
import json
import urllib.error
import urllib.request

import pytest

from tests.browser import axe
from tests.browser.table import UPDATED, differences, expected, opened, read
from tests.support.chromium import Tab
from tests.support.demo import demo
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session")]

NODES = 5


def have_all_answered(base: str) -> bool:
    """Whether every node has answered."""
    try:
        with urllib.request.urlopen(f"{base}/container/metrics", timeout=10) as answer:
            return len({row["node_name"] for row in json.load(answer)}) == NODES
    except urllib.error.HTTPError:
        return False


# issue 12, "Must show" 1
async def test_the_page_of_five_nodes(tab: Tab) -> None:
    with demo(f"--nodes={NODES}", "--shared=0", "--mig=0") as base:
        await until(lambda: asyncio.to_thread(have_all_answered, base))
        await opened(tab, f"{base}/")
        said = await tab.run(UPDATED)
        await tab.until(f"{UPDATED} !== {json.dumps(said)}")
        await tab.run("document.getElementById('pause').click()")
        rows = json.loads(await tab.answer(f"{base}/container/metrics"))
        seen = await read(tab)
        assert differences(seen, expected(rows)) == []
        assert [row["Node"] for row in seen] == [row["node_name"] for row in rows]
        counts = await tab.run(
            "[...document.querySelectorAll('#nodes-table tbody tr')]"
            ".map((row) => [...row.cells].map((cell) => cell.innerText))"
        )
        for name, state, _, gpus, held_, *_ in counts:
            of_node = [row for row in rows if row["node_name"] == name]
            assert state.endswith("up")
            assert int(gpus) == len({row["device_uuid"] for row in of_node})
            assert int(held_) == len(
                {(row["device_uuid"], row.get("mig_instance_id")) for row in of_node if row["pod"]}
            )
        assert len(counts) == NODES
        for width, dark in ((1280, False), (390, True)):
            await tab.look(width=width, dark=dark)
            assert await axe.violations(tab) == []
            assert await tab.run("document.documentElement.scrollWidth <= window.innerWidth")

        # one node, by its link
        await tab.look(width=1280)
        await opened(tab, await tab.run("document.querySelectorAll('#nodes-table a')[2].href"))
        assert {row["Node"] for row in await read(tab)} == {"gpu-node-3"}
        assert await tab.run("document.querySelector('h1').innerText") == "GPUs of gpu-node-3"
        assert await tab.run("document.getElementById('figure-gpus').textContent") == "8"
