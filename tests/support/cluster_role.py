"""The cluster role behind a real socket, for tests that run several roles at once."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from exporter.cluster.role import CLUSTER
from exporter.config.cluster_settings import ClusterConfig, load_cluster
from exporter.service import Service


@dataclass
class ClusterRole:
    """A running role."""

    base: str
    session: aiohttp.ClientSession

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(self.base + path) as response:
            return response.status, await response.text()

    async def json(self, path: str) -> Any:
        _, text = await self.get(path)
        return json.loads(text)


# A node on a busy machine may take longer than the program's two seconds, and would be missing until the next round.
PATIENT = {"cluster.timeout": ["10s"]}


def cluster_config(flags: Mapping[str, Sequence[str]]) -> ClusterConfig:
    """By the flags' names, on any free loopback port. The nodes have more time for an answer than by default."""
    return load_cluster({"web.listen-address": ["127.0.0.1:0"], **PATIENT, **flags}, {}, None)


@asynccontextmanager
async def running_cluster(flags: Mapping[str, Sequence[str]]) -> AsyncIterator[ClusterRole]:
    config = cluster_config(flags)
    service = Service(config, CLUSTER, lambda: config)
    try:
        (address,) = await service.listen()
        async with aiohttp.ClientSession() as session:
            yield ClusterRole(f"http://{address}", session)
    finally:
        await service.close()
