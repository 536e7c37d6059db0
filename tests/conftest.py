"""What every test may ask for: a simulated node, the exporter in front of it, and promtool."""

import gc
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from exporter.log import LOG, KeepingHandler
from exporter.sources.source import PATIENCE_SECONDS
from tests.support.components import real
from tests.support.exporter import Exporter, Start, config_of, hide_the_machine, running
from tests.support.golden import Golden
from tests.support.patience import LONG_SECONDS, wait_for_sources
from tests.support.real_api import IS_REAL, WHICH
from tests.support.simulated import SimulatedNode, World

# jsonschema imports this where it is installed, for formats that nothing here asks for; its grammar takes a CPU second
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # None makes the import fail

HISTORIES = 100
"""The random histories of a test marked `history` that --quick takes."""

# A machine that is busy is late, and wrong in nothing. Each run tries other examples, so half as many as usual will do.
settings.register_profile(
    "patient", settings(), max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")


def pytest_configure() -> None:
    # Prometheus, promtool and kubectl collect garbage less often, and so take a third less of a CPU
    os.environ.setdefault("GOGC", "800")
    hide_the_machine()
    wait_for_sources(LONG_SECONDS)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what `make golden` makes; no other test")
    parser.addoption(
        "--quick",
        action="store_true",
        help="the same random examples each time: a hundred of a `history`, 2/5 of others; no test marked `long`",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--update-golden"):
        items[:] = [item for item in items if "golden" in getattr(item, "fixturenames", ())]
    if not IS_REAL:
        _deselect("kubernetes", config, items)
    if not config.getoption("--quick"):
        return
    for item in items:
        test: Any = getattr(item, "obj", None)
        if is_hypothesis_test(test):
            was = test._hypothesis_internal_use_settings
            examples = HISTORIES if item.get_closest_marker("history") else max(1, was.max_examples * 2 // 5)
            test._hypothesis_internal_use_settings = settings(
                was, max_examples=examples, derandomize=True, database=None
            )
    _deselect("long", config, items)


def pytest_collection_finish() -> None:
    # what was imported and collected stays; collections that leave it out and come seldom save a twentieth of the CPU
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def _deselect(marker: str, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests with a marker. The last line of pytest counts them."""
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker(marker)])
    items[:] = [item for item in items if not item.get_closest_marker(marker)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"The tests that need a Kubernetes API ask {WHICH}")


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """A test that starts the program's log leaves neither its level nor its handler to the next test."""
    root, level, root_level = logging.getLogger(), LOG.level, logging.getLogger().level
    yield
    LOG.setLevel(level)
    root.setLevel(root_level)
    for handler in root.handlers[:]:
        if isinstance(handler, KeepingHandler):
            root.removeHandler(handler)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(writes=request.config.getoption("--update-golden"))


@pytest.fixture
def half_a_second() -> Iterator[None]:
    """The program's own patience: a look waits for half a second for a source that has answered before."""
    wait_for_sources(PATIENCE_SECONDS)
    yield
    wait_for_sources(LONG_SECONDS)


@pytest.fixture
async def simulated() -> AsyncIterator[SimulatedNode]:
    """Four GPUs: two whole, one in shares, one in MIG instances."""
    node = SimulatedNode(World(gpus=4, shared=1, mig=1, seed=7))
    await node.start()
    yield node
    await node.stop()


@pytest.fixture
async def start(simulated: SimulatedNode) -> AsyncIterator[Start]:
    """Start the exporter in front of the simulated node, with other settings where given."""
    async with AsyncExitStack() as stack:

        async def run(**settings: Any) -> Exporter:
            settings = {"kubelet_socket": str(simulated.socket), "dcgm_url": simulated.url, **settings}
            return await stack.enter_async_context(running(config_of(**settings)))

        yield run


@pytest.fixture(scope="session")
def promtool() -> Path:
    return real("promtool")
