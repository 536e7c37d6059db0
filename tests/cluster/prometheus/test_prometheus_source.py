"""Prometheus as what knows all nodes: how it is asked, what goes wrong, and when what is known is too old."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from exporter.cluster.prometheus.prometheus_source import MOST_RETRY_SECONDS, Prometheus
from exporter.cluster.prometheus.queries import PARTS
from exporter.cluster.scaling import ScalingQuestion, Unanswerable, scaled
from exporter.config.http_file import HttpConfig, Secret
from exporter.config.tls import ClientTls
from exporter.errors import Trouble
from exporter.sources.source import OnHealth
from tests.support.canned import NOW, Row, body, of_device, target
from tests.support.certificates import Authority
from tests.support.cluster_settings import cluster_settings

UTIL = "DCGM_FI_DEV_GPU_UTIL"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MAX_AGE = 30.0


@dataclass
class Server:
    """Answers as Prometheus does, or as the test says, and notes what it is asked."""

    targets: list[Row] = field(default_factory=target)
    samples: list[Row] = field(default_factory=lambda: [(of_device(UTIL, pod="a"), "57")])
    more: dict[str, Any] = field(default_factory=dict)
    answer: Handler | None = None
    url: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.asked.append(form)
        self.headers.append(dict(request.headers))
        if self.answer:
            return await self.answer(request)
        query = form["query"]
        rows = self.targets if "timestamp(" in query else self.samples if UTIL in query else []
        return web.Response(body=body(rows, **self.more), content_type="application/json")


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def serving(server: Server, context: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    app = web.Application()
    app.router.add_route("*", "/prefix/api/v1/query", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    server.url = f"{'https' if context else 'http'}://127.0.0.1:{runner.addresses[0][1]}/prefix"
    try:
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def asking(
    server: Server, clock: Clock, http: HttpConfig | None = None, on_health: OnHealth = lambda *_: None, **given: Any
) -> AsyncIterator[Prometheus]:
    settings = {"timeout_seconds": 30.0, "max_age_seconds": MAX_AGE, "max_bytes": 100_000, **given}
    source = Prometheus(
        cluster=cluster_settings(prometheus_url=server.url, **settings),
        http=http or HttpConfig(),
        on_health=on_health,
        clock=clock,
        wall_clock=lambda: 5.0,
    )
    try:
        yield source
    finally:
        await source.close()


async def ask(source: Prometheus) -> None:
    attempt = source.begin()
    assert attempt is not None
    await attempt


def trouble_of(source: Prometheus) -> Trouble | None:
    """Why it is not known which nodes there are."""
    return source.view.trouble


def missing_in(source: Prometheus) -> tuple[str, ...]:
    return source.view.missing


async def test_all_queries_are_of_the_moment_of_the_first() -> None:
    async with serving(Server()) as server, asking(server, Clock(), prometheus_matchers='cluster="a"') as source:
        assert source.view.trouble
        assert "has not answered yet" in source.view.trouble.message
        await ask(source)
        (node,) = source.view.nodes.values()
        assert (node.name, node.trouble, node.answered_at_seconds) == ("n1", None, NOW - 5)
        assert node.devices[0].row.gpu_utilization == 57
        assert len(server.asked) == 2 + PARTS
        first, *rest = server.asked
        assert ("time" in first, first["lookback_delta"]) == (False, "900s")
        assert {(form["time"], form["lookback_delta"]) for form in rest} == {(f"{NOW:.3f}", "30s")}
        assert {(form["partial_response"], form["timeout"]) for form in server.asked} == {("false", "30s")}
        assert all('cluster="a"' in form["query"] for form in server.asked)
        assert source.health.up
        assert source.view is source.view, "as long as nothing changed"
        assert source.bounds["nodes"].used() == 1


async def test_packed_answers_and_the_headers_of_a_tenant() -> None:
    async def packed(_: web.Request) -> web.StreamResponse:
        return web.Response(body=gzip.compress(body(target())), headers={"Content-Encoding": "gzip"})

    http = HttpConfig(
        scheme="Bearer", credentials=Secret(value="token"), headers=(("X-Scope-OrgID", "tenant"),), tls=ClientTls()
    )
    async with serving(Server(answer=packed)) as server, asking(server, Clock(), http=http) as source:
        await ask(source)
        assert server.headers[0]["X-Scope-OrgID"] == "tenant"
        assert server.headers[0]["Authorization"] == "Bearer token"
        assert server.headers[0]["Accept-Encoding"] == "gzip"


async def test_no_target_at_all_is_trouble_and_not_an_empty_cluster() -> None:
    async with serving(Server(targets=[])) as server, asking(server, Clock()) as source:
        await ask(source)
        assert (len(server.asked), source.view.nodes) == (1, {})
        assert source.view.trouble
        assert "there is no node exporter" in source.view.trouble.message


async def test_a_node_is_missing_once_its_last_scrape_is_too_old() -> None:
    clock = Clock()
    server = Server(targets=[*target("n1", age=5), *target("n2", age=25)])
    async with serving(server), asking(server, clock) as source:
        await ask(source)
        before = source.view
        assert before.missing == ()
        clock.now += 4.9
        assert source.view is before
        clock.now += 0.2
        assert missing_in(source) == ("n2",)
        trouble = source.view.nodes["n2"].trouble
        assert trouble
        assert (trouble.reason, "30 s old" in trouble.message) == ("stale", True)
        assert source.view.nodes["n2"].devices == ()
        clock.now += 20
        assert missing_in(source) == ("n1", "n2")
        server.targets = [*target("n1", age=1), *target("n2", age=31)]
        await ask(source)
        assert missing_in(source) == ("n2",)
        assert source.health.up
        assert source.health.trouble
        assert "1 of 2 nodes are missing: n2" in source.health.trouble.message


async def test_a_failure_changes_nothing_until_all_is_too_old() -> None:
    clock = Clock()
    async with serving(Server()) as server, asking(server, clock) as source:
        await ask(source)

        async def fail(_: web.Request) -> web.StreamResponse:
            return web.Response(status=503, text='{"status":"error","errorType":"timeout","error":"query timed out"}')

        server.answer = fail
        clock.now += 10
        await ask(source)
        assert (missing_in(source), trouble_of(source), source.health.up) == ((), None, False)
        clock.now += 16
        assert missing_in(source) == ("n1",)
        assert trouble_of(source) is None, "which nodes there are was asked 26 s ago"
        clock.now += 5
        assert source.view.trouble
        assert source.view.trouble.message == "HTTP status 503: query timed out"
        server.answer = None
        await ask(source)
        assert (missing_in(source), trouble_of(source)) == ((), None)


async def test_a_part_of_the_truth_counts_as_none() -> None:
    async with serving(Server(more={"warnings": ["store s1 is away"]})) as server, asking(server, Clock()) as source:
        await ask(source)
        assert source.view.nodes == {}
        assert source.view.trouble
        assert (source.view.trouble.reason, "store s1 is away" in source.view.trouble.message) == ("truncated", True)


@pytest.mark.parametrize(
    ("status", "headers", "text", "reason", "says"),
    [
        (400, {}, '{"error":"parse error"}', "http_status", "HTTP status 400: parse error"),
        (401, {}, "", "permission", "refuses /api/v1/query"),
        (403, {}, "no tenant", "permission", "X-Scope-OrgID"),
        (404, {}, "404 page not found", "http_status", "prefix"),
        (405, {}, "", "http_status", "there is no POST"),
        (302, {"Location": "/login"}, "", "http_status", "wants to be asked elsewhere"),
        (422, {}, '{"error":"query processing would load too many samples"}', "http_status", "too many samples"),
        (429, {"Retry-After": "7"}, "", "rate_limited", "raise its limits"),
        (500, {}, "<html>", "http_status", "HTTP status 500"),
        (200, {}, "<html>log in</html>", "garbage", "not a JSON object"),
        (200, {"Content-Encoding": "br"}, "x", "encoding", "was not asked for"),
        (200, {"Content-Encoding": "gzip"}, "x" * 20, "encoding", "not gzip"),
        (200, {}, " " * 100_001, "oversize", "--cluster.max-bytes 100000"),
    ],
)
async def test_what_goes_wrong_is_said(status: int, headers: dict[str, str], text: str, reason: str, says: str) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers=headers, text=text)

    async with serving(Server(answer=answer)) as server, asking(server, Clock()) as source:
        await ask(source)
        assert len(server.asked) == 1, "no redirect is followed, and nothing more is asked"
        trouble = source.health.trouble
        assert trouble
        assert (trouble.reason, says in str(trouble)) == (reason, True), str(trouble)
        assert source.view.trouble == trouble


async def test_a_server_that_wants_to_be_left_alone_is() -> None:
    async def busy(_: web.Request) -> web.StreamResponse:
        return web.Response(status=429, headers={"Retry-After": "99999"})

    clock = Clock()
    async with serving(Server(answer=busy)) as server, asking(server, clock) as source:
        await ask(source)
        assert source.begin() is None
        clock.now += MOST_RETRY_SECONDS + 1
        server.answer = None
        await ask(source)
        assert trouble_of(source) is None


async def test_a_server_that_stalls_and_one_that_is_not_there() -> None:
    async def stall(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        raise AssertionError

    async with serving(Server(answer=stall)) as server, asking(server, Clock(), timeout_seconds=0.1) as source:
        await ask(source)
        assert source.health.trouble
        assert (source.health.trouble.reason, "within 0.1 s" in source.health.trouble.message) == ("deadline", True)
        gone = server.url
    port = urlsplit(gone).port
    async with asking(Server(url=f"http://127.0.0.1:{port}"), Clock()) as source:
        await ask(source)
        assert source.health.trouble
        assert source.health.trouble.reason == "refused"


async def test_a_workload_without_a_series_is_an_error_that_says_what_is_needed() -> None:
    async with serving(Server()) as server, asking(server, Clock()) as source:
        await ask(source)
        with pytest.raises(Unanswerable, match=r"--workload\.labels") as error:
            scaled(source.view, ScalingQuestion(namespace="ml", workload="trainer", metric="gpu_utilization"))
        assert error.value.status == 503
        other = scaled(source.view, ScalingQuestion(namespace="web", workload="trainer", metric="gpu_utilization"))
        assert (other.value, other.pods) == (0, 0)


async def test_tls_by_the_authority_that_is_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "own")
    pair = authority.issue("prometheus", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    async with serving(Server(), context) as server:
        trusting = HttpConfig(tls=ClientTls(ca_file=str(authority.ca)))
        async with asking(server, Clock(), http=trusting) as source:
            await ask(source)
            assert source.view.nodes["n1"].trouble is None
        async with asking(server, Clock()) as source:
            await ask(source)
            assert source.health.trouble
            assert (source.health.trouble.reason, "ca_file" in source.health.trouble.remedy) == ("tls", True)


async def test_those_who_ask_meanwhile_share_the_queries() -> None:
    async with serving(Server()) as server, asking(server, Clock()) as source:
        assert source.begin() is source.begin()
        await ask(source)
        assert len(server.asked) == 2 + PARTS
