"""Families of the containers' measured use of the node's GPUs, from the driver's processes. Only if it is measured.

Rows of a container whose pod does not hold the device have the label `holds="false"`, and no other row has it.

Tests: tests/outputs/test_one_story.py.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from exporter.exposition.families import Written, render_number
from exporter.model.devices import AddedLabels, DeviceKey
from exporter.model.pods import Owner
from exporter.outputs.families.family import container_text, own
from exporter.outputs.output import Look

if TYPE_CHECKING:
    from exporter.model.measured import Measured, Use


def _uses(measured: "Measured | None") -> Iterator[tuple[Owner | None, DeviceKey, "Use", AddedLabels]]:
    """The use of a device by each owner, by strangers, and by processes of nobody."""
    if measured is None:
        return
    for (device, owner), use in measured.uses.items():
        yield owner, device, use, ()
    for (device, owner), use in measured.strangers.items():
        yield owner, device, use, (("holds", "false"),)
    for device, use in measured.unnamed.items():
        yield None, device, use, ()


def _each(value: Callable[["Use"], float | None]) -> Callable[[Look], Sequence[Written]]:
    def write(look: Look) -> Sequence[Written]:
        written: list[Written] = []
        for owner, device, use, holds in _uses(look.snapshot.measured):
            amount = value(use)
            if amount is not None:
                labels = container_text(owner, device, look.snapshot.node, *holds)
                written.append((labels, render_number(float(amount)), b""))
        return written

    return write


FAMILIES = (
    own("pod_gpu_memory_used_bytes", write=_each(lambda use: use.memory_bytes)),
    own("pod_gpu_utilization_ratio", write=_each(lambda use: use.sm_ratio)),
    own("pod_gpu_processes", write=_each(lambda use: use.processes)),
)
