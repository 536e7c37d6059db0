"""The API server of a simulated node, for tests of what the node's exporter asks it."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.node_api import NodeApi, NodeServer, RealNodeApi, SimulatedNodeApi
from tests.support.real_api import IS_REAL
from tests.support.simulated import SimulatedNode


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[NodeServer | None]:
    if not IS_REAL:
        yield None
        return
    made = NodeServer()
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


@pytest.fixture
async def api(node: SimulatedNode, server: NodeServer | None) -> AsyncIterator[NodeApi]:
    """That of the fixture `node` of a test's own file."""
    if server is None:
        yield SimulatedNodeApi(node)
        return
    real = RealNodeApi(node, server)
    await real.start()
    yield real
    await real.stop()
