"""The kubelet's word: how much of it there is, how old it is, and what came of it."""

from collections import Counter

from exporter.exposition.families import Samples
from exporter.outputs.families.family import OwnFamily
from exporter.outputs.output import Look


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
    reasons = Counter(match.reason for match in look.snapshot.owners.matches if match.reason)
    return [((str(reason),), float(count)) for reason, count in sorted(reasons.items())]


def _pod_label_problems(look: Look) -> Samples:
    return [((reason,), float(count)) for reason, count in sorted(look.snapshot.facts.label_problems.items())]


ASSIGNMENTS_AGE = OwnFamily(
    "pod_gpu_exporter_assignments_age_seconds",
    "gauge",
    "How old the kubelet's word is that owners are taken from; absent before its first answer.",
    fill=_age,
)
FAMILIES = (
    OwnFamily(
        "pod_gpu_exporter_assignments",
        "gauge",
        "Device ids in force, by resource: what the kubelet handed to containers.",
        ("resource",),
        fill=_assignments,
    ),
    ASSIGNMENTS_AGE,
    OwnFamily(
        "pod_gpu_exporter_unmatched_devices",
        "gauge",
        "Assigned device ids that no sample was found for, by reason; /debug/mapping names them.",
        ("reason",),
        fill=_unmatched,
    ),
    OwnFamily(
        "pod_gpu_exporter_pod_label_problems",
        "gauge",
        "Labels of pods that hold GPUs which could not go out as they are, by what became of them.",
        ("reason",),
        fill=_pod_label_problems,
    ),
)
