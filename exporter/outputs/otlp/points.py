"""What is pushed: points of metrics, by what they are of. Pure."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"  # the version whose names these are
Attributes = tuple[tuple[str, str], ...]
Number = int | float
# a gauge, a sum that goes up and down, and one that only grows
Kind = Literal["gauge", "updowncounter", "counter"]


@dataclass(frozen=True, slots=True, eq=False)
class PointSubject:
    """What points are of: a device, and the container that holds it. Equal ones are one object, from look to look."""

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
    """The points of one metric that share the attributes `also`, by what they are of.

    `began_ns` says since when a sum counts, in nanoseconds since 1970, where that is known.
    """

    instrument: Instrument
    also: Attributes
    values: Values = field(default_factory=dict)
    began_ns: dict[PointSubject, int] = field(default_factory=dict)
