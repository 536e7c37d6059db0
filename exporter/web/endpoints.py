"""The HTTP side: paths and compression. What the answers say is made in outputs/.

GET and HEAD only; no endpoint changes anything.
"""

import json
import math
import time
import zlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from aiohttp import Payload, web
from aiohttp.abc import AbstractStreamWriter

from exporter.log import debug, debugging
from exporter.model.snapshot import Snapshot
from exporter.outputs import containers, families, gpu_metrics, mapping, own_metrics, page
from exporter.telemetry import Telemetry

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
JSON_FORMAT = "application/json; charset=utf-8"
PLAIN = "text/plain; charset=utf-8"
# Level 1 costs a third of level 6 and packs a GPU page, which repeats itself, nearly as well.
GZIP_LEVEL = 1
# What is written at a time.
PIECE_BYTES = 256 * 1024


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Collector(Protocol):
    """What the web needs of the program behind it."""

    @property
    def telemetry(self) -> Telemetry:
        """The exporter's counters."""

    @property
    def instance(self) -> str:
        """What this process calls itself towards upstreams, in the header Via."""

    def collect(self, wait_seconds: float | None, *, workloads: bool = False) -> Awaitable[Snapshot]:
        """A look at the node, with what its sources can say within `wait_seconds`; on request with workloads."""

    async def why_not_ready(self) -> str:
        """The reason, or "" for ready."""

    def about(self, snapshot: Snapshot) -> Mapping[str, Any]:
        """What there is to say of the program and of a look at the node, beside the mapping."""


def patience_of(headers: Mapping[str, str]) -> float | None:
    """How long a scrape may wait for sources: max(h - 0.5, h / 2) of its X-Prometheus-Scrape-Timeout-Seconds h."""
    header = headers.get("X-Prometheus-Scrape-Timeout-Seconds")
    if header is None:
        return None
    try:
        timeout = float(header)
    except ValueError:
        return None
    return max(timeout - 0.5, timeout / 2) if math.isfinite(timeout) and timeout > 0 else None


@lru_cache(maxsize=16)
def accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header asks for gzip, `gzip;q=0` being a refusal."""
    for part in header.split(","):
        coding, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if coding == "gzip":
            return not any(parameter in ("q=0", "q=0.0", "q=0.00", "q=0.000") for parameter in parameters)
    return False


def _respond(request: web.BaseRequest, content_type: str, body: bytes) -> web.Response:
    return _respond_in_pieces(request, content_type, (body,), len(body))


def _respond_in_pieces(request: web.BaseRequest, content_type: str, pieces: Sequence[bytes], size: int) -> web.Response:
    """`size` is that of all pieces, in bytes."""
    headers = {"Content-Type": content_type, "Vary": "Accept-Encoding"}
    if size <= PIECE_BYTES:
        pieces = (b"".join(pieces),)
    if accepts_gzip(request.headers.get("Accept-Encoding", "")):
        headers["Content-Encoding"] = "gzip"
        compressor = zlib.compressobj(GZIP_LEVEL, wbits=31)
        pieces = (b"".join((*map(compressor.compress, pieces), compressor.flush())),)
        size = len(pieces[0])
    if size <= PIECE_BYTES:
        return web.Response(body=pieces[0], headers=headers)
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


async def _healthy(_: web.BaseRequest) -> web.Response:
    return _line("healthy", 200)


class Endpoints:
    """A handler for each path: take a snapshot, have an output make its text, answer. Keeps no state of its own."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._handlers: Mapping[str, Handler] = {
            "/gpu/metrics": self._gpu_metrics,
            "/metrics": self._own_metrics,
            "/metrics/nodes": self._nodes,
            "/container/metrics": self._containers,
            "/debug/mapping": self._debug_mapping,
            "/": self._page,
            "/-/ready": self._ready,
            "/-/healthy": _healthy,
            "/healthz": _healthy,
        }

    @property
    def paths(self) -> Collection[str]:
        """Where there is an answer."""
        return self._handlers.keys()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """What the path's handler says. A dictionary is all the router that nine fixed paths need: 10 us less."""
        handler = self._handlers.get(request.path)
        if handler is None:
            return _line("nothing is here; / lists what there is", 404)
        if request.method not in ("GET", "HEAD"):
            refusal = _line("GET and HEAD only: nothing changes anything here", 405)
            refusal.headers["Allow"] = "GET, HEAD"
            return refusal
        if not debugging():
            return await handler(request)
        began = time.monotonic()
        answer = await handler(request)
        debug(
            "answered",
            path=request.path,
            status=answer.status,
            bytes=answer.content_length,
            seconds=round(time.monotonic() - began, 6),
            peer=request.remote,
        )
        return answer

    def _collect(self, request: web.BaseRequest) -> Awaitable[Snapshot]:
        return self._collector.collect(patience_of(request.headers))

    async def _gpu_metrics(self, request: web.BaseRequest) -> web.Response:
        if self._collector.instance in request.headers.get("Via", ""):
            return _line("this exporter is its own upstream: look at --dcgm.url", 508)
        snapshot = await self._collect(request)
        page = gpu_metrics.render(snapshot)
        if page is None:
            return _line(families.why_not(snapshot), 503)
        return _respond_in_pieces(request, TEXT_FORMAT, *page)

    async def _own_metrics(self, request: web.BaseRequest) -> web.Response:
        snapshot = await self._collect(request)
        telemetry = self._collector.telemetry
        own = families.render((*own_metrics.families(snapshot, telemetry), *mapping.families(snapshot)))
        why = families.complaints(snapshot)
        return _respond(request, TEXT_FORMAT, why + own + telemetry.render_process())

    async def _nodes(self, request: web.BaseRequest) -> web.Response:
        snapshot = await self._collect(request)
        return _respond(request, TEXT_FORMAT, families.render(mapping.node_families((snapshot,))))

    async def _containers(self, request: web.BaseRequest) -> web.Response:
        wrong = containers.wrong_query(request.query.items())
        if wrong:
            return _json(containers.error(wrong), 400)
        snapshot = await self._collector.collect(patience_of(request.headers), workloads=True)
        body = containers.render(snapshot, request.query)
        return _json(containers.why_no_rows(snapshot), 503) if body is None else _respond(request, JSON_FORMAT, body)

    async def _debug_mapping(self, request: web.BaseRequest) -> web.Response:
        snapshot = await self._collect(request)
        text = json.dumps({**self._collector.about(snapshot), **mapping.debug(snapshot)}, indent=2) + "\n"
        return _respond(request, JSON_FORMAT, text.encode())

    async def _page(self, request: web.BaseRequest) -> web.Response:
        html = page.render(await self._collect(request))
        return _respond(request, "text/html; charset=utf-8", html.encode())

    async def _ready(self, _: web.BaseRequest) -> web.Response:
        reason = await self._collector.why_not_ready()
        return _line(reason, 503) if reason else _line("ready", 200)
