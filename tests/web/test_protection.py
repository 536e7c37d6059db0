"""--web.config.file: TLS, client certificates, passwords and headers, over real connections."""

import asyncio
import base64
import http.client
import os
import shutil
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import aiohttp
import bcrypt
import pytest
import yaml

from exporter import service
from exporter.cli.main import run
from exporter.config.named_files import read_web
from exporter.config.web_file import read_web_config
from exporter.errors import ConfigError
from exporter.node.role import NODE
from exporter.service import Service
from exporter.web.passwords import MOST_UNCHECKED_PASSWORDS, MOST_WRONG_PASSWORDS, Passwords, TooMany
from tests.support.certificates import Authority
from tests.support.exporter import CLOSED_PATHS, OPEN_PATHS, STATUS, Exporter, Start, config_of, running
from tests.support.simulated import SimulatedNode
from tests.support.waiting import until

# always with one salt: names of tests have it in them, and a run can be compared with another
HASH = bcrypt.hashpw(b"right", b"$2b$04$abcdefghijklmnopqrstuu").decode()
USERS = {"basic_auth_users": {"prometheus": HASH}}


class Files:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "web.yaml"
        self.authority = Authority(folder, "ours")
        self.others = Authority(folder, "theirs")
        self.server = self.authority.issue("server", "127.0.0.1")
        self.client = self.authority.issue("client", "prometheus.monitoring")
        self.stranger = self.others.issue("stranger", "prometheus.monitoring")

    def write(self, content: object) -> str:
        self.path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return str(self.path)

    def tls(self, **more: object) -> dict[str, Any]:
        # beside the file, by a relative path, as exporter-toolkit takes it
        return {"tls_server_config": {"cert_file": "server.pem", "key_file": str(self.server.key), **more}}

    def client_context(self, pair: Any = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.ca))
        if pair:
            context.load_cert_chain(pair.cert, pair.key)
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (basic("prometheus", "right"), 200),
        (basic("prometheus", "wrong"), 401),
        (basic("nobody", "right"), 401),
        (basic("", "right"), 401),
        (basic("prometheus", ""), 401),
        (basic("prometheus", "right" * 100), 401),
        (basic("prometheus", "\0right"), 401),
        ({"Authorization": "Bearer right"}, 401),
        ({"Authorization": "Basic !"}, 401),
        ({"Authorization": "Basic " + base64.b64encode(b"prometheus").decode()}, 401),
        ({"Authorization": "Basic " + base64.b64encode(b"\xff\xfe:right").decode()}, 401),
        ({"Authorization": "Basic"}, 401),
        ({}, 401),
    ],
    ids=str,
)
async def test_passwords(start: Start, files: Files, headers: dict[str, str], status: int) -> None:
    exporter = await start(web_config_file=files.write(USERS))
    for path in CLOSED_PATHS:
        for _ in range(2):  # checked, and remembered
            async with exporter.session.get(exporter.base + path, headers=headers) as response:
                assert response.status == (STATUS.get(path, 200) if status == 200 else status), path
                assert ("WWW-Authenticate" in response.headers) is (status == 401)
    assert (await exporter.get("/no/such/path", **headers))[0] == (404 if status == 200 else status)
    for path in OPEN_PATHS:
        assert (await exporter.get(path, **headers))[0] in (200, 503)


async def test_what_is_refused_is_counted(start: Start, files: Files) -> None:
    exporter = await start(web_config_file=files.write(USERS))
    for _ in range(3):
        await exporter.get("/metrics")
    _, metrics = await exporter.get("/metrics", **basic("prometheus", "right"))
    assert 'pod_gpu_exporter_refused_requests_total{reason="password"} 3\n' in metrics


async def test_the_right_password_does_not_wait_behind_a_crowd_of_wrong_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks = 0
    real = bcrypt.checkpw

    def counted(password: bytes, hashed: bytes) -> bool:
        nonlocal checks
        checks += 1
        return real(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", counted)
    hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(8))
    passwords = Passwords({"prometheus": hashed})
    right = basic("prometheus", "right")["Authorization"]
    assert await passwords.are_right(right)
    crowd = [
        asyncio.create_task(passwords.are_right(basic("prometheus", f"wrong {number}")["Authorization"]))
        for number in range(200)
    ]
    await asyncio.sleep(0)
    for _ in range(100):
        assert await passwords.are_right(right)
    assert not all(task.done() for task in crowd)
    found = await asyncio.gather(*crowd, return_exceptions=True)
    assert sum(isinstance(answer, TooMany) for answer in found) == 200 - MOST_UNCHECKED_PASSWORDS
    assert True not in found
    assert checks == 1 + MOST_UNCHECKED_PASSWORDS
    # what was wrong is known to be, and costs no second check
    assert not await passwords.are_right(basic("prometheus", "wrong 0")["Authorization"])
    assert checks == 1 + MOST_UNCHECKED_PASSWORDS


