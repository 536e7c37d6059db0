"""Names in a node's /container/metrics that the node writes and the cluster role looks for."""

from collections.abc import Mapping

# Which is the newest of the node's /events; not there where the exporter does not read the kernel's log.
EVENTS_HEADER = "X-Newest-Event"
# Of a node whose kubelet does not say who holds its GPUs: they look as if nobody did.
OWNERS_UNKNOWN_HEADER = "X-Owners-Unknown"
# what the driver's processes show of a container itself: its names in the object `measured`, and the families that say
# the same on /metrics
OWN_FAMILIES: Mapping[str, str] = {
    name: f"pod_gpu_{name}" for name in ("memory_used_bytes", "utilization_ratio", "processes")
}
