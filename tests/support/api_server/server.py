"""The simulated Kubernetes API server: its listener, and what a test may do to it."""

import asyncio
import copy
import ssl

from aiohttp import web

from exporter.simulator.serving import Serving
from tests.support.api_server.answers import Object
from tests.support.api_server.daemon_sets import DaemonSets
from tests.support.api_server.garbage import Collector
from tests.support.api_server.handling import Handler
from tests.support.api_server.store import Key
from tests.support.api_server.validation import Rules
from tests.support.api_server.writing import now

_NAMESPACES = ("default", "kube-system")
_MOST_BYTES = 3 * 1024**2


class SimulatedApiServer(Handler):
    """Serves built-in kinds and those that CustomResourceDefinitions define, from its memory, on a loopback port.

    What it stores outlives `stop`: a server that starts again on its port has the objects, versions and uids of before.
    """

    def __init__(self, *, reviewer: Rules | None = None, seed: int = 0) -> None:
        super().__init__(reviewer=reviewer, seed=seed)
        self.collector = Collector(self.store, self.kinds)
        self.daemon_sets = DaemonSets(self.store, self.writer)
        self.background = [self.collector.run, self.daemon_sets.run]  # what runs while it listens
        self.url = ""
        self._serving: Serving | None = None
        self._tasks: list[asyncio.Task[None]] = []
        for name in _NAMESPACES:
            self.add_namespace(name)

    def add_namespace(self, name: str) -> None:
        """Make a namespace."""
        self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "status": {"phase": "Active"}})

    def put(self, item: Object) -> Object:
        """Make an object what it is told to be, status included, past every check. Returns it as it is stored."""
        kind = self.kinds.of_object(item["apiVersion"], item["kind"])
        if kind is None:
            raise KeyError(f"{item['apiVersion']} {item['kind']}")
        metadata = item["metadata"]
        key = Key(kind.resource, metadata.get("namespace", "") if kind.namespaced else "", metadata["name"])
        live = self.store.get(key)
        given = {"uid": f"uid-of-{self.store.version}", "creationTimestamp": now()}
        before = live["metadata"] if live else given
        return self.store.put(key, {**copy.deepcopy(kind.skeleton), **item, "metadata": {**before, **metadata}})

    def set_status(self, kind: str, namespace: str, name: str, status: Object) -> Object:
        """Give an object a status, as its controller would; a KeyError where it is not there. Returns the object."""
        item = self.get(kind, namespace, name)
        if item is None:
            raise KeyError(f"{kind} {namespace}/{name}")
        return self.put({**item, "status": status})

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """An object by its kind's name, or None; the namespace of one that has none is ""."""
        return next((item for item in self.all(kind) if _place(item) == (namespace, name)), None)

    def all(self, kind: str) -> list[Object]:
        """All objects of a kind."""
        return [item for _, item in self.store.all() if item["kind"] == kind]

    async def start(self, port: int = 0, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> str:
        """Listen, with TLS where `tls` is given. Returns the URL on loopback."""
        app = web.Application(client_max_size=_MOST_BYTES)
        app.router.add_route("*", "/{path:.*}", self.handle)
        self._serving = Serving(app, drain_seconds=0.1)
        await self._serving.start(host, port, tls)
        self._tasks = [asyncio.ensure_future(run()) for run in self.background]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._serving.address[1]}"
        return self.url

    async def stop(self) -> None:
        """Stop listening, and end every watch; connections are refused until it starts again."""
        self.break_watches()
        await self.watches_ended()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._serving is not None:
            await self._serving.stop()
            self._serving = None

    def compact(self) -> None:
        """Forget all versions before now, and end every watch; a new one from an old version is answered with 410."""
        self.store.compact()
        self.break_watches()


def _place(item: Object) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
