"""Connections before there is a request on them: how many there can be, and TLS handshakes that come to nothing."""

import asyncio
import errno
import logging
import os
import re
import resource
import signal
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from exporter.web import server
from exporter.web.server import MOST_CONNECTIONS, RESERVED_DESCRIPTORS, Server, most_connections
from tests.support.certificates import Authority
from tests.support.exporter import Exporter, Start, config_of, running
from tests.support.simulated import SimulatedNode
from tests.support.waiting import until

DESCRIPTORS = 1024
SILENT = 1600


@pytest.fixture
def descriptors() -> Iterator[None]:
    """As many for this process as it takes to be the crowd."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = SILENT + DESCRIPTORS
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.fail(f"this test needs {needed} descriptors, and RLIMIT_NOFILE allows {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@asynccontextmanager
async def process(node: SimulatedNode, log: Path) -> AsyncIterator[tuple[int, str]]:
    """An exporter of its own with 1,024 descriptors: its process id, and its address."""
    # The shell sets the limit. Python code between fork and exec would let grpc's threads end the child now and then.
    limited = ("sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh", sys.executable, "-m", "exporter", "serve")
    settings = (f"--kubelet.socket={node.socket}", f"--dcgm.url={node.url}", "--web.listen-address=127.0.0.1:0")
    with log.open("wb") as stderr:
        child = await asyncio.create_subprocess_exec(*limited, *settings, stderr=stderr)
    try:
        (address,) = await until(lambda: re.findall(r"msg=listening address=(\S+)", log.read_text()))
        yield child.pid, address
    finally:
        child.send_signal(signal.SIGTERM)
        await child.wait()


def descriptors_of(process_id: int) -> int:
    return len(tuple(Path(f"/proc/{process_id}/fd").iterdir()))


# issue 7, line 21
@pytest.mark.usefixtures("descriptors")
async def test_silent_connections_take_no_descriptors_or_scrapes_of_others(
    simulated: SimulatedNode, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with process(simulated, log) as (pid, address):
        host, _, port = address.rpartition(":")
        most, failed, stop = 0, [], asyncio.Event()

        async def scrape() -> None:
            while not stop.is_set():
                async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
                    try:
                        async with session.get(f"http://{address}/gpu/metrics") as response:
                            await response.read()
                    except (aiohttp.ClientError, TimeoutError) as error:
                        failed.append(repr(error))
                await asyncio.sleep(0.05)

        scraper = asyncio.create_task(scrape())
        await asyncio.sleep(0.2)
        loop = asyncio.get_running_loop()
        with ExitStack() as crowd:
            for number in range(SILENT):
                one = crowd.enter_context(socket.socket())
                one.setblocking(False)
                await loop.sock_connect(one, (host, int(port)))
                if number % 50 == 0:
                    most = max(most, descriptors_of(pid))
            await asyncio.sleep(1)
            most = max(most, descriptors_of(pid))
            stop.set()
            await scraper
        assert failed == []
        assert MOST_CONNECTIONS < most < MOST_CONNECTIONS + RESERVED_DESCRIPTORS
        assert log.stat().st_size < 10_000
        assert log.read_text().count("too many connections") == 1


@pytest.mark.parametrize(
    ("allowed", "connections"),
    [(1024, 512), (1_000_000, 512), (resource.RLIM_INFINITY, 512), (512, 352), (256, 96), (64, 16)],
)
def test_the_limit_leaves_descriptors_to_others(allowed: int, connections: int) -> None:
    assert most_connections(allowed) == connections


def the_server(exporter: Exporter) -> Server:
    assert exporter.service._server is not None
    return exporter.service._server


def crowd_of(exporter: Exporter, number: int, stack: ExitStack) -> list[socket.socket]:
    """Connections that come within one round of the exporter's event loop, which is this one."""
    host, _, port = exporter.base.partition("//")[2].rpartition(":")
    return [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(number)]


