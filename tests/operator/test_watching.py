"""What names the objects that changed, in front of an API server that says what a test has it say."""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from exporter.log import LOG
from exporter.operator.api.reader import Watching
from exporter.operator.api.writer import Writer
from exporter.operator.objects.kinds import CLUSTER_ROLE_BINDING, CONFIG_MAP, GPU_EXPORTER, MADE, SERVICE, Key
from exporter.sources.kubernetes import api as kubernetes_api
from tests.operator.made import Object, gpu_exporter
from tests.support.certificates import Authority
from tests.support.waiting import until

Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]
SERVED = frozenset({GPU_EXPORTER})
WATCHED = len([GPU_EXPORTER, *MADE]) - 2  # without PodMonitors and ScaledObjects, which are not served
MINE = Key("GPUExporter", "ml", "gpu")
GONE: Object = {"kind": "Status", "message": "too old resource version", "code": 410}


class Heard:
    """What was named."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.lists = self.failures = 0
        self.answers: list[tuple[str, str]] = []
        self.writer: Writer

    def a_list(self) -> None:
        self.lists += 1

    def a_failure(self) -> None:
        self.failures += 1


@asynccontextmanager
async def watching(
    respond: Respond, *, url: str = "", ca_file: Path = Path("/nonexistent/ca.crt"), namespaces: str = ""
) -> AsyncIterator[Heard]:
    """In front of a server that answers so; or of the one at `url`."""
    heard = Heard()
    app = web.Application()
    app.router.add_get("/{path:.*}", respond)
    server = TestServer(app)
    await server.start_server()
    heard.writer = writer = Writer(
        url=url or str(server.make_url("")),
        token_file="/nonexistent/token",
        ca_file=str(ca_file),
        on_answer=lambda verb, status: heard.answers.append((verb, status)),
    )
    made = Watching(
        api=writer,
        namespaces=namespaces.split(),
        on_key=heard.keys.append,
        on_list=heard.a_list,
        on_failure=heard.a_failure,
    )
    running = asyncio.create_task(made.run(SERVED))
    try:
        yield heard
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.wait({running})
        await writer.close()
        await server.close()
    assert running.cancelled()


def lists(request: web.Request) -> web.Response | None:
    """A list of one GPUExporter, and of nothing else; None where a watch is asked for."""
    if "watch" in request.query:
        return None
    items = [partial(gpu_exporter())] if request.path.endswith(GPU_EXPORTER.plural) else []
    return web.json_response({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items})


def partial(item: Object) -> Object:
    """As the API server says it where metadata alone is asked for."""
    return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": item["metadata"]}


def config_map(name: str) -> Object:
    labels = {"app.kubernetes.io/instance": name}
    return partial({"metadata": {"name": f"{name}-config", "namespace": "ml", "labels": labels}})


async def streaming(request: web.Request, *events: Object) -> web.StreamResponse:
    """Events, and then silence for as long as somebody listens."""
    response = web.StreamResponse()
    await response.prepare(request)
    for event in events:
        await response.write(json.dumps(event).encode() + b"\n")
    await asyncio.sleep(60)
    return response


async def usual(request: web.Request) -> web.StreamResponse:
    return lists(request) or await streaming(request)


def told(caplog: pytest.LogCaptureFixture, words: str) -> int:
    """How many lines of the log have these words."""
    return sum(words in f"{record.getMessage()} {vars(record).get('fields')}" for record in caplog.records)


async def test_it_names_what_is_listed_and_what_changes() -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        events = [{"type": kind, "object": config_map(kind.lower())} for kind in ("ADDED", "MODIFIED", "DELETED")]
        is_of_config_maps = request.path.endswith(CONFIG_MAP.plural)
        return lists(request) or await streaming(request, *(events if is_of_config_maps else ()))

    async with watching(respond) as heard:
        await until(lambda: heard.answers.count(("watch", "200")) == WATCHED)
        names = {"gpu", "added", "modified", "deleted"}
        await until(lambda: {key.name for key in heard.keys if key.kind == "GPUExporter"} == names)
        assert (heard.lists, heard.failures) == (WATCHED, 0)


# issue 15, line 15
async def test_nothing_but_metadata_is_asked_for() -> None:
    asked: dict[str, set[str]] = {}

    async def respond(request: web.Request) -> web.StreamResponse:
        verb = "watch" if "watch" in request.query else "list"
        asked.setdefault(verb, set()).add(request.headers["Accept"].partition(",")[0])
        return lists(request) or await streaming(request)

    async with watching(respond) as heard:
        await until(lambda: heard.answers.count(("watch", "200")) == WATCHED)
    form = "application/json;as={};g=meta.k8s.io;v=v1"
    assert asked == {
        "list": {form.format("PartialObjectMetadataList")},
        "watch": {form.format("PartialObjectMetadata")},
    }


async def test_of_some_namespaces_nothing_else_is_asked_for() -> None:
    paths = set()

    async def respond(request: web.Request) -> web.StreamResponse:
        paths.add(request.path)
        return lists(request) or await streaming(request)

    async with watching(respond, namespaces="ml dev") as heard:
        await until(lambda: heard.answers.count(("watch", "200")) == 2 * (WATCHED - 1))
    kinds = [GPU_EXPORTER, *MADE]
    wanted = {kind.path(namespace) for kind in kinds for namespace in ("ml", "dev") if kind is not CLUSTER_ROLE_BINDING}
    assert paths == {path for path in wanted if "podmonitors" not in path and "scaledobjects" not in path}


async def test_watches_of_many_namespaces_leave_connections_to_others() -> None:
    """A watch has a connection for as long as it lasts, and the writer's requests go by the same client."""
    names = " ".join(f"ns-{number}" for number in range(20))
    async with watching(usual, namespaces=names) as heard:
        await until(lambda: heard.answers.count(("watch", "200")) == 20 * (WATCHED - 1))
        assert (await heard.writer.get(GPU_EXPORTER.path("ml", "gpu")))["kind"] == "List"


