"""Every family that the program makes up itself, in the order in which they stand on /metrics."""

from exporter.outputs.families import accounts, assignments, counters, gpu_manager, health, mapping, measured

FAMILIES = (
    *health.FAMILIES,
    *assignments.FAMILIES,
    *counters.FAMILIES,
    *mapping.FAMILIES,
    *accounts.FAMILIES,
    *measured.FAMILIES,
    *gpu_manager.FAMILIES,
)
