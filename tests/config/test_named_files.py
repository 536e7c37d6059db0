"""The files that a configuration names are read once, whatever becomes of them meanwhile."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest
import yaml
from aiohttp import web

from exporter.config import files
from exporter.config.tls import ServerTls, server_context
from tests.support.certificates import Authority
from tests.support.exporter import config_of, running
from tests.support.simulated import Pod, SimulatedNode

NAMED, FOUND = "127.0.0.3", "127.0.0.2"
PAGE = 'DCGM_FI_DEV_GPU_TEMP{{UUID="GPU-{}"}} 1\n'


class Upstreams:
    """Two dcgm-exporters that ask for TLS and a token, and who came with which."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokens: set[tuple[str, str | None]] = set()
        self.port = 0
        pair = Authority(folder, "ours").issue("server", "dcgm.local")
        self._tls = server_context(ServerTls(cert_file=str(pair.cert), key_file=str(pair.key)), "test")

    async def start(self, stack: AsyncExitStack) -> None:
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        for host in (FOUND, NAMED):
            await web.TCPSite(runner, host, self.port, ssl_context=self._tls).start()
            self.port = self.port or runner.addresses[0][1]

    async def _answer(self, request: web.Request) -> web.Response:
        host = request.host.partition(":")[0]
        self.tokens.add((host, request.headers.get("Authorization")))
        return web.Response(text=PAGE.format(host))

    def write(self, token: str) -> None:
        tls = {"ca_file": "ours-ca.pem", "server_name": "dcgm.local"}
        whole = self.folder / "http.yaml.new"
        whole.write_text(yaml.safe_dump({"authorization": {"credentials": token}, "tls_config": tls}))
        whole.replace(self.folder / "http.yaml")


@pytest.fixture
async def upstreams(tmp_path: Path) -> AsyncIterator[Upstreams]:
    async with AsyncExitStack() as stack:
        made = Upstreams(tmp_path)
        await made.start(stack)
        yield made


async def test_a_file_that_changes_while_a_node_is_built_is_one_configuration(
    upstreams: Upstreams, simulated: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --dcgm.url and --dcgm.selector, --dcgm.http-config was once read for each."""
    folder, opened = upstreams.folder, Counter[str]()
    upstreams.write("the first")
    (folder / "rules.yaml").write_text("samples: {device: [dev_file]}\n")
    (folder / "web.yaml").write_text("{}\n")
    open_regular = files.open_regular

    def change_once_opened(path: str) -> BinaryIO:
        file = open_regular(path)
        opened[Path(path).name] += 1
        if path.endswith("http.yaml"):
            upstreams.write("the second")
        return file

    monkeypatch.setattr(files, "open_regular", change_once_opened)
    simulated.world.pods += (
        Pod(
            namespace="gpu-operator", name="found", containers=(), uid="found", ip=FOUND, phase="Running", created=1000,
            labels=(("app", "nvidia-dcgm-exporter"),),
        ),
    )  # fmt: skip
    config = config_of(
        kubelet_socket=str(simulated.socket),
        kubelet_pods_socket=str(simulated.pods_socket),
        dcgm_selector="auto",
        dcgm_url=f"https://{NAMED}:{upstreams.port}/metrics",
        dcgm_http_config=str(folder / "http.yaml"),
        device_rules=str(folder / "rules.yaml"),
        web_config_file=str(folder / "web.yaml"),
    )
    async with running(replace(config, dcgm=replace(config.dcgm, port=upstreams.port))) as exporter:
        assert {name: opened[name] for name in ("http.yaml", "rules.yaml", "web.yaml")} == {
            "http.yaml": 1,
            "rules.yaml": 1,
            "web.yaml": 1,
        }
        await exporter.page()
    assert upstreams.tokens == {(FOUND, "Bearer the first"), (NAMED, "Bearer the first")}