async def test_wrong_passwords_are_forgotten_at_a_limit_and_right_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bcrypt, "checkpw", lambda password, _: password == b"right")
    passwords = Passwords({"a": HASH.encode(), "b": HASH.encode()})
    for user in ("a", "b"):
        assert await passwords.are_right(basic(user, "right")["Authorization"])
    for number in range(MOST_WRONG_PASSWORDS + 50):
        assert not await passwords.are_right(basic("a", f"wrong {number}")["Authorization"])
    assert passwords.wrong == MOST_WRONG_PASSWORDS
    monkeypatch.setattr(bcrypt, "checkpw", lambda *_: False)
    assert await passwords.are_right(basic("a", "right")["Authorization"])
    assert await passwords.are_right(basic("b", "right")["Authorization"])
    # what is remembered is for one user and one password: no other split of the same bytes gets in
    assert not await passwords.are_right(basic("a", "b:right")["Authorization"])


# issue 7, line 26
async def test_a_scraper_gets_its_turn_in_a_flood_of_wrong_passwords() -> None:
    """Its right one is not known yet; the flood comes from ten addresses, and never ends."""
    passwords = Passwords({"prometheus": HASH.encode()})
    over = asyncio.Event()
    sent = 0

    async def flood(address: str) -> None:
        nonlocal sent
        while not over.is_set():
            sent += 1
            with suppress(TooMany):
                assert not await passwords.are_right(basic("prometheus", f"wrong {sent}")["Authorization"], address)
            await asyncio.sleep(0)

    floods = [asyncio.create_task(flood(f"10.0.0.{number % 10}")) for number in range(400)]
    try:
        while sent < 1000:
            await asyncio.sleep(0)
        assert passwords.unchecked == MOST_UNCHECKED_PASSWORDS
        asked = sent
        async with asyncio.timeout(20):
            assert await passwords.are_right(basic("prometheus", "right")["Authorization"], "10.0.1.1")
        assert sent > asked
    finally:
        over.set()
        await asyncio.gather(*floods)
    assert passwords.unchecked == 0


