"""The list of errors on both pages in a real Chromium: it comes without a reload, as the exporter's HTML has it.

When a GPU fails it unfolds, once: who folds it has it folded.
"""

import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.browser import axe
from tests.browser.table import UPDATED, opened
from tests.cluster.test_events import listed
from tests.node.test_kernel_log import LOST, KernelNode, reading
from tests.support.chromium import Tab
from tests.support.cluster_role import ClusterRole, running_cluster
from tests.support.exporter import Exporter
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session")]

READ = (
    "[...document.querySelectorAll('#events-table tbody tr')]"
    ".map((row) => [...row.cells].map((cell) => cell.textContent))"
)
LABELS = (
    "[...document.querySelectorAll('#events-table tbody tr:first-child > *')].map((cell) => cell.dataset.label || '')"
)
IS_OPEN = "document.getElementById('events').open"
IS_SHOWN = "!document.getElementById('events').hidden"
HOSTILE = "NVRM: Xid (PCI:0000:66:00): 31, pid={}, name=<b>a</b>, <img src=x onerror=alert(1)> \u202e MMU Fault"


# issue 22, line 12
@pytest.mark.parametrize("of_cluster", [False, True])
async def test_errors_come_without_a_reload_as_the_html_has_them(tab: Tab, tmp_path: Path, of_cluster: bool) -> None:
    async with AsyncExitStack() as stack:
        node = KernelNode(tmp_path)
        await node.simulated.start()
        stack.push_async_callback(node.close)
        asked: Exporter | ClusterRole = await stack.enter_async_context(reading(node.config()))
        if of_cluster:
            given = {"cluster.node": [f"gpu-node-1={asked.base}"], "cluster.interval": ["100ms"]}
            asked = await stack.enter_async_context(running_cluster(given))
        await opened(tab, f"{asked.base}/")
        assert not await tab.run(f"{IS_SHOWN} || {IS_OPEN}")
        node.write(LOST.format(1), *(HOSTILE.format(number) for number in range(25)))

        await tab.until(f"{IS_SHOWN} && {IS_OPEN}")
        assert await tab.run("document.querySelector('#devices .health summary').innerText.startsWith('gone')")
        await tab.run("document.querySelector('#events summary').click()")
        updated = await tab.run(UPDATED)
        await tab.until(f"{UPDATED} !== {json.dumps(updated)}")
        assert not await tab.run(IS_OPEN)
        await tab.run("document.querySelector('#events summary').click()")
        errors: list[list[str]] = []
        seen: list[list[str]] = []

        async def is_same() -> bool:
            errors[:] = listed((await asked.get("/"))[1])
            seen[:] = await tab.run(READ)
            return len(seen) == 20 and errors == seen

        await until(is_same, why=lambda: (seen, errors))
        first = (await tab.run(READ))[0]
        assert first[-3] == "XID 31 GPU memory page fault"
        assert (len(first), await tab.run(LABELS)) == (
            6 if of_cluster else 5,
            ["", *(("Node",) if of_cluster else ()), "GPU", "Error", "Held by", "What to do"],
        )
        if of_cluster:  # whose list has one column more
            assert await axe.violations(tab) == []
        await tab.look(width=390)
        assert await tab.run("document.documentElement.scrollWidth <= window.innerWidth")
        await tab.open("about:blank")  # which asks nobody
