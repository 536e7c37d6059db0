"""The pushing of looks at the node by OTLP over HTTP, at intervals. No scrape waits for it.

All sums are cumulative, so nothing is kept for later: the next push has all that a receiver missed.
"""

import asyncio
import time
import zlib
from http import HTTPStatus

from exporter.config.http_file import HttpConfig
from exporter.errors import HttpRefusal, SourceError, Trouble
from exporter.node.part import LookFor
from exporter.outputs.otlp.messages import MOST_POINTS_KEPT, Messages, PartialSuccess, partial_success, refusal
from exporter.outputs.otlp.metrics import Metrics
from exporter.outputs.output import LOOK_AT_NODE, Need
from exporter.pulse import Pulse
from exporter.sources.http import Client, Peer
from exporter.sources.long_work import in_slices
from exporter.sources.pause import Pause
from exporter.sources.source import AskedSource, Attempt, Bound, OnHealth
from exporter.telemetry import PushResult, Telemetry

NAME = "otlp"
NEEDS = LOOK_AT_NODE | {Need.ACCOUNTS, Need.WORKLOADS, Need.VERDICTS}
TIMEOUT_SECONDS = 10.0
_LONGEST_PAUSE_SECONDS = 300.0
_MOST_RETRY_AFTER_SECONDS = 3600.0
_MOST_ANSWER_BYTES = 64 * 1024
_GZIP = 31  # zlib's wbits for gzip
# OTLP: after these statuses the same push is wanted again later, after any other refusal it is not
_LATER = frozenset(
    {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
)
_PEER = Peer(
    flag="--otlp.http-config",
    refused="is the collector running, and is this the port of OTLP over HTTP (4318 by default)?",
    unreachable="is the address right, and does a firewall or a NetworkPolicy let this container reach it?",
    tls="give the collector's authority as ca_file in tls_config of --otlp.http-config",
    look_there="see the receiver's own log",
    slow="see what keeps the receiver; this exporter's next push has all sums",
    no_right="give the receiver's token or password with --otlp.http-config or OTEL_EXPORTER_OTLP_HEADERS",
    no_path=(
        "does the receiver take OTLP there? /v1/metrics is put after --otlp.endpoint: for Prometheus that is"
        " http://HOST:9090/api/v1/otlp, with --web.enable-otlp-receiver"
    ),
    too_often="raise --otlp.interval, or the receiver's limit",
    names_path=True,
    busy=_LATER,
    explain=refusal,
)


class Pusher(AskedSource):
    """Pushes to one receiver. A reload with the same settings keeps it, and gives it the new node's `look`."""

    patience_seconds = 0.0

    def __init__(
        self,
        *,
        url: str,
        interval_seconds: float,
        headers: tuple[tuple[str, str], ...],
        http: HttpConfig,
        resource: tuple[tuple[str, str], ...],
        version: str,
        telemetry: Telemetry,
        on_health: OnHealth,
    ) -> None:
        """`resource` describes this exporter to the receiver; `headers` go with each push."""
        super().__init__(NAME, on_health)
        self.interval_seconds = interval_seconds
        self.look: LookFor | None = None
        self.shown = (self,)
        self._url = url
        self._telemetry = telemetry
        self._client = Client(
            _PEER,
            http=http,
            headers=(
                ("User-Agent", f"pod-gpu-metrics-exporter/{version}"),
                ("Content-Type", "application/x-protobuf"),
                ("Content-Encoding", "gzip"),
                *headers,
            ),
            timeout_seconds=min(TIMEOUT_SECONDS, max(interval_seconds, 1.0)),
            max_bytes=_MOST_ANSWER_BYTES,
            keepalive_seconds=2 * interval_seconds,
        )
        self._metrics = Metrics()
        self._messages = Messages(dict(resource), version)
        self._pause = Pause(interval_seconds, max(interval_seconds, _LONGEST_PAUSE_SECONDS), least=0.75, most=1.0)
        self._failures = 0
        self._rests_until = 0.0
        self._pulse = Pulse(self._push)
        self.bounds = {"otlp_points": Bound(MOST_POINTS_KEPT, lambda: self._messages.kept)}
        telemetry.begin_pushes()

    def follow(self, look: LookFor) -> None:
        """Push what this node looks at."""
        self.look = look

    async def beat(self, _: LookFor) -> None:
        """Begin to push, if that has not begun. It goes on by itself from here on."""
        self.begin()

    def begin(self) -> Attempt | None:
        """Push from now on, at intervals. Nobody waits for it."""
        self._pulse.every(self.interval_seconds)
        return None

    async def close(self) -> None:
        """End the push in flight, and the connection."""
        await self._pulse.close()
        await self._client.close()

    async def _push(self) -> None:
        """Look at the node and push its points in one gzipped request, unless the receiver asked for a rest."""
        if self.look is None:
            return
        snapshot = await self.look(None, NEEDS)
        moment = time.monotonic()
        now_ns = time.time_ns()
        metrics = await in_slices(self._metrics.work_for(snapshot, moment=moment, now_ns=now_ns))
        points = sum(len(metric.values) for metric in metrics)
        if moment < self._rests_until:
            self._telemetry.count_push("skipped", 0, points)
            return
        if not points:
            return
        packer = zlib.compressobj(1, wbits=_GZIP)
        pieces = self._messages.pieces(metrics, now_ns)
        # some 2 ms each, beside the loop
        packed = [await asyncio.to_thread(packer.compress, await in_slices(work)) for work in pieces]
        body = b"".join((*packed, packer.flush()))
        began = time.monotonic()
        error = None
        partial = PartialSuccess(0, "")
        try:
            partial = partial_success(await self._client.ask(self._url, posted=body))
        except SourceError as why:
            error = why
        self._note(error, partial, points, time.monotonic() - began)

    def _note(self, error: SourceError | None, partial: PartialSuccess, points: int, took_seconds: float) -> None:
        """Note the outcome of a push of `points` points, and after a failure the pause until the next push."""
        result: PushResult = "accepted"
        lost = min(partial.rejected, points)
        odd = None
        if error is not None:
            is_refusal = isinstance(error, HttpRefusal)
            result = "later" if is_refusal and error.reason == "rate_limited" else "refused" if is_refusal else "failed"
            lost = points
            self._failures += 1
            wait = error.retry_after_seconds
            rest = self._pause.after(self._failures) if wait is None else min(wait, _MOST_RETRY_AFTER_SECONDS)
            self._rests_until = time.monotonic() + rest
        else:
            self._failures = 0
            if lost or partial.message:
                result = "partial"
                odd = Trouble(
                    "partial",
                    f"it takes all but {lost} of {points} points: {partial.message or 'it does not say why'}",
                    "see the receiver's own log; these points are lost, the next push has the sums",
                )
        self._telemetry.count_push(result, points - lost, lost)
        self._attempts.note(error, took_seconds=took_seconds, now_seconds=time.time(), odd=odd)
