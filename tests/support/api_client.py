"""A client of the simulated Kubernetes API server."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.support.api_server.answers import Object
from tests.support.api_server.server import SimulatedApiServer
from tests.support.cel import reviewer
from tests.support.places import DATA
from tests.support.waiting import until

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
NAMESPACE = "ml"
RECORDED = DATA / "kubernetes-1.36" / "operator"
DEFINITION: Object = json.loads((RECORDED / "02-crd-create.request.json").read_text())
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
EXPORTERS = f"/apis/gpu.example.com/v1/namespaces/{NAMESPACE}/gpuexporters"


class Client:
    """Sends requests; an answer is a status and a body, text where it is no JSON."""

    def __init__(self, server: SimulatedApiServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.session = session

    async def ask(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json", token: str = ""
    ) -> tuple[int, Any]:
        """What a request is answered with."""
        headers = {"User-Agent": "tests/1", "Content-Type": kind}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else io.BytesIO(json.dumps(body).encode())
        async with self.session.request(method, self.server.url + path, data=data, headers=headers) as response:
            text = await response.text()
            return response.status, json.loads(text) if response.content_type == "application/json" else text

    async def get(self, path: str) -> Any:
        """What is there."""
        status, body = await self.ask("GET", path)
        assert status == 200, body
        return body

    async def apply(self, path: str, item: Object, *, manager: str = "tests", force: bool = False) -> Any:
        """The object after an apply that is not refused."""
        more = "&force=true" if force else ""
        status, body = await self.ask("PATCH", f"{path}?fieldManager={manager}{more}", item, kind=APPLY)
        assert status in (200, 201), body
        return body

    async def define(self, definition: Object = DEFINITION) -> None:
        """Make a CustomResourceDefinition, and wait until it is served."""
        status, body = await self.ask("POST", DEFINITIONS, definition)
        assert status == 201, body
        spec = definition["spec"]
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"

        async def is_served() -> bool:
            return (await self.ask("GET", path))[0] == 200

        await until(is_served)

    @asynccontextmanager
    async def watch(self, path: str, accept: str = "application/json") -> AsyncIterator["asyncio.Queue[Object]"]:
        """The events of a watch, and None at its end."""
        queue: asyncio.Queue[Object] = asyncio.Queue()

        async def read() -> None:
            async with self.session.get(self.server.url + path, headers={"Accept": accept}) as response:
                began.set()
                async for line in response.content:
                    queue.put_nowait(json.loads(line))
            queue.put_nowait({"type": "END", "object": {}})

        began = asyncio.Event()
        task = asyncio.ensure_future(read())
        await began.wait()
        yield queue
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def served(**fields: Any) -> AsyncIterator[Client]:
    """A server with the namespace of the recordings, and its client."""
    server = SimulatedApiServer(reviewer=reviewer, **fields)
    server.add_namespace(NAMESPACE)
    await server.start()
    async with aiohttp.ClientSession() as session:
        yield Client(server, session)
    await server.stop()


def exporter(name: str = "main", **spec: Any) -> Object:
    """A custom resource of the recordings' definition."""
    return {
        "apiVersion": "gpu.example.com/v1",
        "kind": "GPUExporter",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"nodePool": "a", **spec},
    }