# issue 7, line 26
async def test_a_flood_from_another_address_does_not_keep_a_scraper_out(
    start: Start, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.web.passwords.MOST_UNCHECKED_PASSWORDS", 8)
    users = {"prometheus": bcrypt.hashpw(b"right", bcrypt.gensalt(8)).decode()}
    exporter = await start(web_config_file=files.write({"basic_auth_users": users}))
    statuses: Counter[int] = Counter()
    over = False

    async def flood(number: int) -> None:
        attempts = 0
        while not over:
            attempts += 1
            status, _ = await exporter.get("/metrics", **basic("prometheus", f"wrong {number} {attempts}"))
            statuses[status] += 1

    floods = [asyncio.create_task(flood(number)) for number in range(40)]
    while not statuses[503]:
        await asyncio.sleep(0.01)
    elsewhere = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
    scraper = aiohttp.ClientSession(connector=elsewhere, headers=basic("prometheus", "right"))
    async with scraper, scraper.get(f"{exporter.base}/metrics") as response:
        first = response.status
    over = True
    await asyncio.gather(*floods)
    assert first == 200
    assert set(statuses) == {401, 503}


# issue 7, line 26
async def test_turns_go_round_the_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[bytes] = []

    def checked(password: bytes, _: bytes) -> bool:
        order.append(password)
        return False

    monkeypatch.setattr(bcrypt, "checkpw", checked)
    passwords = Passwords(dict.fromkeys("ab", HASH.encode()))
    peers = ["10.0.0.1"] * 4 + ["10.0.0.2"] * 2 + ["2001:db8::1", "2001:db8::2", "::ffff:10.0.0.3"]
    await asyncio.gather(
        *(passwords.are_right(basic("a", f"{number}")["Authorization"], peer) for number, peer in enumerate(peers))
    )
    # the first is at it at once; two of one IPv6 network are one peer
    assert b"".join(order) == b"0" + b"1468" + b"257" + b"3"


# issue 7, line 26
async def test_who_does_not_wait_any_longer_leaves_the_turn_to_others() -> None:
    passwords = Passwords({"prometheus": bcrypt.hashpw(b"right", bcrypt.gensalt(6))})
    tasks = [
        asyncio.create_task(passwords.are_right(basic("prometheus", f"{number}")["Authorization"], "10.0.0.1"))
        for number in range(20)
    ]
    await asyncio.sleep(0)
    for task in tasks[1:]:
        task.cancel()
    assert await passwords.are_right(basic("prometheus", "right")["Authorization"], "10.0.0.1")
    await asyncio.gather(*tasks, return_exceptions=True)
    assert passwords.unchecked == 0


# issue 7, line 34
async def test_a_user_who_is_unknown_costs_what_each_known_one_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    work: list[int] = []
    real = bcrypt.checkpw

    def counted(password: bytes, hashed: bytes) -> bool:
        work.append(2 ** int(hashed[4:6]))
        return real(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", counted)
    hashes = {f"of cost {cost}": bcrypt.hashpw(b"right", bcrypt.gensalt(cost)) for cost in (5, 4, 7)}
    passwords = Passwords(hashes)
    costs = []
    for user in ("nobody", *hashes):
        for password in ("wrong", "right"):
            work.clear()
            assert await passwords.are_right(basic(user, password)["Authorization"]) is (
                user in hashes and password == "right"
            )
            costs.append(sum(work))
    assert set(costs) == {2**7}


# issue 7, line 34
@pytest.mark.parametrize("end", ["/", "A", "Z", "a", "z", "0", "9"])
def test_a_hash_that_bcrypt_refuses_is_refused_at_the_start(end: str) -> None:
    """Only four letters can end a salt of 16 bytes."""
    hashed = HASH[:28] + end + HASH[29:]
    with pytest.raises(ValueError, match="salt"):
        bcrypt.checkpw(b"right", hashed.encode())
    with pytest.raises(ConfigError, match="a has no bcrypt hash"):
        read_web_config({"basic_auth_users": {"a": hashed}}, "/web.yaml")


async def test_headers(start: Start, files: Files) -> None:
    headers = {"Strict-Transport-Security": "max-age=1", "X-Frame-Options": "deny"}
    exporter = await start(web_config_file=files.write({"http_server_config": {"headers": headers}}))
    for path in ("/gpu/metrics", "/no/such/path"):
        async with exporter.session.get(exporter.base + path) as response:
            assert headers.items() <= dict(response.headers).items()


Secure = Callable[..., Awaitable[Exporter]]


@pytest.fixture
async def secure(simulated: SimulatedNode, files: Files) -> AsyncIterator[Secure]:
    async with AsyncExitStack() as stack:

        async def run(content: object) -> Exporter:
            config = config_of(
                kubelet_socket=str(simulated.socket), dcgm_url=simulated.url, web_config_file=files.write(content)
            )
            exporter = await stack.enter_async_context(running(config))
            exporter.base = exporter.base.replace("http:", "https:")
            return exporter

        yield run


async def status_of(exporter: Exporter, context: ssl.SSLContext, path: str = "/gpu/metrics") -> int:
    async with exporter.session.get(exporter.base + path, ssl=context) as response:
        return response.status


async def test_tls(secure: Secure, files: Files) -> None:
    exporter = await secure(files.tls())
    assert await status_of(exporter, files.client_context()) == 200
    assert await status_of(exporter, files.client_context(files.stranger)) == 200
    with pytest.raises(aiohttp.ClientError):
        await status_of(exporter, ssl.create_default_context(cafile=str(files.others.ca)))
    assert (await exporter.session.get(exporter.base.replace("https:", "http:"))).status == 400


@pytest.mark.parametrize(
    ("kind", "sans", "nobody", "client", "stranger"),
    [
        ("RequireAndVerifyClientCert", [], None, 200, None),
        ("RequireAndVerifyClientCert", ["prometheus.monitoring"], None, 200, None),
        ("RequireAndVerifyClientCert", ["other.name"], None, 403, None),
        ("VerifyClientCertIfGiven", [], 200, 200, None),
    ],
)
async def test_client_certificates(
    secure: Secure, files: Files, kind: str, sans: list[str], nobody: int, client: int, stranger: int
) -> None:
    more = {"client_allowed_sans": sans} if sans else {}
    exporter = await secure(files.tls(client_auth_type=kind, client_ca_file=str(files.authority.ca), **more))
    for pair, status in ((None, nobody), (files.client, client), (files.stranger, stranger)):
        if status:
            assert await status_of(exporter, files.client_context(pair)) == status
        else:
            with pytest.raises(aiohttp.ClientError):
                await status_of(exporter, files.client_context(pair))


@pytest.mark.parametrize("least", ["TLS12", "TLS13"])
async def test_versions(secure: Secure, files: Files, least: str) -> None:
    exporter = await secure(files.tls(min_version=least))
    context = files.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    if least == "TLS12":
        assert await status_of(exporter, context) == 200
    else:
        with pytest.raises(aiohttp.ClientError):
            await status_of(exporter, context)


async def test_ciphers(secure: Secure, files: Files) -> None:
    name = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    exporter = await secure(files.tls(cipher_suites=[name], max_version="TLS12"))
    assert await status_of(exporter, files.client_context()) == 200
    context = files.client_context()
    context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    with pytest.raises(aiohttp.ClientError):
        await status_of(exporter, context)


async def test_certificate_passwords_and_tls_are_taken_up_while_it_runs(
    simulated: SimulatedNode, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "LOOK_EVERY_SECONDS", 0.05)
    path = files.write({**files.tls(), **USERS})
    config = config_of(kubelet_socket=str(simulated.socket), dcgm_url=simulated.url, web_config_file=path)
    running_service = Service(config, NODE, lambda: config)
    (address,) = await running_service.listen()
    watch = asyncio.create_task(running_service.watch(asyncio.Event()))

    def ask(context: ssl.SSLContext | None, password: str) -> int:
        make = http.client.HTTPSConnection if context else http.client.HTTPConnection
        more: Any = {"context": context} if context else {}
        connection = make(address.host, address.port, timeout=5, **more)
        try:
            connection.request("GET", "/metrics/nodes", headers=basic("prometheus", password))
            return connection.getresponse().status
        finally:
            connection.close()

    async def until_it_lets_in(context: ssl.SSLContext | None, password: str) -> None:
        async def is_let_in() -> bool:
            try:
                return await asyncio.to_thread(ask, context, password) == 200
            except OSError:
                return False

        await until(is_let_in)

    try:
        await until_it_lets_in(files.client_context(), "right")
        # renewed by another authority, in place, as cert-manager does it
        renewed = files.others.issue("renewed", "127.0.0.1")
        shutil.copy(renewed.key, files.server.key)
        shutil.copy(renewed.cert, files.server.cert)
        trust = ssl.create_default_context(cafile=str(files.others.ca))
        await until_it_lets_in(trust, "right")
        with pytest.raises(ssl.SSLError):
            await asyncio.to_thread(ask, files.client_context(), "right")
        # a certificate without its key is refused, and the old pair goes on
        failures = running_service.telemetry.reload_failures
        shutil.copy(files.client.cert, files.server.cert)
        await until(lambda: running_service.telemetry.reload_failures != failures)
        assert await asyncio.to_thread(ask, trust, "right") == 200
        shutil.copy(renewed.cert, files.server.cert)
        # another password
        files.write(
            {**files.tls(), "basic_auth_users": {"prometheus": bcrypt.hashpw(b"new", bcrypt.gensalt(4)).decode()}}
        )
        await until_it_lets_in(trust, "new")
        assert await asyncio.to_thread(ask, trust, "right") == 401
        # and no TLS at all
        files.write({})
        await until_it_lets_in(None, "any")
    finally:
        watch.cancel()
        await running_service.close()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"basic_auth_users": {"a": "plain"}}, "a has no bcrypt hash"),
        ({"basic_auth_users": {"a": 1}}, "a must be a text"),
        ({"basic_auth_users": {"a:b": HASH}}, "no colon"),
        ({"basic_auth_users": ["a"]}, "basic_auth_users: it must hold keys and values"),
        ({"basic_auth": {}}, "'basic_auth' is not a key of this file"),
        ({"tls_server_config": {"cert_file": "server.pem"}}, "cert_file and key_file are needed both"),
        ({"tls_server_config": {"cert": "-----BEGIN"}}, "inline `cert` and `key` are not supported"),
        ({"tls_server_config": {"cert_file": "server.pem", "key_file": "no-such"}}, "No such file"),
        ({"tls_server_config": {"cert_file": "server.pem", "key_file": "client-key.pem"}}, "belong together"),
        ({"tls_server_config": {"cert_file": "web.yaml", "key_file": "web.yaml"}}, "PEM"),
        ("TLS client_auth_type=RequireAnyClientCert", "client_auth_type must be one of"),
        ("TLS client_auth_type=RequireAndVerifyClientCert", "client_auth_type and client_ca_file go together"),
        ("TLS client_ca_file=ours-ca.pem", "client_auth_type and client_ca_file go together"),
        ("TLS client_ca_file=web.yaml client_auth_type=VerifyClientCertIfGiven", "holds no certificate authority"),
        ("TLS min_version=TLS14", "min_version must be one of TLS10, TLS11"),
        ("TLS min_version=TLS13 max_version=TLS12", "min_version: 'TLS13' is not allowed; it is above"),
        ("TLS curve_preferences=X25519", "'curve_preferences' is not a key"),
        ({"http_server_config": {"headers": {"X-Own": "1"}}}, "X-Own is not a header that can be set"),
        ({"http_server_config": {"headers": {"X-Frame-Options": "a\nSet-Cookie: b"}}}, "one line"),
        ({"http_server_config": {"http2": "yes"}}, "http2 must be true or false"),
        ([], "it must hold keys and values"),
        ("\t", "is not YAML"),
    ],
    ids=str,
)
def test_a_file_that_cannot_be_used_ends_the_start_with_a_line(files: Files, content: object, says: str) -> None:
    if isinstance(content, str) and content.startswith("TLS "):
        content = files.tls(**dict(part.split("=") for part in content.split()[1:]))
    files.write(content)
    with pytest.raises(ConfigError) as error:
        read_web(config_of(web_config_file=str(files.path)).web)
    assert says in str(error.value)
    assert str(error.value).startswith("--web.config.file: ")
    assert "\n" not in str(error.value)
    assert HASH not in str(error.value)


