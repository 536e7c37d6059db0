"""What the program counts about itself. It is counted in telemetry.py, and has its names here.

A counter is there with every reason from the start: one that appears with its first event hides that event from rate().
"""

from collections.abc import Sequence

from exporter.exposition.families import Samples
from exporter.exposition.lines import Reason
from exporter.outputs.families.family import OwnFamily
from exporter.outputs.output import AnyLook
from exporter.telemetry import REFUSALS


def _rejected(look: AnyLook) -> Samples:
    return [((str(reason),), float(look.telemetry.rejected[reason])) for reason in Reason]


def _refused(look: AnyLook) -> Samples:
    return [((reason,), float(look.telemetry.refused[reason])) for reason in REFUSALS]


def _loop_lag(look: AnyLook) -> Samples:
    lag = look.telemetry.loop_lag
    counts = [(upper, float(count)) for upper, count in lag.cumulative()]
    _, count = counts[-1]
    return [*((("_bucket", upper), count) for upper, count in counts), (("_count",), count), (("_sum",), lag.sum)]


REJECTED: OwnFamily[AnyLook] = OwnFamily(
    "pod_gpu_exporter_rejected_lines_total",
    "counter",
    "Lines, or parts of lines, of upstream pages that did not go out, by reason.",
    ("reason",),
    fill=_rejected,
)
FAMILIES: Sequence[OwnFamily[AnyLook]] = (
    REJECTED,
    OwnFamily(
        "pod_gpu_exporter_config_reload_success",
        "gauge",
        "Whether the last reload of the configuration succeeded (1) or was refused (0); 1 before the first.",
        fill=lambda look: [((), float(look.telemetry.reload_success))],
    ),
    OwnFamily(
        "pod_gpu_exporter_config_reload_failures_total",
        "counter",
        "Reloads of the configuration that were refused.",
        fill=lambda look: [((), float(look.telemetry.reload_failures))],
    ),
    OwnFamily(
        "pod_gpu_exporter_refused_requests_total",
        "counter",
        "Requests and connections that got no answer, or none but a refusal, by reason.",
        ("reason",),
        fill=_refused,
    ),
    OwnFamily(
        "pod_gpu_exporter_tasks",
        "gauge",
        "Tasks of the event loop: reads, watches, requests.",
        fill=lambda look: [((), float(look.telemetry.tasks))],
    ),
    OwnFamily(
        "pod_gpu_exporter_event_loop_lag_seconds",
        "histogram",
        "How late the event loop was when it was looked at, once a second: what one thing at a time costs all others.",
        ("le",),
        fill=_loop_lag,
    ),
    OwnFamily(
        "pod_gpu_exporter_bound_used",
        "gauge",
        "What a cache or a queue holds now; it cannot hold more than its limit.",
        ("of",),
        fill=lambda look: [((of,), float(used)) for of, _, used in look.telemetry.bounds],
    ),
    OwnFamily(
        "pod_gpu_exporter_bound_limit",
        "gauge",
        "The most that a cache or a queue can hold.",
        ("of",),
        fill=lambda look: [((of,), float(limit)) for of, limit, _ in look.telemetry.bounds],
    ),
)
