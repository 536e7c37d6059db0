"""A Prometheus behind the API server's proxy."""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus

from exporter.cli.kubectl.places import ProxyTransport
from exporter.cli.top.asking import Gone
from exporter.errors import HttpRefusal, Unavailable

_REMEDY = "look at the server's log; -> --timeout gives a query more time"


class ProxiedPrometheus:
    """A Connection to it. kubectl tells no body of an error: one that may be of size is taken as such."""

    def __init__(self, transport: ProxyTransport, query_seconds: float) -> None:
        self._transport = transport
        self._query_seconds = query_seconds

    async def query(self, expression: str, *, at_seconds: float | None) -> bytes:
        """As Connection."""
        moment = {} if at_seconds is None else {"time": f"{at_seconds:.3f}"}
        return await self.get("/api/v1/query", {"query": expression, "timeout": f"{self._query_seconds:g}s", **moment})

    async def get(self, path: str, parameters: Mapping[str, str]) -> bytes:
        """As Connection."""
        try:
            status, body = await asyncio.to_thread(lambda: self._transport.get(path, **parameters))
        except Gone as error:
            message, _, remedy = str(error).partition(" -> ")
            raise Unavailable("unreachable", message, remedy=remedy) from error
        if status == HTTPStatus.OK:
            return body
        refusal = HttpRefusal("http_status", f"HTTP status {status} for {path}", remedy=_REMEDY)
        refusal.status = status
        refusal.content = {"errorType": "timeout"} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
        raise refusal

    async def close(self) -> None:
        """Nothing is open."""
