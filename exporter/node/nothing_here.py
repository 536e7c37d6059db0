"""The first look, where it finds nothing at all: most often somebody tries the program on a machine without a GPU.

On a GPU node whose parts start one after another, the driver's files are there from the start, or the kubelet answers
since it has started this program's pod. There each source's own line in the log says enough.
"""

import logging

from exporter.log import log
from exporter.model.snapshot import KUBELET, Snapshot
from exporter.node.sources import Sources
from exporter.sources.source import is_absent

_NOBODY = frozenset({"missing", "refused"})
REMEDY = (
    "to see what this program does, run: pod-gpu-metrics-exporter demo. On a GPU node,"
    " `pod-gpu-metrics-exporter doctor` says what is missing. Whatever starts later is found then"
)


def say_if_nothing_is_here(snapshot: Snapshot, sources: Sources) -> None:
    """Log what was looked for, if none of it is there, and what somebody without a GPU can do instead.

    Nothing is there if the kubelet has no socket, no page is served, and no source of the machine itself exists.
    """
    asked = {name: snapshot.health[name] for name in (KUBELET, *snapshot.page_sources)}
    of_machine = {source.name: source.health for source in sources.of_machine}
    if snapshot.health[KUBELET].reason != "missing" or not all(health.reason in _NOBODY for health in asked.values()):
        return
    # one that is missed (--nvml.mode on) was named by somebody who knows what there should be
    if not all(is_absent(health) for health in of_machine.values()):
        return
    looked_for = "; ".join(f"{name}: {health.message}" for name, health in {**asked, **of_machine}.items())
    log(logging.INFO, "this does not look like a GPU node", looked_for=looked_for, remedy=REMEDY)
