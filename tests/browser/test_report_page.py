"""The page of `report` in a real Chromium: a month of 50 teams, compared with the month before."""

import base64
from collections.abc import AsyncIterator
from decimal import Decimal

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from exporter.report.costs import Prices
from exporter.report.groups import GroupBy
from exporter.report.html_page import render_page
from exporter.report.report import make_report
from exporter.report.rows import Amounts
from tests.browser import axe
from tests.report.made import HOUR, KWH, collected, row
from tests.support.chromium import Tab

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session")]

TEAMS = 50
PRICES = Prices(of_any=Decimal("2.49"), of_kwh=Decimal("0.29"))


def page() -> str:
    rows = [
        row(f"team-{number:02}", "train-0", Amounts(hours * HOUR, hours * HOUR / 2, hours * HOUR / 5, hours * KWH / 2))
        for number in range(TEAMS)
        for hours in [744.0 / (1 + number)]
    ]
    # one is gone, and one is new
    return render_page(make_report(collected(rows[1:]), GroupBy("namespace"), PRICES, before=collected(rows[:-1])))


@pytest_asyncio.fixture(loop_scope="session")
async def served() -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=page() if request.path == "/" else "", content_type="text/html")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


# issue 20, Must show 5
async def test_fifty_teams_are_readable_and_nothing_is_in_their_way(tab: Tab, served: str) -> None:
    await tab.open(served)
    for width, dark in ((1280, False), (390, True)):
        await tab.look(width=width, dark=dark)
        assert await axe.violations(tab) == []
        assert await tab.run("document.documentElement.scrollWidth <= window.innerWidth")
    names = await tab.run("[...document.querySelector('tbody').querySelectorAll('th')].map((cell) => cell.innerText)")
    assert len([name for name in names if name.startswith("team-")]) == TEAMS
    assert (
        await tab.run("[...document.querySelectorAll('td')].filter((cell) => cell.innerText.includes('(gone)')).length")
        == 1
    )


# issue 20, Must show 5
async def test_it_is_printed_without_a_cut_column(tab: Tab, served: str) -> None:
    await tab.open(served)
    printed = await tab.do("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")
    await tab.do("Emulation.setEmulatedMedia", media="print")
    await tab.do("Emulation.setDeviceMetricsOverride", width=718, height=1000, deviceScaleFactor=1, mobile=False)
    cut = "[...document.querySelectorAll('.wide')].filter((box) => box.scrollWidth > box.clientWidth).length"
    assert await tab.run(cut) == 0
    await tab.do("Emulation.setEmulatedMedia", media="")
