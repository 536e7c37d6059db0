"""The exporter as tests run it: its configuration, and the node role behind a real socket."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from unittest.mock import patch

import aiohttp

from exporter.cli.commands import command_named
from exporter.cli.options import read_config
from exporter.config.load import load
from exporter.config.node_settings import SETTINGS, Config
from exporter.node.role import NODE
from exporter.outputs.node_outputs import OUTPUTS
from exporter.service import Service
from tests.support.waiting import until

# Every path of the node role, and of them those that need no password and those that do.
PATHS = [output.path for output in OUTPUTS]
OPEN_PATHS = [output.path for output in OUTPUTS if output.is_probe]
CLOSED_PATHS = [output.path for output in OUTPUTS if not output.is_probe]
# What a path is where it is not 200: off unless somebody wants it.
STATUS = {"/processes": 403, "/events": 404}
# The defaults are places of a real node: a test that names none of its own finds nothing instead.
NOWHERE = "/nonexistent"
ABSENT = {
    setting.parameter: f"{NOWHERE}{setting.default}"
    for setting in SETTINGS
    if (setting.default or "").startswith(("/var/lib/kubelet/", "/var/run/secrets/"))
}


def hide_the_machine() -> None:
    """What `config_of` does, for the programs that tests start.

    A flag wins over the environment, a default does not.
    """
    os.environ.update({setting.env: ABSENT[setting.parameter] for setting in SETTINGS if setting.parameter in ABSENT})
    os.environ.pop("KUBERNETES_SERVICE_HOST", None)


def at_default_places() -> dict[str, str]:
    """The environment without what leads elsewhere, for what looks at the defaults without reading them."""
    return {name: text for name, text in os.environ.items() if NOWHERE not in text}


def config_of(**settings: str | list[str]) -> Config:
    """A configuration by parameter names (`kubelet_socket="/x"`), on any free loopback port.

    Nothing of the machine that the tests run on is in it, not even where it is a Kubernetes node itself. `root` is
    where the folders are that no setting names.
    """
    names = {setting.parameter: setting.name for setting in SETTINGS}
    settings = {"web_listen_address": "127.0.0.1:0", "nvml_mode": "off", **ABSENT, **settings}
    root = settings.pop("root", NOWHERE)
    flags = {names[key]: [value] if isinstance(value, str) else value for key, value in settings.items()}
    return replace(load(flags, {}, None, "gpu-node-1"), root=str(root))


def config_from(arguments: list[str]) -> Config:
    """The configuration that a command line makes; a typo in a flag is an error here as it is there."""
    command = command_named(arguments[0])
    context = command.make_context(arguments[0], arguments[1:])
    with patch.dict(os.environ, at_default_places(), clear=True):
        return read_config(context.params)


@dataclass
class Exporter:
    """A running exporter: the node role behind a real socket."""

    service: Service[Config]
    base: str
    session: aiohttp.ClientSession

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        async with self.session.get(self.base + path, headers=headers) as response:
            return response.status, await response.text()

    async def page(self) -> str:
        status, text = await self.get("/gpu/metrics")
        assert status == 200, text
        return text

    async def until(self, path: str, shows: Callable[[str], object], status: int = 200) -> str:
        """What a path answers, once it has that status and shows what it should."""
        answer = 0, ""

        async def is_shown() -> bool:
            nonlocal answer
            answer = await self.get(path)
            return answer[0] == status and bool(shows(answer[1]))

        await until(is_shown, why=lambda: f"{path} answers {answer}")
        return answer[1]

    async def until_page(self, shows: Callable[[str], object]) -> str:
        """The page of the GPUs, once it shows what it should."""
        return await self.until("/gpu/metrics", shows)


# The fixture `start`: settings by parameter names, and the exporter that runs with them until the test ends.
Start = Callable[..., Awaitable[Exporter]]


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[Exporter]:
    service = Service(config, NODE)
    try:
        (address,) = await service.listen()
        async with aiohttp.ClientSession() as session:
            yield Exporter(service, f"http://{address}", session)
    finally:
        await service.close()
