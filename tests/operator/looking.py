"""Exporters that say what a test has them say, and the looks at them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from exporter.operator.exporter_health import ExporterHealth
from exporter.operator.exporters.exporter_pods import NodeTrouble
from exporter.operator.objects.kinds import Key
from tests.cluster.exporters.conftest import Respond, whole
from tests.operator.made import Object, pod

OWNER = Key("GPUExporter", "ml", "gpu")
FAST: dict[str, Any] = {"every_seconds": 0.05, "again_seconds": 0.02}


@asynccontextmanager
async def looking(urls: Mapping[str, str], **settings: Any) -> AsyncIterator[tuple[ExporterHealth, list[object]]]:
    """Looks at the exporters of nodes, and whom it told of."""
    told: list[object] = []
    looks = ExporterHealth(
        on_change=told.append,
        url_of=lambda of: urls.get(of["spec"]["nodeName"], ""),
        **{**FAST, **settings},
    )
    looks.follow(OWNER, [pod(node) for node in urls])
    task = asyncio.create_task(looks.run())
    try:
        yield looks, told
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()


def by_node(looks: ExporterHealth, owner: Key = OWNER) -> dict[str, NodeTrouble]:
    return {each.node: each for each in looks.troubles(owner) or ()}


def body(node: str = "a", /, **sources: Any) -> bytes:
    of_sources = sources or {"kubelet": {"up": True, "reason": "", "message": "", "remedy": ""}}
    return json.dumps({"node": node, "sources": of_sources}).encode()


def down(reason: str = "refused", message: str = "nobody listens", remedy: str = "start it") -> Object:
    return {"up": False, "reason": reason, "message": message, "remedy": remedy}


def answers(*bodies: bytes) -> tuple[Respond, list[str]]:
    """Each in turn, and the last for good; and the heads of the requests."""
    heads: list[str] = []

    async def respond(writer: asyncio.StreamWriter, head: str) -> None:
        heads.append(head)
        writer.write(whole(bodies[min(len(heads), len(bodies)) - 1]))

    return respond, heads
