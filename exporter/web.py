"""The HTTP side: routes and compression. What the answers say is made in outputs/.

GET and HEAD only (aiohttp answers 405 to the rest); no endpoint changes anything.
"""

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from aiohttp import Payload, web
from aiohttp.abc import AbstractStreamWriter

from exporter.model import Snapshot
from exporter.outputs import containers, families, gpu_metrics, mapping, own_metrics, page
from exporter.telemetry import Telemetry

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
JSON_FORMAT = "application/json; charset=utf-8"
PLAIN = "text/plain; charset=utf-8"
# Level 1 costs a third of level 6 and packs a GPU page, which repeats itself, nearly as well.
GZIP_LEVEL = 1
# What is written at a time.
PIECE_BYTES = 256 * 1024


class Collector(Protocol):
    """What the web needs of the program behind it."""

    @property
    def telemetry(self) -> Telemetry:
        """The exporter's counters."""

    @property
    def instance(self) -> str:
        """What this process calls itself towards upstreams, in the header Via."""

    async def collect(self, wait_seconds: float | None, *, workloads: bool = False) -> Snapshot:
        """A look at the node, with what its sources can say within `wait_seconds`; on request with workloads."""

    async def why_not_ready(self) -> str:
        """The reason, or "" for ready."""


def patience_of(headers: Mapping[str, str]) -> float | None:
    """How long a scrape may wait for sources: max(h - 0.5, h / 2) of its X-Prometheus-Scrape-Timeout-Seconds h."""
    try:
        timeout = float(headers.get("X-Prometheus-Scrape-Timeout-Seconds", ""))
    except ValueError:
        return None
    return max(timeout - 0.5, timeout / 2) if math.isfinite(timeout) and timeout > 0 else None


def accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header asks for gzip, `gzip;q=0` being a refusal."""
    for part in header.split(","):
        coding, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if coding == "gzip":
            return not any(parameter in ("q=0", "q=0.0", "q=0.00", "q=0.000") for parameter in parameters)
    return False


def build_app(collector: Collector) -> web.Application:
    """The application; it keeps no state of its own."""
    app = web.Application()
    endpoints = _Endpoints(collector)
    for path, handler in (
        ("/gpu/metrics", endpoints.gpu_metrics),
        ("/metrics", endpoints.own_metrics),
        ("/metrics/nodes", endpoints.nodes),
        ("/container/metrics", endpoints.containers),
        ("/debug/mapping", endpoints.debug_mapping),
        ("/", endpoints.page),
        ("/-/ready", endpoints.ready),
        ("/-/healthy", _healthy),
        ("/healthz", _healthy),
    ):
        app.router.add_get(path, handler)
    return app


def _respond(request: web.Request, content_type: str, *pieces: bytes) -> web.Response:
    headers = {"Content-Type": content_type, "Vary": "Accept-Encoding"}
    if accepts_gzip(request.headers.get("Accept-Encoding", "")):
        headers["Content-Encoding"] = "gzip"
        compressor = zlib.compressobj(GZIP_LEVEL, wbits=31)
        pieces = (*map(compressor.compress, pieces), compressor.flush())
    size = sum(map(len, pieces))
    if size <= PIECE_BYTES:
        return web.Response(body=b"".join(pieces), headers=headers)
    return web.Response(body=_Pieces(pieces), headers={**headers, "Content-Length": str(size)})


class _Pieces(Payload):
    """A large body, written piece by piece: given to a socket at once, it would be copied four times."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__(pieces)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The body as text."""
        return b"".join(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write it whole."""
        for piece in self._value:
            for start in range(0, len(piece), PIECE_BYTES):
                await writer.write(memoryview(piece)[start : start + PIECE_BYTES])


def _json(body: bytes, status: int) -> web.Response:
    return web.Response(body=body, status=status, headers={"Content-Type": JSON_FORMAT})


def _line(text: str, status: int) -> web.Response:
    return web.Response(text=text + "\n", status=status, headers={"Content-Type": PLAIN})


async def _healthy(_: web.Request) -> web.Response:
    return _line("healthy", 200)


class _Endpoints:
    """A handler for each path: take a snapshot, have an output make its text, answer."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    async def _collect(self, request: web.Request) -> Snapshot:
        return await self._collector.collect(patience_of(request.headers))

    async def gpu_metrics(self, request: web.Request) -> web.Response:
        if self._collector.instance in request.headers.get("Via", ""):
            return _line("this exporter is its own upstream: look at --dcgm.url", 508)
        snapshot = await self._collect(request)
        pieces = gpu_metrics.render(snapshot)
        if pieces is None:
            return _line(families.why_not(snapshot), 503)
        return _respond(request, TEXT_FORMAT, *pieces)

    async def own_metrics(self, request: web.Request) -> web.Response:
        snapshot = await self._collect(request)
        telemetry = self._collector.telemetry
        own = families.render((*own_metrics.families(snapshot, telemetry), *mapping.families(snapshot)))
        why = families.complaints(snapshot)
        return _respond(request, TEXT_FORMAT, why + own + telemetry.render_process())

    async def nodes(self, request: web.Request) -> web.Response:
        snapshot = await self._collect(request)
        return _respond(request, TEXT_FORMAT, families.render(mapping.node_families((snapshot,))))

    async def containers(self, request: web.Request) -> web.Response:
        wrong = containers.wrong_query(request.query.items())
        if wrong:
            return _json(containers.error(wrong), 400)
        snapshot = await self._collector.collect(patience_of(request.headers), workloads=True)
        body = containers.render(snapshot, request.query)
        return _json(containers.why_no_rows(snapshot), 503) if body is None else _respond(request, JSON_FORMAT, body)

    async def debug_mapping(self, request: web.Request) -> web.Response:
        text = json.dumps(mapping.debug(await self._collect(request)), indent=2) + "\n"
        return _respond(request, JSON_FORMAT, text.encode())

    async def page(self, request: web.Request) -> web.Response:
        html = page.render(await self._collect(request))
        return _respond(request, "text/html; charset=utf-8", html.encode())

    async def ready(self, _: web.Request) -> web.Response:
        reason = await self._collector.why_not_ready()
        return _line(reason, 503) if reason else _line("ready", 200)
