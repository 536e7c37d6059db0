"""The Kubernetes API's client: what it trusts, what it keeps, how much it takes, and how it explains a refusal."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.config.tls import ClientTls, ServerTls, client_context, server_context
from exporter.errors import SourceError, Unavailable
from exporter.sources.http import watched_socket
from exporter.sources.kubernetes import api as kubernetes_api
from exporter.sources.kubernetes import list_text
from exporter.sources.kubernetes.api import KubernetesApi
from tests.support.certificates import Authority, LaxAuthority
from tests.support.places import DATA
from tests.support.waiting import PATIENCE_SECONDS

RECORDED = DATA / "kubernetes-1.36"
PODS = "/api/v1/pods"
REPLICASET = "/apis/apps/v1/namespaces/ml/replicasets/trainer-5d5bc5cd68"
Answer = Callable[[str], bytes]


def http(body: bytes, status: int = 200, *headers: str) -> bytes:
    lines = "".join(f"{header}\r\n" for header in ("Content-Type: application/json", *headers))
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body


class Server:
    """Answers each path of a connection that is kept open; counts connections."""

    def __init__(self) -> None:
        self.answer: Answer = lambda _: http(b'{"items": [], "metadata": {}}')
        self.connections = 0
        self.url = ""
        self._open: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.append(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                request = (await reader.readuntil(b"\r\n\r\n")).decode()
                writer.write(self.answer(request.split()[1]))
                await writer.drain()
        writer.close()

    def close(self) -> None:
        """End the connections: since Python 3.12 a listener waits for them."""
        for writer in self._open:
            writer.close()


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with listener:
        yield server
        server.close()


Api = Callable[[str], KubernetesApi]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    made: list[KubernetesApi] = []

    def build(url: str) -> KubernetesApi:
        made.append(KubernetesApi(url=url, token_file=str(tmp_path / "token"), ca_file=str(tmp_path / "ca.crt")))
        return made[-1]

    yield build
    for found in made:
        await found.close()


def context_of(authority: LaxAuthority | Authority, address: str = "127.0.0.1", **more: int) -> ssl.SSLContext:
    pair = authority.issue("server", address, **more)
    return server_context(ServerTls(cert_file=str(pair.cert), key_file=str(pair.key)), "test")


async def failure_of(asked: Awaitable[object]) -> SourceError:
    with pytest.raises(SourceError) as raised:
        await asked
    for text in (str(raised.value), raised.value.trouble.remedy):
        assert "\n" not in text
        assert "object at 0x" not in text
    return raised.value


# issue 7, line 6 (with a real black hole: tests/end_to_end/test_black_hole.py)
async def test_a_connection_asks_whether_its_peer_lives(api: Api) -> None:
    async with serving() as server:
        found = api(server.url)
        await found.list(PODS, {})
        assert found._client.connector is not None
        ((protocol, _),) = (kept for pool in found._client.connector._conns.values() for kept in pool)
        assert protocol.transport is not None
        kept = protocol.transport.get_extra_info("socket")
        assert kept.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, interval, probes = (
            kept.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + interval * probes <= 45
        assert 0 < kept.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 45_000


def test_a_socket_that_cannot_be_made_says_so() -> None:
    with pytest.raises(OSError, match=r".+"):
        watched_socket((999, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1)))


# issue 7, line 6
async def test_a_watch_that_is_never_answered_ends(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken by what stands before an API server that is gone: connected, acknowledged, and never answered."""
    monkeypatch.setattr(kubernetes_api, "ANSWER_SECONDS", 0.2)
    async with serving() as server:
        server.answer = lambda _: b""
        async with asyncio.timeout(PATIENCE_SECONDS):
            error = await failure_of(anext(api(server.url).lines(PODS, {"watch": "1"}, lambda: None)))
    assert error.reason == "deadline"


