"""The catalogue of all families that the program itself makes, in their order on /metrics.

Tests: tests/outputs/test_families.py.
"""

from collections.abc import Sequence

from exporter.outputs.families import accounts, counters, cuda, gpu_manager, health, mapping, measured
from exporter.outputs.families.family import OwnFamily
from exporter.outputs.output import Look

FAMILIES: Sequence[OwnFamily[Look]] = (
    *health.FAMILIES,
    *health.ASSIGNMENTS,
    *counters.FAMILIES,
    *counters.OTLP,
    *mapping.FAMILIES,
    *health.HOST,
    *accounts.FAMILIES,
    *measured.FAMILIES,
    *cuda.FAMILIES,
    *cuda.PROBE,
    *gpu_manager.FAMILIES,
)
