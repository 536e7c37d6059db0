"""--dcgm.http-config: an upstream behind TLS, passwords and tokens; and that no secret is shown anywhere."""

import base64
import json
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from exporter.config.tls import ServerTls, server_context
from tests.support.certificates import Authority
from tests.support.doctor_here import doctor_in_thread
from tests.support.exporter import PATHS, Start
from tests.support.simulated import SimulatedNode

PASSWORD = "pass-Wörd with blank"
TOKEN = "token-123"


class Upstream:
    """dcgm-exporter behind TLS that asks for a client certificate, and for what `wants` says."""

    def __init__(self, folder: Path, simulated: SimulatedNode) -> None:
        self.folder = folder
        self.authority = Authority(folder, "ours")
        self.others = Authority(folder, "theirs")
        self.server = self.authority.issue("server", "dcgm.local")
        self.client = self.authority.issue("client", "exporter")
        self.wants = ""
        self.url = ""
        self.seen: list[web.Request] = []
        self._simulated = simulated
        app = web.Application()
        app.router.add_get("/metrics", self.answer)
        self.runner = web.AppRunner(app, access_log=None)

    async def start(self) -> None:
        context = server_context(
            ServerTls(
                cert_file=str(self.server.cert),
                key_file=str(self.server.key),
                ca_file=str(self.authority.ca),
                client_certificate="required",
            ),
            "test",
        )
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0, ssl_context=context).start()
        self.url = f"https://127.0.0.1:{self.runner.addresses[0][1]}/metrics"

    async def answer(self, request: web.Request) -> web.Response:
        self.seen.append(request)
        if self.wants and request.headers.get("Authorization") != self.wants:
            return web.Response(status=401)
        return web.Response(text=self._simulated.dcgm.page())

    def write(self, **content: object) -> str:
        path = self.folder / "http.yaml"
        path.write_text(yaml.safe_dump(content))
        return str(path)

    def tls(self, **more: object) -> dict[str, object]:
        files = {"ca_file": "ours-ca.pem", "cert_file": "client.pem", "key_file": str(self.client.key)}
        return {**files, "server_name": "dcgm.local", **more}


@pytest.fixture
async def upstream(tmp_path: Path, simulated: SimulatedNode) -> AsyncIterator[Upstream]:
    protected = Upstream(tmp_path, simulated)
    await protected.start()
    yield protected
    await protected.runner.cleanup()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def test_certificates_and_a_password_of_a_file_that_changes(start: Start, upstream: Upstream) -> None:
    secret = upstream.folder / "password"
    secret.write_text(PASSWORD + "\n")
    upstream.wants = basic("me", PASSWORD)
    path = upstream.write(
        tls_config=upstream.tls(),
        basic_auth={"username": "me", "password_file": "password"},
        http_headers={"X-Scope-OrgID": {"values": ["gpu"]}},
        follow_redirects=False,
        enable_http2=True,
    )
    exporter = await start(dcgm_url=upstream.url, dcgm_http_config=path)
    assert 'pod="' in await exporter.page()
    assert upstream.seen[-1].headers["X-Scope-OrgID"] == "gpu"
    upstream.wants = basic("me", "new")
    status, why = await exporter.get("/gpu/metrics")
    assert (status, "HTTP status 401 -> give it a password" in why) == (503, True)
    secret.write_text("new")
    await exporter.page()
    secret.unlink()
    status, why = await exporter.get("/gpu/metrics")
    assert (status, "cannot be read: No such file" in why) == (503, True)


async def test_a_token(start: Start, upstream: Upstream) -> None:
    upstream.wants = f"Bearer {TOKEN}"
    path = upstream.write(tls_config=upstream.tls(), authorization={"credentials": TOKEN})
    await (await start(dcgm_url=upstream.url, dcgm_http_config=path)).page()


async def test_a_renewed_client_certificate_is_taken_up(start: Start, upstream: Upstream) -> None:
    # a look of its own would ask between the two files
    exporter = await start(
        dcgm_url=upstream.url, dcgm_http_config=upstream.write(tls_config=upstream.tls()), accounting_mode="off"
    )
    await exporter.page()
    stranger = upstream.others.issue("stranger", "exporter")
    for theirs, ours in ((stranger.key, upstream.client.key), (stranger.cert, upstream.client.cert)):
        ours.write_bytes(theirs.read_bytes())
    status, why = await exporter.get("/gpu/metrics")
    assert status == 503, why
    again = upstream.authority.issue("client", "exporter")
    assert again == upstream.client
    await exporter.page()


@pytest.mark.parametrize(
    ("more", "works", "says"),
    [
        ({}, True, ""),
        ({"server_name": "other.local"}, False, "no TLS with it"),
        ({"ca_file": "theirs-ca.pem"}, False, "no TLS with it"),
        ({"ca_file": "theirs-ca.pem", "insecure_skip_verify": True}, True, ""),
        ({"max_version": "TLS12"}, True, ""),
        ({"cert_file": "", "key_file": ""}, False, ""),
    ],
    ids=str,
)
async def test_tls(start: Start, upstream: Upstream, more: dict[str, object], works: bool, says: str) -> None:
    path = upstream.write(tls_config=upstream.tls(**more))
    status, why = await (await start(dcgm_url=upstream.url, dcgm_http_config=path)).get("/gpu/metrics")
    assert (status == 200) is works, why
    assert says in why


async def test_no_secret_is_shown(start: Start, upstream: Upstream, simulated: SimulatedNode, tmp_path: Path) -> None:
    """Pages, log, doctor and its bundle, with a source that works and with one that does not."""
    (upstream.folder / "token").write_text(TOKEN)
    hashed = "$2y$04$" + "a" * 53
    web_config = tmp_path / "web.yaml"
    web_config.write_text(yaml.safe_dump({"basic_auth_users": {"prometheus": hashed}}))
    http = upstream.write(tls_config=upstream.tls(), authorization={"credentials_file": "token"})
    secrets = (TOKEN, hashed, "hunter2", "query-token")
    url = "http://user:hunter2@127.0.0.1:1/metrics?token=query-token"
    for dcgm_url, wants, settings in (
        (upstream.url, f"Bearer {TOKEN}", {"dcgm_http_config": http}),
        (upstream.url, "something else", {"dcgm_http_config": http}),
        (url, "", {}),
    ):
        upstream.wants = wants
        exporter = await start(dcgm_url=dcgm_url, **settings)
        for path in PATHS:
            _, text = await exporter.get(path)
            for secret in secrets:
                assert secret not in text
        bundle = tmp_path / "bundle.tar.gz"
        flags = [f"--{name.replace('_', '.', 1).replace('_', '-')}={value}" for name, value in settings.items()]
        flags += [f"--dcgm.url={dcgm_url}", f"--kubelet.socket={simulated.socket}"]
        flags += [f"--web.config.file={web_config}", "--log.level=debug"]
        ended = await doctor_in_thread(f"--bundle={bundle}", "--plain", *flags)
        shown = ended.stdout + ended.stderr
        assert "kubelet" in ended.stdout
        with tarfile.open(bundle) as archive:
            names = archive.getnames()
            for name in names:
                file = archive.extractfile(name)
                assert file
                shown += file.read().decode("utf-8", "replace")
        assert any(name.endswith("bundle.json") for name in names)
        for secret in secrets:
            assert secret not in shown
        assert json.dumps(str(simulated.socket)) in shown  # what it was told is there
