"""The operator's answers: its own metrics, and the probes. Pure.

Tests: tests/operator/test_operator.py.
"""

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from exporter.exposition.families import Samples, render
from exporter.operator.objects.kinds import COME_AND_GO, CUSTOM_NAMES, Key, Kind
from exporter.outputs import probes
from exporter.outputs.families import counters, health
from exporter.outputs.families.counters import histogram_samples
from exporter.outputs.families.family import OwnFamily, by_label, filled, own, single
from exporter.outputs.output import NOTHING, Answer, AnyLook, Need, Output, line, metrics_answer
from exporter.telemetry import Histogram

DURATION_BUCKETS_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
RESULTS = ("settled", "waits", "error", "fault")


class OperatorMetrics:
    """Counters of the process, which outlive a reload. `objects` has the number of objects of each custom resource."""

    def __init__(self) -> None:
        self.reconciliations: Counter[tuple[str, str]] = Counter()
        self.durations = Histogram(DURATION_BUCKETS_SECONDS)
        self.requests: Counter[tuple[str, str]] = Counter()
        self.watches_ended = 0
        self.objects = dict[Key, int]()

    def reconciled(self, kind: str, result: str, seconds: float) -> None:
        """Count a finished look at a custom resource of a kind, or at `all`."""
        self.reconciliations[kind, result] += 1
        self.durations.observe(seconds)

    def answered(self, verb: str, code: str) -> None:
        """Count a request to the Kubernetes API by its status, `none` if there was no answer."""
        self.requests[verb, code] += 1

    def watch_ended(self) -> None:
        """Count a list or a watch that has failed."""
        self.watches_ended += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorView:
    """The operator's state.

    Attributes:
        is_leader: whether this replica works.
        holder: the replica that works, "" if none is known.
        queued: the number of custom resources that wait for a look.
        served: the kinds of COME_AND_GO that the API serves now.
    """

    is_leader: bool
    holder: str
    queued: int
    served: AbstractSet[Kind]


@dataclass(kw_only=True, eq=False)
class OperatorLook(AnyLook):
    """A look at the operator."""

    seen: OperatorView
    metrics: OperatorMetrics


def _reconciliations(look: OperatorLook) -> Samples:
    counts = look.metrics.reconciliations
    return [((kind, result), float(counts[kind, result])) for kind in ("all", *CUSTOM_NAMES) for result in RESULTS]


def _objects(look: OperatorLook, kind: str) -> Sequence[int]:
    return [count for owner, count in look.metrics.objects.items() if owner.kind == kind]


FAMILIES: Sequence[OwnFamily[OperatorLook]] = (
    own("pod_gpu_exporter_operator_is_leader", single(lambda look: look.seen.is_leader)),
    own("pod_gpu_exporter_operator_reconciliations_total", _reconciliations),
    own(
        "pod_gpu_exporter_operator_reconciliation_duration_seconds",
        lambda look: histogram_samples(look.metrics.durations),
    ),
    own("pod_gpu_exporter_operator_queue", single(lambda look: look.seen.queued)),
    own(
        "pod_gpu_exporter_operator_api_requests_total",
        lambda look: [(key, float(count)) for key, count in sorted(look.metrics.requests.items())],
    ),
    own("pod_gpu_exporter_operator_watches_ended_total", single(lambda look: look.metrics.watches_ended)),
    own(
        "pod_gpu_exporter_operator_resources",
        by_label(lambda look: {kind: len(_objects(look, kind)) for kind in CUSTOM_NAMES}),
    ),
    own(
        "pod_gpu_exporter_operator_objects",
        by_label(lambda look: {kind: sum(_objects(look, kind)) for kind in CUSTOM_NAMES}),
    ),
    own(
        "pod_gpu_exporter_operator_served",
        by_label(lambda look: {kind.name: kind in look.seen.served for kind in COME_AND_GO}),
    ),
)
ALL_FAMILIES: Sequence[OwnFamily[Any]] = (
    health.BUILD_INFO,
    *FAMILIES,
    *(family for family in counters.FAMILIES if family is not counters.REJECTED),
)


def _metrics(look: OperatorLook) -> Answer:
    return metrics_answer(look, render(filled(ALL_FAMILIES, look), is_open=look.question.is_open))


def _ready(look: OperatorLook) -> Answer:
    if look.not_ready:
        return line(look.not_ready, 503)
    if look.seen.is_leader:
        return line("ready; this replica works", 200)
    return line("ready; another replica works" if look.seen.holder else "ready; no replica is known to work", 200)


def _page(look: OperatorLook) -> Answer:
    links = (f"{output.path}\t{output.says}" for output in look.outputs if output.says)
    return line("\n".join(["the operator of pod-gpu-metrics-exporter", *links]), 200)


METRICS = Output(path="/metrics", says="the operator's own metrics", make=_metrics, has_open=True)
READY = Output(
    path="/-/ready",
    says="200 once the Kubernetes API has answered",
    make=_ready,
    needs=frozenset({Need.NODE, Need.READINESS}),
    is_probe=True,
)
OUTPUTS: Sequence[Output[Any]] = (
    METRICS,
    probes.HEALTHY,
    probes.HEALTHZ,
    READY,
    Output(path="/", says="", make=_page, needs=NOTHING),
)
