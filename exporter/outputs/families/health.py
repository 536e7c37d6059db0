"""How the program, its sources and the machine are, and the kubelet's answer. A source never tried has no series."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from exporter import __revision__, __version__
from exporter.exposition.families import Samples
from exporter.model.devices import NVIDIA_UUIDS
from exporter.model.snapshot import Health
from exporter.outputs.families.family import OwnFamily, gauge
from exporter.outputs.output import AnyLook, Look, LookT
from exporter.ownership.owners import WITHOUT_SAMPLES

BUILD_INFO: OwnFamily[AnyLook] = gauge(
    "pod_gpu_exporter_build_info",
    "The exporter's version and the commit that it was built from; always 1.",
    ("version", "revision"),
    fill=lambda _: [((__version__, __revision__), 1.0)],
)


def of_sources(health: Callable[[LookT], Mapping[str, Health]]) -> Sequence[OwnFamily[LookT]]:
    """Whether each source is up, how long its last read took, and when one last succeeded."""
    return (
        gauge(
            "pod_gpu_exporter_source_up",
            "Whether the last read of a source succeeded (1) or failed (0).",
            ("source",),
            fill=lambda look: [
                ((name,), float(state.up)) for name, state in health(look).items() if state.up is not None
            ],
        ),
        gauge(
            "pod_gpu_exporter_source_duration_seconds",
            "How long the last read of a source took.",
            ("source",),
            fill=lambda look: [
                ((name,), state.duration_seconds)
                for name, state in health(look).items()
                if state.up is not None and state.duration_seconds is not None
            ],
        ),
        gauge(
            "pod_gpu_exporter_source_last_success_timestamp_seconds",
            "When a source was last read with success, in seconds since 1970.",
            ("source",),
            fill=lambda look: [
                ((name,), state.last_success_at_seconds)
                for name, state in health(look).items()
                if state.last_success_at_seconds is not None
            ],
        ),
    )


def _assignments(look: Look) -> Samples:
    resources = Counter(match.assignment.resource for match in look.snapshot.owners.matches)
    for held in look.snapshot.owners.units:
        resources[held.resource] += held.units
    return [((resource,), float(count)) for resource, count in sorted(resources.items())]


def _age(look: Look) -> Samples:
    age_seconds = look.snapshot.assignments_age_seconds
    return [] if age_seconds is None else [((), age_seconds)]


def _unmatched(look: Look) -> Samples:
    if not look.snapshot.joined:
        return []  # without a page nobody can say which device is missing from it
    matches = look.snapshot.owners.matches
    reasons = Counter(match.reason for match in matches if match.reason not in {"", *WITHOUT_SAMPLES})
    return [((str(reason),), float(count)) for reason, count in sorted(reasons.items())]


def _pod_label_problems(look: Look) -> Samples:
    return [((reason,), float(count)) for reason, count in sorted(look.snapshot.context.label_problems.items())]


def _host_info(look: Look) -> Samples:
    host = look.snapshot.host
    if host is None:
        return ()
    gpus = sum(gpu.uuid.startswith(NVIDIA_UUIDS) for gpu in look.snapshot.inventory.gpus)
    if not host.driver_version and not gpus:
        return ()
    return [(("nvidia", host.driver_version, str(gpus), host.kernel, host.architecture), 1.0)]


def _of_node(look: Look) -> Mapping[str, Health]:
    return look.snapshot.health


SOURCE_UP, SOURCE_DURATION, SOURCE_LAST_SUCCESS = of_sources(_of_node)
FAMILIES: Sequence[OwnFamily[Look]] = (BUILD_INFO, SOURCE_UP, SOURCE_DURATION, SOURCE_LAST_SUCCESS)
ASSIGNMENTS_AGE = gauge(
    "pod_gpu_exporter_assignments_age_seconds",
    "How old the kubelet's word is that owners are taken from; absent before its first answer.",
    fill=_age,
)
ASSIGNMENTS = (
    gauge(
        "pod_gpu_exporter_assignments",
        "Device ids in force, by resource: what the kubelet handed to containers.",
        ("resource",),
        fill=_assignments,
    ),
    ASSIGNMENTS_AGE,
    gauge(
        "pod_gpu_exporter_unmatched_devices",
        "Assigned device ids that no sample was found for, by reason; /debug/mapping names them.",
        ("reason",),
        fill=_unmatched,
    ),
    gauge(
        "pod_gpu_exporter_pod_label_problems",
        "Labels of pods that hold GPUs which could not go out as they are, by what became of them.",
        ("reason",),
        fill=_pod_label_problems,
    ),
)
# absent where there is neither a driver nor a GPU of NVIDIA's
HOST = (
    gauge(
        "pod_gpu_host_info",
        "The machine: NVIDIA's driver, the number of GPUs in the inventory (0 with --inventory off), and the kernel;"
        " always 1.",
        ("vendor", "driver_version", "gpus", "kernel", "architecture"),
        fill=_host_info,
    ),
)
