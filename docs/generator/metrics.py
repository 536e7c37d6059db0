"""docs/metrics.md: every family of the program's own, from its catalogues."""

from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from docs.generator.markdown import code, document, prose, table
from exporter.cluster.outputs.own_metrics import FAMILIES as OF_CLUSTER
from exporter.cluster.outputs.own_metrics import OF_NODES
from exporter.exposition.families import Family
from exporter.exposition.lines import Reason
from exporter.model.accounts import GAPS
from exporter.operator.outputs import ALL_FAMILIES as OF_OPERATOR
from exporter.operator.outputs import FAMILIES as OF_OPERATOR_ALONE
from exporter.outputs.families import accounts, counters, cuda, health, mapping, measured
from exporter.outputs.families.family import OF_CONTAINER
from exporter.outputs.families.slim import SLIM
from exporter.ownership.labels import COLLISION, LIMIT
from exporter.telemetry import REFUSALS, PushResult

_INTRO = """\
The exporter's own families, on `/metrics`. `/gpu/metrics` passes on dcgm-exporter's samples (or another exporter's, or
NVML's) with their names, types and values.

- Names ending in `_total` are counters, others gauges, unless the row says otherwise.
- An unknown value is left out, never 0.
- `…` among the labels stands for {labels}.
- Also on `/gpu/metrics`: {slim}.
- Not here: `process_…`, `python_…`, [gpu-manager's](sharing.md#gpu-managers-families)."""
_LABELS = (
    ("`pod`, `namespace`, `container`", "always; empty without an owner, or left out with `--labels.idle omit`"),
    ("other names for these", "`--labels.names`"),
    ("`gpu_shared`", '`"true"` if several containers share the device'),
    ("`pod_uid`", "`--labels.pod-uid on`"),
    ("`label_<name>`", "`--labels.pod-labels`: each label of the pod that matches"),
    ("`dra_claim_name`, `dra_claim_namespace`, `dra_driver_name`, `dra_pool_name`, `dra_device_name`", "a DRA claim"),
    ("none of these", '`--labels.owners off`: `pod_gpu_info` has them, and `samples="without_owners"`'),
)
_LABELS_OF_ACCOUNTS = """\
The [accounts](#accounts) of containers also have the labels of `--labels.pod-labels`, `--labels.pod-uid` and
`--workload.labels`, and, like `pod_gpu_info`, `queue` if the pod is in a [queue](bill.md#queues)."""
_SOURCES = """\
Sources:

- who holds what: `kubelet`, `device-checkpoint`; `environ` (of containers)
- samples: `dcgm:<host:port>`, `file:<path>` (also an inventory, or the file of `--accounting.state`)
- the inventory: `driver`, `cdi`, `nvml`; [measured use](sharing.md#what-it-takes): `processes`, `container-logs`
- pods and claims: `pods`, `resourceslices`, `dra-checkpoint` ([admin access](devices.md#claims))
- `kernel-log`, and the CUDA `probe`

If pages share an address, `dcgm:` has the path, too, and then a `#<number>`. Why a source is down stands at the top of
`/metrics`, on `/`, in `/debug/mapping` and in the log."""
_OF_ROLES: Sequence[Family] = (*health.FAMILIES, *counters.FAMILIES, *counters.OTLP)
_TABLES = "and the first two tables of families, without"
_SECTIONS: Sequence[tuple[str, str, Sequence[Family]]] = (
    ("Program and sources", _SOURCES, health.FAMILIES),
    (
        "What the program counts of itself",
        "Every reason is there from the start, with 0; `otlp_…` only with [pushes](scrape.md#pushing-by-otlp).",
        (*counters.FAMILIES, *counters.OTLP),
    ),
    ("Assignments", "", health.ASSIGNMENTS),
    (
        "Which pod holds which GPU",
        "`/metrics/nodes` has `pod_and_gpu_map_info` as `<node>_info`. `pod_gpu_host_info` needs GPUs of NVIDIA.",
        (*mapping.FAMILIES, *health.HOST),
    ),
    ("Accounts", "Unless `--accounting.mode` is off. [What to ask them](promql.md).", accounts.FAMILIES),
    ("Measured use", "Where use is [measured](sharing.md#measured-use).", measured.FAMILIES),
    (
        "What programs ask of CUDA",
        "Since the probe first saw the container. Empty owners: processes in no pod. Empty `UUID`: unknown GPU.",
        (*cuda.FAMILIES, *cuda.PROBE),
    ),
)
# the possible values of labels that have only a few, and what some of them mean
_VALUES: dict[str, Iterable[str]] = {
    "pod_gpu_exporter_rejected_lines_total": Reason,
    "pod_gpu_exporter_refused_requests_total": REFUSALS,
    "pod_gpu_exporter_pod_label_problems": (COLLISION, LIMIT),
    "pod_gpu_accounting_gap_seconds_total": GAPS,
    "pod_gpu_exporter_otlp_pushes_total": get_args(PushResult),
    "pod_gpu_throttled_seconds_total": (
        "power",
        "thermal",
        "hw_slowdown",
        "sync_boost",
        "board_limit",
        "low_util",
        "reliability",
    ),
}
_MEANINGS: dict[str, Mapping[str, str]] = {
    "pod_gpu_exporter_refused_requests_total": {
        "busy": "too many at once",
        "certificate": "a client's, missing or not trusted",
        "connections": "too many open",
        "tls": "another failed handshake, or HTTP on the HTTPS port",
    },
    "pod_gpu_exporter_otlp_pushes_total": {
        "later": "wanted later",
        "failed": "no answer",
        "skipped": "the receiver asked for a pause",
    },
    "pod_gpu_exporter_pod_label_problems": {COLLISION: "renamed, since two came out alike", LIMIT: "left out"},
    "pod_gpu_accounting_gap_seconds_total": {
        "exporter": "holders are not known",
        "kubelet": "the same",
        "page": "energy and activity wait",
    },
}
# notes that are too long for a HELP text
_NOTES = {
    "pod_gpu_allocated_ratio": "By MIG it is the part of the compute slices.",
    "pod_gpu_exporter_unmatched_devices": "[Reasons](troubleshooting.md#a-gpu-has-no-pod).",
    "pod_gpu_link_errors_total": "[Kinds](health.md#errors-of-links).",
}
_PREFIX, _CUDA = "pod_gpu_exporter_", "pod_gpu_cuda_"
# families whose names say what their HELP says
_PLAIN = {
    *(
        f"{_PREFIX}{name}"
        for name in (
            "build_info",
            "source_duration_seconds",
            "source_last_success_timestamp_seconds",
            "config_reload_failures_total",
            "tasks",
            "bound_used",
            "bound_limit",
            "probe_attach_failures_total",
            "probe_map_entries",
            "probe_map_limit",
            "cluster_node_age_seconds",
            "operator_watches_ended_total",
            "operator_queue",
            "cluster_missing_nodes",
            "probe_programs",
            "operator_resources",
            "operator_objects",
            "operator_api_requests_total",
        )
    ),
    *(
        f"{_CUDA}{name}_total"
        for name in (
            "kernel_launches",
            "graph_launches",
            "threads_launched",
            "allocations",
            "allocation_failures",
            "frees",
            "memory_freed_bytes",
            "memory_released_at_exit_bytes",
            "copied_bytes",
            "synchronizations",
            "sync_seconds",
        )
    ),
}
_SAID_ONCE = (
    " In all of these families processes in no pod have empty owners, and UUID is empty if the GPU is not known."
)
_HEADS = ("family", "HELP")
_PLAIN_BEGINS = "Also these, whose names say it all:"


