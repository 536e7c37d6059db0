"""What pods call themselves, and what changes or goes wrong, on the page in a real Chromium."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from exporter.outputs.device_rows import SILENT
from exporter.outputs.page.document import visible
from tests.browser import axe
from tests.browser.table import differences, expected, opened, read
from tests.support.chromium import Tab
from tests.support.exporter import Exporter, config_of, running
from tests.support.simulated import GPU_RESOURCE, Container, Pod, SimulatedNode, World
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session")]

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</td></tr></table><script>alert(1)</script>",
    "\u202egnp.exe\u2066a\u200f",
    "${alert(1)}{{7*7}}",
    "javascript:alert(1)//",
    "a" * 300,
    "&lt;b&gt;\u0007\x1b[31m",
    "ab\u00a0 cd",
)


@pytest_asyncio.fixture(loop_scope="session")
async def simulated() -> AsyncIterator[SimulatedNode]:
    node = SimulatedNode(World(gpus=len(HOSTILE) + 1, seed=3))
    await node.start()
    # only now: no folder for logs can have such names
    held = zip(node.world.gpus, HOSTILE, strict=False)
    node.world.pods = tuple(
        Pod(namespace=text, name=text, containers=(Container(name=text, devices=((GPU_RESOURCE, gpu.uuid),)),))
        for gpu, text in held
    )
    yield node
    await node.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def exporter(simulated: SimulatedNode) -> AsyncIterator[Exporter]:
    async with running(config_of(kubelet_socket=str(simulated.socket), dcgm_url=simulated.url)) as started:
        yield started


def as_seen(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The objects as the page writes them: what cannot be seen by its number, and no white space but single spaces."""
    return [
        {
            name: " ".join(visible(value).split()) if name in ("pod", "container", "namespace") else value
            for name, value in row.items()
        }
        for row in rows
    ]


# issue 12, "Must show" 1
@pytest.mark.parametrize("has_script", [True, False])
async def test_hostile_names_are_text(tab: Tab, exporter: Exporter, *, has_script: bool) -> None:
    url = f"{exporter.base}/"
    if not has_script:
        await tab.do("Emulation.setScriptExecutionDisabled", value=True)
    seen: list[dict[str, str]] = []

    async def objects() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads((await exporter.get("/container/metrics"))[1])
        assert {row["pod"] for row in rows} == {*HOSTILE, ""}
        return rows

    async def is_as_the_objects_say() -> bool:
        """Values change with time: between two looks at the objects there are those of the page."""
        before = await objects()
        await (opened(tab, url) if has_script else tab.open(url))
        seen[:] = await read(tab)
        return any(differences(seen, expected(as_seen(rows))) == [] for rows in (before, await objects()))

    await until(is_as_the_objects_say)
    assert r"\u{202e}gnp.exe\u{2066}a\u{200f}" in seen[2]["pod"]
    elements = await tab.run("[...document.querySelectorAll('main *')].map((each) => each.localName)")
    assert not {"img", "script", "b", "iframe"} & {*elements}
    attributes = await tab.run("[...document.querySelectorAll('*')].flatMap((each) => each.getAttributeNames())")
    assert not [name for name in attributes if name.startswith("on") or name == "style"]
    for width in (1280, 320):
        await tab.look(width=width)
        assert await tab.run("document.documentElement.scrollWidth <= window.innerWidth")


async def test_the_browser_itself_refuses_to_make_html_of_a_string(tab: Tab, exporter: Exporter) -> None:
    await opened(tab, f"{exporter.base}/")
    tried = (
        "(() => { try { document.body.innerHTML = '<b>x</b>'; return ''; } catch (error) { return error.name; } })()"
    )
    assert await tab.run(tried) == "TypeError"
    assert any("TrustedHTML" in line for line in tab.said)
    tab.said.clear()


async def test_the_filter_finds_hostile_names_too(tab: Tab, exporter: Exporter) -> None:
    await opened(tab, f"{exporter.base}/")
    await tab.run("document.getElementById('filter').focus()")
    await tab.do("Input.insertText", text="<IMG onerror=alert(1)>")
    await tab.until("document.querySelectorAll('#devices tbody tr').length === 1")
    (row,) = await read(tab)
    assert HOSTILE[0] in row["pod"]
    # the pod's own view, by its link
    await tab.run("document.querySelector('#devices a.pod').click()")
    await tab.until("document.getElementById('pod') !== null")
    assert await tab.run("document.querySelector('h1').innerText") == f"Pod {HOSTILE[0]}/{HOSTILE[0]}"


# issue 12, "Must show" 1
async def test_what_changes_is_on_the_page_without_a_reload(
    tab: Tab, exporter: Exporter, simulated: SimulatedNode
) -> None:
    await opened(tab, f"{exporter.base}/")
    shown = "[...document.querySelectorAll('#devices strong')].map((each) => each.textContent)"
    assert len(await tab.run(shown)) == len(HOSTILE)
    first, *_, last = simulated.world.gpus
    simulated.world.pods = tuple(
        Pod(namespace="ml", name=name, containers=(Container(name="c", devices=((GPU_RESOURCE, gpu.uuid),)),))
        for name, gpu in (("new", first), ("late", last))
    )
    await tab.until(f"{shown}.join() === 'new,late'")


