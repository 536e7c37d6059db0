"""One API server and one operator for the tests of a file; each test has a namespace of its own."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support.operator import Api, OperatorProcess

_NUMBERS = count(1)


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    made = Api()
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def operator(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    process = OperatorProcess(api, tmp_path_factory.mktemp("operator"))
    yield process
    assert process.end() == 0, process.told
    assert "a fault of the operator" not in process.told, process.told


@pytest.fixture
def namespace(api: Api) -> str:
    name = f"ml-{next(_NUMBERS)}"
    api.add_namespace(name)
    return name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