# issue 15, line 15
async def test_a_tenant_with_very_many_objects_hides_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_api, "MOST_OBJECTS", 2)

    async def respond(request: web.Request) -> web.StreamResponse:
        crowd = [config_map(f"n{number}") for number in range(9)] if request.path.endswith(CONFIG_MAP.plural) else []
        listed = {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": crowd}
        return await streaming(request) if "watch" in request.query else web.json_response(listed)

    async with watching(respond) as heard:
        await until(lambda: MINE._replace(name="n8") in heard.keys)
        assert heard.failures == 0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 429, 500, 503])
async def test_what_is_answered_of_one_kind_holds_up_no_other(status: int, caplog: pytest.LogCaptureFixture) -> None:
    left = 2
    caplog.set_level(logging.INFO, LOG.name)

    async def respond(request: web.Request) -> web.StreamResponse:
        nonlocal left
        if request.path.endswith(SERVICE.plural) and left:
            left -= 1
            return web.json_response({"kind": "Status", "message": "not now", "code": status}, status=status)
        return lists(request) or await streaming(request)

    async with watching(respond) as heard:
        await until(lambda: heard.answers.count(("watch", "200")) == WATCHED)
        assert heard.answers.count(("list", str(status))) == 2
        assert {*heard.keys} == {MINE}
    # the place that the API has forgotten is no failure: the list is asked for anew
    assert heard.failures == (0 if status == 410 else 2)
    assert told(caplog, "a watch failed") == told(caplog, "a watch works again") == (0 if status == 410 else 1)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd has no leader"}},
        {"type": "ERROR", "object": {"message": "etcd has no leader"}},
        {"type": "ADDED", "object": {"metadata": []}},
        {"type": "ADDED", "object": None},
        {"type": "ERROR", "object": GONE},
    ],
)
async def test_a_watch_that_says_what_nobody_understands_is_begun_anew(event: Object) -> None:
    left = 2

    async def respond(request: web.Request) -> web.StreamResponse:
        nonlocal left
        events: list[Object] = []
        if "watch" in request.query and request.path.endswith(CONFIG_MAP.plural):
            events = [event] if left else [{"type": "ADDED", "object": config_map("late")}]
            left -= bool(left)
        return lists(request) or await streaming(request, *events)

    async with watching(respond) as heard:
        await until(lambda: MINE._replace(name="late") in heard.keys)
    is_gone = event["object"] == GONE
    assert heard.failures == (0 if is_gone else 2)
    assert heard.lists == WATCHED + (2 if is_gone else 0), "what went meanwhile is in no list: all are looked at"


async def test_a_failure_of_all_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with watching(usual, url="http://127.0.0.1:1") as heard:
        await until(lambda: heard.failures > 2 * WATCHED)
    assert told(caplog, "a watch failed") == 1


async def test_another_authoritys_certificate_is_told_until_the_file_is_mended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own, other = Authority(tmp_path, "own"), Authority(tmp_path, "other")
    pair = own.issue("server", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)

    app = web.Application()
    app.router.add_get("/{path:.*}", usual)
    server = TestServer(app)
    await server.start_server(ssl=context)
    file = tmp_path / "ca.crt"
    file.write_bytes(other.ca.read_bytes())
    try:
        url = f"https://127.0.0.1:{server.port}"
        async with watching(usual, url=url, ca_file=file) as heard:
            await until(lambda: heard.failures)
            assert told(caplog, "--kubernetes.ca-file") == 1
            file.write_bytes(own.ca.read_bytes())
            await until(lambda: MINE in heard.keys)
    finally:
        await server.close()
