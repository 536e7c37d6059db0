"""Families of the accounts of containers and GPUs. They are there only if accounts are kept; --sharing changes nothing.

accounts/amounts/ has the counters. They are written exactly from whole numbers, so that the parts add up to the divided
amount. A row has the same labels in every family, so the labels are written once: 112 MIG instances have 1,000 samples.

Tests: tests/node/test_accounting.py.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from exporter.accounts.amounts import AMOUNTS
from exporter.accounts.entries import NANOSECONDS, AmountFamily
from exporter.exposition.families import Samples, Written, render_labels, render_number, render_units
from exporter.model.accounts import Account, Accounts
from exporter.model.devices import AddedLabels, DeviceKey
from exporter.model.pods import Owner
from exporter.outputs.families.family import OwnFamily, container_text, own
from exporter.outputs.output import Look
from exporter.ownership.queues import QUEUE_LABEL

_NONE = Accounts()


def _accounts(look: Look) -> Accounts:
    return look.snapshot.accounts or _NONE


@lru_cache(maxsize=1)
def _texts(accounts: Accounts, node: str) -> Sequence[tuple[bytes, bytes]]:
    """The text of each row's labels, and the text of its begin."""
    names = tuple(sorted({name for row in accounts.rows for name, _ in row.labels} - {QUEUE_LABEL}))
    texts: list[tuple[bytes, bytes]] = []
    for owner, device, labels, *_, ns, _ in accounts.rows:
        text_of = _labels if len(device.uuid) <= _LONGEST else _labels.__wrapped__
        texts.append((text_of(owner, device, labels, names, node), _began(ns)))
    return texts


# Most rows are the same at the next look. Labels with a long UUID are not kept, since upstreams choose its length.
_LONGEST = 100


@lru_cache(maxsize=1024)
def _labels(owner: Owner | None, device: DeviceKey, labels: AddedLabels, of_pods: tuple[str, ...], node: str) -> bytes:
    """The text of a row's labels.

    All rows have the same labels of pods, and a label that a row lacks is empty. The queue is only on rows that have
    one: nobody asked for it.
    """
    of_pod = dict(labels)
    shown = [(name, of_pod.get(name, "")) for name in of_pods]
    if QUEUE_LABEL in of_pod:
        shown.append((QUEUE_LABEL, of_pod[QUEUE_LABEL]))
    return container_text(owner, device, node, *shown)


def _began(ns: int | None) -> bytes:
    return b"" if ns is None else render_units(max(0, ns) // 1_000_000, 3)


def _rows(look: Look) -> Sequence[tuple[Account, tuple[bytes, bytes]]]:
    accounts = _accounts(look)
    return list(zip(accounts.rows, _texts(accounts, look.snapshot.node), strict=True))


def _counter(row: AmountFamily) -> OwnFamily[Look]:
    """The family of an amount: a sample for each account that has it, and for each value of its labels."""

    def write(look: Look) -> Sequence[Written]:
        written: list[Written] = []
        for account, (labels, began) in _rows(look):
            units = account.amounts.get(row.amount)
            if units is not None:
                written.append((labels, render_units(units, row.power), began))
        return written

    def write_by_label(look: Look) -> Sequence[Written]:
        written: list[Written] = []
        for account, (labels, began) in _rows(look):
            for text, units in sorted(account.by_label.get(row.amount, {}).items()):
                own_labels = render_labels(tuple(row.labelled(text)))
                written.append((b"%b,%b" % (own_labels, labels), render_units(units, row.power), began))
        return written

    return own(row.name, write=write_by_label if row.labels else write)


def _ratio(look: Look) -> Sequence[Written]:
    ratios = ((labels, row.allocated_ratio) for row, (labels, _) in _rows(look))
    return [(labels, render_number(ratio), b"") for labels, ratio in ratios if ratio is not None]


def _idle_since(look: Look) -> Sequence[Written]:
    since = ((labels, row.idle_since_ns) for row, (labels, _) in _rows(look))
    return [(labels, _began(ns), b"") for labels, ns in since if ns is not None]


def _gaps(look: Look) -> Sequence[Written]:
    accounts = look.snapshot.accounts
    if accounts is None:
        return []
    began = _began(accounts.began_ns)
    gaps = ((render_labels((("reason", reason),)), ns) for reason, ns in accounts.gap_ns.items())
    return [(labels, render_units(ns, NANOSECONDS), began) for labels, ns in gaps]


def _by_model(look: Look, numbers: Mapping[str, float]) -> Samples:
    return [((model, look.snapshot.node), float(number)) for model, number in sorted(numbers.items())]


def _suspected_hangs(look: Look) -> Samples:
    """A sample for each pod of a job that seems to hang."""
    return [
        ((*pod, hang.workload_name, hang.workload_kind, hang.reason, look.snapshot.node), 1.0)
        for hang in look.snapshot.hangs.suspected
        for pod in hang.pods
    ]


FAMILIES = (
    own("pod_gpu_allocated_ratio", write=_ratio),
    *(_counter(family) for amount in AMOUNTS for family in amount.families),
    own("pod_gpu_idle_since_timestamp_seconds", write=_idle_since),
    own("pod_gpu_suspected_hang", _suspected_hangs),
    own("pod_gpu_accounting_gap_seconds_total", write=_gaps),
    own("node_gpu_capacity", lambda look: _by_model(look, _accounts(look).capacity)),
    own("node_gpu_allocated_ratio", lambda look: _by_model(look, _accounts(look).allocated)),
)
