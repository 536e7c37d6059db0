"""One browser for all tests of a module, and a tab for each."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.chromium import Browser, Tab, chromium


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def tab(browser: Browser) -> AsyncIterator[Tab]:
    """A tab. At the end nothing must have been written to the console, and nobody else been asked for anything."""
    async with browser.tab() as opened:
        await opened.look(width=1280)
        yield opened
        bases = ("http://127.0.0.1:", "data:image/svg+xml", "about:")
        assert [url for url in opened.asked if not url.startswith(bases)] == []
        hosts = {url.split("/")[2] for url in opened.asked if url.startswith("http")}
        assert len(hosts) <= 1, "the exporter alone"
        assert opened.said == []