async def test_trouble_is_said_with_what_to_do_and_goes_away(
    tab: Tab, exporter: Exporter, simulated: SimulatedNode
) -> None:
    await opened(tab, f"{exporter.base}/")
    assert await tab.run("document.getElementById('trouble').hidden")
    rows = await read(tab)
    simulated.dcgm.failure = lambda _: web.Response(status=500)
    await tab.until("!document.getElementById('trouble').hidden")
    says = await tab.run("document.getElementById('trouble').textContent")
    _, text = await exporter.get("/container/metrics")
    assert f"no GPU metrics: {says}" == json.loads(text)["error"]
    assert (await tab.run("document.body.innerText")).count(says) == 1, "it is said once"
    assert " -> " in says, "the remedy"
    said = "document.getElementById('status').textContent"
    assert await tab.run(said) == "The table is out of date: the exporter has no GPU metrics"
    assert [row["gpu"] for row in await read(tab)] == [row["gpu"] for row in rows], "what was known last"
    assert await axe.violations(tab) == []
    # a page that is loaded now says it without the script, too
    _, html = await exporter.get("/")
    assert '<ul id="trouble" class="alert"><li><bdi>dcgm:' in html
    assert "No GPU page." in html
    simulated.dcgm.failure = None
    await tab.until("document.getElementById('trouble').hidden")
    assert await tab.run(said) == "The table is kept up to date again"


async def test_where_it_is_not_known_who_holds_a_gpu_the_page_says_why(
    tab: Tab, exporter: Exporter, simulated: SimulatedNode
) -> None:
    pods = simulated.world.pods
    simulated.world.pods = (
        *pods,
        Pod(namespace="n", name="p", containers=(Container(name="c", devices=((GPU_RESOURCE, "riddle"),)),)),
    )
    why = "the kubelet handed out devices by ids that are not understood"
    html = await exporter.until("/", lambda html: why in html)
    assert html.count(f"<dt>State</dt><dd><bdi>{why}</bdi></dd>") == 1
    await opened(tab, f"{exporter.base}/")
    await tab.run("document.querySelector('tr.unknown .facts').open = true")
    (row,) = [row for row in await read(tab) if row["state"] == "holder unknown"]
    assert why in row["gpu"]
    simulated.world.pods = pods
    await exporter.until("/", lambda html: why not in html)
    await opened(tab, f"{exporter.base}/")
    assert [row["state"] for row in await read(tab)].count("free") == 1


async def test_without_the_kubelet_no_gpu_is_called_free(tab: Tab, simulated: SimulatedNode) -> None:
    async with running(config_of(kubelet_socket="/nonexistent/kubelet.sock", dcgm_url=simulated.url)) as alone:
        _, html = await alone.get("/")
        assert "</span> free</td>" not in html
        assert f'<ul id="trouble" class="alert"><li><bdi>{SILENT}</bdi></li><li><bdi>kubelet: ' in html
        await opened(tab, f"{alone.base}/")
        assert {row["state"] for row in await read(tab)} == {"holder unknown"}
        assert SILENT in await tab.run("document.getElementById('trouble').textContent")
        assert "kubelet" in await tab.run("document.querySelector('#sources .down').innerText")
        assert await axe.violations(tab) == []
        await tab.open("about:blank")  # which asks nobody


async def test_a_gpu_that_nobody_holds_is_free_in_one_word(exporter: Exporter) -> None:
    _, html = await exporter.get("/")
    assert html.count("</span> free</td>") == 1
    assert "names no container" not in html.partition("<table")[2]


async def test_a_gpu_that_failed_and_that_nobody_holds_is_not_called_free(tab: Tab, simulated: SimulatedNode) -> None:
    *_, lost = simulated.world.gpus
    last = [0]
    simulated.dcgm.failure = lambda _: web.Response(
        text="".join(
            f'DCGM_FI_DEV_XID_ERRORS{{gpu="{gpu.index}",UUID="{gpu.uuid}"}} {last[0] if gpu is lost else 0}\n'
            for gpu in simulated.world.gpus
        )
    )
    try:
        async with running(config_of(kubelet_socket=str(simulated.socket), dcgm_url=simulated.url)) as alone:
            await opened(tab, f"{alone.base}/")
            last[0] = 79
            await tab.until("document.getElementById('figure-failing').textContent === '1'")
            assert await tab.run("[...document.querySelectorAll('.health summary')].map((each) => each.innerText)") == [
                "gone: XID 79"
            ]
            for show, shown, count in (("failing", "broken", 1), ("free", "free", 0)):
                await tab.run(f"document.getElementById('show').value = '{show}'")
                await tab.run("document.getElementById('show').dispatchEvent(new Event('change', {bubbles: true}))")
                await tab.until(f"document.querySelector('#show [selected]').value === '{show}'")
                assert [row["state"] for row in await read(tab)] == [shown] * count
                assert await tab.run(f"document.getElementById('figure-{show}').textContent") == str(count)
            assert await axe.violations(tab) == []
    finally:
        simulated.dcgm.failure = None
