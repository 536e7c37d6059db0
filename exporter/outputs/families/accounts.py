"""What containers have had of the node's GPUs. Here only where accounts are kept; right in every --sharing mode.

Amounts are written exactly, from whole numbers: what is summed here is what was divided. A row has the same labels in
every family, so they are written once: 112 MIG instances have a thousand samples.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from exporter.exposition.families import Samples
from exporter.exposition.text import Written, render_labels, render_number, render_units
from exporter.model.accounts import Account, Accounts
from exporter.outputs.families.family import OwnFamily
from exporter.outputs.output import Look

_NANOSECONDS, _MICROJOULES = 9, 6  # powers of ten
_OF_ROW = ("namespace", "pod", "container", "UUID", "GPU_I_ID", "node")
_NONE = Accounts()


def _accounts(look: Look) -> Accounts:
    return look.snapshot.accounts or _NONE


@lru_cache(maxsize=1)
def _labels(accounts: Accounts, node: str) -> Sequence[bytes]:
    """Each row's labels as text. Labels of pods are the same for all rows: one that a row lacks is empty."""
    names = sorted({name for row in accounts.rows for name, _ in row.labels})
    texts = []
    for owner, device, labels, *_ in accounts.rows:
        of_owner = (owner.namespace, owner.pod, owner.container) if owner else ("", "", "")
        of_row = zip(_OF_ROW, (*of_owner, device.uuid, device.instance, node), strict=True)
        of_pod = dict(labels)
        texts.append(render_labels((*of_row, *((name, of_pod.get(name, "")) for name in names))))
    return texts


def _rows(look: Look) -> Sequence[tuple[Account, bytes]]:
    accounts = _accounts(look)
    return list(zip(accounts.rows, _labels(accounts, look.snapshot.node), strict=True))


def _each(amount: Callable[[Account], int | None], power: int) -> Callable[[Look], Sequence[Written]]:
    """Writes a sample for each row that has the amount, in units of 10**-power."""

    def write(look: Look) -> Sequence[Written]:
        found = ((labels, amount(row)) for row, labels in _rows(look))
        return [(labels, render_units(units, power)) for labels, units in found if units is not None]

    return write


def _ratio(look: Look) -> Sequence[Written]:
    return [
        (labels, render_number(row.allocated_ratio)) for row, labels in _rows(look) if row.allocated_ratio is not None
    ]


def _xids(look: Look) -> Sequence[Written]:
    return [
        (b'xid="%b",%b' % (xid.encode(), labels), render_units(count, 0))
        for row, labels in _rows(look)
        for xid, count in sorted(row.xids.items())
    ]


def _throttled(look: Look) -> Sequence[Written]:
    return [
        (b'reason="%b",%b' % (reason.encode(), labels), render_units(ns, _NANOSECONDS))
        for row, labels in _rows(look)
        for reason, ns in sorted(row.throttled_ns.items())
    ]


def _gaps(look: Look) -> Sequence[Written]:
    gaps = look.snapshot.accounts.gap_ns if look.snapshot.accounts else {}
    return [(render_labels((("reason", reason),)), render_units(ns, _NANOSECONDS)) for reason, ns in gaps.items()]


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
        write=_ratio,
    ),
    OwnFamily(
        "pod_gpu_allocated_seconds_total",
        "counter",
        "GPU-seconds that a container held: the integral of pod_gpu_allocated_ratio.",
        _OF_ROW,
        write=_each(lambda row: row.allocated_ns, _NANOSECONDS),
    ),
    OwnFamily(
        "pod_gpu_active_seconds_total",
        "counter",
        "GPU-seconds that were used: those held times the device's activity (GR_ENGINE_ACTIVE, else GPU_UTIL)."
        " Of a shared device where kernels are measured: the part of its activity that the container's kernels had,"
        " which may be more than it held; those of processes that count for no container have empty owners.",
        _OF_ROW,
        write=_each(lambda row: row.active_ns, _NANOSECONDS),
    ),
    OwnFamily(
        "pod_gpu_observed_seconds_total",
        "counter",
        "GPU-seconds of those held in which the device's activity is known. How much was used is"
        " pod_gpu_active_seconds_total divided by this: while the page is away, seconds are held and not observed.",
        _OF_ROW,
        write=_each(lambda row: row.observed_ns, _NANOSECONDS),
    ),
    OwnFamily(
        "pod_gpu_idle_seconds_total",
        "counter",
        "GPU-seconds of those held in which the device's activity was below --accounting.idle-below; of a shared device"
        " where kernels are measured, the container's part of it.",
        _OF_ROW,
        write=_each(lambda row: row.idle_ns, _NANOSECONDS),
    ),
    OwnFamily(
        "pod_gpu_energy_joules_total",
        "counter",
        "Energy of a container's devices, in joules; of a shared one its part: as its kernels' time where that is"
        " measured, else an equal one. What nobody held has empty owners, so the sum is the node's.",
        _OF_ROW,
        write=_each(lambda row: row.energy_uj, _MICROJOULES),
    ),
    OwnFamily(
        "pod_gpu_xid_errors_total",
        "counter",
        "XID errors, each counted once, to the container that held the GPU; to nobody where several held it, at a time"
        " or one after the other while dcgm-exporter's page stood still.",
        ("xid", *_OF_ROW),
        write=_xids,
    ),
    OwnFamily(
        "pod_gpu_throttled_seconds_total",
        "counter",
        "GPU-seconds of those held in which the GPU's clocks were lowered, by reason.",
        ("reason", *_OF_ROW),
        write=_throttled,
    ),
    OwnFamily(
        "pod_gpu_accounting_gap_seconds_total",
        "counter",
        "Seconds that accounting did not see, by what was missing: the kubelet, a page of samples, or the exporter.",
        ("reason",),
        write=_gaps,
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
