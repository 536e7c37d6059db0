"""What the tests share: a simulated node, the exporter in front of it, and the real components."""

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from exporter.config.load import load
from exporter.config.node import SETTINGS, Config
from exporter.service import Service
from exporter.simulator.node import SimulatedNode
from exporter.simulator.world import World

ROOT = Path(__file__).parent.parent
# The defaults are places of a real node: a test that names none of its own finds nothing instead.
NOWHERE = "/nonexistent"
ABSENT = {
    setting.parameter: f"{NOWHERE}{setting.default}"
    for setting in SETTINGS
    if (setting.default or "").startswith(("/var/lib/kubelet/", "/var/run/secrets/"))
}
DATA = Path(__file__).parent / "data"
GOLDEN = Path(__file__).parent / "golden"


def pytest_configure() -> None:
    """The same for the programs that tests start: a flag wins over the environment, a default does not."""
    os.environ.update({setting.env: ABSENT[setting.parameter] for setting in SETTINGS if setting.parameter in ABSENT})
    os.environ.pop("KUBERNETES_SERVICE_HOST", None)


def at_default_places() -> dict[str, str]:
    """The environment without what leads elsewhere, for what looks at the defaults without reading them."""
    return {name: text for name, text in os.environ.items() if NOWHERE not in text}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


@dataclass
class Exporter:
    """A running exporter: the node role behind a real socket."""

    service: Service
    base: str
    session: aiohttp.ClientSession

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        async with self.session.get(self.base + path, headers=headers) as response:
            return response.status, await response.text()

    async def page(self) -> str:
        status, text = await self.get("/gpu/metrics")
        assert status == 200, text
        return text


def config_of(**settings: str | list[str]) -> Config:
    """A configuration by parameter names (`kubelet_socket="/x"`), on any free loopback port.

    Nothing of the machine that the tests run on is in it, not even where it is a Kubernetes node itself.
    """
    names = {setting.parameter: setting.name for setting in SETTINGS}
    settings = {"web_listen_address": "127.0.0.1:0", **ABSENT, **settings}
    flags = {names[key]: [value] if isinstance(value, str) else value for key, value in settings.items()}
    return load(flags, {}, None, "gpu-node-1")


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[Exporter]:
    service = Service(config)
    try:
        (address,) = await service.listen()
        async with aiohttp.ClientSession() as session:
            yield Exporter(service, f"http://{address}", session)
    finally:
        await service.close()


@pytest.fixture
async def simulated() -> AsyncIterator[SimulatedNode]:
    """Four GPUs: two whole, one in shares, one in MIG instances."""
    node = SimulatedNode(World(gpus=4, shared=1, mig=1, seed=7))
    await node.start()
    yield node
    await node.stop()


Start = Callable[..., Awaitable[Exporter]]


@pytest.fixture
async def start(simulated: SimulatedNode) -> AsyncIterator[Start]:
    """Start the exporter in front of the simulated node, with other settings where given."""
    async with AsyncExitStack() as stack:

        async def run(**settings: Any) -> Exporter:
            settings = {"kubelet_socket": str(simulated.socket), "dcgm_url": simulated.url, **settings}
            return await stack.enter_async_context(running(config_of(**settings)))

        yield run


def real(program: str) -> Path:
    """A real component. In CI a missing one is a failure; elsewhere the test is skipped and says so."""
    unpacked = ROOT / ".cache" / "real" / "usr" / "bin" / program
    found = unpacked if unpacked.exists() else shutil.which(program)
    if found:
        return Path(found)
    missing = f"{program} is missing: run tests/get-real-components .cache/real, or `make test`"
    if os.environ.get("CI") == "true":
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.fixture(scope="session")
def promtool() -> Path:
    return real("promtool")
