"""The moments at which an exporter began to count anew, from the rows of its node. Pure.

A row begins anew if the exporter restarts, or if a new pod has the name of an old one. The rows for "nobody" stay as
long as their GPU, so only a restart makes them begin anew. But if every GPU is always held, they stay 0 and show no
restart. So pods' rows show a restart, too, if the rows of several pods begin anew at once and none goes on.

Tests: tests/report/test_counters.py, tests/report/test_growth.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from exporter.report.rows import RowKey

# The rows of a node begin anew together, except those that are still 0. Each target sees it at a time of its own.
ONE_RESTART_SECONDS = 60.0
# The most that a row of each family grows in a second: a second of one GPU, and more watts than any GPU takes.
_MOST_PER_SECOND: Final = (1.0, 1.0, 1.0, 3000.0, 1.0, 1.0)
_SEVERAL = 2


class Begin(NamedTuple):
    """The moment at which a row began anew, in seconds of Unix time."""

    at: float
    key: RowKey


Samples = Sequence[tuple[float, str, float]]  # seconds, target, value


def restarts_in(begins: Iterable[Begin], families: Sequence[Mapping[RowKey, Samples]]) -> Sequence[float]:
    """The moments at which a node's exporter began to count anew. `begins` and `families` are the node's."""
    moments: list[float] = []
    in_order = sorted(begins)
    for begin in in_order:
        if any(abs(begin.at - moment) <= ONE_RESTART_SECONDS for moment in moments):
            continue
        begun = {other.key for other in in_order if abs(other.at - begin.at) <= ONE_RESTART_SECONDS}
        if _is_restart(begin.at, begun, families):
            moments.append(begin.at)
    return moments


def _is_restart(at: float, begun: set[RowKey], families: Sequence[Mapping[RowKey, Samples]]) -> bool:
    if any(not key.pod for key in begun):
        return True
    pods = {(key.namespace, key.pod) for key in begun}
    return len(pods) >= _SEVERAL and not any(
        key not in begun and _goes_on(samples, at, most_per_second)
        for rows, most_per_second in zip(families, _MOST_PER_SECOND, strict=True)
        for key, samples in rows.items()
    )


def _goes_on(samples: Samples, at: float, most_per_second: float) -> bool:
    """Whether a row went on counting at a moment: the next value is higher than a row that began at 0 could be."""
    return any(
        value > (later - earlier) * most_per_second
        for (earlier, _, _), (later, _, value) in pairwise(samples)
        if earlier < at <= later
    )
