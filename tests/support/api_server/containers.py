"""Containers of pods: commands that are run in them, and what they have logged. There are none unless a test says so.

kubectl runs a command by a WebSocket (subprotocol v5.channel.k8s.io): the first byte of each message is its channel, 1
for the output, 2 for the errors, 3 for a Status at the end (staging/src/k8s.io/apimachinery/pkg/util/remotecommand and
kubelet/pkg/cri/streaming/remotecommand of Kubernetes 1.32).
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web

from tests.support.api_server.answers import Object, Refused, not_found
from tests.support.api_server.requests import Path
from tests.support.api_server.store import Key, Store

EXEC, LOG = "exec", "log"
_SUBPROTOCOL = "v5.channel.k8s.io"
_STDOUT, _STDERR, _STATUS = b"\x01", b"\x02", b"\x03"
_CHUNK = 16 * 1024


@dataclass
class Container:
    """What runs in a container: `environment` is that of a command in it; None: it does not run."""

    environment: Mapping[str, str] | None = None
    log: str = ""
    previous_log: str | None = None


@dataclass
class Containers:
    """The containers, by namespace, pod and name."""

    by_place: dict[tuple[str, str, str], Container] = field(default_factory=dict)

    async def answer(self, store: Store, path: Path, request: web.Request) -> web.StreamResponse:
        """Answer a request for a pod's exec or log. Raises Refused."""
        pod = store.get(Key("pods", path.namespace, path.name))
        if pod is None:
            raise not_found("", "pods", path.name)
        name = request.query.get("container") or str(pod["spec"]["containers"][0]["name"])
        container = self.by_place.get((path.namespace, path.name, name))
        if container is None:
            raise Refused(400, "BadRequest", f"container {name} is not valid for pod {path.name}")
        return await self._run(container, request) if path.subresource == EXEC else self._log(container, path, request)

    def _log(self, container: Container, path: Path, request: web.Request) -> web.Response:
        log = container.log
        if request.query.get("previous") == "true":
            if container.previous_log is None:
                why = f'previous terminated container "exporter" in pod "{path.name}" not found'
                raise Refused(400, "BadRequest", why)
            log = container.previous_log
        lines = log.splitlines(keepends=True)[-int(request.query.get("tailLines", 10**9)) :]
        return web.Response(text="".join(lines))

    async def _run(self, container: Container, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise Refused(400, "BadRequest", "Upgrade request required")
        if container.environment is None:
            raise Refused(500, "InternalError", 'unable to upgrade connection: container not found ("exporter")')
        socket = web.WebSocketResponse(protocols=(_SUBPROTOCOL,), max_msg_size=0)
        await socket.prepare(request)
        try:
            process = await asyncio.create_subprocess_exec(
                *request.query.getall("command"), env={**container.environment}, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
        except OSError as error:
            await socket.send_bytes(_STATUS + json.dumps(_failed(127, f"exec failed: {error}")).encode())
        else:
            closing = asyncio.ensure_future(_until_closed(socket))
            await asyncio.gather(
                *(_pass_on(socket, *pair) for pair in ((process.stdout, _STDOUT), (process.stderr, _STDERR)))
            )
            code = await process.wait()
            status = {"metadata": {}, "status": "Success"} if code == 0 else _failed(code, f"exit code {code}")
            await socket.send_bytes(_STATUS + json.dumps(status).encode())
            closing.cancel()
        await socket.close()
        return socket


async def _pass_on(socket: web.WebSocketResponse, stream: asyncio.StreamReader | None, channel: bytes) -> None:
    while stream is not None and (chunk := await stream.read(_CHUNK)):
        await socket.send_bytes(channel + chunk)


async def _until_closed(socket: web.WebSocketResponse) -> None:
    """Take what the client sends: pings, which aiohttp answers while somebody reads, and the end."""
    async for message in socket:
        if message.type is WSMsgType.ERROR:
            return


def _failed(code: int, why: str) -> Object:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: {why}",
        "reason": "NonZeroExitCode",
        "details": {"causes": causes},
    }
