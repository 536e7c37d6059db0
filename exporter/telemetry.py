"""What the program counts about itself, and what it logs once. The families of it are in outputs/families/."""

import asyncio
import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate

from exporter.log import LOG, _fields, debug, debugging, log
from exporter.model.snapshot import Health

REFUSALS = ("busy", "certificate", "connections", "password", "slow_reader", "tls")


# An idle loop is up to 1.2 ms late, since epoll counts in milliseconds; the kubelet gives a probe 1 s by default.
LAG_BUCKETS_SECONDS = (0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0)


class Histogram:
    """How many values there were up to each of some bounds and above them, and the sum of all."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.sum = 0.0
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float) -> None:
        """One more value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> Sequence[tuple[str, int]]:
        """Each bound as a label's value (`0.5`, at last `+Inf`), and how many values were no larger."""
        return tuple(zip((*map(str, self._bounds), "+Inf"), accumulate(self._counts), strict=True))


class Telemetry:
    """What the program counts about itself, and the log lines that go with it."""

    def __init__(self) -> None:
        self.rejected: Counter[str] = Counter()
        self.reload_failures = 0
        self.reload_success = True
        self.loop_lag = Histogram(LAG_BUCKETS_SECONDS)
        self._refused: Counter[str] = Counter()
        self._bounds: dict[str, tuple[int, Callable[[], int]]] = {}
        self._other_node = False
        self._logged: dict[str, tuple[bool | None, str]] = {}

    @property
    def refused(self) -> Mapping[str, int]:
        """What was refused, by reason; 0 for what was not."""
        return self._refused

    @property
    def bounds(self) -> Sequence[tuple[str, int, int]]:
        """What has a limit, by its name: the limit, and how much of it is used now."""
        return [(of, limit, used()) for of, (limit, used) in sorted(self._bounds.items())]

    @property
    def tasks(self) -> int:
        """How many tasks the event loop has."""
        try:
            return len(asyncio.all_tasks())
        except RuntimeError:  # no event loop: nothing runs
            return 0

    def count_rejected(self, rejected: Mapping[str, int]) -> None:
        """Add the rejected lines of one read of the upstreams. The first of each reason is worth a log line."""
        if not rejected:
            return
        for reason in rejected.keys() - self.rejected.keys():
            log(logging.WARNING, "upstream lines rejected, from now on only counted", reason=reason)
        self.rejected.update(rejected)

    def note_reload(self, error: Exception | None) -> None:
        """Count and log a reload of the configuration; `error` says why it was refused."""
        self.reload_success = error is None
        if error is None:
            LOG.info("configuration reloaded")
        else:
            self.reload_failures += 1
            LOG.error("configuration refused, the old one stays", extra=_fields(error=str(error)))

    def count_refused(self, reason: str) -> None:
        """A request or a connection was refused, for one of REFUSALS."""
        self._refused[reason] += 1

    def note_loop_lag(self, seconds: float) -> None:
        """The event loop was so late."""
        self.loop_lag.observe(max(0.0, seconds))

    def bound(self, of: str, limit: int, used: Callable[[], int]) -> None:
        """Show a cache's or a queue's limit, and what `used` says that it holds."""
        self._bounds[of] = (limit, used)

    def note_other_node(self, devices: int) -> None:
        """Log once that the pages' GPUs are not this kubelet's, which nothing else would say; and the end of it."""
        if bool(devices) is not self._other_node:
            self._other_node = bool(devices)
            if devices:
                LOG.error("the page comes from another node than the kubelet's word", extra=_fields(devices=devices))
            else:
                LOG.info("the page comes from this node")

    def note_health(self, source: str, health: Health) -> None:
        """Log a source's failure, or what is odd about its answers, once: when it begins or changes, and its end.

        At debug every read is logged.
        """
        state = (health.up, health.reason)
        if debugging():
            debug("read", source=source, up=health.up, reason=state[1], seconds=_rounded(health.duration_seconds))
        before = self._logged.get(source)
        self._logged[source] = state
        if state == before:
            return
        trouble = health.trouble
        if trouble and health.up:
            said = _fields(source=source, reason=trouble.reason, says=trouble.message, remedy=trouble.remedy)
            LOG.warning("source answers, but", extra=said)
        elif trouble:
            said = _fields(source=source, reason=trouble.reason, error=trouble.message, remedy=trouble.remedy)
            LOG.warning("source failed", extra=said)
        elif before is not None:
            LOG.info("source is back", extra=_fields(source=source))
        else:
            LOG.info("source answers", extra=_fields(source=source))

    def render_process(self) -> bytes:
        """The process' own memory, CPU and garbage collections, as every Prometheus client shows them."""
        return self._process()

    @cached_property
    def _process(self) -> Callable[[], bytes]:
        # It brings a web server with it, 1 MiB, and many nodes are only ever asked for /gpu/metrics.
        from prometheus_client import (  # noqa: PLC0415
            CollectorRegistry,
            GCCollector,
            PlatformCollector,
            ProcessCollector,
            generate_latest,
        )

        registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        return lambda: generate_latest(registry)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