@pytest.fixture
def strict_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """ssl.create_default_context as Python 3.13 and later have it, on any Python."""
    original = ssl.create_default_context

    def as_in_3_13(*arguments: object, **more: object) -> ssl.SSLContext:
        context = original(*arguments, **more)  # type: ignore[arg-type]
        context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    monkeypatch.setattr(ssl, "create_default_context", as_in_3_13)


# issue 7, line 9
@pytest.mark.usefixtures("strict_python")
async def test_an_authority_that_go_takes_is_taken(api: Api, tmp_path: Path) -> None:
    authority = LaxAuthority(tmp_path)
    (tmp_path / "ca.crt").write_bytes(authority.ca.read_bytes())
    async with serving(context_of(authority)) as server:
        assert await api(server.url).list(PODS, {}) == ([], "")


# issue 7, line 9
@pytest.mark.usefixtures("strict_python")
async def test_so_is_one_of_the_system(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = LaxAuthority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    async with serving(context_of(authority)) as server:
        await api(server.url).list(PODS, {})


# issue 7, line 9
@pytest.mark.usefixtures("strict_python")
def test_one_flag_is_taken_off_and_nothing_else(tmp_path: Path) -> None:
    for tls in (ClientTls(), ClientTls(ca_file=str(LaxAuthority(tmp_path).ca))):
        context = client_context(tls, "test")
        assert not context.verify_flags & ssl.VERIFY_X509_STRICT
        assert context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
        assert context.check_hostname
        assert context.verify_mode is ssl.CERT_REQUIRED


# issue 7, lines 9 and 11
@pytest.mark.parametrize(
    ("theirs", "address", "days", "says"),
    [
        ("other", "127.0.0.1", 1, "self-signed certificate|unable to get local issuer certificate|signature failure"),
        ("ours", "127.0.0.2", 1, "IP address mismatch"),
        ("ours", "127.0.0.1", -1, "certificate has expired"),
    ],
)
async def test_chain_address_and_dates_are_checked(
    api: Api, tmp_path: Path, theirs: str, address: str, days: int, says: str
) -> None:
    authorities = {name: LaxAuthority(tmp_path, name) for name in ("ours", "other")}
    (tmp_path / "ca.crt").write_bytes(authorities["ours"].ca.read_bytes())
    async with serving(context_of(authorities[theirs], address, days=days)) as server:
        error = await failure_of(api(server.url).list(PODS, {}))
    assert error.reason == "tls"
    assert any(part in str(error) for part in says.split("|")), error
    assert "--kubernetes.ca-file" in error.trouble.remedy


# issue 7, line 34
async def test_a_handshake_serves_many_requests_until_the_authority_changes(api: Api, tmp_path: Path) -> None:
    authority = LaxAuthority(tmp_path)
    (tmp_path / "ca.crt").write_bytes(authority.ca.read_bytes())
    async with serving(context_of(authority)) as server:
        found = api(server.url)
        for _ in range(3):
            await found.get(REPLICASET)
        assert server.connections == 1
        (tmp_path / "ca.crt").write_bytes(LaxAuthority(tmp_path, "other").ca.read_bytes())
        assert (await failure_of(found.get(REPLICASET))).reason == "tls"
        (tmp_path / "ca.crt").write_text("no certificate")
        assert "holds no certificate authority" in str(await failure_of(found.get(REPLICASET)))


# issue 7, line 11
@pytest.mark.parametrize(
    ("path", "status", "recorded", "reason", "says", "remedy"),
    [
        (
            PODS, 403, "pods-list-403.json", "permission",
            'cannot list resource "pods"', "the service account needs list and watch on pods (deploy/rbac.yaml)",
        ),
        (
            REPLICASET, 403, "replicaset-get-403.json", "permission",
            'cannot get resource "replicasets"',
            "the service account needs get on replicasets (API group apps) (deploy/rbac.yaml)",
        ),
        (PODS, 403, "starting-403.json", "http_status", 'cannot list resource "pods"', "has just started"),
        (PODS, 401, "401.json", "unauthorized", "does not accept the token in", "no role would help"),
    ],
)  # fmt: skip
async def test_refusals_of_a_real_api_server(
    api: Api, tmp_path: Path, path: str, status: int, recorded: str, reason: str, says: str, remedy: str
) -> None:
    (tmp_path / "token").write_text("a-token")
    async with serving() as server:
        server.answer = lambda _: http((RECORDED / recorded).read_bytes(), status)
        found = api(server.url)
        error = await failure_of(found.get(path) if path == REPLICASET else found.list(path, {}))
    assert (error.reason, error.trouble.remedy.count(remedy)) == (reason, 1), error.trouble.remedy
    assert says in str(error)
    assert "a-token" not in str(error)


# issue 7, line 11
async def test_a_right_that_was_there_a_moment_ago_is_not_what_is_missing(api: Api) -> None:
    """An API server that has just started refuses everybody (recorded: for milliseconds to seconds)."""
    async with serving() as server:
        found = api(server.url)
        await found.list(PODS, {})
        server.answer = lambda _: http(b'{"kind": "Status", "code": 403}', 403)
        error = await failure_of(found.list(PODS, {}))
        assert "has just started" in error.trouble.remedy
        other = await failure_of(found.get(REPLICASET))
    assert (error.reason, other.reason) == ("http_status", "permission")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"message": "' + b"x" * 100_000 + b'"}', b"[" * 100_000])
