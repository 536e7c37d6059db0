"""The machine. Nothing is said of one that has no driver and no GPU of NVIDIA's."""

from exporter.exposition.families import Samples
from exporter.model.devices import NVIDIA_UUIDS
from exporter.outputs.families.family import OwnFamily
from exporter.outputs.output import Look


def _host_info(look: Look) -> Samples:
    host = look.snapshot.host
    if host is None:
        return ()
    gpus = sum(gpu.uuid.startswith(NVIDIA_UUIDS) for gpu in look.snapshot.inventory.gpus)
    if not host.driver_version and not gpus:
        return ()
    return [(("nvidia", host.driver_version, str(gpus), host.kernel, host.architecture), 1.0)]


FAMILIES = (
    OwnFamily(
        "pod_gpu_host_info",
        "gauge",
        "The machine: NVIDIA's driver, the number of GPUs in the inventory (0 with --inventory off), and the kernel;"
        " always 1.",
        ("vendor", "driver_version", "gpus", "kernel", "architecture"),
        fill=_host_info,
    ),
)
