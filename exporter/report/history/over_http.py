"""HTTP connections to the Prometheus server of a report.

The kubectl plugin has no aiohttp, and asks through kubectl instead.

Tests: tests/report/history/test_prometheus_api.py.
"""

from dataclasses import replace
from http import HTTPStatus

from exporter.config.http_file import HttpConfig
from exporter.report.history.prometheus_api import QUERIES_AT_ONCE
from exporter.sources.http import Client, Peer
from exporter.sources.prometheus import HEADERS, KEEP_ALIVE_SECONDS, PrometheusClient

MAX_BYTES_OF_REPORT = 128 * 1024 * 1024
CONNECT_SECONDS = 10.0
_GRACE_SECONDS = 5.0
_BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE})

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
    """The client of a report's server.

    Args:
        url: the server's URL.
        timeout_seconds: the most time for each query.
        http: TLS and credentials.
        max_bytes: the largest answer that is read.
    """
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
