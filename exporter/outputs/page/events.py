"""The last errors of GPUs on the page, made of the objects of /events, which a node may have made up."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from exporter.lenient import each_mapping
from exporter.outputs.page.document import PageColumn, table, text

MOST_SHOWN = 20  # /events has the others
_MOST_HOLDERS = 3
_MOST_CHARS = 200
_KINDS = {"xid": "XID", "sxid": "SXid", "lost": "lost", "pcie": "PCI Express"}


def events_section(rows: Sequence[Mapping[str, Any]], *, with_node: bool) -> str:
    """The newest of these, which come first; nothing where there are none."""
    if not rows:
        return ""
    titles = ("Time", *(("Node",) if with_node else ()), "GPU", "Error", "Held by", "What to do")
    columns = [PageColumn(title=title, is_header=title == "Time") for title in titles]
    cells = ([text(cell[:_MOST_CHARS]) for cell in _cells(row, with_node=with_node)] for row in rows[:MOST_SHOWN])
    content = table("events-table", "The last errors by the kernel's log, and who held the GPU then", columns, cells)
    return f'<details id="events" open><summary><h2>Errors of GPUs</h2></summary>\n{content}</details>'


def _cells(row: Mapping[str, Any], *, with_node: bool) -> Iterator[str]:
    yield str(row["at"])[:19].replace("T", " ") + " UTC"
    if with_node:
        yield str(row["node_name"])
    instance = row["mig_instance_id"]
    gpu = row["device_id"] or row["device_uuid"] or row["pci_address"]
    yield f"{gpu}{f', instance {instance}' if instance else ''}"
    error = [_KINDS.get(row["kind"], row["kind"]), row["code"], row["severity"], row["name"] or row["text"]]
    yield " ".join(str(part) for part in error if part)
    holders = [f"{each.get('namespace')}/{each.get('pod')}" for each in each_mapping(row["holders"])]
    names = [*dict.fromkeys(holders)]
    more = f" and {len(names) - _MOST_HOLDERS} more" if len(names) > _MOST_HOLDERS else ""
    yield "unknown" if row["holders"] is None else ", ".join(names[:_MOST_HOLDERS]) + more
    yield str(row["remedy"])
