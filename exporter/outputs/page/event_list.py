"""The page's section of the last errors of GPUs, made of the objects of /events. A node may have made these up.

Tests: tests/outputs/test_page.py.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from exporter.lenient import each_mapping
from exporter.model.device_row import DeviceRow
from exporter.model.states import BROKEN
from exporter.outputs.page.document import table, text
from exporter.wording import listed

MOST_SHOWN = 20  # /events has the older errors
_MOST_HOLDERS = 3
_MOST_CHARS = 200
_KINDS = {
    "xid": "XID",
    "sxid": "SXid",
    "lost": "lost",
    "pcie": "PCI Express",
    "hang": "hang",
    "out_of_memory": "",
    "nvlink": "",
}


def events_section(rows: Sequence[Mapping[str, Any]] | None, devices: Iterable[DeviceRow], *, with_node: bool) -> str:
    """The section of the first MOST_SHOWN `rows`, which are the newest; "" without rows (None: nobody reads errors).

    It is unfolded while one of the `devices` is failing or gone.
    """
    if rows is None:
        return ""
    titles = ["Time", "GPU", "Error", "Held by", "What to do"]
    if with_node:
        titles.insert(1, "Node")
    cells = ([*map(_shown, _cells(row, with_node=with_node))] for row in rows[:MOST_SHOWN])
    content = table("events-table", "The last errors in the kernel's log, and who held the GPU then", titles, cells)
    is_failing = any(device.health in BROKEN for device in devices)
    # With another key it is a new element for morph.js, which never opens or folds an element that the reader has.
    marks = ' data-key="events of failing GPUs" open' if is_failing else ""
    hidden = "" if rows else " hidden"
    return f'<details id="events"{marks}{hidden}><summary><h2>Errors of GPUs</h2></summary>\n{content}</details>'


def _shown(cell: str) -> str:
    return text(cell[:_MOST_CHARS])


def _cells(row: Mapping[str, Any], *, with_node: bool) -> Iterator[str]:
    """The cells of an event's line; a field that the object lacks is ""."""

    def word(key: str) -> str:
        return str(row.get(key) or "")

    yield word("at")[:19].replace("T", " ") + " UTC"
    if with_node:
        yield word("node_name")
    gpu = word("device_id") or word("device_uuid") or word("pci_address")
    instance = word("mig_instance_id")
    yield f"{gpu}, instance {instance}" if instance else gpu
    kind = word("kind")
    error = (_KINDS.get(kind, kind), word("code"), word("severity"), word("name") or word("text"))
    yield " ".join(filter(None, error))
    yield _holders(row.get("holders"))
    yield word("remedy")


def _holders(holders: object) -> str:
    """The pods of the holders, each once."""
    if holders is None:
        return "unknown"
    pods = dict.fromkeys(f"{holder.get('namespace')}/{holder.get('pod')}" for holder in each_mapping(holders))
    return listed([*pods], _MOST_HOLDERS)
