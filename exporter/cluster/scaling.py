"""A question of an autoscaler → a number. Pure.

The value of a metric for a workload is the sum over its pods of each pod's mean over its devices. Where that cannot be
known, there is an `Unanswerable` and never a number that is too low: an autoscaler would scale in by it.
"""

from dataclasses import dataclass
from http import HTTPStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`metric` is a numeric field of /container/metrics, or a family `pod_gpu_*`. `kind` is "" where any will do."""

    namespace: str
    workload: str
    metric: str
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """The answer: the value, over how many pods, on which nodes, and which nodes did not answer (they hold none)."""

    value: float
    pods: int
    nodes: tuple[str, ...]
    missing_nodes: tuple[str, ...] = ()


class Unanswerable(Exception):
    """There is no number. `status` is HTTP's; the text says why, and what to do."""

    def __init__(self, status: HTTPStatus, why: str, missing_nodes: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.status = status
        self.missing_nodes = missing_nodes
