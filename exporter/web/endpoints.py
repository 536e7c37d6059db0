"""The HTTP endpoints: paths from a table of outputs, and compression. Outputs make the answers.

Endpoints take GET and HEAD only, and change nothing.
"""

import asyncio
import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from aiohttp import Payload
from aiohttp.abc import AbstractStreamWriter
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse

from exporter import log
from exporter.model.slices import Work, at_once
from exporter.outputs.output import NO_QUESTION, Answer, Need, Output, Question, line
from exporter.role import Role
from exporter.sources.long_work import in_slices

# Level 1 costs a third of level 6 and packs a GPU page, which repeats itself, nearly as well.
GZIP_LEVEL = 1
# The bytes that are written at a time.
PIECE_BYTES = 256 * 1024
# Every scrape needs these members: looking a member up in its enum takes six times as long as finding it in a set.
_NODE = Need.NODE
_DIAGNOSIS = Need.DIAGNOSIS
_READINESS = Need.READINESS
_NOTHING: Mapping[str, Any] = {}


def patience_of(headers: Mapping[str, str]) -> float | None:
    """The time that a scrape may wait for sources: max(h - 0.5, h / 2) of its X-Prometheus-Scrape-Timeout-Seconds h."""
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
    """Whether an Accept-Encoding header asks for gzip. `gzip;q=0` refuses it."""
    for part in header.split(","):
        coding, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if coding == "gzip":
            return not any(parameter in ("q=0", "q=0.0", "q=0.00", "q=0.000") for parameter in parameters)
    return False