def page() -> str:
    """The page."""
    parts: list[str] = []
    for title, says, families in _SECTIONS:
        parts += [f"## {title}", *filter(None, (says,)), _table(families)]
    slim = ", ".join(code(family.name.removeprefix(_PREFIX)) for family in SLIM)
    return document(
        "Metrics",
        _INTRO.replace("{labels}", ", ".join(map(code, OF_CONTAINER))).replace("{slim}", slim),
        "## Labels that samples gain",
        table(("label", "when"), _LABELS),
        _LABELS_OF_ACCOUNTS,
        *parts,
        "## Of the cluster role",
        f"Its `/metrics` has these, {_TABLES} {_lacks(OF_CLUSTER)}.",
        _table(OF_NODES),
        "## Of the operator",
        f"Its `/metrics` has these, {_TABLES} {_lacks(OF_OPERATOR)}.",
        _table(OF_OPERATOR_ALONE),
        "Next: [promql](promql.md), [alerts](alerts.md)",
    )


def _lacks(families: Iterable[Family]) -> str:
    """The families of the first tables that a role does not have, without what all their names begin with."""
    names = {family.name for family in families}
    return ", ".join(code(family.name.removeprefix(_PREFIX)) for family in _OF_ROLES if family.name not in names)


def _table(families: Iterable[Family]) -> str:
    """A row for each family, and below the table the names that say it all."""
    rows = [_row(family) for family in families if family.name not in _PLAIN]
    plain = [_selector(family) for family in families if family.name in _PLAIN]
    return "\n".join(
        (table(_HEADS, rows), *(("", _PLAIN_BEGINS, "", *(f"- {name}" for name in plain)) if plain else ()))
    )


def _row(family: Family) -> Sequence[str]:
    says = [prose(family.help.replace(_SAID_ONCE, ""))]
    is_usual = family.kind == ("counter" if family.name.endswith("_total") else "gauge")
    if not is_usual:
        says.insert(0, f"*{family.kind}*:")
    meanings = _MEANINGS.get(family.name, {})
    values = [*map(str, _VALUES.get(family.name, ()))]
    if values:
        named = (code(value) + (f" ({meanings[value]})" if meanings.get(value) else "") for value in values)
        says.append(", ".join(named) + ".")
    if family.name in _NOTES:
        says.append(_NOTES[family.name])
    return (_selector(family), " ".join(says))


def _selector(family: Family) -> str:
    """The family with its labels, as in PromQL; `…` for those that many have."""
    labels = family.labels
    if set(OF_CONTAINER) <= set(labels):
        labels = (*(label for label in labels if label not in OF_CONTAINER), "…")
    return code(f"{family.name}{{{', '.join(labels)}}}" if labels else family.name)
