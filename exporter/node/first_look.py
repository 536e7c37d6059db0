"""Looks at a node that wait for every source, as `doctor` takes them.

Tests: tests/doctor/test_doctor.py.
"""

import asyncio
import time
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from exporter.model.snapshot import Snapshot
from exporter.node.measuring import Measuring
from exporter.node.node import Node
from exporter.outputs.output import Need

# Longer than the 10 s after which the API sources give up a connection that nobody answers.
FIRST_WORD_SECONDS = 15.0
_AGAIN_SECONDS = 0.1
# Many times the duration of a reading of NVML and of its processes.
_MEASURED_WITHIN_SECONDS = 3.0


async def look_at_all(node: Node, needs: AbstractSet[Need]) -> Snapshot:
    """A look at the node after every source has answered or failed, or after FIRST_WORD_SECONDS."""
    began = time.monotonic()
    # on a busy machine, inventories may take longer than a look waits for them
    await node.hear_watches(FIRST_WORD_SECONDS)
    snapshot = await node.look(None, needs)
    # the node may have begun to measure during the look, and even have ended before the look did
    measuring = _measuring(node)
    was_finding_out = bool(measuring)
    while was_finding_out or _is_finding_out(measuring) or any(state.up is None for state in snapshot.health.values()):
        await asyncio.sleep(_AGAIN_SECONDS)
        was_finding_out = _is_finding_out(measuring)
        snapshot = await node.look(None, needs)
        if time.monotonic() - began > FIRST_WORD_SECONDS:
            break
    return snapshot


async def look_at_now(node: Node, needs: AbstractSet[Need]) -> Snapshot:
    """A later look, whose measurement is of now. A scrape shows the measurement that the look before it began."""
    began = time.monotonic()
    snapshot = await node.look(None, needs)
    measuring = _measuring(node)
    while not all(part.is_newer_than(began) for part in measuring):
        if time.monotonic() - began > _MEASURED_WITHIN_SECONDS:
            return snapshot
        await asyncio.sleep(_AGAIN_SECONDS)
    return await node.look(None, needs) if measuring else snapshot


def _measuring(node: Node) -> list[Measuring]:
    return [part for part in node.parts if isinstance(part, Measuring)]


def _is_finding_out(measuring: Iterable[Measuring]) -> bool:
    return any(part.is_finding_out for part in measuring)
