"""An autoscaler's question → a number. Pure.

The value of a metric for a workload is a sum over its pods. Each pod counts with the mean over its devices. If a part
is unknown, `Unanswerable` is raised: a number that is too low would make an autoscaler remove pods.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from math import fsum
from urllib.parse import unquote

from exporter.errors import Trouble
from exporter.model.cluster_view import ClusterView
from exporter.model.device_row import DeviceRow, RowDevice
from exporter.model.node_answers import OWN_FAMILIES
from exporter.outputs.device_rows import METRICS_TO_ASK
from exporter.wording import listed

MOST_NAMED = 5
FORM = "/autoscale/<namespace>/<workload>/<metric>"
_PARTS = 3
# The names that Kubernetes allows. A workload's name may come from a label's value (--workload.labels).
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_KIND = re.compile(r"[A-Za-z0-9]{1,63}")

# Family → the field of `measured` with the same value.
_OWN_FIELDS = {family: name for name, family in OWN_FAMILIES.items()}
# The family that measures for a container what a field measures for a device, and the factor between them.
_SAME_OF_CONTAINER = {
    "gpu_utilization": ("pod_gpu_utilization_ratio", 100.0),
    "framebuffer_used": ("pod_gpu_memory_used_bytes", 2.0**-20),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingQuestion:
    """An autoscaler's question: the value of a metric for a workload.

    `metric` is a numeric field of /container/metrics, or one of OWN_FAMILIES. `kind` is "" for a workload of any kind.
    """

    namespace: str
    workload: str
    metric: str
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """The answer: the value, the number of pods, and their nodes."""

    value: float
    pods: int
    nodes: tuple[str, ...]


class Unanswerable(Exception):
    """There is no number. `status` is a status of HTTP; the text says why there is none, and what to do."""

    def __init__(
        self, status: HTTPStatus, message: str, remedy: str = "", *, missing_nodes: tuple[str, ...] = ()
    ) -> None:
        super().__init__(str(Trouble("", message, remedy)))
        self.status = status
        self.missing_nodes = missing_nodes


def _unknown(message: str, remedy: str = "", *, missing_nodes: tuple[str, ...] = ()) -> Unanswerable:
    return Unanswerable(HTTPStatus.SERVICE_UNAVAILABLE, message, remedy, missing_nodes=missing_nodes)


def read_question(rest: str) -> ScalingQuestion:
    """Read a question from `<namespace>/<workload>/<metric>`, each part percent-encoded, as it was sent.

    The workload may be `<kind>:<name>`, since neither kinds nor names have a colon.

    Raises:
        Unanswerable: the text is no question (400).
    """
    parts = rest.split("/")
    try:
        decoded = [unquote(part, errors="strict") for part in parts]
    except UnicodeDecodeError:
        raise _not_asked("a part of the path is not UTF-8") from None
    if len(parts) != _PARTS or not all(decoded):
        raise _not_asked(f"there are {len(parts) if rest else 0} parts, or one is empty")
    namespace, workload, metric = decoded
    try:
        return question_of(namespace, workload, metric)
    except ValueError as error:
        raise _not_asked(str(error)) from None


def question_of(namespace: str, workload: str, metric: str) -> ScalingQuestion:
    """Make the question for a workload, which is given as its name or `<kind>:<name>`. The metric is not checked.

    Raises:
        ValueError: no namespace, or no workload, can have this name.
    """
    kind, colon, name = workload.rpartition(":")
    # a name that Kubernetes does not allow is a typo, and would have the answer 0, since it has no pods
    if not _NAMESPACE.fullmatch(namespace):
        raise ValueError(f"{namespace!r} is no namespace's name")
    if not _NAME.fullmatch(name) or (colon and not _KIND.fullmatch(kind)):
        raise ValueError(f"{workload!r} is neither a workload's name nor <kind>:<name>")
    return ScalingQuestion(namespace=namespace, workload=name, metric=metric, kind=kind)


def _not_asked(why: str) -> Unanswerable:
    return Unanswerable(HTTPStatus.BAD_REQUEST, f"{why}; ask for {FORM}, with <kind>:<name> where the kind matters")


def scaled(view: ClusterView, question: ScalingQuestion) -> Scaled:
    """The value of a metric for a workload; 0 if every node has answered and none has a pod of the workload.

    seen_workloads.py decides whether there ever was such a workload.

    Raises:
        Unanswerable: there is no number. 400: nobody can ask this. 409: there is no answer as things are (two workloads
            of one name, or a GPU that several containers share). 503: a part is not known now.
    """
    check_metric(question.metric)
    _check_all_answered(view)
    rows = _rows_of(view, question)
    _check_one_kind(rows, question)
    values: dict[str, dict[RowDevice, list[float]]] = {}
    for row in rows:
        own = values.setdefault(row.pod_name, {}).setdefault(row.row_device, [])
        own.append(_value(row, question.metric))
    # If containers of one pod share a device, each value is the container's own. The pod's value is their sum.
    means = [fsum(map(fsum, of_devices.values())) / len(of_devices) for of_devices in values.values()]
    return Scaled(value=fsum(means), pods=len(means), nodes=tuple(dict.fromkeys(row.node_name for row in rows)))


def check_metric(metric: str) -> None:
    """Check that containers have a number of this name.

    Raises:
        Unanswerable: they have none (400). The text names metrics with similar names.
    """
    if metric in METRICS_TO_ASK:
        return
    from difflib import get_close_matches  # noqa: PLC0415 - 0.5 MiB that only a wrong name is worth

    close = get_close_matches(metric, METRICS_TO_ASK, 3) or METRICS_TO_ASK
    hint = "" if not metric.startswith("pod_gpu_") else "; for another family ask a Prometheus server"
    raise Unanswerable(
        HTTPStatus.BAD_REQUEST,
        f"{metric!r} is no numeric field of /container/metrics, nor a family that is measured of each container:"
        f" there are {', '.join(close)}{hint}",
    )


def _check_all_answered(view: ClusterView) -> None:
    """Refuse to answer unless every node has answered, since each could have a pod of the workload."""
    missing = view.missing
    if view.trouble:
        raise _unknown(f"it is not known which nodes there are: {view.trouble}", missing_nodes=missing)
    if not view.nodes:
        raise _unknown(
            "no node is known, so nobody can say which pods there are",
            "see that node exporters run, and that this role is told where (--cluster.node, --cluster.service,"
            " --cluster.selector)",
        )
    if missing:
        why = f"{missing[0]}: {view.nodes[missing[0]].trouble}"
        raise _unknown(
            f"{len(missing)} of {len(view.nodes)} nodes did not answer, and each could hold a pod of this workload:"
            f" {listed(missing, MOST_NAMED)} ({why})",
            missing_nodes=missing,
        )


def _rows_of(view: ClusterView, question: ScalingQuestion) -> Sequence[DeviceRow]:
    """The rows of devices that the workload's pods hold.

    Raises:
        Unanswerable: A holder, or a pod's workload, is unknown (503).
    """
    rows: list[DeviceRow] = []
    unknown: dict[str, str] = {}
    for name, node in view.nodes.items():
        for held in node.devices:
            row = held.row
            if row.gpu_shared and not row.pod:
                raise _unknown(
                    f"the exporter of node {name} does not say who holds {_device(row)}, which several containers"
                    " share",
                    "run it with --sharing copy or split",
                )
            if not row.pod or row.namespace != question.namespace:
                continue
            if not row.workload_name:
                unknown.setdefault(name, row.pod)
            elif row.workload_name == question.workload and question.kind.lower() in ("", row.workload_kind.lower()):
                rows.append(row)
    if unknown:
        first, pod = next(iter(unknown.items()))
        raise _unknown(
            f"the exporter of node {first} does not say what pod {question.namespace}/{pod} belongs to"
            + (f", nor do those of {listed(list(unknown)[1:], MOST_NAMED)}" if len(unknown) > 1 else ""),
            "give the node exporters access to the Kubernetes API (deploy/rbac.yaml), or the kubelet's Pods API;"
            " their /metrics says why they cannot ask it. With --cluster.prometheus they need --workload.labels, too",
        )
    return rows


def _device(row: DeviceRow) -> str:
    """A row's device in words for people: its UUID, or its name if it has none."""
    return row.device_uuid or row.device or row.device_id or "a device without UUID"


