"""The connections to a Prometheus server: a path and its parameters → the bytes of the answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus

from exporter.config.http_file import HttpConfig
from exporter.sources.http import Client, Peer
from exporter.sources.prometheus.history.api import QUERIES_AT_ONCE
from exporter.sources.unpack import Body

HEADERS = (("Accept", "application/json"), ("Accept-Encoding", "gzip"), ("User-Agent", "pod-gpu-metrics-exporter"))
KEEP_ALIVE_SECONDS = 60.0
QUERY_PATH = "/api/v1/query"
MAX_BYTES_OF_REPORT = 128 * 1024 * 1024
CONNECT_SECONDS = 10.0
_GRACE_SECONDS = 5.0
_BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE})


@dataclass(frozen=True, slots=True)
class PrometheusClient:
    """One server. `url` is what /api/v1 stands below; the server stops after `query_seconds`."""

    client: Client
    url: str
    query_seconds: float
    on_more: Callable[[Body], None] = lambda _: None

    async def query(self, expression: str, *, at_seconds: float | None, by_post: bool = False, **more: str) -> bytes:
        """What an instant query answers, at a moment since 1970 or the server's now. Raises SourceError: as `ask`."""
        parameters = {"query": expression, "timeout": f"{self.query_seconds:g}s", **more}
        if at_seconds is not None:
            parameters["time"] = f"{at_seconds:.3f}"
        return await self.get(QUERY_PATH, parameters, by_post=by_post)

    async def get(self, path: str, parameters: Mapping[str, str], *, by_post: bool = False) -> bytes:
        """What the server answers at a path; see `query`."""
        asked, posted = (None, parameters) if by_post else (parameters, None)
        url = self.url.rstrip("/")
        return await self.client.ask(url, path, parameters=asked, posted=posted, on_more=self.on_more)

    async def close(self) -> None:
        """End the connections."""
        await self.client.close()


_PEER = Peer(
    flag="--prometheus.http-config",
    refused="is Prometheus running, and on this port (usually 9090)? From outside a cluster: kubectl port-forward",
    unreachable="can this machine reach that address? From outside a cluster: kubectl port-forward",
    tls=(
        "name the server's authority (ca_file), its name (server_name) and a certificate in --prometheus.http-config,"
        " under tls_config; or does it speak plain HTTP?"
    ),
    look_there="look at the server's log, and at what the address answers to curl",
    silent="can this machine reach that address? From outside a cluster: kubectl port-forward",
    no_right="give it a password, a token or a client certificate that it accepts, with --prometheus.http-config",
    no_path=(
        "is this a Prometheus server (usually port 9090), and not the exporter itself? If it is one with a path of its"
        " own, such as /prometheus, put that after the address"
    ),
    elsewhere="give the address that answers itself (https in place of http? a login in between?)",
    names_path=True,
    busy=_BUSY,
)


def over_http(
    *, url: str, timeout_seconds: float, http: HttpConfig, max_bytes: int = MAX_BYTES_OF_REPORT
) -> PrometheusClient:
    """A server that is asked for a report, of which a query takes at most `timeout_seconds`."""
    client = Client(
        replace(_PEER, where=f"{url.rstrip('/')}: "),
        http=http,
        headers=HEADERS,
        timeout_seconds=timeout_seconds + _GRACE_SECONDS,
        connect_seconds=CONNECT_SECONDS,
        max_bytes=max_bytes,
        most_connections=QUERIES_AT_ONCE,
        keepalive_seconds=KEEP_ALIVE_SECONDS,
    )
    return PrometheusClient(client, url, timeout_seconds)
