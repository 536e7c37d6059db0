from collections.abc import AsyncIterator

import pytest

from tests.support.api_client import Client, served


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with served() as client:
        yield client
