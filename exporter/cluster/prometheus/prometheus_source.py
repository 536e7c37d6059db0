"""A Prometheus server that scrapes the node exporters, as the source that knows all nodes.

Every few seconds it is asked a few queries, all about the moment of the first one, by the server's own clock. The
answers are kept. A failure changes nothing until the last answers are too old. Then every node is missing.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from math import inf
from types import MappingProxyType

from exporter.cluster.prometheus import queries
from exporter.cluster.prometheus.collecting import Collected
from exporter.cluster.prometheus.query_answer import REMEDY, VectorSeries, read_vector
from exporter.cluster.prometheus.targets import MOST_NODES, read_targets
from exporter.config.cluster_settings import ClusterSettings
from exporter.config.http_file import HttpConfig
from exporter.config.parsers import LABEL_SETS
from exporter.errors import SourceError, Trouble
from exporter.model.cluster_view import ClusterView, NodeView
from exporter.sources.http import Client, Peer
from exporter.sources.long_work import in_slices
from exporter.sources.prometheus import HEADERS, KEEP_ALIVE_SECONDS, PrometheusClient
from exporter.sources.single_flight import SingleFlight
from exporter.sources.source import AskedSource, Attempt, Bound, Bounds, Clock, OnHealth
from exporter.sources.unpack import Body
from exporter.wording import listed

NAME = "prometheus"
# The part of the time for an answer that connecting may take.
_OF_CONNECTING = 0.8
# If a server asks for a longer pause than this, it is asked again after this time anyway.
MOST_RETRY_SECONDS = 300.0
_NAMED = 5
_PEER = Peer(
    flag="--cluster.http-config",
    refused="is Prometheus running, and on this port?",
    unreachable="is it up, and does a NetworkPolicy or a firewall let this role reach it?",
    tls=(
        "name its authority (ca_file), its name (server_name) and this role's certificate in --cluster.http-config,"
        " under tls_config; or does it speak plain HTTP?"
    ),
    look_there="look at that server's log, and at what the address answers to curl",
    silent="is it up, and does a NetworkPolicy or a firewall let this role reach it?",
    slow="look at that server: is it overloaded? A large cluster may need a longer --cluster.timeout",
    no_right=(
        "give this role a password, a token, a client certificate or the header of its tenant with"
        " --cluster.http-config (http_headers: {X-Scope-OrgID: {values: [...]}} for Mimir)"
    ),
    elsewhere="give the address that answers itself (https in place of http? a prefix? past a login page?)",
    too_often="raise its limits for this tenant, or --cluster.interval",
    too_much=(
        "raise --cluster.max-bytes and this container's memory limit (it needs some three times that), or ask for fewer"
        " nodes with --cluster.prometheus-matchers"
    ),
    most="--cluster.max-bytes",
    no_path=REMEDY,
    busy=frozenset({HTTPStatus.TOO_MANY_REQUESTS}),
)
_NOT_ASKED = Trouble("missing", "Prometheus has not answered yet", "it is being asked; look again in some seconds")
_NO_NODE = Trouble(
    "missing",
    'there is no node exporter: Prometheus has no target with metrics_path="/gpu/metrics" (among those'
    " that --cluster.prometheus-matchers selects)",
    "scrape the node exporters as deploy/prometheus does, with the labels metrics_path and node",
)


class Prometheus(AskedSource):
    """All nodes, according to one server (a ClusterSource)."""

    def __init__(
        self,
        *,
        cluster: ClusterSettings,
        http: HttpConfig,
        on_health: OnHealth,
        clock: Clock = time.monotonic,
        wall_clock: Clock = time.time,
    ) -> None:
        super().__init__(NAME, on_health)
        client = Client(
            _PEER,
            http=http,
            headers=HEADERS,
            timeout_seconds=cluster.timeout_seconds,
            connect_seconds=cluster.timeout_seconds * _OF_CONNECTING,
            max_bytes=cluster.max_bytes,
            keepalive_seconds=KEEP_ALIVE_SECONDS,
        )
        self._client = PrometheusClient(client, cluster.prometheus_url or "", cluster.timeout_seconds, self._note_size)
        self._in_flight_bytes = 0
        self._matchers = cluster.prometheus_matchers or ""
        self._owner_labels = cluster.prometheus_labels or LABEL_SETS["pod"]
        self._max_age_seconds = cluster.max_age_seconds
        self._clock = clock
        self._wall_clock = wall_clock
        self._flight = SingleFlight(self._read)
        self._failure: Trouble | None = _NOT_ASKED
        self._not_before = -inf
        # The nodes as they were known at a moment, which is kept by the server's clock, since 1970, and by ours.
        self._views: Mapping[str, NodeView] = {}
        self._known_at_seconds = 0.0
        self._known_at = -inf
        self._view: ClusterView | None = None
        self._until = -inf
        self.bounds: Bounds = {
            "nodes": Bound(MOST_NODES, lambda: len(self._views)),
            "answer_bytes_in_flight": Bound(cluster.max_bytes, lambda: self._in_flight_bytes),
        }

    @property
    def view(self) -> ClusterView:
        """The cluster as it is known now: the same object as long as only ages have changed."""
        now = self._clock()
        if self._view is None or now >= self._until:
            self._view = self._view_of(now)
        return self._view

    def begin(self) -> Attempt | None:
        """Ask the server; None while it has asked for a pause."""
        if self._clock() < self._not_before:
            return None
        return self._flight.begin()

    async def close(self) -> None:
        """End requests in flight, and the connections."""
        await self._flight.close()
        await self._client.close()

    async def _read(self) -> None:
        started = time.monotonic()
        error: SourceError | None = None
        try:
            await self._ask_all()
        except SourceError as failed:
            error = failed
            self._failure = failed.trouble
            if failed.retry_after_seconds:
                self._not_before = self._clock() + min(failed.retry_after_seconds, MOST_RETRY_SECONDS)
        self._view = None
        odd = None if error else self._odd()
        self._attempts.note(error, took_seconds=time.monotonic() - started, now_seconds=self._wall_clock(), odd=odd)

    async def _ask_all(self) -> None:
        """Replace the views by those of one moment, the newest that the server has. Raises SourceError: they stay."""
        asked_at = self._clock()
        rows: list[VectorSeries] = []
        await self._take(queries.targets(self._matchers), rows.append, None, queries.KNOWN_SECONDS)
        # without a target there is no moment, and no further query
        at_seconds = rows[0].at_seconds if rows else 0.0
        targets = read_targets(rows, at_seconds, self._max_age_seconds)
        collected = Collected(targets, self._owner_labels)
        if rows:
            await self._take(queries.own(self._matchers), collected.take_own, at_seconds, self._max_age_seconds)
            for query in queries.samples(self._matchers, self._owner_labels):
                await self._take(query, collected.take_sample, at_seconds, self._max_age_seconds)
        self._views = await in_slices(collected.views())
        self._known_at_seconds = at_seconds
        self._known_at = asked_at
        self._failure = None

    async def _take(
        self, query: str, take: Callable[[VectorSeries], None], at_seconds: float | None, look_back_seconds: float
    ) -> None:
        """Give each series of a query's answer to `take`. Raises SourceError: no answer, or a partial one."""
        try:
            body = await self._client.query(
                query,
                at_seconds=at_seconds,
                by_post=True,
                # an older sample does not count, if the server allows a query to say so
                lookback_delta=f"{look_back_seconds:g}s",
                # by default, Thanos leaves out the data of a store that does not answer
                partial_response="false",
            )
        finally:
            self._in_flight_bytes = 0
        await in_slices(read_vector(body, take))

    def _note_size(self, body: Body) -> None:
        self._in_flight_bytes = body.size

    def _view_of(self, now: float) -> ClusterView:
        self._until = inf
        # ages are not taken from our wall clock, which may differ from the server's
        passed = now - self._known_at
        nodes = {name: self._now(node, passed, now) for name, node in self._views.items()}
        trouble = None if self._views else self._failure or _NO_NODE
        if self._failure and passed >= self._max_age_seconds:
            # meanwhile, there may be other nodes
            trouble = self._failure
        elif self._failure:
            self._until = min(self._until, self._known_at + self._max_age_seconds)
        return ClusterView(nodes=MappingProxyType(nodes), at_seconds=self._wall_clock(), trouble=trouble)

    def _now(self, node: NodeView, passed: float, now: float) -> NodeView:
        """A node as it is now, `passed` seconds after the queries."""
        if node.answered_at_seconds is None:
            return node
        age = self._known_at_seconds + passed - node.answered_at_seconds
        if age < self._max_age_seconds:
            self._until = min(self._until, now + self._max_age_seconds - age)
            return node
        return NodeView(
            name=node.name,
            answered_at_seconds=node.answered_at_seconds,
            trouble=self._failure
            or Trouble(
                "stale",
                f"its last scrape is {age:.0f} s old, and --cluster.max-age is {self._max_age_seconds:g} s",
                "is the server that scrapes it down, or behind? --cluster.max-age should be more than twice the scrape"
                " interval",
            ),
        )

    def _odd(self) -> Trouble | None:
        """The trouble that some nodes are missing; None if none is."""
        missing = [node for node in self.view.nodes.values() if node.trouble]
        if not missing or missing[0].trouble is None:
            return None
        why = missing[0].trouble
        names = listed([node.name for node in missing], _NAMED)
        message = f"{len(missing)} of {len(self._views)} nodes are missing: {names}; the first one: {why.message}"
        return replace(why, message=message)
