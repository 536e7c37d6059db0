"""docs/metrics.md: every family of the program's own, from its catalogues."""

from collections.abc import Iterable, Sequence
from typing import get_args

from prometheus_client.parser import text_string_to_metric_families

from docs.generator.markdown import code, document, prose, table
from exporter.cluster.outputs.own_metrics import FAMILIES as OF_CLUSTER
from exporter.cluster.outputs.own_metrics import OF_NODES
from exporter.dcgm.links import KINDS
from exporter.exposition.families import Family
from exporter.exposition.lines import Reason
from exporter.model.accounts import GAPS
from exporter.operator.outputs import ALL_FAMILIES as OF_OPERATOR
from exporter.operator.outputs import FAMILIES as OF_OPERATOR_ALONE
from exporter.outputs.families import accounts, counters, cuda, gpu_manager, health, mapping, measured
from exporter.outputs.families.slim import SLIM
from exporter.ownership.labels import COLLISION, LIMIT
from exporter.ownership.owners import WITHOUT_SAMPLES, Unmatched
from exporter.telemetry import REFUSALS, PushResult, Telemetry

_INTRO = """\
The samples of `/gpu/metrics` are dcgm-exporter's (or another exporter's, or NVML's with `--dcgm.mode off`): their
names, types and values are not changed, and this page does not list them. What the exporter makes up itself is on
`/metrics`. A family without samples is not there: what is not known is no 0."""
_LABELS = (
    (
        "`pod`, `namespace`, `container`",
        "always; empty on a device without an owner, or not there with `--labels.idle omit`",
    ),
    ("other names for these", "with `--labels.names`"),
    ("`gpu_shared`", '`"true"` where several containers share the device'),
    ("`pod_uid`", "with `--labels.pod-uid on`"),
    ("`label_<name>`", "with `--labels.pod-labels`, each label of the pod that matches"),
    (
        "`dra_claim_name`, `dra_claim_namespace`, `dra_driver_name`, `dra_pool_name`, `dra_device_name`",
        "where the owner has the device by a DRA claim",
    ),
    ("none of these", 'with `--labels.owners off`: `pod_gpu_info` has them, and `samples="without_owners"`'),
)
_LABELS_OF_ACCOUNTS = """\
The rows of containers in the [accounts](#accounts) have the labels that `--labels.pod-labels`, `--labels.pod-uid` and
`--workload.labels` ask for, too. Rows of a pod in a [queue](bill.md#queues) have `queue`, as `pod_gpu_info` has it."""
_SOURCES = """\
Sources are `kubelet`, `dcgm:<host:port>`, `file:<path>` (samples, an inventory, or the file of `--accounting.state`)
and, where they are there, `driver`, `cdi` and `nvml` (the inventory), `processes` and `container-logs` ([measured
use](sharing.md#what-it-takes)), `probe` (of CUDA), `kernel-log`, `pods`, `resourceslices`, `dra-checkpoint`
([admin access](devices.md#claims)), `device-checkpoint` (of the kubelet) and `environ` (of containers). Where several
pages share an address, `dcgm:` has the path, too, and a `#<number>` if that is the same; it never has a query or a
user. Why a source is down stands in a comment at the top of `/metrics`, on `/`, in `/debug/mapping`, and once in the
log."""
_SECTIONS: Sequence[tuple[str, str, Sequence[Family]]] = (
    ("Program and sources", f"How the program and what it reads are.\n\n{_SOURCES}", health.FAMILIES),
    ("Assignments", "What the kubelet handed out, and what became of it.", health.ASSIGNMENTS),
    ("What the program counts of itself", "Every reason is there from the start, with 0.", counters.FAMILIES),
    ("Pushes by OTLP", "Where [something is pushed](scrape.md#pushing-by-otlp).", counters.OTLP),
    ("Which pod holds which GPU", "`/metrics/nodes` has the second one as `<node>_info`.", mapping.FAMILIES),
    ("The machine", "Where NVIDIA's driver is loaded, or GPUs of NVIDIA's are known.", health.HOST),
    (
        "Accounts",
        "Unless `--accounting.mode` is off. [What to ask them](promql.md).",
        accounts.FAMILIES,
    ),
    ("Measured use", "Where use is [measured](sharing.md#measured-use).", measured.FAMILIES),
    (
        "What programs ask of CUDA",
        "Where the CUDA probe runs. Every number is by container and GPU, since the probe came to see the container.",
        cuda.FAMILIES,
    ),
    ("The CUDA probe", "Where it runs.", cuda.PROBE),
    (
        "gpu-manager's",
        "Also alone on `/metric`. [What they say here](sharing.md#gpu-managers-families).",
        gpu_manager.FAMILIES,
    ),
)
# the possible values of labels that have only a few
_VALUES: dict[str, Iterable[str]] = {
    "pod_gpu_exporter_unmatched_devices": [reason for reason in Unmatched if reason not in WITHOUT_SAMPLES],
    "pod_gpu_exporter_rejected_lines_total": Reason,
    "pod_gpu_exporter_refused_requests_total": REFUSALS,
    "pod_gpu_exporter_otlp_pushes_total": get_args(PushResult),
    "pod_gpu_exporter_otlp_points_total": ("accepted", "lost"),
    "pod_gpu_exporter_pod_label_problems": (COLLISION, LIMIT),
    "pod_gpu_throttled_seconds_total": (
        "power",
        "thermal",
        "hw_slowdown",
        "sync_boost",
        "board_limit",
        "low_util",
        "reliability",
    ),
    "pod_gpu_link_errors_total": KINDS,
    "pod_gpu_accounting_gap_seconds_total": GAPS,
}
# notes that are too long for a HELP text
_NOTES = {
    "pod_gpu_exporter_unmatched_devices": "With `other_node` the page is another node's, with `unnamed` samples carry"
    " no such name, with `too_many_devices` the page has more than 1,024.",
    "pod_gpu_exporter_refused_requests_total": "`busy`: too many at once; `certificate`: a client's, missing or not"
    " trusted; `tls`: no handshake for another reason, or plain HTTP on the port of HTTPS; `connections`: too many"
    " open.",
    "pod_gpu_exporter_pod_label_problems": "`collision`: renamed, since two came out alike; `limit`: left out.",
    "pod_gpu_allocated_ratio": "It is 1, what an allocator granted, its shares of those offered, or its MIG"
    " instance's compute slices of the GPU's.",
    "pod_gpu_accounting_gap_seconds_total": "While the `kubelet` or the `exporter` is missing, nobody sees who holds"
    " what; while a `page` is, only energy and activity wait.",
}
_HEADS = ("family", "type", "labels", "HELP")


