"""The cluster that the tests of a module of this folder share."""

from collections.abc import Iterator

import pytest

from tests.support.kubectl_gpu import GpuCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuCluster]:
    """Two simulated nodes with their exporters, behind an API server."""
    made = GpuCluster(tmp_path_factory.mktemp("kubectl"))
    try:
        made.start()
        yield made
    finally:
        made.stop()
