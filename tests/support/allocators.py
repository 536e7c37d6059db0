"""Simulated nodes whose GPUs an allocator hands out, and what is true of them."""

from collections.abc import Mapping
from typing import Any

from exporter.model.pods import Owner
from exporter.simulator.allocators import SimulatedAllocator, given
from exporter.simulator.parts import Part
from tests.support.simulated import SimulatedNode, World


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
