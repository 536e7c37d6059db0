"""Every family that the program makes up itself, in the order in which they stand on /metrics."""

from collections.abc import Sequence

from exporter.outputs.families import (
    accounts,
    assignments,
    counters,
    cuda,
    gpu_manager,
    health,
    host,
    mapping,
    measured,
    probe,
)
from exporter.outputs.families.family import OwnFamily
from exporter.outputs.output import Look

FAMILIES: Sequence[OwnFamily[Look]] = (
    *health.FAMILIES,
    *assignments.FAMILIES,
    *counters.FAMILIES,
    *mapping.FAMILIES,
    *host.FAMILIES,
    *accounts.FAMILIES,
    *measured.FAMILIES,
    *cuda.FAMILIES,
    *probe.FAMILIES,
    *gpu_manager.FAMILIES,
)
