"""The connections to a Prometheus server: a path and its parameters → the bytes of the answer."""

from collections.abc import Callable, Mapping

from exporter.config.http_file import HttpConfig
from exporter.sources.http import Client, Peer
from exporter.sources.unpack import Body

QUERY_PATH = "/api/v1/query"


class PrometheusClient:
    """One server, with the caller's words and limits."""

    def __init__(
        self,
        peer: Peer,
        *,
        url: str,
        http: HttpConfig,
        query_seconds: float,
        timeout_seconds: float,
        connect_seconds: float,
        max_bytes: int,
        most_connections: int = 100,
        on_more: Callable[[Body], None] = lambda _: None,
    ) -> None:
        """`url` is what /api/v1 stands below; `max_bytes` counts unpacked; the server stops after `query_seconds`."""
        self._url = url.rstrip("/")
        self._query_seconds = query_seconds
        self._on_more = on_more
        self._client = Client(
            peer,
            http=http,
            headers=(
                ("Accept", "application/json"),
                ("Accept-Encoding", "gzip"),
                ("User-Agent", "pod-gpu-metrics-exporter"),
            ),
            timeout_seconds=timeout_seconds,
            connect_seconds=connect_seconds,
            max_bytes=max_bytes,
            most_connections=most_connections,
            keepalive_seconds=60.0,
        )
        self.close = self._client.close

    async def query(self, expression: str, *, at_seconds: float | None, by_post: bool = False, **more: str) -> bytes:
        """What an instant query answers, at a moment since 1970 or the server's now. Raises SourceError: as `ask`."""
        parameters = {"query": expression, "timeout": f"{self._query_seconds:g}s", **more}
        if at_seconds is not None:
            parameters["time"] = f"{at_seconds:.3f}"
        return await self.get(QUERY_PATH, parameters, by_post=by_post)

    async def get(self, path: str, parameters: Mapping[str, str], *, by_post: bool = False) -> bytes:
        """What the server answers at a path; see `query`."""
        asked, posted = (None, parameters) if by_post else (parameters, None)
        return await self._client.ask(self._url, path, parameters=asked, posted=posted, on_more=self._on_more)
