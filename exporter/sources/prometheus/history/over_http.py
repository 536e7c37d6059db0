"""A Prometheus server that is asked over HTTP for a report."""

from http import HTTPStatus

from exporter.config.http_file import HttpConfig
from exporter.sources.http import Peer
from exporter.sources.prometheus.client import PrometheusClient
from exporter.sources.prometheus.history.api import FLAG, QUERIES_AT_ONCE

MAX_BYTES = 128 * 1024 * 1024
CONNECT_SECONDS = 10.0
_GRACE_SECONDS = 5.0
_BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE})
_REACH = "can this machine reach that address? From outside a cluster: kubectl port-forward"


def over_http(*, url: str, timeout_seconds: float, http: HttpConfig, max_bytes: int = MAX_BYTES) -> PrometheusClient:
    """By the URL that `/api/v1` stands below. A query takes at most `timeout_seconds`."""
    return PrometheusClient(
        _peer(url.rstrip("/")),
        url=url,
        http=http,
        query_seconds=timeout_seconds,
        timeout_seconds=timeout_seconds + _GRACE_SECONDS,
        connect_seconds=CONNECT_SECONDS,
        max_bytes=max_bytes,
        most_connections=QUERIES_AT_ONCE,
    )


def _peer(url: str) -> Peer:
    return Peer(
        flag=FLAG,
        where=f"{url}: ",
        refused="is Prometheus running, and on this port (usually 9090)? From outside a cluster: kubectl port-forward",
        unreachable=_REACH,
        silent=_REACH,
        tls=f"name the server's authority (ca_file), its name (server_name) and a certificate in {FLAG}, under"
        " tls_config; or does it speak plain HTTP?",
        look_there="look at the server's log, and at what the address answers to curl",
        no_right=f"give it a password, a token or a client certificate that it accepts, with {FLAG}",
        no_path="does the server have a path of its own, such as /prometheus? Put it after the address",
        elsewhere="give the address that answers itself (https in place of http? a login in between?)",
        busy=_BUSY,
        names_path=True,
    )
