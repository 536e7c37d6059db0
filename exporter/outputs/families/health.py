"""Families of the health of the program, its sources and the machine. A source that was never tried has no series.

Tests: tests/outputs/test_families.py.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from exporter import __revision__, __version__
from exporter.exposition.families import Samples
from exporter.model.devices import NVIDIA_UUIDS
from exporter.model.snapshot import Health
from exporter.outputs.families.family import Fill, OwnFamily, by_label, own, single
from exporter.outputs.output import AnyLook, Look, LookT
from exporter.ownership.owners import WITHOUT_SAMPLES

BUILD_INFO: OwnFamily[AnyLook] = own("pod_gpu_exporter_build_info", lambda _: [((__version__, __revision__), 1.0)])


def of_sources(health: Callable[[LookT], Mapping[str, Health]]) -> Sequence[OwnFamily[LookT]]:
    """Each source's state, the time that its last read took, and the time of its last success."""

    def of_each(value: Callable[[Health], float | None]) -> Fill[LookT]:
        return by_label(lambda look: {name: value(state) for name, state in health(look).items()})

    return (
        own("pod_gpu_exporter_source_up", of_each(lambda state: state.up)),
        own(
            "pod_gpu_exporter_source_duration_seconds",
            of_each(lambda state: None if state.up is None else state.duration_seconds),
        ),
        own(
            "pod_gpu_exporter_source_last_success_timestamp_seconds",
            of_each(lambda state: state.last_success_at_seconds),
        ),
    )


def _assignments(look: Look) -> Samples:
    resources: Counter[str] = Counter()
    for match in look.snapshot.owners.matches:
        resources[match.assignment.resource] += match.assignment.count
    for held in look.snapshot.owners.units:
        resources[held.resource] += held.units
    return [((resource,), float(count)) for resource, count in sorted(resources.items())]


def _unmatched(look: Look) -> Samples:
    if not look.snapshot.joined:
        return []  # without a page nobody can say which device it lacks
    matches = look.snapshot.owners.matches
    reasons: Counter[str] = Counter()
    for match in matches:
        if match.reason not in {"", *WITHOUT_SAMPLES}:
            reasons[match.reason] += match.assignment.count
    return [((str(reason),), float(count)) for reason, count in sorted(reasons.items())]


def _contradictions(look: Look) -> Samples:
    counts = Counter[str]()
    for match in look.snapshot.owners.matches:
        word = match.assignment.word
        if word is not None and word.names_device:
            counts[word.grant.allocator] += word.trouble is not None
    return [((allocator,), float(count)) for allocator, count in sorted(counts.items())]


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
ASSIGNMENTS_AGE: OwnFamily[Look] = own(
    "pod_gpu_exporter_assignments_age_seconds", single(lambda look: look.snapshot.assignments_age_seconds)
)
ASSIGNMENTS: Sequence[OwnFamily[Look]] = (
    own("pod_gpu_exporter_assignments", _assignments),
    ASSIGNMENTS_AGE,
    own("pod_gpu_exporter_unmatched_devices", _unmatched),
    own("pod_gpu_exporter_allocator_contradictions", _contradictions),
    own(
        "pod_gpu_exporter_pod_label_problems",
        by_label(lambda look: dict(sorted(look.snapshot.context.label_problems.items()))),
    ),
)
# absent if there is neither a driver nor a GPU of NVIDIA's
HOST = (own("pod_gpu_host_info", _host_info),)
