"""The site of `make docs` in a real Chromium: its search leads to the right page, and its pages fit a phone."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from docs.generator import site
from tests.support.chromium import Tab

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session")]

# The search's box and its results are in a shadow root, whose host has the focus.
SEARCH = "document.activeElement.shadowRoot"
SEARCH_HAS_THE_FOCUS = f"{SEARCH}?.activeElement?.tagName === 'INPUT'"
# the addresses of the first results, without the words to mark, which stand between page and anchor
RESULTS = f"[...{SEARCH}.querySelectorAll('a')].slice(0, 3).map((found) => found.href.replace(/[?][^#]*/, ''))"
FINDS = {
    "HAMi": "/docs/devices/#allocators",
    "FOCUS": "/docs/bill/#columns-of-focus",
    "GpuHeldIdle": "/docs/alerts/#gpuheldidle",
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The site's address, without the slash at its end."""
    folder = tmp_path_factory.mktemp("site")
    site.main(folder)
    built = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert built.returncode == 0, built.stdout + built.stderr

    async def answer(request: web.Request) -> web.FileResponse:
        path = folder / "html" / request.path.strip("/")
        return web.FileResponse(path / "index.html" if path.is_dir() else path)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


# issue 28, "Must show" 3
async def test_the_search_finds_the_page_about_a_word(tab: Tab, served: str) -> None:
    await tab.open(f"{served}/docs/hangs/")
    await tab.run("document.querySelector('.md-search__button').click()")
    await tab.until(SEARCH_HAS_THE_FOCUS)
    for words, page in FINDS.items():
        await tab.run(f"{SEARCH}.activeElement.select()")
        await tab.do("Input.insertText", text=words)
        await tab.until(f"{RESULTS}.includes('{served}{page}')")


# issue 28, "Must show" 3
async def test_no_page_is_wider_than_a_phone(tab: Tab, served: str) -> None:
    await tab.look(width=390)
    for page in ("docs/install/", "docs/flags/", "docs/troubleshooting/"):
        await tab.open(f"{served}/{page}")
        assert await tab.run("document.documentElement.scrollWidth <= window.innerWidth"), page
