"""The cluster that the tests of a module of this folder share, and krew's plugin, which all of them share."""

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from release import krew
from tests.support.kubectl_gpu import GpuCluster, link_plugin


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuCluster]:
    """Two simulated nodes with their exporters, behind an API server."""
    made = GpuCluster(tmp_path_factory.mktemp("kubectl"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def krews_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with krew's archive and its manifest."""
    folder = tmp_path_factory.mktemp("krew")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SOURCE_DATE_EPOCH", "1700000000")
        krew.main(str(folder))
    return folder


@pytest.fixture(scope="session")
def krews_plugin(krews_files: Path) -> Path:
    """A folder for the PATH, with the plugin as krew installs it, and a Python without any library of the machine."""
    (archive,) = krews_files.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(krews_files / "store", filter="data")
    link_plugin(krews_files / "store" / "kubectl-gpu", krews_files / "bin")
    return krews_files / "bin"