def _place(row: DeviceRow) -> str:
    """A row's pod, device and node in words for people."""
    instance = f", instance {row.mig_instance_id}" if row.mig_instance_id else ""
    return f"pod {row.pod_name} on {_device(row)}{instance} of node {row.node_name}"


def _check_one_kind(rows: Iterable[DeviceRow], question: ScalingQuestion) -> None:
    kinds = sorted({row.workload_kind for row in rows})
    if len(kinds) > 1:
        asked = " or ".join(f"{kind.lower()}:{question.workload}" for kind in kinds)
        raise Unanswerable(
            HTTPStatus.CONFLICT,
            f"{question.namespace}/{question.workload} is the name of several workloads, a {' and a '.join(kinds)}",
            f"ask for {asked}",
        )


def _value(row: DeviceRow, metric: str) -> float:
    """A container's own value on a device.

    Raises:
        Unanswerable: no value is known, or only that of the whole device.
    """
    is_own = metric in _OWN_FIELDS
    if row.gpu_shared and not is_own:
        return _measured_instead(row, metric)
    value = _measured(row, metric) if is_own else getattr(row, metric)
    if value is None:
        raise _unknown(
            f"nothing is known of {metric} for {_place(row)}, and that is not 0",
            (
                "it is measured only where the node exporter has NVML and sees the processes of pods"
                if is_own
                else "have dcgm-exporter report it for this device, or ask for another metric (a MIG instance has no"
                " gpu_utilization: ask for graphics_engine_active)"
            ),
        )
    return float(value)


def _measured(row: DeviceRow, family: str) -> float | None:
    """The container's own measured value, by the name of the family that has it on /metrics."""
    value: float | None = getattr(row.measured, _OWN_FIELDS.get(family, ""), None)
    return value


def _measured_instead(row: DeviceRow, metric: str) -> float:
    """The container's own measured value, in place of the value of the whole shared device."""
    family, times = _SAME_OF_CONTAINER.get(metric, ("", 0.0))
    own = _measured(row, family)
    if own is not None:
        return own * times
    instead = f"{family} or " if family else ""
    raise Unanswerable(
        HTTPStatus.CONFLICT,
        f"{_place(row)} shares the device, and {metric} is the whole device's: each pod would count the others' use",
        f"ask for {instead}what is measured of each container ({', '.join(OWN_FAMILIES.values())}), which needs NVML"
        " and the processes of pods on the node, or give the workload devices of its own",
    )
