"""Views of clusters, made up for tests."""

import json
from collections.abc import Mapping, Sequence

from exporter.errors import Trouble
from exporter.model.cluster import ClusterView, HeldDevice, NodeView

GONE = Trouble("refused", "nobody listens there", "see that the exporter runs")


def held(
    pod: str = "trainer-a",
    uuid: str = "GPU-1",
    *,
    namespace: str = "ml",
    workload: str = "trainer",
    kind: str = "Deployment",
    shared: bool = False,
    values: Mapping[str, float] | None = None,
    measured: Sequence[str] = (),
    container: str = "main",
    node: str = "n1",
    instance: str = "",
) -> HeldDevice:
    """A device that a container holds; `pod` "" for nobody."""
    if not pod:
        namespace = container = workload = kind = ""
    text = {"node_name": node, "device_uuid": uuid, "pod": pod, "container": container, "namespace": namespace}
    return HeldDevice(
        uuid=uuid,
        instance=instance,
        namespace=namespace,
        pod=pod,
        container=container,
        workload=workload,
        kind=kind,
        is_shared=shared,
        values=values if values is not None else {"gpu_utilization": 50.0},
        measured=frozenset(measured),
        text=json.dumps(text).encode(),
        model="NVIDIA H100",
        index="0",
    )


def node_of(name: str, *devices: HeldDevice, trouble: Trouble | None = None, at: float | None = 1000.0) -> NodeView:
    return NodeView(name=name, devices=devices, trouble=trouble, answered_at_seconds=at)


def view_of(*nodes: NodeView, trouble: Trouble | None = None, at: float = 1005.0) -> ClusterView:
    return ClusterView(nodes={node.name: node for node in nodes}, trouble=trouble, at_seconds=at)