def page() -> str:
    """The page."""
    parts: list[str] = []
    for title, says, families in _SECTIONS:
        parts += [f"## {title}", says, _table(families)]
    others = [family.name for family in OF_CLUSTER if family not in OF_NODES]
    of_all = [family.name for family in OF_OPERATOR if family not in OF_OPERATOR_ALONE]
    return document(
        "Metrics",
        _INTRO,
        "## Labels that samples gain",
        table(("label", "when"), _LABELS),
        _LABELS_OF_ACCOUNTS,
        *parts,
        "## The process",
        "As every Prometheus client for Python shows it.",
        _table(_of_process()),
        "## Of the cluster role",
        f"Its `/metrics` has these, and of the above {', '.join(map(code, others))} and those of the process.",
        _table(OF_NODES),
        "## Of the operator",
        f"Its `/metrics` has these, and of the above {', '.join(map(code, of_all))} and those of the process.",
        _table(OF_OPERATOR_ALONE),
    )


def _table(families: Iterable[Family]) -> str:
    return table(_HEADS, [_row(family) for family in families])


def _row(family: Family) -> Sequence[str]:
    says = prose(family.help)
    if family.name in _VALUES:
        says += " Reasons: " + ", ".join(code(str(value)) for value in _VALUES[family.name]) + "."
    if family.name in {slim.name for slim in SLIM}:
        says += " Also on `/gpu/metrics`."
    if family.name in _NOTES:
        says += f" {_NOTES[family.name]}"
    return (code(family.name), family.kind, ", ".join(map(code, family.labels)), says)


def _of_process() -> Iterable[Family]:
    for found in text_string_to_metric_families(Telemetry().render_process().decode()):
        name = f"{found.name}_total" if found.type == "counter" else found.name
        labels = sorted({label for sample in found.samples for label in sample.labels})
        yield Family(name, found.type, found.documentation, tuple(labels))
