"""What the program counts about itself. It is counted in telemetry.py, and has its names here.

Every counter starts at 0 with every reason. Prometheus' rate() ignores the first sample, so a counter that starts at
its first event loses it.
"""

from collections.abc import Sequence

from exporter.exposition.families import Samples
from exporter.exposition.lines import Reason
from exporter.outputs.families.family import OwnFamily, counter, gauge
from exporter.outputs.output import AnyLook
from exporter.telemetry import REFUSALS, Histogram


def _rejected(look: AnyLook) -> Samples:
    return [((str(reason),), float(look.telemetry.rejected[reason])) for reason in Reason]


def _refused(look: AnyLook) -> Samples:
    return [((reason,), float(look.telemetry.refused[reason])) for reason in REFUSALS]


def histogram_samples(histogram: Histogram) -> Samples:
    """Those of a family of the type histogram."""
    counts = [(upper, float(count)) for upper, count in histogram.cumulative()]
    _, count = counts[-1]
    buckets = ((("_bucket", upper), count) for upper, count in counts)
    return [*buckets, (("_count",), count), (("_sum",), histogram.sum)]


REJECTED: OwnFamily[AnyLook] = counter(
    "pod_gpu_exporter_rejected_lines_total",
    "Lines, or parts of lines, of upstream pages that did not go out, by reason.",
    ("reason",),
    fill=_rejected,
)
FAMILIES: Sequence[OwnFamily[AnyLook]] = (
    REJECTED,
    gauge(
        "pod_gpu_exporter_config_reload_success",
        "Whether the last reload of the configuration succeeded (1) or was refused (0); 1 before the first.",
        fill=lambda look: [((), float(look.telemetry.reload_success))],
    ),
    counter(
        "pod_gpu_exporter_config_reload_failures_total",
        "Reloads of the configuration that were refused.",
        fill=lambda look: [((), float(look.telemetry.reload_failures))],
    ),
    counter(
        "pod_gpu_exporter_refused_requests_total",
        "Requests and connections that got no answer, or none but a refusal, by reason.",
        ("reason",),
        fill=_refused,
    ),
    counter(
        "pod_gpu_exporter_kernel_log_records_total",
        "Records of the kernel's log that were read, that the kernel overwrote before (lost), and errors of GPUs that"
        " came too fast to be looked at (dropped). Absent with --kernel-log.mode off.",
        ("result",),
        fill=lambda look: [((result,), float(count)) for result, count in look.telemetry.kernel_records.items()],
    ),
    gauge(
        "pod_gpu_exporter_tasks",
        "Tasks of the event loop: reads, watches, requests.",
        fill=lambda look: [((), float(look.telemetry.tasks))],
    ),
    OwnFamily(
        "pod_gpu_exporter_event_loop_lag_seconds",
        "histogram",
        "How late the event loop was when it was looked at, once a second: what one thing at a time costs all others.",
        ("le",),
        fill=lambda look: histogram_samples(look.telemetry.loop_lag),
    ),
    gauge(
        "pod_gpu_exporter_bound_used",
        "What a cache or a queue holds now; it cannot hold more than its limit.",
        ("of",),
        fill=lambda look: [((of,), float(used)) for of, _, used in look.telemetry.bounds],
    ),
    gauge(
        "pod_gpu_exporter_bound_limit",
        "The most that a cache or a queue can hold.",
        ("of",),
        fill=lambda look: [((of,), float(limit)) for of, limit, _ in look.telemetry.bounds],
    ),
)
# absent where nothing is pushed
OTLP: Sequence[OwnFamily[AnyLook]] = (
    counter(
        "pod_gpu_exporter_otlp_pushes_total",
        "Pushes by OTLP, by what became of them: the receiver accepted them, all or in part, refused them, or wanted"
        " them later; they failed without an answer; or they were skipped since the receiver was to be left alone.",
        ("result",),
        fill=lambda look: [((result,), float(count)) for result, count in look.telemetry.pushes.items()],
    ),
    counter(
        "pod_gpu_exporter_otlp_points_total",
        "Points of pushes by OTLP that the receiver accepted, and those that it did not get or take (lost). The next"
        " push has the sums of the latter.",
        ("result",),
        fill=lambda look: [((result,), float(count)) for result, count in look.telemetry.pushed_points.items()],
    ),
)
