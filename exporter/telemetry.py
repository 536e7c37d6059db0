"""The exporter's own families, and what it counts about itself.

`FAMILIES` is the catalogue: every family that the program makes up itself, with its type, help and labels. The slim
part at the end of /gpu/metrics and the whole on /metrics are filled from it. They are written by the program's own
writer (exposition/text.py): it is on every scrape's path, and it keeps the labels in the catalogue's order.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from exporter.exposition.families import Family, Filled
from exporter.log import LOG, _fields, debug, log
from exporter.model.snapshot import Health

REFUSALS = ("busy", "certificate", "connections", "password", "slow_reader", "tls")


# An idle loop is up to 1.2 ms late, since epoll counts in milliseconds; the kubelet gives a probe 1 s by default.
LAG_BUCKETS_SECONDS = (0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0)


disable_created_metrics()  # type: ignore[no-untyped-call] # otherwise a histogram comes with a second family


BUILD_INFO = Family(
    "pod_gpu_exporter_build_info",
    "gauge",
    "The exporter's version and the commit that it was built from; always 1.",
    ("version", "revision"),
)
SOURCE_UP = Family(
    "pod_gpu_exporter_source_up", "gauge", "Whether the last read of a source succeeded (1) or failed (0).", ("source",)
)
SOURCE_DURATION = Family(
    "pod_gpu_exporter_source_duration_seconds", "gauge", "How long the last read of a source took.", ("source",)
)
SOURCE_LAST_SUCCESS = Family(
    "pod_gpu_exporter_source_last_success_timestamp_seconds",
    "gauge",
    "When a source was last read with success, in seconds since 1970.",
    ("source",),
)
ASSIGNMENTS = Family(
    "pod_gpu_exporter_assignments",
    "gauge",
    "Device ids in force, by resource: what the kubelet handed to containers.",
    ("resource",),
)
ASSIGNMENTS_AGE = Family(
    "pod_gpu_exporter_assignments_age_seconds",
    "gauge",
    "How old the kubelet's word is that owners are taken from; absent before its first answer.",
)
UNMATCHED = Family(
    "pod_gpu_exporter_unmatched_devices",
    "gauge",
    "Assigned device ids that no sample was found for, by reason; /debug/mapping names them.",
    ("reason",),
)
REJECTED = Family(
    "pod_gpu_exporter_rejected_lines_total",
    "counter",
    "Lines, or parts of lines, of upstream pages that did not go out, by reason.",
    ("reason",),
)
RELOAD_SUCCESS = Family(
    "pod_gpu_exporter_config_reload_success",
    "gauge",
    "Whether the last reload of the configuration succeeded (1) or was refused (0); 1 before the first.",
)
RELOAD_FAILURES = Family(
    "pod_gpu_exporter_config_reload_failures_total", "counter", "Reloads of the configuration that were refused."
)
REFUSED = Family(
    "pod_gpu_exporter_refused_requests_total",
    "counter",
    "Requests and connections that got no answer, or none but a refusal, by reason.",
    ("reason",),
)
TASKS = Family("pod_gpu_exporter_tasks", "gauge", "Tasks of the event loop: reads, watches, requests.")
LOOP_LAG = Family(
    "pod_gpu_exporter_event_loop_lag_seconds",
    "histogram",
    "How late the event loop was when it was looked at, once a second: what one thing at a time costs all others.",
)
BOUND_USED = Family(
    "pod_gpu_exporter_bound_used",
    "gauge",
    "What a cache or a queue holds now; it cannot hold more than its limit.",
    ("of",),
)
BOUND_LIMIT = Family("pod_gpu_exporter_bound_limit", "gauge", "The most that a cache or a queue can hold.", ("of",))
POD_LABEL_PROBLEMS = Family(
    "pod_gpu_exporter_pod_label_problems",
    "gauge",
    "Labels of pods that hold GPUs which could not go out as they are, by what became of them.",
    ("reason",),
)
DEVICE_OWNERS = Family(
    "pod_gpu_device_owners",
    "gauge",
    "How many containers hold a device: a GPU (entity gpu), a GPU that is cut into MIG instances (mig-parent), or a MIG"
    " instance of it by GPU_I_ID (mig).",
    ("UUID", "GPU_I_ID", "gpu", "entity", "node"),
)
MAP_INFO = Family(
    "pod_and_gpu_map_info",
    "gauge",
    "A pod that holds a GPU; always 1.",
    ("gpu_id", "gpu_model", "namespace", "node", "pod_name"),
)
POD_GPU_INFO = Family(
    "pod_gpu_info",
    "gauge",
    "A container that holds a GPU or a MIG instance, with all that is known of the device; always 1.",
    (
        "namespace",
        "pod",
        "container",
        "UUID",
        "gpu",
        "device",
        "modelName",
        "resource",
        "GPU_I_ID",
        "GPU_I_PROFILE",
        "node",
    ),
)
FAMILIES = (
    BUILD_INFO,
    SOURCE_UP,
    SOURCE_DURATION,
    SOURCE_LAST_SUCCESS,
    ASSIGNMENTS,
    ASSIGNMENTS_AGE,
    UNMATCHED,
    REJECTED,
    POD_LABEL_PROBLEMS,
    RELOAD_SUCCESS,
    RELOAD_FAILURES,
    REFUSED,
    TASKS,
    LOOP_LAG,
    BOUND_USED,
    BOUND_LIMIT,
    DEVICE_OWNERS,
    MAP_INFO,
    POD_GPU_INFO,
)


def health_families(health: Mapping[str, Health]) -> tuple[Filled, Filled]:
    """Up and duration of every source; a source that was never tried has neither."""
    tried = [((name,), state) for name, state in health.items() if state.up is not None]
    return (
        Filled(SOURCE_UP, tuple([(labels, float(bool(state.up))) for labels, state in tried])),
        Filled(
            SOURCE_DURATION,
            tuple([(labels, state.duration_seconds) for labels, state in tried if state.duration_seconds is not None]),
        ),
    )


def age_family(age_seconds: float | None) -> Filled:
    """Absent as long as there is no age: unknown is no series."""
    return Filled(ASSIGNMENTS_AGE, () if age_seconds is None else (((), age_seconds),))


class Telemetry:
    """What the program counts about itself, and the log lines that go with it."""

    def __init__(self) -> None:
        self.rejected: Counter[str] = Counter()
        self.reload_failures = 0
        self.reload_success = True
        self._refused: Counter[str] = Counter()
        self._bounds: dict[str, tuple[int, Callable[[], int]]] = {}
        self._other_node = False
        self._logged: dict[str, tuple[bool | None, str]] = {}
        self._process = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._process)
        self._loop_lag = Histogram(LOOP_LAG.name, LOOP_LAG.help, buckets=LAG_BUCKETS_SECONDS, registry=self._process)

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
        self._loop_lag.observe(max(0.0, seconds))

    def bound(self, of: str, limit: int, used: Callable[[], int]) -> None:
        """Show a cache's or a queue's limit, and what `used` says that it holds."""
        self._bounds[of] = (limit, used)

    def counted(self) -> tuple[Filled, ...]:
        """What is counted here, as families."""
        bounds = sorted(self._bounds.items())
        return (
            Filled(RELOAD_SUCCESS, (((), float(self.reload_success)),)),
            Filled(RELOAD_FAILURES, (((), float(self.reload_failures)),)),
            # every reason from the start: a counter that appears only with its first event hides it from rate()
            Filled(REFUSED, tuple(((reason,), float(self._refused[reason])) for reason in REFUSALS)),
            Filled(TASKS, (((), float(_tasks())),)),
            Filled(BOUND_USED, tuple(((of,), float(used())) for of, (_, used) in bounds)),
            Filled(BOUND_LIMIT, tuple(((of,), float(limit)) for of, (limit, _) in bounds)),
        )

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
        debug("read", source=source, up=health.up, reason=health.reason, seconds=_rounded(health.duration_seconds))
        state = (health.up, health.reason)
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
        """The process' own memory, CPU, garbage collections and event loop, as every Prometheus client shows them."""
        return generate_latest(self._process)


def _tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # no event loop: nothing runs
        return 0


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