async def test_a_refusal_in_other_words(api: Api, body: bytes) -> None:
    async with serving() as server:
        server.answer = lambda _: http(body, 403)
        error = await failure_of(api(server.url).list(PODS, {}))
    assert error.reason == "permission"
    assert len(str(error)) < 500


# issue 7, line 11
async def test_nobody_listens_no_name_and_no_tls(api: Api) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    refused = await failure_of(api(f"http://127.0.0.1:{port}").list(PODS, {}))
    assert (refused.reason, "KUBERNETES_SERVICE_HOST" in refused.trouble.remedy) == ("refused", True)
    nowhere = await failure_of(api("http://no-such-name.invalid").list(PODS, {}))
    assert nowhere.reason == "unreachable"
    assert "the name no-such-name.invalid has no address" in str(nowhere)

    async def as_go_does(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(as_go_does, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        plain = await failure_of(api(f"https://127.0.0.1:{port}").list(PODS, {}))
    assert (plain.reason, "no TLS with it" in str(plain)) == ("tls", True)


# issue 7, line 11
async def test_a_name_server_that_is_silent(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_api, "CONNECT_SECONDS", 0.1)
    loop = asyncio.get_running_loop()
    silent = loop.create_future()

    async def hang(*_: object, **__: object) -> None:
        await silent

    monkeypatch.setattr(loop, "getaddrinfo", hang)
    error = await failure_of(api("http://kubernetes.default.svc").list(PODS, {}))
    silent.cancel()
    assert (error.reason, str(error).count("the name kubernetes.default.svc could not be resolved")) == ("deadline", 1)
    assert "/etc/resolv.conf" in error.trouble.remedy


# issue 7, line 41
async def test_an_object_of_a_list_and_an_event_have_a_size_that_is_too_much(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (kubernetes_api, list_text):
        monkeypatch.setattr(module, "MAX_ITEM_BYTES", 10_000)
    large = json.dumps({"items": [{"x": "x" * 30_000}]}).encode()
    async with serving() as server:
        server.answer = lambda _: http(large)
        found = api(server.url)
        error = await failure_of(found.list(PODS, {}))
        assert (error.reason, PODS in str(error)) == ("oversize", True)
        assert (await failure_of(anext(found.lines(PODS, {}, lambda: None)))).reason == "oversize"
        server.answer = lambda _: http(json.dumps({"items": [{"x": "x" * 9_000}] * 100}).encode())
        assert len((await found.list(PODS, {}))[0]) == 100
        monkeypatch.setattr(kubernetes_api, "MOST_OBJECTS", 99)
        assert "more than 99 objects" in str(await failure_of(found.list(PODS, {})))


PAGES = {"": ["a", "b"], "1": ["c", "d"], "2": ["e"]}


def paged(url: str, *, expired: Callable[[], bool] = lambda: False) -> bytes:
    """A page of PAGES; a 410 instead of a later one while `expired` says so."""
    query = parse_qs(urlsplit(url).query)
    (token,) = query.get("continue", [""])
    assert query["limit"] == ["500"]
    assert not (token and query.get("resourceVersion")), "a real one refuses a token beside a version with 400"
    if token and expired():
        return http((RECORDED / "continue-410.json").read_bytes(), 410)
    later = str(int(token or 0) + 1)
    metadata = {"resourceVersion": f"10{token}", **({"continue": later} if later in PAGES else {})}
    return http(json.dumps({"metadata": metadata, "items": [{"x": name} for name in PAGES[token]]}).encode())


# issue 15, line 19
async def test_a_list_in_pages_is_read_to_its_end_at_its_first_version(api: Api) -> None:
    async with serving() as server:
        server.answer = paged
        found = await api(server.url).list(PODS, {"resourceVersion": "0"}, lambda item: item["x"])
    assert found == (["a", "b", "c", "d", "e"], "10")


# issue 15, line 19
@pytest.mark.parametrize("times", [1, 2])
async def test_a_list_whose_token_has_expired_begins_anew(api: Api, times: int) -> None:
    left = [True] * times
    async with serving() as server:
        server.answer = lambda url: paged(url, expired=lambda: bool(left) and left.pop())
        items, _ = await api(server.url).list(PODS, {}, lambda item: item["x"])
    assert items == ["a", "b", "c", "d", "e"]


# issue 15, line 19
async def test_a_list_whose_token_always_expires_is_given_up(api: Api) -> None:
    async with serving() as server:
        server.answer = lambda url: paged(url, expired=lambda: True)
        error = await failure_of(api(server.url).list(PODS, {}))
    assert (error.reason, "forgot the rest of /api/v1/pods 3 times" in str(error)) == ("deadline", True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


# issue 15, line 19
@given(
    fields=st.permutations(["kind", "metadata", "items", "more"]),
    items=st.lists(JSON, max_size=5),
    more=JSON,
    indent=st.sampled_from([None, 2]),
    ascii_only=st.booleans(),
    cuts=st.lists(st.integers(0, 600)),
)
async def test_a_list_cut_anywhere_is_read_as_a_whole_one_is(
    fields: list[str], items: list[object], more: object, indent: int | None, ascii_only: bool, cuts: list[int]
) -> None:
    values = {"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": items, "more": more}
    text = json.dumps({name: values[name] for name in fields}, indent=indent, ensure_ascii=ascii_only)
    body = text.encode("utf-8", "surrogatepass")
    try:
        body.decode()
    except UnicodeDecodeError:
        return  # half a character, which JSON can only hold escaped

    async def pieces(whole: bytes) -> AsyncIterator[bytes]:
        for first, last in pairwise(sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})):
            yield whole[first:last]

    read: list[object] = []
    assert await list_text.read_list(pieces(body), PODS, read.append) == values["metadata"]
    assert read == items
    with pytest.raises(ValueError, match=r".+"):
        await list_text.read_list(pieces(body[:-1]), PODS, read.append)
    with pytest.raises(ValueError, match="more follows"):
        await list_text.read_list(pieces(body + b" 1"), PODS, read.append)


# issue 7, lines 28 and 41
async def test_one_object_is_small(api: Api) -> None:
    async with serving() as server:
        found = api(server.url)
        server.answer = lambda _: http(json.dumps({"metadata": {"x": "x" * 1_500_000}}).encode())
        await found.get(REPLICASET)
        server.answer = lambda _: http(json.dumps({"metadata": {"x": "x" * 2_100_000}}).encode())
        assert (await failure_of(found.get(REPLICASET))).reason == "oversize"


async def test_a_token_that_cannot_be_read(api: Api, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    with pytest.raises(Unavailable, match="token cannot be read: it is no token"):
        await api("http://127.0.0.1:1").list(PODS, {})