# issue 7, line 25
@pytest.mark.timeout(30)
@pytest.mark.parametrize("which", ["cert_file", "key_file", "client_ca_file"])
def test_a_fifo_in_place_of_a_certificate_is_refused(files: Files, which: str) -> None:
    fifo = files.folder / "fifo"
    os.mkfifo(fifo)
    more = {"client_auth_type": "VerifyClientCertIfGiven", "client_ca_file": str(files.authority.ca)}
    tls = {**files.tls(**more)["tls_server_config"], which: str(fifo)}
    path = files.write({"tls_server_config": tls})
    with pytest.raises(ConfigError, match="it is a FIFO, not a file"):
        read_web(config_of(web_config_file=path).web)


def test_an_encrypted_key_is_refused_instead_of_asking_the_terminal(files: Files) -> None:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    key = serialization.load_pem_private_key(files.server.key.read_bytes(), None)
    files.server.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    files.write(files.tls())
    with pytest.raises(ConfigError, match="without a passphrase"):
        read_web(config_of(web_config_file=str(files.path)).web)


def test_no_hash_is_shown_by_the_object_itself() -> None:
    assert HASH not in repr(read_web_config(USERS, "/web.yaml"))


@pytest.mark.parametrize("client_auth", [False, True])
async def test_healthcheck_speaks_tls_too(secure: Secure, files: Files, client_auth: bool) -> None:
    required = {"client_auth_type": "RequireAndVerifyClientCert", "client_ca_file": str(files.authority.ca)}
    exporter = await secure({**files.tls(**(required if client_auth else {})), **USERS})
    address = exporter.base.removeprefix("https://")
    command = [sys.executable, "-m", "exporter", "healthcheck", f"--web.listen-address={address}"]
    run = await asyncio.to_thread(
        subprocess.run, [*command, f"--web.config.file={files.path}"], capture_output=True, text=True, timeout=30
    )
    assert (run.returncode, run.stderr) == (0, "")
    without = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=30)
    assert without.returncode == 1


# Which of them it is depends on how far the handshake came when the exporter hung up.
@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError, ssl.SSLError])
@pytest.mark.parametrize(("client_auth", "code"), [("RequireAndVerifyClientCert", 0), ("NoClientCert", 1)])
def test_healthcheck_knows_an_exporter_that_asks_for_a_certificate(
    files: Files, monkeypatch: pytest.MonkeyPatch, error: type[OSError], client_auth: str, code: int
) -> None:
    def hang_up(*_: object) -> None:
        raise error

    monkeypatch.setattr(http.client.HTTPSConnection, "request", hang_up)
    authority = {"client_ca_file": str(files.authority.ca)} if code == 0 else {}
    files.write({**files.tls(client_auth_type=client_auth, **authority)})
    assert run(["healthcheck", f"--web.config.file={files.path}"]) == code


def test_paths_of_health_are_all_there_is_without_a_password() -> None:
    assert set(OPEN_PATHS) == {"/-/healthy", "/healthz", "/-/ready"}
