"""The points of metrics that are pushed, by the device and the container that they describe. Pure.

Tests: tests/outputs/test_otlp.py.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"  # the version of the conventions that has these names
Attributes = tuple[tuple[str, str], ...]
Number = int | float
# a gauge, a sum that goes up and down, and a sum that only grows
Kind = Literal["gauge", "updowncounter", "counter"]


@dataclass(frozen=True, slots=True, eq=False)
class PointSubject:
    """The subject of points: a device, and the container that holds it. Equal subjects are one object in all looks."""

    attributes: Attributes


Values = dict[PointSubject, Number]


class Instrument(NamedTuple):
    """A metric's name, kind and unit (UCUM), and whether its values are whole numbers."""

    name: str
    kind: Kind
    unit: str
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class MetricPoints:
    """The points of one metric that share the attributes `also`, by their subject.

    `began_ns` has the time from which a sum counts, in nanoseconds since 1970, if it is known.
    """

    instrument: Instrument
    also: Attributes
    values: Values = field(default_factory=dict)
    began_ns: dict[PointSubject, int] = field(default_factory=dict)
