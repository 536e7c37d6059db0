"""Simulated nodes whose GPUs an allocator hands out, and what is true of them."""

from collections.abc import Mapping
from typing import Any

from exporter.model.pods import Owner
from exporter.simulator.allocators import SimulatedAllocator, given
from exporter.simulator.parts import Part
from tests.support.simulated import Pod, SimulatedNode, World


def allocated_node(allocator: SimulatedAllocator, *, gpus: int = 8, seed: int = 5, **more: Any) -> SimulatedNode:
    """A node with pods, not started. `more` are other arguments of World.

    `node.world.live()` lets pods come and go, `node.world.remake(pod)` makes one anew under its name.
    """
    return SimulatedNode(World(gpus=gpus, seed=seed, allocator=allocator, **more))


def given_to(world: World) -> Mapping[Owner, tuple[Part, ...]]:
    """What each running container really has: its GPUs, and which part of each."""
    return {
        Owner(namespace=namespace, pod=pod, container=container): parts
        for (namespace, pod, container), parts in given(world.pods).items()
    }


def faults_of(world: World) -> Mapping[tuple[str, str], str]:
    """What is wrong with the words on pods, by namespace and pod: "broken", "foreign" or "wrong"."""
    return {(pod.namespace, pod.name): pod.note.fault for pod in world.pods if pod.note and pod.note.fault}


def fill_with_all_shapes(world: World) -> frozenset[str]:
    """Replace the pods by one of each shape that the allocator and the number of GPUs allow. Returns these shapes.

    If there are several GPUs, nobody has a part of the last one, though its tokens are handed out.
    """
    world.pods = ()
    last = world.gpus[-1].uuid if len(world.gpus) > 1 else ""
    found: set[str] = set()
    for _ in range(_DRAWS):
        free = [seat for _, seats in world.free() for seat in seats if not seat[1].startswith(last or "none")]
        pod = world.pod_with(free)
        if pod is None:
            break
        new = _shapes_of(pod) - found
        seats = sum(len(container.chosen) for container in pod.containers)
        # a pod of one GPU that takes much of it leaves nothing for the others
        if new and (seats <= _MOST_SEATS or len(world.gpus) > 1):
            found |= new
            world.pods += (pod,)
    return frozenset(found)


_DRAWS = 30
_MOST_SEATS = 2


def _shapes_of(pod: Pod) -> set[str]:
    """What is special about a pod."""
    holders = [container for container in pod.containers if container.parts]
    shapes = {"one container" if len(pod.containers) + len(pod.init_containers) == 1 else "several containers"}
    if len(holders) > 1:
        shapes.add("several with devices")
    if any(len(container.parts) > 1 for container in holders):
        shapes.add("several devices")
    if pod.init_containers:
        shapes.add("init container")
    if any(container.parts for container in pod.init_containers):
        shapes.add("init container with a device")
    if any(container.is_sidecar for container in pod.containers):
        shapes.add("sidecar")
    if pod.in_spec[1][0] not in holders:
        shapes.add("first container without a device")
    return shapes
