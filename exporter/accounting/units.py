"""Resources whose device ids count units of GPUs and name no GPU: gpu-manager's (github.com/tkestack/gpu-manager).

It offers 100 ids of tencent.com/vcuda-core for each GPU of the node (tencent.com/vcuda-core-<n>), and an id of
tencent.com/vcuda-memory for each 256 MiB of all GPUs together (tencent.com/vcuda-memory-268435456-<n>). Both are
numbered through over all GPUs, the kubelet hands out any of them, and gpu-manager chooses the GPU by itself afterwards
(its pkg/services/allocator/nvidia/allocator.go). So the number of a container's ids says how much it asked for, and no
id says of which GPU. That only its processes show.
"""

from collections.abc import Iterable

from exporter.model.devices import Assignment
from exporter.model.pods import Owner

CORES, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
UNITS = frozenset({CORES, MEMORY})
CORES_OF_GPU = 100
MEMORY_MIB = 256


def are_units(resource: str) -> bool:
    """Whether the ids of a resource are units of GPUs."""
    return resource in UNITS


def holders_of_units(units: Iterable[Assignment]) -> frozenset[Owner]:
    """Whoever holds units of some GPU."""
    return frozenset(assignment.owner for assignment in units)