@lru_cache(maxsize=64)
def prefers_openmetrics(header: str) -> bool:
    """Whether an Accept header wants OpenMetrics 1.0 at least as much as plain text."""
    wanted = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for part in header.split(","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        values = {
            name.strip(): value.strip(' "') for name, _, value in (parameter.partition("=") for parameter in parameters)
        }
        if kind in ("text/*", "*/*"):
            kind = "text/plain"
        if kind in wanted and (kind == "text/plain" or values.get("version", "1.0.0") == "1.0.0"):
            try:
                wanted[kind] = max(wanted[kind], float(values.get("q", 1)))
            except ValueError:
                continue
    return 0 < wanted["application/openmetrics-text"] >= wanted["text/plain"]


def _respond(request: BaseRequest, answer: Answer, packed: Sequence[bytes] | None = None) -> Response:
    """The response to a request, gzipped if the client takes that. `packed` is the body that is gzipped already."""
    pieces = answer.pieces
    size = answer.size
    headers = {"Content-Type": answer.content_type}
    if answer.headers:
        headers.update(answer.headers)
    if size <= PIECE_BYTES:
        pieces = (b"".join(pieces),)
    if answer.is_packed:
        headers["Vary"] = ", ".join(filter(None, (headers.get("Vary"), "Accept-Encoding")))
        if _takes_gzip(request):
            headers["Content-Encoding"] = "gzip"
            pieces = packed or at_once(_packed(pieces))
            size = sum(map(len, pieces))
    if size <= PIECE_BYTES:
        return Response(body=b"".join(pieces), status=answer.status, headers=headers)
    return Response(body=_Pieces(pieces), status=answer.status, headers={**headers, "Content-Length": str(size)})


def _takes_gzip(request: BaseRequest) -> bool:
    return accepts_gzip(request.headers.get("Accept-Encoding", ""))


def _packed(pieces: Sequence[bytes]) -> Work[Sequence[bytes]]:
    """The pieces as gzip. A slice packs PIECE_BYTES, which takes 3 ms."""
    compressor = zlib.compressobj(GZIP_LEVEL, wbits=31)
    packed = []
    for piece in pieces:
        for start in range(0, len(piece), PIECE_BYTES):
            packed.append(compressor.compress(memoryview(piece)[start : start + PIECE_BYTES]))
            yield
    packed.append(compressor.flush())
    return packed


class _Pieces(Payload):
    """A large body, which is written piece by piece. A socket that gets it at once copies it four times."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__(pieces)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The body as text."""
        return b"".join(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the whole body."""
        for piece in self._value:
            for start in range(0, len(piece), PIECE_BYTES):
                await writer.write(memoryview(piece)[start : start + PIECE_BYTES])


def _question(output: Output[Any], request: BaseRequest, role: Callable[[], Role]) -> Question:
    """What a request asks of an output. Most scrapes ask nothing."""
    via = request.headers.get("Via")
    is_open = output.has_open and prefers_openmetrics(request.headers.get("Accept", ""))
    if not (via or request.query_string or output.is_below or is_open):
        return NO_QUESTION
    is_own = via is not None and role().instance in via
    # the path as it was sent: %2F does not separate parts
    rest = request.rel_url.raw_path.removeprefix(output.path) if output.is_below else ""
    return Question(tuple(request.query.items()), is_own=is_own, rest=rest, is_open=is_open)


class Endpoints:
    """Answers requests by a table of outputs: it takes the look that an output needs, and the output makes the answer.

    It keeps no state.
    """

    def __init__(
        self, role: Callable[[], Role], outputs: Sequence[Output[Any]], about: Callable[[Any], Mapping[str, Any]]
    ) -> None:
        """`role` returns the present role; `about` makes the program's facts about itself and about a look."""
        self._role = role
        self._about = about
        self._outputs = outputs
        # a few fixed paths need no router but a dictionary, which is 10 us faster
        self._by_path: Mapping[str, Output[Any]] = {output.path: output for output in outputs}
        self._below = tuple(output for output in outputs if output.is_below)

    @property
    def probes(self) -> frozenset[str]:
        """The paths that the kubelet asks to see whether the process works."""
        return frozenset(output.path for output in self._outputs if output.is_probe)

    async def answer(self, request: BaseRequest) -> StreamResponse:
        """The answer of the path's output, or a refusal."""
        output = self._by_path.get(request.path) or self._above(request.path)
        if output is None:
            return _respond(request, line("nothing is here; / lists what there is", 404))
        if request.method not in ("GET", "HEAD"):
            refusal = _respond(request, line("GET and HEAD only: nothing changes anything here", 405))
            refusal.headers["Allow"] = "GET, HEAD"
            return refusal
        if not log.debugging():
            return await self._answer(output, request)
        began = time.monotonic()
        answer = await self._answer(output, request)
        log.debug(
            "answered",
            path=request.path,
            status=answer.status,
            bytes=answer.content_length,
            seconds=round(time.monotonic() - began, 6),
            peer=request.remote,
        )
        return answer

    def _above(self, path: str) -> Output[Any] | None:
        return next((output for output in self._below if path.startswith(output.path)), None)

    async def _answer(self, output: Output[Any], request: BaseRequest) -> Response:
        """The response of an output, after the look that it needs. Long work is done in slices."""
        role = self._role
        needs = output.needs
        question = _question(output, request, role)
        refusal = output.refuse(question) if output.refuse else None
        if refusal:
            return _respond(request, refusal)
        seen = None
        if _NODE in needs:
            seen = await role().look(patience_of(request.headers), needs)
        about = _NOTHING
        if _DIAGNOSIS in needs:
            about = self._about(seen)
            await asyncio.sleep(0)  # with many devices `about` takes as long as some slices
        look = role().looked(
            seen,
            telemetry=role().telemetry,
            question=question,
            about=about,
            not_ready=await role().why_not_ready() if _READINESS in needs else "",
            outputs=self._outputs,
        )
        made = output.make(look)
        if not isinstance(made, Answer):
            made = await in_slices(made)
        is_large = made.size > PIECE_BYTES and made.is_packed and _takes_gzip(request)
        return _respond(request, made, await in_slices(_packed(made.pieces)) if is_large else None)
