"""One scrape's patience: who does not wait gets less, and costs the others nothing of what all share."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from exporter.exposition.join import Joiner
from exporter.exposition.page_reader import PageReader
from exporter.node.pages import KEPT_SECONDS, Joins
from exporter.ownership.owners import OwnersBuilder
from tests.support.exporter import Exporter, Start
from tests.support.simulated import SimulatedNode

Upstream = Callable[[bytes, asyncio.Event], Awaitable[str]]
# A busy machine answers an impatient scrape within it; the page that is held back does not come before it is let go.
PATIENCE_SECONDS = "1.2"


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    """Start a server that answers with a page while the event is set; its URL."""
    async with AsyncExitStack() as stack:

        async def begin(page: bytes, answers: asyncio.Event) -> str:
            async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.readuntil(b"\r\n\r\n")
                await answers.wait()
                writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(page) + page)
                writer.close()

            server = await stack.enter_async_context(await asyncio.start_server(answer, "127.0.0.1", 0))
            return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics"

        yield begin


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often owners were worked out and a page was read line by line."""
    done: Counter[str] = Counter()

    def counting(what: str, real: Callable[..., object]) -> Callable[..., object]:
        def counted(*given: object) -> object:
            done[what] += 1
            return real(*given)

        return counted

    monkeypatch.setattr(OwnersBuilder, "build", counting("owners", OwnersBuilder.build))
    monkeypatch.setattr(PageReader, "read", counting("lines", PageReader.read))
    return done


async def impatient(exporter: Exporter, path: str = "/gpu/metrics") -> tuple[int, str]:
    return await exporter.get(path, **{"X-Prometheus-Scrape-Timeout-Seconds": PATIENCE_SECONDS})


# issue 7, line 26
async def test_an_impatient_scrape_costs_the_others_neither_join_nor_owners(
    start: Start, simulated: SimulatedNode, upstream: Upstream, work: Counter[str], caplog: pytest.LogCaptureFixture
) -> None:
    page = simulated.dcgm.page().encode()
    half = page.index(b"# HELP", len(page) // 2)
    quick = b"\n".join(line for line in page[:half].splitlines() if b"nvidia1" not in line) + b"\n"
    always, late = asyncio.Event(), asyncio.Event()
    always.set()
    late.set()
    urls = [await upstream(quick, always), await upstream(page[half:], late)]
    exporter = await start(dcgm_url=urls, kubelet_max_age="1h", accounting_mode="off")
    whole = await exporter.page()
    late.clear()
    for path in ("/gpu/metrics", "/metrics"):
        await impatient(exporter, path)
    late.set()
    await exporter.page()
    work.clear()
    logged = len(caplog.records)
    for _ in range(2):
        late.clear()
        status, some = await impatient(exporter)
        assert (status, some.count("DCGM_FI_") > 0) == (200, True)
        assert len(some) < len(whole)
        await impatient(exporter, "/metrics")
        # one that goes on waiting while the other is answered
        patient = asyncio.create_task(exporter.page())
        await asyncio.sleep(0.05)
        await impatient(exporter)
        late.set()
        assert (await patient).count("\n") == whole.count("\n")
    assert work == {}
    assert "another node" not in "".join(record.message for record in caplog.records[logged:])


# issue 7, line 26
async def test_an_impatient_scrape_without_any_page_costs_the_others_nothing(
    start: Start, simulated: SimulatedNode, upstream: Upstream, work: Counter[str]
) -> None:
    late = asyncio.Event()
    late.set()
    url = await upstream(simulated.dcgm.page().encode(), late)
    exporter = await start(dcgm_url=url, kubelet_max_age="1h", accounting_mode="off")
    await exporter.page()
    late.clear()
    await impatient(exporter)
    late.set()
    await exporter.page()
    work.clear()
    for _ in range(2):
        late.clear()
        assert (await impatient(exporter))[0] == 503
        late.set()
        await exporter.page()
    assert work == {}


def joins() -> Joins:
    return Joins(lambda: Joiner(read_subject=lambda _: None, is_owner_label=lambda _: False, wanted=lambda _: True))  # type: ignore[arg-type, return-value] # no page is read here


# issue 7, line 26
def test_what_is_kept_for_pages_of_some_sources_is_bounded() -> None:
    made = joins()
    every = ("a", "b", "c")
    whole = made.of(every, every, 0.0)
    nothing = made.of((), every, 0.0)
    for number in range(50):
        some = made.of(every[number % 3 :][:1], every, float(number))
        assert len(made.kept) <= 3
        assert made.of(every, every, float(number)) is whole
        assert made.of((), every, float(number)) is nothing
        assert made.of(every[number % 3 :][:1], every, float(number)) is some
    # whoever does not come back is forgotten, be it the whole
    made.of(("a",), every, KEPT_SECONDS + 50.0)
    assert set(made.kept) == {("a",)}


# issue 7, line 26
def test_other_sources_go_on_with_what_is_known_of_the_lines() -> None:
    made = joins()
    before = made.of(("a", "b"), ("a", "b"), 0.0)
    assert made.of(("a", "c"), ("a", "c"), 1.0) is before
    assert set(made.kept) == {("a", "c")}
