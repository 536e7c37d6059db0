"""A Prometheus server, or what answers as it does: a path and its parameters → the bytes of the answer.

Tests: tests/cluster/prometheus/test_prometheus_source.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from exporter.sources.http import Client
from exporter.sources.unpack import Body

HEADERS = (("Accept", "application/json"), ("Accept-Encoding", "gzip"), ("User-Agent", "pod-gpu-metrics-exporter"))
KEEP_ALIVE_SECONDS = 60.0
QUERY_PATH = "/api/v1/query"


@dataclass(frozen=True, slots=True)
class PrometheusClient:
    """A server. /api/v1 is below `url`. The server gives up a query after `query_seconds`."""

    client: Client
    url: str
    query_seconds: float
    on_more: Callable[[Body], None] = lambda _: None

    async def query(self, expression: str, *, at_seconds: float | None, by_post: bool = False, **more: str) -> bytes:
        """The answer of an instant query, at a moment since 1970 or now. Raises SourceError: see `ask`."""
        parameters = {"query": expression, "timeout": f"{self.query_seconds:g}s", **more}
        if at_seconds is not None:
            parameters["time"] = f"{at_seconds:.3f}"
        return await self.get(QUERY_PATH, parameters, by_post=by_post)

    async def get(self, path: str, parameters: Mapping[str, str], *, by_post: bool = False) -> bytes:
        """The server's answer at a path; see `query`."""
        asked, posted = (None, parameters) if by_post else (parameters, None)
        url = self.url.rstrip("/")
        return await self.client.ask(url, path, parameters=asked, posted=posted, on_more=self.on_more)

    async def close(self) -> None:
        """Close the connections."""
        await self.client.close()
