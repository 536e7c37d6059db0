"""The columns of the tables that people read: the same in the terminal and on the page."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from exporter.report.report import Line, Report
from exporter.report.words import number, percent


class Column(NamedTuple):
    """A heading, what it means, and a line's cell."""

    heading: str
    means: str
    cell: Callable[[Line], str]


_HELD = Column(
    "GPU-hours",
    "GPU-hours held; a share and a MIG instance count as the part of a GPU that they are",
    lambda line: number(line.held_hours),
)
_USED = Column("used", "GPU-hours used: those held times the activity", lambda line: number(line.used_hours))
_PART = Column("used %", "used, of what was held while its use was known", lambda line: percent(line.used_ratio))
_IDLE = Column("idle", "GPU-hours held while the device did nothing", lambda line: number(line.idle_hours))
_KWH = Column("kWh", "energy", lambda line: number(line.kwh))
_COST = Column("cost", "by the prices given", lambda line: number(line.cost))
_UNUSED = Column("not used", "GPU-hours held and not used", lambda line: number(line.unused_hours))


def columns_of_groups(report: Report) -> Sequence[Column]:
    """Those of the table of groups; costs only where there are prices."""
    return (_HELD, _USED, _PART, _IDLE, _KWH, *((_COST,) if report.prices.are_given else ()))


def columns_of_wasteful(report: Report) -> Sequence[Column]:
    """Those of the table of workloads that hold most and use least."""
    return (_UNUSED, _HELD, _USED, _PART, *((_COST,) if report.prices.are_given else ()))
