"""What the program counts about itself, and what it logs once. The families of it are in outputs/families/."""

import asyncio
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Literal, get_args

from exporter import log
from exporter.exposition.families import Family, Filled, render
from exporter.memory import limit_bytes
from exporter.model.snapshot import Health

REFUSALS = ("busy", "certificate", "connections", "password", "slow_reader", "tls")
# An idle loop is up to 1.2 ms late, since epoll counts in milliseconds; the kubelet gives a probe 1 s by default.
LAG_BUCKETS_SECONDS = (0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0)

# What became of a push by OTLP: the receiver took all, or a part; refused it, or wanted it later; nobody answered; it
# was left out, since the receiver was to be left alone.
PushResult = Literal["accepted", "partial", "refused", "later", "failed", "skipped"]


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
        # when all counters of the process began, in seconds since 1970
        self.began = b"%.3f" % time.time()
        self.rejected: Counter[str] = Counter()
        # requests and connections, by which of REFUSALS it was
        self.refused: Counter[str] = Counter()
        self.reload_failures = 0
        self.reload_success = True
        self.loop_lag = Histogram(LAG_BUCKETS_SECONDS)
        self.pushes: Counter[str] = Counter()
        self.pushed_points: Counter[str] = Counter()
        self.kernel_records: Counter[str] = Counter()
        self._bounds: dict[str, tuple[int, Callable[[], int]]] = {}
        self._other_node = False
        self._logged: dict[str, tuple[bool | None, str]] = {}

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

    @property
    def memory_limit_bytes(self) -> int | None:
        """Above how much memory the kernel ends this process, asked anew: a running pod's limit may be raised."""
        return limit_bytes(Path("/"))

    def count_rejected(self, rejected: Mapping[str, int]) -> None:
        """Add the rejected lines of one read of the upstreams. The first of each reason is worth a log line."""
        if not rejected:
            return
        for reason in rejected.keys() - self.rejected.keys():
            log.warning("upstream lines rejected, from now on only counted", reason=reason)
        self.rejected.update(rejected)

    def note_reload(self, error: Exception | None) -> None:
        """Count and log a reload of the configuration; `error` says why it was refused."""
        self.reload_success = error is None
        if error is None:
            log.info("configuration reloaded")
        else:
            self.reload_failures += 1
            log.error("configuration refused, the old one stays", error=str(error))

    def begin_pushes(self) -> None:
        """From now on the counters of pushes are shown, and begin at 0."""
        self.pushes.update(dict.fromkeys(get_args(PushResult), 0))
        self.pushed_points.update(accepted=0, lost=0)

    def count_push(self, result: PushResult, accepted: int, lost: int = 0) -> None:
        """A push is over; so many of its points were accepted, and so many are lost."""
        self.pushes[result] += 1
        self.pushed_points.update(accepted=accepted, lost=lost)

    def bound(self, of: str, limit: int, used: Callable[[], int]) -> None:
        """Show a cache's or a queue's limit, and what `used` says that it holds."""
        self._bounds[of] = (limit, used)

    def note_other_node(self, devices: int) -> None:
        """Log once that the pages' GPUs are not those of this kubelet, and once that they are again."""
        if bool(devices) is not self._other_node:
            self._other_node = bool(devices)
            if devices:
                log.error("the page comes from another node than the kubelet's word", devices=devices)
            else:
                log.info("the page comes from this node")

    def note_health(self, source: str, health: Health) -> None:
        """Log once that a source's trouble begins, changes or ends; at debug, every read."""
        state = (health.up, health.reason)
        if log.debugging():
            seconds = None if health.duration_seconds is None else round(health.duration_seconds, 6)
            log.debug("read", source=source, up=health.up, reason=health.reason, seconds=seconds)
        before = self._logged.get(source)
        self._logged[source] = state
        if state == before:
            return
        if trouble := health.trouble:
            words = {"reason": trouble.reason, "says" if health.up else "error": trouble.message}
            event = "source answers, but" if health.up else "source failed"
            log.warning(event, source=source, **words, remedy=trouble.remedy)
        else:
            log.info("source answers" if before is None else "source is back", source=source)

    def render_process(self, *, is_open: bool = False) -> bytes:
        """The process' own memory, CPU and garbage collections, as every Prometheus client shows them.

        As OpenMetrics (`is_open`) they have the mark that ends a page.
        """
        return self._process(is_open)

    @cached_property
    def _process(self) -> Callable[[bool], bytes]:
        # It brings a web server with it, 1 MiB, and many nodes are only ever asked for /gpu/metrics.
        import prometheus_client as client  # noqa: PLC0415

        registry = client.CollectorRegistry()
        for collector in (client.ProcessCollector, client.PlatformCollector, client.GCCollector):
            collector(registry=registry)

        def as_openmetrics() -> bytes:
            families = (
                Filled(
                    # such a family's name lacks a counter's _total
                    Family(
                        family.name + "_total" * (family.type == "counter"),
                        family.type,
                        family.documentation,
                        tuple(family.samples[0].labels),
                    ),
                    [(tuple(sample.labels.values()), float(sample.value)) for sample in family.samples],
                    began=self.began,
                )
                for family in registry.collect()
                if family.samples
            )
            return render(families, is_open=True) + b"# EOF\n"

        return lambda is_open: as_openmetrics() if is_open else client.generate_latest(registry)
