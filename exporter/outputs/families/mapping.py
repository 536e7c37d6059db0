"""Which pod holds which GPU. A device without samples is there with what the kubelet alone knows of it."""

from exporter.exposition.families import Samples
from exporter.model.entities import cut_gpus, entity_of
from exporter.outputs.families.family import OwnFamily
from exporter.outputs.output import Look


def _device_owners(look: Look) -> Samples:
    cut, node = cut_gpus(look.devices), look.snapshot.node
    return [
        (
            # a device without a UUID goes by its name: two of them are not one
            (device.key.uuid, device.instance, device.index, entity_of(device, cut), node),
            float(len(look.snapshot.owners.of(device.key))),
        )
        for device in look.devices
    ]


def _map_info(look: Look) -> Samples:
    rows = {
        ((device.key.uuid, device.model, holder.owner.namespace, look.snapshot.node, holder.owner.pod), 1.0): None
        for device in look.devices
        for holder in look.snapshot.owners.of(device.key)
    }
    return tuple(rows)


def _pod_gpu_info(look: Look) -> Samples:
    return [
        (
            (
                holder.owner.namespace,
                holder.owner.pod,
                holder.owner.container,
                device.uuid,
                device.index,
                device.device,
                device.model,
                holder.resource,
                device.instance,
                device.profile,
                look.snapshot.node,
            ),
            1.0,
        )
        for device in look.devices
        for holder in look.snapshot.owners.of(device.key)
    ]


MAP_INFO = OwnFamily(
    "pod_and_gpu_map_info",
    "gauge",
    "A pod that holds a GPU; always 1.",
    ("gpu_id", "gpu_model", "namespace", "node", "pod_name"),
    fill=_map_info,
)
FAMILIES = (
    OwnFamily(
        "pod_gpu_device_owners",
        "gauge",
        "How many containers hold a device: a GPU (entity gpu), a GPU that is cut into MIG instances (mig-parent), or a"
        " MIG instance of it by GPU_I_ID (mig).",
        ("UUID", "GPU_I_ID", "gpu", "entity", "node"),
        fill=_device_owners,
    ),
    MAP_INFO,
    OwnFamily(
        "pod_gpu_info",
        "gauge",
        "A container that holds a GPU or a MIG instance, with all that is known of the device; always 1.",
        (
            "namespace",
            "pod",
            "container",
            "UUID",
            "gpu",
            "device",
            "modelName",
            "resource",
            "GPU_I_ID",
            "GPU_I_PROFILE",
            "node",
        ),
        fill=_pod_gpu_info,
    ),
)
