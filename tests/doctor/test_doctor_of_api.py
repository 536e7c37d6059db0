"""`doctor` on a Kubernetes API that does not let itself be asked: whose fault it is, and the remedy for that one."""

import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from exporter.config.tls import ServerTls, server_context
from exporter.doctor import checkup
from exporter.node import first_look
from exporter.outputs.diagnosis import Finding, Level
from tests.support.certificates import Authority
from tests.support.exporter import config_of
from tests.support.simulated import SimulatedNode, World


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    """Every GPU is held by a claim, and only ResourceSlices say which."""
    simulated = SimulatedNode(World(gpus=4, claims=4, seed=7))
    await simulated.start()
    yield simulated
    await simulated.stop()


@asynccontextmanager
async def api(status: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Answers everything with a Status, as an API server does."""

    async def answer(_: web.Request) -> web.Response:
        said = {
            "kind": "Status",
            "status": "Failure",
            "code": status,
            "message": 'cannot list resource "resourceslices"',
        }
        return web.Response(status=status, body=json.dumps(said), content_type="application/json")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def slices_finding(node: SimulatedNode, url: str, **settings: str) -> Finding:
    """What doctor says of ResourceSlices; and that it says why no device is attributed, and fails."""
    given = {"kubelet_socket": str(node.socket), "dcgm_url": node.url, "kubernetes_url": url, **settings}
    seen = await checkup.examine(config_of(**given))
    assert seen.report.summary.startswith("0 of ")
    (problem,) = [finding for finding in seen.report.findings if finding.level is Level.PROBLEM]
    assert problem.trouble.remedy == "mend that first: see what is said of the source resourceslices"
    assert not seen.report.works()
    (finding,) = [finding for finding in seen.report.findings if finding.about == "resourceslices"]
    assert finding.level is Level.WARNING
    return finding


# issue 7, must show 3
@pytest.mark.parametrize(
    ("status", "has_token", "says", "remedy", "not_this"),
    [
        (403, True, "with 403", "needs list and watch on resourceslices", "token"),
        (401, True, "with 401", "has expired or is another cluster's", "rbac.yaml"),
        (401, False, "without a token", "automountServiceAccountToken", "rbac.yaml"),
    ],
)
async def test_a_refusal(
    node: SimulatedNode, tmp_path: Path, status: int, *, has_token: bool, says: str, remedy: str, not_this: str
) -> None:
    if has_token:
        (tmp_path / "token").write_text("t")
    async with api(status) as url:
        finding = await slices_finding(node, url, kubernetes_token_file=str(tmp_path / "token"))
    assert says in finding.trouble.message
    assert remedy in finding.trouble.remedy
    assert not_this not in finding.trouble.remedy


# issue 7, must show 3
async def test_a_certificate_of_another_authority(node: SimulatedNode, tmp_path: Path) -> None:
    pair = Authority(tmp_path, "theirs").issue("server", "127.0.0.1")
    context = server_context(ServerTls(cert_file=str(pair.cert), key_file=str(pair.key)), "test")
    (tmp_path / "token").write_text("t")
    async with api(200, context) as url:
        finding = await slices_finding(
            node,
            url,
            kubernetes_token_file=str(tmp_path / "token"),
            kubernetes_ca_file=str(Authority(tmp_path, "ours").ca),
        )
    assert "certificate" in finding.trouble.message
    assert "object at 0x" not in finding.trouble.message
    assert "--kubernetes.ca-file" in finding.trouble.remedy


# issue 7, must show 3
async def test_nobody_listens(node: SimulatedNode) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    finding = await slices_finding(node, f"http://127.0.0.1:{port}")
    assert "nobody listens" in finding.trouble.message
    assert "KUBERNETES_SERVICE_HOST" in finding.trouble.remedy


# issue 7, must show 3
@pytest.mark.usefixtures("half_a_second")
@pytest.mark.parametrize(("connect_seconds", "patience_seconds"), [(1.0, 15.0), (30.0, 0.1)])
async def test_a_black_hole(
    node: SimulatedNode, monkeypatch: pytest.MonkeyPatch, connect_seconds: float, patience_seconds: float
) -> None:
    """A listener whose queue is full: the kernel drops what comes, as a firewall does."""
    monkeypatch.setattr(first_look, "FIRST_WORD_SECONDS", patience_seconds)
    monkeypatch.setattr("exporter.sources.kubernetes.api.CONNECT_SECONDS", connect_seconds)
    with ExitStack() as stack:
        hole = stack.enter_context(socket.socket())
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(hole.getsockname())
        given = {"kubelet_socket": str(node.socket), "dcgm_url": node.url, "dra": "on"}
        seen = await checkup.examine(config_of(**given, kubernetes_url=f"http://127.0.0.1:{hole.getsockname()[1]}"))
    (finding,) = [finding for finding in seen.report.findings if finding.about == "resourceslices"]
    assert "NetworkPolicy" in finding.trouble.remedy or "network policies" in finding.trouble.remedy
    assert ("no connection within" in finding.trouble.message) is (connect_seconds < patience_seconds)
    assert ("has not answered yet" in finding.trouble.message) is (connect_seconds > patience_seconds)
