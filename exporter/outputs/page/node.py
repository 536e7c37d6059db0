"""/: the page for people of a node: its GPUs, who holds them, and what the exporter knows it from."""

from collections.abc import Iterable
from typing import Any

from exporter.attribution.explain import NOBODY
from exporter.model.slices import Work
from exporter.model.snapshot import Snapshot
from exporter.outputs.complaints import why_not
from exporter.outputs.devices import explainer, known_devices, seen_devices
from exporter.outputs.objects import are_owners_unknown, rows
from exporter.outputs.output import Answer, Look, Need, Output
from exporter.outputs.page.devices import Object, devices_table, nobody
from exporter.outputs.page.document import alert, document, sources, text
from exporter.outputs.page.summary import Figures, summary
from exporter.outputs.page.tools import MORE, TOOLS

# why nobody is known to hold a device where the kubelet's last word no longer counts
SILENT = "The kubelet does not say who holds devices: its line under Sources has the reason."


def render(snapshot: Snapshot, outputs: Iterable[Output[Any]] = ()) -> Work[Answer]:
    """The page of this moment, with links to the outputs."""
    found = yield from rows(snapshot)
    is_unknown = are_owners_unknown(snapshot, found)
    gpus = {subject.uuid for subject in seen_devices(snapshot)}
    held = gpus & {key.uuid for key in snapshot.owners.holders}
    seen = f"{len(gpus)} GPUs seen, {len(held)} held by pods." if snapshot.joined else "No GPU page."
    yield
    table = yield from devices_table(found, _Nobody(snapshot, is_unknown=is_unknown), with_node=False)
    sections = (
        alert(why_not(snapshot) if snapshot.joined is None else SILENT if is_unknown else ""),
        summary(Figures.of(found)),
        sources(snapshot.health),
        TOOLS,
        *table,
        MORE,
    )
    # the script asks there for what the objects do not say: the sources, and why nobody holds a device
    data = {"health": "debug/mapping", "nobody": NOBODY, "silent": SILENT}
    return document(f"GPUs of {snapshot.node}", seen, sections, data, outputs)


class _Nobody:
    """Says why nobody holds a device: in a word where that is all right, otherwise with the reason."""

    def __init__(self, snapshot: Snapshot, *, is_unknown: bool) -> None:
        self._subjects = {(each.uuid or each.device, each.instance): each for each in known_devices(snapshot)}
        self._words = explainer(snapshot)
        self._is_unknown = is_unknown

    def __call__(self, row: Object) -> str:
        subject = self._subjects.get((row["device_uuid"] or row["device"], row.get("mig_instance_id", "")))
        reason = self._words.unowned(subject) if subject else NOBODY
        if self._is_unknown and reason == NOBODY:
            reason = SILENT
        if reason == NOBODY or row["gpu_shared"] or row["entity"] == "mig-parent":
            return nobody(row)
        return f'<details class="why"><summary>not known</summary>{text(reason.removeprefix("not known: "))}</details>'


def _make(look: Look) -> Work[Answer]:
    return render(look.snapshot, look.outputs)


OUTPUT = Output(path="/", says="", make=_make, needs=frozenset({Need.NODE, Need.WORKLOADS}))
