"""What the operator answers: its own metrics, and the probes. Pure."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from exporter.exposition.families import Samples, render
from exporter.operator.counted import RESULTS, Counted
from exporter.operator.objects.kinds import COME_AND_GO, CUSTOM_NAMES, Kind
from exporter.outputs import healthy
from exporter.outputs.families import counters, health
from exporter.outputs.families.family import OwnFamily, filled
from exporter.outputs.output import NOTHING, TEXT_FORMAT, Answer, AnyLook, Need, Output, answer, line


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How the operator is: whether it works, who does, what waits, and which kinds that come and go are served."""

    is_leader: bool
    holder: str
    queued: int
    served: AbstractSet[Kind]


@dataclass(kw_only=True, eq=False)
class OperatorLook(AnyLook):
    """A look at the operator."""

    seen: Seen
    counted: Counted


def _reconciliations(look: OperatorLook) -> Samples:
    counted = look.counted.reconciliations
    return [((kind, result), float(counted[kind, result])) for kind in ("all", *CUSTOM_NAMES) for result in RESULTS]


def _durations(look: OperatorLook) -> Samples:
    durations = look.counted.durations
    counts = [(upper, float(count)) for upper, count in durations.cumulative()]
    _, count = counts[-1]
    return [*((("_bucket", upper), count) for upper, count in counts), (("_count",), count), (("_sum",), durations.sum)]


FAMILIES: Sequence[OwnFamily[OperatorLook]] = (
    OwnFamily(
        "pod_gpu_exporter_operator_is_leader",
        "gauge",
        "Whether this replica works (1), or waits for the one that does (0).",
        fill=lambda look: [((), float(look.seen.is_leader))],
    ),
    OwnFamily(
        "pod_gpu_exporter_operator_reconciliations_total",
        "counter",
        "Looks at custom resources, by kind and by what came of them; kind all is a look at which there are.",
        ("kind", "result"),
        fill=_reconciliations,
    ),
    OwnFamily(
        "pod_gpu_exporter_operator_reconciliation_duration_seconds",
        "histogram",
        "How long such a look took, with what was written.",
        ("le",),
        fill=_durations,
    ),
    OwnFamily(
        "pod_gpu_exporter_operator_queue",
        "gauge",
        "Custom resources that wait to be looked at, those with a time of their own included.",
        fill=lambda look: [((), float(look.seen.queued))],
    ),
    OwnFamily(
        "pod_gpu_exporter_operator_api_requests_total",
        "counter",
        "Requests to the Kubernetes API, by verb and HTTP status; code none is no answer.",
        ("verb", "code"),
        fill=lambda look: [(key, float(count)) for key, count in sorted(look.counted.requests.items())],
    ),
    OwnFamily(
        "pod_gpu_exporter_operator_watches_ended_total",
        "counter",
        "How often watching failed, and began anew.",
        fill=lambda look: [((), float(look.counted.watches_ended))],
    ),
    OwnFamily(
        "pod_gpu_exporter_operator_resources",
        "gauge",
        "Custom resources that there are, by kind.",
        ("kind",),
        fill=lambda look: [((kind,), float(look.counted.resources.get(kind, 0))) for kind in CUSTOM_NAMES],
    ),
    OwnFamily(
        "pod_gpu_exporter_operator_objects",
        "gauge",
        "Objects that are kept for custom resources, by the kind of these.",
        ("kind",),
        fill=lambda look: [((kind,), float(look.counted.objects.get(kind, 0))) for kind in CUSTOM_NAMES],
    ),
    OwnFamily(
        "pod_gpu_exporter_operator_served",
        "gauge",
        "Whether the Kubernetes API serves a kind that may come and go (1) or not (0), as the working replica knows.",
        ("kind",),
        fill=lambda look: [((kind.name,), float(kind in look.seen.served)) for kind in COME_AND_GO],
    ),
)
ALL_FAMILIES: Sequence[OwnFamily[Any]] = (
    health.BUILD_INFO,
    *FAMILIES,
    *(family for family in counters.FAMILIES if family is not counters.REJECTED),
)


def _metrics(look: OperatorLook) -> Answer:
    return answer(TEXT_FORMAT, render(filled(ALL_FAMILIES, look)) + look.telemetry.render_process())


def _ready(look: OperatorLook) -> Answer:
    if look.not_ready:
        return line(look.not_ready, 503)
    if look.seen.is_leader:
        return line("ready; this replica works", 200)
    return line("ready; another replica works" if look.seen.holder else "ready; no replica is known to work", 200)


def _page(look: OperatorLook) -> Answer:
    links = (f"{output.path}\t{output.says}" for output in look.outputs if output.says)
    return line("\n".join(["the operator of pod-gpu-metrics-exporter", *links]), 200)


METRICS = Output(path="/metrics", says="the operator's own metrics", make=_metrics)
READY = Output(
    path="/-/ready",
    says="200 once the Kubernetes API has answered",
    make=_ready,
    needs=frozenset({Need.NODE, Need.READINESS}),
    is_probe=True,
)
OUTPUTS: Sequence[Output[Any]] = (
    METRICS,
    healthy.OUTPUT,
    replace(healthy.OUTPUT, path="/healthz", says=""),
    READY,
    Output(path="/", says="", make=_page, needs=NOTHING),
)
