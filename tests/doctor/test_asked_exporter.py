"""`doctor` without flags: it asks the exporter that runs here, and says so where it cannot."""

import json
import socket
import tarfile
from pathlib import Path

import bcrypt
import pytest
import yaml
from aiohttp import web

from exporter.bundle import archive
from exporter.config.http_file import HttpConfig
from exporter.doctor import asked_exporter
from exporter.top.transport import Gone, HttpTransport
from tests.support.certificates import Authority
from tests.support.doctor_here import doctor_in_thread
from tests.support.exporter import Start
from tests.support.simulated import SimulatedNode

HASH = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()


async def doctor(address: str, *flags: str) -> tuple[int, str]:
    """Exit code and report; by the environment it knows where the exporter listens, as in a container."""
    done = await doctor_in_thread(*flags, POD_GPU_EXPORTER_WEB_LISTEN_ADDRESS=address)
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.fixture
def free() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        return f"127.0.0.1:{held.getsockname()[1]}"


# issue 7, line 13
async def test_the_configuration_that_runs_is_judged(start: Start, simulated: SimulatedNode, tmp_path: Path) -> None:
    url = simulated.url.replace("http://", "http://me:hunter2@") + "?token=hunter2"
    without = await start(dcgm_url=url)
    calls = simulated.kubelet.calls
    bundle = tmp_path / "bundle.tar.gz"
    code, report = await doctor(without.base.removeprefix("http://"), f"--bundle={bundle}", "--plain")
    # by its own defaults doctor would find neither a kubelet nor a page
    assert "MIG id and no inventory" in report
    assert f"asked the exporter that runs here, {without.base} (" in report
    assert code == 1
    assert simulated.kubelet.calls > calls
    with tarfile.open(bundle) as packed:
        contents = [file.read() for name in packed.getnames() if (file := packed.extractfile(name))]
    assert b"hunter2" not in b"".join(contents)
    recording = archive.read(bundle)
    assert b"DCGM_FI_DEV_GPU_TEMP" in recording.of_exporter["/gpu/metrics"]
    shown = json.loads(recording.of_exporter["/debug/mapping"])
    assert shown["settings"]["dcgm.url"] == {"value": f"{simulated.url}?…", "from": "--dcgm.url"}
    assert shown["settings"]["kubelet.socket"]["value"] == str(simulated.socket)

    resolved = await start(inventory_file=str(simulated.inventory_file))
    code, report = await doctor(resolved.base.removeprefix("http://"))
    held = sum(len(container.devices) for pod in simulated.world.pods for container in pod.containers)
    assert report.startswith(f"{held} of {held} devices attributed.\n")
    assert report.endswith("\nThe main job works.\n")
    assert code == 0


# issue 7, line 13
async def test_where_none_answers_it_says_so_and_judges_by_itself(free: str) -> None:
    code, report = await doctor(free)
    assert f"no exporter answers at http://{free}: this is judged by doctor's own settings" in report
    assert "/kubelet.sock" in report or "pod-resources" in report
    assert code == 1


# issue 7, line 13
@pytest.mark.parametrize(
    ("tls", "more", "says"),
    [
        ({}, {}, "asked the exporter that runs here, https://"),
        ({}, {"basic_auth_users": {"me": HASH}}, "asks for a password"),
        ({"client_auth_type": "RequireAndVerifyClientCert"}, {}, "asks for a client certificate"),
        (None, {"basic_auth_users": {"me": HASH}}, "asks for a password"),
    ],
)
async def test_an_exporter_that_is_protected(
    start: Start,
    simulated: SimulatedNode,
    tmp_path: Path,
    tls: dict[str, str] | None,
    more: dict[str, object],
    says: str,
) -> None:
    authority = Authority(tmp_path, "ours")
    pair = authority.issue("server", "127.0.0.1")
    config = tmp_path / "web.yaml"
    server = {}
    if tls is not None:
        server = {"tls_server_config": {"cert_file": str(pair.cert), "key_file": str(pair.key), **tls}}
        if tls:
            server["tls_server_config"]["client_ca_file"] = str(authority.ca)
    config.write_text(yaml.safe_dump({**server, **more}))
    exporter = await start(web_config_file=str(config), inventory_file=str(simulated.inventory_file))
    code, report = await doctor(exporter.base.removeprefix("http://"))
    assert says in report
    assert code == (0 if says.startswith("asked") else 1)
    assert ("doctor's own settings" in report) is (code == 1)


# issue 7, line 13
async def test_what_is_no_exporter_is_not_believed(free: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"doctor": {"summary": "all is well", "findings": [{}]}})

    async def nested(_: web.Request) -> web.Response:
        return web.Response(text="[" * 100_000)

    for handler, says in (
        (answer, "another version"),
        (nested, "is not this exporter (HTTP status 200)"),
        (None, "is not this exporter (HTTP status 404)"),
    ):
        app = web.Application()
        if handler:
            app.router.add_get("/debug/mapping", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        host, _, port = free.rpartition(":")
        await web.TCPSite(runner, host, int(port)).start()
        try:
            code, report = await doctor(free)
        finally:
            await runner.cleanup()
        assert says in report
        assert "all is well" not in report
        assert code == 1


# issue 7, line 13
async def test_with_flags_the_sources_are_asked_whoever_runs(start: Start, simulated: SimulatedNode) -> None:
    exporter = await start()
    flags = (
        f"--kubelet.socket={simulated.socket}",
        f"--dcgm.url={simulated.url}",
        f"--inventory.file={simulated.inventory_file}",
    )
    code, report = await doctor(exporter.base.removeprefix("http://"), *flags, "--strict")
    assert "asked the exporter" not in report
    assert code == 0
    code, report = await doctor(exporter.base.removeprefix("http://"), *flags, "--strict", "--resources=nvidia.com/gpu")
    assert "is outside --resources" in report
    assert code == 1


def test_a_page_whose_answer_breaks_off_is_named_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks_off(*_: object) -> tuple[int, bytes]:
        raise Gone("it broke off")

    monkeypatch.setattr(HttpTransport, "get", breaks_off)
    pages = asked_exporter.pages_of(HttpTransport("http://localhost:1", HttpConfig()))
    assert pages["metrics.prom"] == b"/metrics: it broke off\n"
