"""kopf in its thread, in front of an API server that says what a test has it say: whatever fails ends the run."""

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientConnectorCertificateError, web
from aiohttp.test_utils import TestServer

from exporter.config.common import KubernetesSettings
from exporter.errors import ConfigError
from exporter.operator.api.watching import MADE, Watching
from exporter.operator.objects.kinds import CLUSTER_WIDE, EVENT, GPU_EXPORTER, Key, Kind
from tests.operator.made import Object, gpu_exporter
from tests.support.certificates import Authority
from tests.support.waiting import until

Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]
SERVED = frozenset({GPU_EXPORTER})
KINDS = (
    GPU_EXPORTER,
    *MADE,
    # kopf waits until these are there
    Kind("v1", "Namespace", "namespaces"),
    Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions"),
    EVENT,
)
MINE = gpu_exporter()


class Told:
    """What was told."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.lists = 0
        self.answers: list[tuple[str, str]] = []

    def a_list(self) -> None:
        self.lists += 1

    def watching(self, url: str, ca_file: Path = Path("/nonexistent/ca.crt")) -> Watching:
        kubernetes = KubernetesSettings(url=url, token_file="/nonexistent/token", ca_file=str(ca_file))
        return Watching(
            kubernetes=kubernetes,
            namespaces=(),
            token=dict,
            on_key=self.keys.append,
            on_list=self.a_list,
            on_answer=lambda verb, status: self.answers.append((verb, status)),
        )


@asynccontextmanager
async def serving(respond: Respond) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/{path:.*}", respond)
    server = TestServer(app)
    await server.start_server()
    try:
        yield str(server.make_url("")).rstrip("/")
    finally:
        await no_thread()
        await server.close()


async def no_thread() -> None:
    """Until kopf has ended."""
    await until(lambda: all(thread.name != "kopf" for thread in threading.enumerate()), 20)


def lists(request: web.Request) -> web.Response | None:
    """What the API serves, and a list of one GPUExporter, and of nothing else; None where a watch is asked for."""
    if "watch" in request.query:
        return None
    if request.path in ("/api", "/apis"):
        return web.json_response({"versions": ["v1"], "groups": _groups()})
    kinds = [kind for kind in KINDS if kind.root == request.path]
    if kinds:
        return web.json_response({"resources": [_resource(kind) for kind in kinds]})
    items = [MINE] if request.path.endswith(GPU_EXPORTER.plural) else []
    return web.json_response({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items})


def _groups() -> list[Object]:
    versions = {kind.group: kind.version for kind in KINDS if kind.group}
    return [
        {"name": group, "versions": [{"version": version}], "preferredVersion": {"version": version}}
        for group, version in versions.items()
    ]


def _resource(kind: Kind) -> Object:
    verbs = ["get", "list", "watch", "patch"]
    named = {"name": kind.plural, "singularName": kind.name.lower(), "kind": kind.name}
    return {**named, "namespaced": kind not in CLUSTER_WIDE, "verbs": verbs}


async def streaming(request: web.Request, *events: Object) -> web.StreamResponse:
    """Events, and then silence for as long as somebody listens."""
    response = web.StreamResponse()
    await response.prepare(request)
    for event in events:
        await response.write(json.dumps(event).encode() + b"\n")
    await asyncio.sleep(60)
    return response


async def failing_with(respond: Respond) -> str:
    """What the run ends by, within 20 s; its thread ends, too."""
    async with serving(respond) as url:
        running = asyncio.create_task(Told().watching(url).until_it_fails(SERVED))
        ended, _ = await asyncio.wait({running}, timeout=20)
        running.cancel()
    assert ended, "it goes on"
    return repr(running.exception())


async def test_it_tells_of_keys_and_of_lists_and_ends_when_it_is_not_wanted_any_more() -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        return lists(request) or await streaming(request)

    told = Told()
    async with serving(respond) as url:
        running = asyncio.create_task(told.watching(url).until_it_fails(SERVED))
        await until(lambda: told.keys and ("watch", "200") in told.answers)
        assert {*told.keys} == {Key("GPUExporter", "ml", "gpu")}
        assert told.lists > 1
        running.cancel()
        await no_thread()
        assert running.cancelled()


@pytest.mark.parametrize("status", [400, 403, 404, 500, 503])
async def test_what_is_said_of_one_kind_holds_up_no_other(status: int) -> None:
    left = 2

    async def respond(request: web.Request) -> web.StreamResponse:
        nonlocal left
        if request.path.endswith("services") and left:
            left -= 1
            return web.json_response({"kind": "Status", "message": "not now", "code": status}, status=status)
        return lists(request) or await streaming(request)

    told = Told()
    async with serving(respond) as url:
        running = asyncio.create_task(told.watching(url).until_it_fails(SERVED))
        await until(lambda: told.answers.count(("watch", "200")) == len(MADE) - 1)
        assert told.answers.count(("list", str(status))) == 2
        assert {*told.keys} == {Key("GPUExporter", "ml", "gpu")}
        assert not running.done()
        running.cancel()


@pytest.mark.parametrize("name", ["gpuexporters", "services"])
async def test_a_list_from_which_nobody_can_go_on_ends_it(name: str) -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        if request.path.endswith(name):
            return web.json_response({"kind": "Status", "message": "what is that?", "code": 410}, status=410)
        return lists(request) or await streaming(request)

    assert "what is that?" in await failing_with(respond)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd has no leader"}},
        {"type": "ERROR", "object": {"message": "etcd has no leader"}},
        {"type": "ADDED", "object": {"message": "etcd has no leader"}},
    ],
)
async def test_a_watch_that_says_what_nobody_understands_ends_it(event: Object) -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        return lists(request) or await streaming(request, *([event] if "daemonsets" in request.path else []))

    assert await failing_with(respond) != "None"


async def test_an_authority_that_cannot_be_used_ends_it(tmp_path: Path) -> None:
    """Without it kopf would try to log in again after a minute."""
    (tmp_path / "ca.crt").write_text("nonsense")
    with pytest.raises(ConfigError, match=r"--kubernetes.ca-file"):
        async with asyncio.timeout(20):
            await Told().watching("https://127.0.0.1:1", tmp_path / "ca.crt").until_it_fails(SERVED)


async def test_a_certificate_of_another_authority_ends_it(tmp_path: Path) -> None:
    """Of itself kopf would go on with the authority that it began with; the next run reads the file anew."""
    pair, other = Authority(tmp_path, "own").issue("server", "127.0.0.1"), Authority(tmp_path, "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", ssl=context)
    try:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ClientConnectorCertificateError):
            async with asyncio.timeout(20):
                await Told().watching(f"https://127.0.0.1:{port}", other.ca).until_it_fails(SERVED)
    finally:
        await no_thread()
        server.close()
        await server.wait_closed()
