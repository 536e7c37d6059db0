"""/: a page for people: the nodes, and who holds which GPU on each."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import groupby, islice

from exporter.cluster.outputs.look import ClusterLook, answered
from exporter.model.cluster import HeldDevice, NodeView
from exporter.outputs.output import Answer, Output, answer
from exporter.outputs.page import document, sources, state, table

# A browser shows so many rows at once; /container/metrics has all.
MOST_DEVICES = 2000
_NODE_HEADS = ("node", "state", "last answer", "GPUs", "")
_GPU_HEADS = ("node", "GPU", "model", "UUID", "instance", "held by (namespace / pod / container)")


def render(look: ClusterLook) -> str:
    """The page of this moment."""
    view = look.view
    good = answered(view)
    devices = [(node, list(of)) for node in good for _, of in groupby(node.devices, lambda held: held.device)]
    more = len(devices) - MOST_DEVICES
    return document(
        f", for {len(view.nodes)} nodes. {len(good)} have answered, {len(view.missing)} are missing."
        + (f" It is not known which nodes there are: {view.trouble}" if view.trouble else ""),
        (
            sources(look.health),
            table("Nodes", _NODE_HEADS, map(_node_row, view.nodes.values())),
            table(
                "GPUs" + (f" (the first {MOST_DEVICES} of {len(devices)})" if more > 0 else ""),
                _GPU_HEADS,
                (_device_row(node, of) for node, of in islice(devices, MOST_DEVICES)),
            ),
        ),
        look.outputs,
    )


def _node_row(node: NodeView) -> Sequence[str]:
    at = node.answered_at_seconds
    gpus = {held.uuid for held in node.devices}
    return (
        escape(node.name),
        state(up=not node.is_missing),
        f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC" if at is not None else "none",
        "" if node.is_missing else str(len(gpus)),
        escape(str(node.trouble or "")),
    )


def _device_row(node: NodeView, of_device: Iterable[HeldDevice]) -> Sequence[str]:
    first, *_ = held = list(of_device)
    owners = [
        f"{each.namespace} / {each.pod} / {each.container}" + (" (share)" if each.is_shared else "")
        for each in held
        if each.pod
    ]
    cells = (node.name, first.index, first.model, first.uuid, first.instance)
    return (*map(escape, cells), "<br>".join(map(escape, owners)) or "(nobody)")


def _make(look: ClusterLook) -> Answer:
    return answer("text/html; charset=utf-8", render(look).encode("utf-8", "replace"))


OUTPUT = Output(path="/", says="", make=_make)
