"""The program's counts of its own work. telemetry.py counts them; this file names them.

Every counter starts at 0 with every reason. Prometheus' rate() ignores the first sample, so a counter that starts at
its first event loses it.

Tests: tests/outputs/test_families.py.
"""

from collections.abc import Sequence

from exporter.exposition.families import Samples
from exporter.exposition.lines import Reason
from exporter.outputs.families.family import OwnFamily, by_label, own, single
from exporter.outputs.output import AnyLook
from exporter.telemetry import REFUSALS, Histogram


def histogram_samples(histogram: Histogram) -> Samples:
    """The samples of a family of the type histogram."""
    counts = [(upper, float(count)) for upper, count in histogram.cumulative()]
    _, count = counts[-1]
    buckets = ((("_bucket", upper), count) for upper, count in counts)
    return [*buckets, (("_count",), count), (("_sum",), histogram.sum)]


REJECTED: OwnFamily[AnyLook] = own(
    "pod_gpu_exporter_rejected_lines_total",
    by_label(lambda look: {str(reason): look.telemetry.rejected[reason] for reason in Reason}),
)
FAMILIES: Sequence[OwnFamily[AnyLook]] = (
    REJECTED,
    own("pod_gpu_exporter_config_reload_success", single(lambda look: look.telemetry.reload_success)),
    own("pod_gpu_exporter_config_reload_failures_total", single(lambda look: look.telemetry.reload_failures)),
    own(
        "pod_gpu_exporter_refused_requests_total",
        by_label(lambda look: {reason: look.telemetry.refused[reason] for reason in REFUSALS}),
    ),
    own("pod_gpu_exporter_kernel_log_records_total", by_label(lambda look: look.telemetry.kernel_records)),
    own("pod_gpu_exporter_tasks", single(lambda look: look.telemetry.tasks)),
    own("pod_gpu_exporter_event_loop_lag_seconds", lambda look: histogram_samples(look.telemetry.loop_lag)),
    own("pod_gpu_exporter_memory_limit_bytes", single(lambda look: look.telemetry.memory_limit_bytes)),
    own("pod_gpu_exporter_bound_used", by_label(lambda look: {name: used for name, _, used in look.telemetry.bounds})),
    own("pod_gpu_exporter_bound_limit", by_label(lambda look: {name: most for name, most, _ in look.telemetry.bounds})),
)
# absent if nothing is pushed
OTLP: Sequence[OwnFamily[AnyLook]] = (
    own("pod_gpu_exporter_otlp_pushes_total", by_label(lambda look: look.telemetry.pushes)),
    own("pod_gpu_exporter_otlp_points_total", by_label(lambda look: look.telemetry.pushed_points)),
)
