"""Names in a node's /container/metrics that the node writes and the cluster role looks for.

Tests: tests/cluster/exporters/test_own_use.py.
"""

from collections.abc import Mapping

# The header that names the newest of the node's /events. It is absent if the exporter does not read the kernel's log.
EVENTS_HEADER = "X-Newest-Event"
# The header of a node whose kubelet does not say who holds the GPUs. Without it, they would seem to be free.
OWNERS_UNKNOWN_HEADER = "X-Owners-Unknown"
# The measurements of a container's own processes: their names in the object `measured`, and their families on /metrics.
OWN_FAMILIES: Mapping[str, str] = {
    name: f"pod_gpu_{name}" for name in ("memory_used_bytes", "utilization_ratio", "processes")
}
