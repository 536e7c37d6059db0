"""Who holds which device, worked out from nothing that was known before."""

from collections.abc import Iterable, Mapping

from exporter.model.devices import NONE_ALLOCATABLE, Allocatable, Assignment, Owners
from exporter.model.pages import Subject
from exporter.ownership.owners import Knowledge, OwnersBuilder

NO_SUBJECTS: Mapping[Subject, int] = {}


def build_owners(
    assignments: Iterable[Assignment],
    subjects: Mapping[Subject, int] = NO_SUBJECTS,
    knowledge: Knowledge | None = None,
    allocatable: Allocatable = NONE_ALLOCATABLE,
) -> Owners:
    """See OwnersBuilder.build; without `knowledge` by the built-in rules."""
    return OwnersBuilder().build(assignments, subjects, knowledge or Knowledge(), allocatable)
