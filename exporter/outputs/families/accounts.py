"""What containers have had of the node's GPUs. Here only where accounts are kept; right in every --sharing mode.

Amounts are written exactly, from whole numbers, so that what is summed here is what was divided.
"""

from collections.abc import Callable

from exporter.exposition.families import Samples
from exporter.exposition.text import render_units
from exporter.model.accounts import Account, Accounts
from exporter.outputs.families.family import OwnFamily
from exporter.outputs.output import Look

_NANOSECONDS, _MICROJOULES = 9, 6  # powers of ten
_OF_ROW = ("namespace", "pod", "container", "UUID", "GPU_I_ID", "node")
_NONE = Accounts()


def _accounts(look: Look) -> Accounts:
    return look.snapshot.accounts or _NONE


def _pod_labels(look: Look) -> tuple[str, ...]:
    """The names of the pods' labels of all rows: where a row lacks one, it is empty."""
    return tuple(sorted({name for row in _accounts(look).rows for name, _ in row.labels}))


class _Rows:
    """Fills a family with a sample for each row that has the amount."""

    def __init__(self, amount: Callable[[Account], int | None], power: int) -> None:
        self._amount, self._power = amount, power

    def __call__(self, look: Look) -> Samples:
        labels = _labels_of(look)
        found = ((row, self._amount(row)) for row in _accounts(look).rows)
        return [(labels(row), render_units(amount, self._power)) for row, amount in found if amount is not None]


def _labels_of(look: Look) -> Callable[[Account], tuple[str, ...]]:
    names, node = _pod_labels(look), look.snapshot.node

    def labels(row: Account) -> tuple[str, ...]:
        owner, device, of_pod = row.owner, row.device, dict(row.labels)
        of_owner = (owner.namespace, owner.pod, owner.container) if owner else ("", "", "")
        return (*of_owner, device.uuid, device.instance, node, *(of_pod.get(name, "") for name in names))

    return labels


def _ratio(look: Look) -> Samples:
    labels = _labels_of(look)
    return [(labels(row), row.allocated_ratio) for row in _accounts(look).rows if row.allocated_ratio is not None]


def _xids(look: Look) -> Samples:
    labels = _labels_of(look)
    return [
        ((xid, *labels(row)), float(count)) for row in _accounts(look).rows for xid, count in sorted(row.xids.items())
    ]


def _throttled(look: Look) -> Samples:
    labels = _labels_of(look)
    return [
        ((reason, *labels(row)), render_units(ns, _NANOSECONDS))
        for row in _accounts(look).rows
        for reason, ns in sorted(row.throttled_ns.items())
    ]


def _gaps(look: Look) -> Samples:
    if look.snapshot.accounts is None:
        return []
    return [((reason,), render_units(ns, _NANOSECONDS)) for reason, ns in look.snapshot.accounts.gap_ns.items()]


def _capacity(look: Look) -> Samples:
    return [((model, look.snapshot.node), float(count)) for model, count in sorted(_accounts(look).capacity.items())]


def _allocated(look: Look) -> Samples:
    return [((model, look.snapshot.node), ratio) for model, ratio in sorted(_accounts(look).allocated.items())]


FAMILIES = (
    OwnFamily(
        "pod_gpu_allocated_ratio",
        "gauge",
        "The part of a physical GPU that a container holds now; a GPU's rows sum to 1 at most.",
        _OF_ROW,
        fill=_ratio,
        more=_pod_labels,
    ),
    OwnFamily(
        "pod_gpu_allocated_seconds_total",
        "counter",
        "GPU-seconds that a container held: the integral of pod_gpu_allocated_ratio.",
        _OF_ROW,
        fill=_Rows(lambda row: row.allocated_ns, _NANOSECONDS),
        more=_pod_labels,
    ),
    OwnFamily(
        "pod_gpu_active_seconds_total",
        "counter",
        "GPU-seconds of those held that were used: times the device's activity (GR_ENGINE_ACTIVE, else GPU_UTIL).",
        _OF_ROW,
        fill=_Rows(lambda row: row.active_ns, _NANOSECONDS),
        more=_pod_labels,
    ),
    OwnFamily(
        "pod_gpu_idle_seconds_total",
        "counter",
        "GPU-seconds of those held in which the device's activity was below --accounting.idle-below.",
        _OF_ROW,
        fill=_Rows(lambda row: row.idle_ns, _NANOSECONDS),
        more=_pod_labels,
    ),
    OwnFamily(
        "pod_gpu_energy_joules_total",
        "counter",
        "Energy of a container's devices, in joules; what nobody held has empty owners, so the sum is the node's.",
        _OF_ROW,
        fill=_Rows(lambda row: row.energy_uj, _MICROJOULES),
        more=_pod_labels,
    ),
    OwnFamily(
        "pod_gpu_xid_errors_total",
        "counter",
        "XID errors, each counted once, to the container that held the GPU; to nobody where several held it.",
        ("xid", *_OF_ROW),
        fill=_xids,
        more=_pod_labels,
    ),
    OwnFamily(
        "pod_gpu_throttled_seconds_total",
        "counter",
        "GPU-seconds of those held in which the GPU's clocks were lowered, by reason.",
        ("reason", *_OF_ROW),
        fill=_throttled,
        more=_pod_labels,
    ),
    OwnFamily(
        "pod_gpu_accounting_gap_seconds_total",
        "counter",
        "Seconds that accounting did not see, by what was missing: the kubelet, a page of samples, or the exporter.",
        ("reason",),
        fill=_gaps,
    ),
    OwnFamily(
        "node_gpu_capacity",
        "gauge",
        "Physical GPUs of the node, cut into MIG instances or not, by model.",
        ("model", "node"),
        fill=_capacity,
    ),
    OwnFamily(
        "node_gpu_allocated_ratio",
        "gauge",
        "The part of the node's GPUs of a model that containers hold, from 0 to 1.",
        ("model", "node"),
        fill=_allocated,
    ),
)
