"""Views of clusters, made up for tests."""

from collections.abc import Mapping
from typing import Any

from exporter.errors import Trouble
from exporter.model.cluster_view import ClusterView, HeldDevice, NodeView
from exporter.model.device_row import DeviceRow, OwnUse
from exporter.model.device_row_json import as_json
from exporter.model.node_answers import OWN_FAMILIES

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
    container: str = "main",
    node: str = "n1",
    instance: str = "",
) -> HeldDevice:
    """A device that a container holds; `pod` "" for nobody."""
    if not pod:
        namespace = container = workload = kind = ""
    own_families = OWN_FAMILIES.values()
    known = {"gpu_utilization": 50.0} if values is None else values
    own = {name: known[family] for name, family in OWN_FAMILIES.items() if family in known}
    others: dict[str, Any] = {name: value for name, value in known.items() if name not in own_families}
    row = DeviceRow(
        node_name=node,
        model_name="NVIDIA H100",
        device_id="0",
        device_uuid=uuid,
        mig_instance_id=instance,
        namespace=namespace,
        pod=pod,
        container=container,
        workload_name=workload,
        workload_kind=kind,
        gpu_shared=shared,
        measured=OwnUse(**own) if own else None,
        **others,
    )
    return held_of(row)


def held_of(row: DeviceRow) -> HeldDevice:
    return HeldDevice(row, as_json([row])[1:-1])


def node_of(name: str, *devices: HeldDevice, trouble: Trouble | None = None, at: float | None = 1000.0) -> NodeView:
    """A node with these devices, whose rows have its name from then on."""
    renamed = tuple(held_of(device.row._replace(node_name=name)) for device in devices)
    return NodeView(name=name, devices=renamed, trouble=trouble, answered_at_seconds=at)


def view_of(*nodes: NodeView, trouble: Trouble | None = None, at: float = 1005.0) -> ClusterView:
    return ClusterView(nodes={node.name: node for node in nodes}, trouble=trouble, at_seconds=at)