def is_closed(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


# issue 7, line 21
async def test_who_comes_in_one_round_takes_the_places_of_as_many_others(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 8)
    exporter = await start()
    refused = exporter.service.telemetry.refused
    with ExitStack() as stack:
        crowd = crowd_of(exporter, 40, stack)
        await until(lambda: refused["connections"] == 32)
        await until(lambda: [is_closed(one) for one in crowd] == [True] * 32 + [False] * 8)
        await exporter.page()
        assert refused["connections"] == 33
        assert len(the_server(exporter)._open) == 8
    await until(lambda: len(the_server(exporter)._open) == 1)  # the scraper's own


# issue 7, line 21
async def test_a_request_in_progress_is_not_made_room_of(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 2)
    exporter = await start()
    opened = the_server(exporter)._open
    with ExitStack() as stack:
        crowd = crowd_of(exporter, 2, stack)
        await until(lambda: len(opened) == 2)
        exporter.service.guard.busy.update(opened)
        late = crowd_of(exporter, 1, stack)
        await until(lambda: is_closed(late[0]))
        assert [is_closed(one) for one in crowd] == [False, False]
        exporter.service.guard.busy.clear()


class Exhausted:
    """A listening socket while the process has no descriptor left."""

    def accept(self) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


# issue 7, line 21
async def test_without_a_descriptor_the_oldest_connection_is_closed(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "PAUSE_SECONDS", 0.05)
    exporter = await start()
    with ExitStack() as stack:
        crowd = crowd_of(exporter, 3, stack)
        await until(lambda: len(the_server(exporter)._open) == 3)
        listening: Any = Exhausted()
        for _ in range(2):
            the_server(exporter)._accept(listening)
        await until(lambda: [is_closed(one) for one in crowd] == [True, True, False])
    assert caplog.text.count("could not be accepted") == 1
    # where nothing of ours can be closed, accepting is tried again after a while instead of all the time
    await until(lambda: not the_server(exporter)._open)
    (listening,) = the_server(exporter)._listening
    with monkeypatch.context() as full:
        full.setattr(listening.__class__, "accept", Exhausted.accept, raising=False)
        host, port = listening.getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        await asyncio.sleep(0.2)
    await exporter.page()
    assert caplog.text.count("could not be accepted") == 1
    writer.close()
    del reader


class Files:
    """A web config with TLS that wants a client's certificate, and who may come."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.theirs = Authority(folder, "ours"), Authority(folder, "theirs")
        pair = self.ours.issue("server", "127.0.0.1")
        self.client, self.stranger = self.ours.issue("client", "p"), self.theirs.issue("stranger", "p")
        self.path = folder / "web.yaml"
        tls = {
            "cert_file": str(pair.cert),
            "key_file": str(pair.key),
            "client_ca_file": str(self.ours.ca),
            "client_auth_type": "RequireAndVerifyClientCert",
            "min_version": "TLS13",
        }
        self.path.write_text(yaml.safe_dump({"tls_server_config": tls}))

    def context(self, pair: Any = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ours.ca))
        if pair:
            context.load_cert_chain(pair.cert, pair.key)
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
async def secure(simulated: SimulatedNode, files: Files) -> AsyncIterator[Exporter]:
    config = config_of(kubelet_socket=str(simulated.socket), dcgm_url=simulated.url, web_config_file=str(files.path))
    async with running(config) as exporter:
        yield exporter


def shake(base: str, context: ssl.SSLContext) -> str:
    """What comes of a TLS connection and a request on it, on a thread of its own: the answer's first line, or ""."""
    host, _, port = base.partition("//")[2].rpartition(":")
    plain = socket.create_connection((host, int(port)), timeout=30)
    with plain, suppress(OSError), context.wrap_socket(plain, server_hostname=host) as wrapped:
        wrapped.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return wrapped.recv(1000).decode().partition("\r")[0]
    return ""


# issue 7, line 10
@pytest.mark.parametrize(
    ("who", "reason", "says"),
    [
        ("nobody", "certificate", "peer did not return a certificate"),
        ("stranger", "certificate", "certificate verify failed: "),
        ("distrustful", "tls", "alert unknown ca"),
        ("old", "tls", "unsupported protocol"),
    ],
)
async def test_a_refused_handshake_is_counted_and_logged(
    secure: Exporter, files: Files, caplog: pytest.LogCaptureFixture, who: str, reason: str, says: str
) -> None:
    context = files.context({"stranger": files.stranger}.get(who, None if who == "nobody" else files.client))
    if who == "distrustful":
        context = ssl.create_default_context(cafile=str(files.theirs.ca))
    if who == "old":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    refused = secure.service.telemetry.refused
    for number in range(1, 4):
        assert await asyncio.to_thread(shake, secure.base, context) == ""
        await until(lambda: refused[reason] == number)  # noqa: B023 - awaited here
    lines = [record for record in caplog.records if record.message == "no TLS with a peer"]
    assert [record.levelno for record in lines] == [logging.WARNING]  # one of the three
    fields = vars(lines[0])["fields"]
    assert fields["peer"] == "127.0.0.1"
    assert says in fields["error"]
    assert +refused == {reason: 3}
    # who may come, comes
    assert await asyncio.to_thread(shake, secure.base, files.context(files.client)) == "HTTP/1.1 200 OK"


# issue 7, line 10
async def test_plain_http_on_the_port_of_tls_is_answered(secure: Exporter) -> None:
    async with secure.session.get(f"{secure.base}/gpu/metrics", headers={"X-Long": "x" * 8000}) as response:
        assert response.status == 400
        assert "HTTPS" in await response.text()
    assert secure.service.telemetry.refused["tls"] == 1


# issue 7, line 10
async def test_a_check_whether_the_port_is_open_is_no_refusal(
    secure: Exporter, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack:
        crowd_of(secure, 3, stack)
        await until(lambda: len(the_server(secure)._open) == 3)
    await until(lambda: not the_server(secure)._open)
    assert +secure.service.telemetry.refused == {}
    assert "TLS" not in caplog.text


# issue 7, line 41: the time of a handshake
@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01\x00"], ids=["nothing", "half a hello"])
async def test_a_handshake_has_its_time(
    secure: Exporter, files: Files, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(server, "HANDSHAKE_SECONDS", 0.2)
    with ExitStack() as stack:
        (one,) = crowd_of(secure, 1, stack)
        one.sendall(said)
        began = time.monotonic()
        await until(lambda: is_closed(one))
        assert time.monotonic() - began > 0.15
    assert secure.service.telemetry.refused["tls"] == 1
    monkeypatch.undo()  # an honest one may be slow on a busy machine
    assert await asyncio.to_thread(shake, secure.base, files.context(files.client)) == "HTTP/1.1 200 OK"


# issue 7, line 21
async def test_handshakes_count_as_connections(
    simulated: SimulatedNode, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 4)
    config = config_of(kubelet_socket=str(simulated.socket), dcgm_url=simulated.url, web_config_file=str(files.path))
    async with running(config) as exporter:
        with ExitStack() as stack:
            crowd = crowd_of(exporter, 12, stack)
            for one in crowd[::2]:
                with suppress(ConnectionError):
                    one.sendall(b"\x16\x03\x01\x02\x00")
            await until(lambda: sum(map(is_closed, crowd)) == 8)
            assert len(the_server(exporter)._open) == 4
            assert await asyncio.to_thread(shake, exporter.base, files.context(files.client)) == "HTTP/1.1 200 OK"
