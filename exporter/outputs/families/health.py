"""How the program and its sources are. A source that was never tried has no series."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from exporter import __revision__, __version__
from exporter.model.snapshot import Health
from exporter.outputs.families.family import OwnFamily
from exporter.outputs.output import AnyLook, Look

LookT = TypeVar("LookT", bound=AnyLook)

BUILD_INFO: OwnFamily[AnyLook] = OwnFamily(
    "pod_gpu_exporter_build_info",
    "gauge",
    "The exporter's version and the commit that it was built from; always 1.",
    ("version", "revision"),
    fill=lambda _: [((__version__, __revision__), 1.0)],
)


def of_sources(health: Callable[[LookT], Mapping[str, Health]]) -> Sequence[OwnFamily[LookT]]:
    """Whether each source is up, how long its last read took, and when one last succeeded."""
    return (
        OwnFamily(
            "pod_gpu_exporter_source_up",
            "gauge",
            "Whether the last read of a source succeeded (1) or failed (0).",
            ("source",),
            fill=lambda look: [
                ((name,), float(state.up)) for name, state in health(look).items() if state.up is not None
            ],
        ),
        OwnFamily(
            "pod_gpu_exporter_source_duration_seconds",
            "gauge",
            "How long the last read of a source took.",
            ("source",),
            fill=lambda look: [
                ((name,), state.duration_seconds)
                for name, state in health(look).items()
                if state.up is not None and state.duration_seconds is not None
            ],
        ),
        OwnFamily(
            "pod_gpu_exporter_source_last_success_timestamp_seconds",
            "gauge",
            "When a source was last read with success, in seconds since 1970.",
            ("source",),
            fill=lambda look: [
                ((name,), state.last_success_at_seconds)
                for name, state in health(look).items()
                if state.last_success_at_seconds is not None
            ],
        ),
    )


def _of_node(look: Look) -> Mapping[str, Health]:
    return look.snapshot.health


SOURCE_UP, SOURCE_DURATION, SOURCE_LAST_SUCCESS = of_sources(_of_node)
FAMILIES: Sequence[OwnFamily[Look]] = (BUILD_INFO, SOURCE_UP, SOURCE_DURATION, SOURCE_LAST_SUCCESS)
