"""When an exporter began to count anew, from the rows of its node. Pure.

A row that begins anew shows a restart, or a new pod of the old name. Nobody's rows are there as long as their GPU, so
only a restart makes them begin anew. Pods' rows show it as well, if several pods' rows begin anew at once and none goes
on: nobody's rows have nothing to lose where every GPU is always held.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from exporter.report.rows import RowKey

# Rows of one node begin anew together, but for those that have nothing yet, and not at the same time for each target.
ONE_RESTART_SECONDS = 60.0
# What a row grows by in a second, at most: one GPU's seconds, and the watts that no GPU has.
_MOST_PER_SECOND: Final = (1.0, 1.0, 1.0, 3000.0, 1.0, 1.0)
_SEVERAL = 2


class Begin(NamedTuple):
    """A row began anew at a moment, in seconds of Unix time."""

    at: float
    key: RowKey


Samples = Sequence[tuple[float, str, float]]  # seconds, target, value


def restarts_in(begins: Iterable[Begin], families: Sequence[Mapping[RowKey, Samples]]) -> Sequence[float]:
    """The moments at which an exporter began to count anew. `begins` and `families` are of one node."""
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
    if len(pods) < _SEVERAL:
        return False
    for rows, most_per_second in zip(families, _MOST_PER_SECOND, strict=True):
        for key, samples in rows.items():
            if key not in begun and _goes_on(samples, at, most_per_second):
                return False
    return True


def _goes_on(samples: Samples, at: float, most_per_second: float) -> bool:
    """Whether a row is higher, right after a moment, than it can have become since its sample before that."""
    before = [sample for sample in samples if sample[0] < at]
    after = [sample for sample in samples if sample[0] >= at]
    if not before or not after:
        return False
    seconds = after[0][0] - before[-1][0]
    return after[0][2] > seconds * most_per_second
