"""The program's counters about itself, and log lines that come once.

The families of the counters are in outputs/families/.
"""

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
from exporter.errors import Trouble
from exporter.exposition.families import Family, Filled, render
from exporter.memory import limit_bytes
from exporter.model.snapshot import Health

REFUSALS = ("busy", "certificate", "connections", "password", "slow_reader", "tls")
# An idle loop is up to 1.2 ms late, since epoll counts in milliseconds. The kubelet gives a probe 1 s by default.
LAG_BUCKETS_SECONDS = (0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0)

# The outcome of a push by OTLP: the receiver took all points, or a part of them; it refused the push, or wanted it
# later; nobody answered; the push was skipped, since the receiver had asked for a pause.
PushResult = Literal["accepted", "partial", "refused", "later", "failed", "skipped"]


class Histogram:
    """A histogram: the number of values up to each bound and above all bounds, and the sum of all values."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.sum = 0.0
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float) -> None:
        """Add a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> Sequence[tuple[str, int]]:
        """Each bound as a label's value (`0.5`, at last `+Inf`), and the number of values up to it."""
        return tuple(zip((*map(str, self._bounds), "+Inf"), accumulate(self._counts), strict=True))


class Telemetry:
    """The program's counters about itself, and the log lines that belong to them."""

    def __init__(self) -> None:
        # the start of all counters of the process, in seconds since 1970
        self.began = b"%.3f" % time.time()
        self.rejected: Counter[str] = Counter()
        # refused requests and connections, by the reason, which is one of REFUSALS
        self.refused: Counter[str] = Counter()
        self.reload_failures = 0
        self.reload_success = True
        self.loop_lag = Histogram(LAG_BUCKETS_SECONDS)
        self.pushes: Counter[str] = Counter()
        self.pushed_points: Counter[str] = Counter()
        self.kernel_records: Counter[str] = Counter()
        self._bounds: dict[str, tuple[int, Callable[[], int]]] = {}
        self._contradictions: Mapping[str, Trouble] = {}
        self._other_node = False
        self._logged: dict[str, tuple[bool | None, str]] = {}

    @property
    def bounds(self) -> Sequence[tuple[str, int, int]]:
        """The limits, each with its name and the present use."""
        return [(of, limit, used()) for of, (limit, used) in sorted(self._bounds.items())]

    @property
    def tasks(self) -> int:
        """The number of tasks in the event loop."""
        try:
            return len(asyncio.all_tasks())
        except RuntimeError:  # no event loop: nothing runs
            return 0

    @property
    def memory_limit_bytes(self) -> int | None:
        """The memory above which the kernel ends this process. It is read each time: a pod's limit may be raised."""
        return limit_bytes(Path("/"))

    def count_rejected(self, rejected: Mapping[str, int]) -> None:
        """Add the rejected lines of a read of the upstreams, by reason. The first line of each reason is logged."""
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
        """Show the counters of pushes from now on, beginning at 0."""
        self.pushes.update(dict.fromkeys(get_args(PushResult), 0))
        self.pushed_points.update(accepted=0, lost=0)

    def count_push(self, result: PushResult, accepted: int, lost: int = 0) -> None:
        """Count a push that has ended, with the numbers of its accepted and lost points."""
        self.pushes[result] += 1
        self.pushed_points.update(accepted=accepted, lost=lost)

    def bound(self, of: str, limit: int, used: Callable[[], int]) -> None:
        """Show the limit of a cache or a queue, and its present use, which `used` returns."""
        self._bounds[of] = (limit, used)

    def note_other_node(self, devices: int) -> None:
        """Log once that the page's GPUs are not this kubelet's (`devices` of them), and once that they are again."""
        if bool(devices) is not self._other_node:
            self._other_node = bool(devices)
            if devices:
                log.error("the page comes from another node than the kubelet's word", devices=devices)
            else:
                log.info("the page comes from this node")

    def note_contradictions(self, contradictions: Mapping[str, Trouble]) -> None:
        """Log once that the node contradicts what an allocator wrote, by container."""
        for container, trouble in contradictions.items():
            if self._contradictions.get(container) != trouble:
                log.warning(
                    "an allocator is contradicted", container=container, says=trouble.message, remedy=trouble.remedy
                )
        self._contradictions = contradictions

    def note_health(self, source: str, health: Health) -> None:
        """Log once when a source's trouble begins, changes or ends; at level debug, log every read."""
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
        """The families of the process' memory, CPU and garbage collections, as every Prometheus client shows them.

        `is_open`: as OpenMetrics, with the mark that ends a page.
        """
        return self._process(is_open)

    @cached_property
    def _process(self) -> Callable[[bool], bytes]:
        """The function that writes the process' own families, in OpenMetrics if it is called with True."""
        # it imports a web server and takes 1 MiB, and many nodes are only asked for /gpu/metrics
        import prometheus_client as client  # noqa: PLC0415

        registry = client.CollectorRegistry()
        for collector in (client.ProcessCollector, client.PlatformCollector, client.GCCollector):
            collector(registry=registry)

        def as_openmetrics() -> bytes:
            families = (
                Filled(
                    # prometheus_client's name of a counter lacks _total
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
