"""Replicas that want to work, and what a leader does."""

import asyncio
import time

from exporter.operator.api.leader import Leader
from exporter.operator.api.writer import Writer


class Worker:
    """What a leader does: it counts how often it began, and whether it goes on."""

    def __init__(self) -> None:
        self.begun = 0
        self.stopped_at: float | None = None

    async def __call__(self) -> None:
        self.begun += 1
        self.stopped_at = None
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped_at = time.monotonic()


def leader(writer: Writer, namespace: str, identity: str) -> Leader:
    """A replica, with a lease of three seconds by the name that the manifest allows."""
    name = "pod-gpu-metrics-operator"
    return Leader(writer=writer, namespace=namespace, name=name, identity=identity, lease_seconds=3)
