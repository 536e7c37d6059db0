"""A kubelet of the demo goes away: what the benchmark of its states sees of real exporters and the cluster role."""

import asyncio
from collections import Counter

from benchmarks.demo_states import look
from exporter.config.node_settings import Config
from exporter.model.states import DeviceState
from exporter.simulator.demo import running
from exporter.simulator.simulated_node import SimulatedNode
from exporter.simulator.world import World
from tests.support.cluster_role import running_cluster
from tests.support.exporter import config_of
from tests.support.waiting import until


def of_node(node: SimulatedNode) -> Config:
    return config_of(
        node_name=node.api.node_name, kubelet_socket=str(node.socket), dcgm_url=node.url, kubelet_max_age="0s"
    )


# issue 21, "Must show" 6
async def test_gpus_of_a_drained_node_are_unknown_while_its_kubelet_is_away() -> None:
    worlds = [World(gpus=gpus, seed=gpus) for gpus in (2, 3)]
    nodes = [SimulatedNode(world, f"n{number}") for number, world in enumerate(worlds)]
    quick = {"cluster.interval": ["0.5s"], "cluster.timeout": ["1s"], "cluster.max-age": ["2s"]}
    async with running(nodes, of_node, lambda: None, 0.1) as (_, urls):
        flags = {"cluster.node": [f"{name}={url}" for name, url in urls.items()], **quick}
        async with running_cluster(flags) as role:
            seen: set[str] = set()

            async def is_seen(**states: int) -> bool:
                looked = await asyncio.to_thread(look, role.base, urls, seen)
                return looked == Counter({DeviceState(state): count for state, count in states.items()})

            await until(lambda: is_seen(free=5))
            worlds[1].kubelet_is_up = False
            await until(lambda: is_seen(free=2, unknown=3))
            worlds[1].kubelet_is_up = True
            await until(lambda: is_seen(free=5))
