"""`demo --nodes`: simulated GPU nodes, the real exporter in front of each, and the cluster role in front of all."""

import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from math import inf

from exporter import service
from exporter.cli.program import this_program
from exporter.cluster.role import CLUSTER
from exporter.config.cluster import ClusterConfig, load_cluster
from exporter.config.common import WebSettings
from exporter.config.node import Config
from exporter.config.parsers import Address
from exporter.node.role import NODE
from exporter.service import Service
from exporter.simulator.node import SimulatedNode

ANY_PORT = Address(host="127.0.0.1", port=0)
# A user of the demo should not wait 10 s to see a change.
INTERVAL, MAX_AGE = "2s", "10s"

ConfigOf = Callable[[SimulatedNode], Config]


async def demo_of_nodes(
    nodes: Sequence[SimulatedNode],
    config_of: ConfigOf,
    web: Callable[[Config], WebSettings],
    *,
    live: Callable[[], None],
    step_seconds: float,
) -> None:
    """Run until a signal comes. `web` says where the cluster role answers, given the configuration of a node.

    Each time that so many seconds have passed, `live` lets the pods of all nodes come and go.
    """
    async with running(nodes, config_of, live, step_seconds) as (of_node, urls):
        config = cluster_config(urls, of_node)
        config = replace(config, web=web(of_node))
        await service.serve(config, CLUSTER, on_listening=partial(_say_what_to_open, urls))


@asynccontextmanager
async def running(
    nodes: Sequence[SimulatedNode],
    config_of: ConfigOf,
    live: Callable[[], None] | None = None,
    step_seconds: float = inf,
) -> AsyncIterator[tuple[Config, dict[str, str]]]:
    """The nodes, each with an exporter on a loopback port: the configuration of one of them, and the URLs by names."""
    urls: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        for number, node in enumerate(nodes):
            stack.push_async_callback(node.stop)
            await node.start(live=live and (_nothing if number else live), step_seconds=step_seconds)
            config = config_of(node)
            # the cluster role alone checks the users' passwords
            own = replace(config, web=WebSettings(listen_addresses=(ANY_PORT,), config_file=None))
            exporter = Service(own, NODE)
            stack.push_async_callback(exporter.close)
            (address,) = await exporter.listen()
            urls[config.node.name] = f"http://{address}"
        yield config, urls


def _nothing() -> None:
    """Another node has let this one's pods live."""


def cluster_config(urls: dict[str, str], of_node: Config) -> ClusterConfig:
    """The cluster role in front of these exporters; it logs as they do."""
    flags = {
        "cluster.node": [f"{name}={url}" for name, url in urls.items()],
        "cluster.interval": [INTERVAL],
        "cluster.max-age": [MAX_AGE],
    }
    return replace(load_cluster(flags, {}, None), log=of_node.log)


def _say_what_to_open(urls: dict[str, str], addresses: Iterable[Address]) -> None:
    port = next(iter(addresses)).port
    exporters = "\n".join(f"  {url}/    {name}" for name, url in urls.items())
    print(
        f"""
{len(urls)} simulated GPU nodes are running, each with an exporter of its own, and the cluster role in front of them.
Open

  http://localhost:{port}/

or, in another terminal,

  {this_program()} top --url http://localhost:{port}
  curl -s 'localhost:{port}/container/metrics?workload=chat-8b'      # containers of all nodes, as JSON
  curl -s localhost:{port}/autoscale/chat/chat-8b/gpu_utilization    # one number for an autoscaler

The exporters of the nodes:

{exporters}

Ctrl-C ends it.
""",
        file=sys.stderr,
    )
