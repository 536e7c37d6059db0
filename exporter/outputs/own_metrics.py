"""/metrics: what the exporter says about itself and its sources, and which pod holds which GPU."""

from collections import Counter

from exporter import __revision__, __version__
from exporter.exposition.families import Filled
from exporter.exposition.lines import Reason
from exporter.model.snapshot import Snapshot
from exporter.outputs import mapping
from exporter.outputs.families import complaints, render
from exporter.outputs.output import TEXT_FORMAT, Answer, Look, Output, answer
from exporter.telemetry import (
    ASSIGNMENTS,
    BUILD_INFO,
    POD_LABEL_PROBLEMS,
    REJECTED,
    SOURCE_LAST_SUCCESS,
    UNMATCHED,
    Telemetry,
    age_family,
    health_families,
)


def families(snapshot: Snapshot, telemetry: Telemetry) -> tuple[Filled, ...]:
    """The families named pod_gpu_exporter_…, of this look and of all that was counted since the start."""
    matches = snapshot.owners.matches
    resources = Counter(found.assignment.resource for found in matches)
    # Without a page nobody can say which device is missing from it.
    unmatched = Counter(found.reason for found in matches if found.reason and snapshot.joined)
    return (
        Filled(BUILD_INFO, (((__version__, __revision__), 1.0),)),
        *health_families(snapshot.health),
        Filled(
            SOURCE_LAST_SUCCESS,
            tuple(
                ((name,), state.last_success_at_seconds)
                for name, state in snapshot.health.items()
                if state.last_success_at_seconds is not None
            ),
        ),
        Filled(ASSIGNMENTS, tuple(((resource,), float(count)) for resource, count in sorted(resources.items()))),
        age_family(snapshot.assignments_age_seconds),
        Filled(UNMATCHED, tuple(((str(reason),), float(count)) for reason, count in sorted(unmatched.items()))),
        Filled(
            POD_LABEL_PROBLEMS,
            tuple(((reason,), float(count)) for reason, count in sorted(snapshot.facts.label_problems.items())),
        ),
        # every reason from the start: a counter that appears only with its first event hides that event from rate()
        Filled(REJECTED, tuple(((str(reason),), float(telemetry.rejected[reason])) for reason in Reason)),
        *telemetry.counted(),
    )


def _make(look: Look) -> Answer:
    snapshot, telemetry = look.snapshot, look.telemetry
    own = render((*families(snapshot, telemetry), *mapping.families(snapshot)))
    return answer(TEXT_FORMAT, complaints(snapshot) + own + telemetry.render_process())


OUTPUT = Output(path="/metrics", says="the exporter's own metrics, and which pod holds which GPU", make=_make)
