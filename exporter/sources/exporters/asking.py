"""The HTTP client for node exporters: it returns the bytes of an answer, or raises a SourceError.

Tests: tests/cluster/exporters/test_exporters_source.py.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from urllib.parse import urlsplit

from exporter.config.http_file import HttpConfig
from exporter.errors import Malformed, Unavailable
from exporter.model.cluster_view import OWNERS_UNKNOWN
from exporter.model.node_answers import OWNERS_UNKNOWN_HEADER
from exporter.model.snapshot import Health
from exporter.sources.cluster_source import ExporterPlace
from exporter.sources.http import Client, Peer
from exporter.sources.source import NoSource
from exporter.sources.unpack import Body

PATH = "/container/metrics"
# Exporters are asked every few seconds, so each keeps its connection.
KEEP_ALIVE_SECONDS = 120.0
# The part of the time for an answer in which there must be a connection.
_OF_CONNECTING = 0.8
NODE_EXPORTERS = Peer(
    flag="--cluster.http-config",
    refused="is the exporter running on that node, and on this port?",
    unreachable="is the node up, and does a NetworkPolicy or a firewall let this role reach its exporter?",
    tls=(
        "name the exporters' authority (ca_file), their name (server_name) and this role's certificate in"
        " --cluster.http-config, under tls_config; or do they speak plain HTTP?"
    ),
    look_there="look at that exporter's log, and at what the address answers to curl",
    silent="is the node up, and does a NetworkPolicy or a firewall let this role reach its exporter?",
    slow="look at that node and its exporter: is it overloaded? A large cluster may need a longer --cluster.timeout",
    no_right="give this role a password, a token or a client certificate that it accepts, with --cluster.http-config",
    no_path="is it this program's node exporter, and is its address given without a path?",
    too_much="is it this program's node exporter? If so, raise --cluster.max-bytes",
    most="--cluster.max-bytes",
)
LOOK_THERE = NODE_EXPORTERS.look_there


class ExporterClient:
    """The connections to all exporters, which are kept. It follows no redirect."""

    def __init__(
        self,
        *,
        timeout_seconds: float,
        max_bytes: int,
        http: HttpConfig,
        most_in_flight_bytes: int,
        peer: Peer = NODE_EXPORTERS,
        path: str = PATH,
        connect_seconds: float | None = None,
    ) -> None:
        """The connections begin with the first question.

        Args:
            timeout_seconds: the longest time of an answer.
            max_bytes: the largest answer, unpacked.
            http: TLS and authorisation.
            most_in_flight_bytes: the largest sum of all answers that are being read.
            peer: the exporters, as errors name them.
            path: the path that `ask` adds by default.
            connect_seconds: the part of the timeout for a connection; None: most of it.
        """
        self.in_flight = MemoryBudget(most_in_flight_bytes)
        self._path = path
        self._client = Client(
            peer,
            http=http,
            headers=(("Accept", "application/json"), ("Accept-Encoding", "identity")),
            timeout_seconds=timeout_seconds,
            connect_seconds=connect_seconds or timeout_seconds * _OF_CONNECTING,
            max_bytes=max_bytes,
            most_connections=0,  # as many as there are exporters
            keepalive_seconds=KEEP_ALIVE_SECONDS,
        )
        self.close = self._client.close

    async def ask(
        self, url: str, path: str = "", on_headers: Callable[[Mapping[str, str]], None] = lambda _: None
    ) -> bytes:
        """The body of the answer below a URL, at the client's own path or at `path`. `on_headers` sees its headers.

        Raises:
            Unavailable: there is no URL yet (""), no answer came, or its status is not 200.
            TimedOut, Malformed: see `Client.ask`.
        """
        if not url:
            remedy = "look at the exporter's pod on that node: why is it not running?"
            raise Unavailable("missing", "its exporter has no address yet", remedy=remedy)
        holder = object()
        try:
            return await self._client.ask(
                url, path or self._path, on_headers=on_headers, on_more=partial(self._share, holder)
            )
        finally:
            self.in_flight.free(holder)

    def _share(self, holder: object, body: Body) -> None:
        """Note how much of an answer has come. If there is no room, the largest answer in flight is dropped."""
        if not body.is_forgotten:
            self.in_flight.hold(holder, body.size, body.forget)
        if body.is_forgotten:
            they = f"of many that come at a time, more than {self.in_flight.most} bytes in all"
            raise Malformed("oversize", f"its answer is the largest {they}", remedy=LOOK_THERE)


def check_owners(headers: Mapping[str, str]) -> None:
    """Refuse the answer of an exporter whose kubelet does not name the holders of GPUs. Raises Unavailable."""
    if headers.get(OWNERS_UNKNOWN_HEADER) == "true":
        raise Unavailable("missing", OWNERS_UNKNOWN.message, remedy=OWNERS_UNKNOWN.remedy)


class GivenPlaces(NoSource):
    """The places that the user gives as URLs, with or without the node's name. They never change."""

    looked_for = "the list of --cluster.node"

    def __init__(self, nodes: Sequence[tuple[str, str]]) -> None:
        """`nodes` are names and URLs. If a name is "", the exporter says it."""
        super().__init__("exporters:given", Health())
        self.places: Mapping[str, ExporterPlace] = MappingProxyType(
            # without the path, which the client adds
            {
                name or address_of(url): ExporterPlace(url=url.rstrip("/").removesuffix(PATH), is_named=bool(name))
                for name, url in nodes
            }
        )

    def follow(self, on_change: Callable[[], None]) -> None:
        """Do nothing: the places never change."""


def address_of(url: str) -> str:
    """A URL's host, port and path, without the parts that may be secret."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] + parts.path.rstrip("/")


class MemoryBudget:
    """Memory of `most` bytes that many holders share. If it does not suffice, the largest holder loses its part."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self._held: dict[Hashable, tuple[int, Callable[[], None]]] = {}

    def hold(self, holder: Hashable, size: int, lose: Callable[[], None]) -> None:
        """Note that `holder` holds `size` bytes from now on. `lose` is called if it must drop them."""
        self.free(holder)
        self._held[holder] = (size, lose)
        self.used += size
        while self.used > self.most:
            largest = max(self._held, key=lambda of: self._held[of][0])
            _, tell = self._held[largest]
            self.free(largest)
            tell()

    def free(self, holder: Hashable) -> None:
        """Note that `holder` holds nothing any more."""
        size, _ = self._held.pop(holder, (0, None))
        self.used -= size
