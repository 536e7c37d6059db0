"""What became of the pushes by OTLP. Absent where nothing is pushed."""

from collections.abc import Sequence

from exporter.outputs.families.family import OwnFamily, counter
from exporter.outputs.output import Look

FAMILIES: Sequence[OwnFamily[Look]] = (
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
