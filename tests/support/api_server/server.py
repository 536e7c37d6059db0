"""The simulated Kubernetes API server: its listener, and what a test may do to it."""

import asyncio
import ssl

from aiohttp import web

from exporter.simulator.serving import Serving
from tests.support.api_server.answers import Object
from tests.support.api_server.collecting import Collector
from tests.support.api_server.daemon_sets import DaemonSets
from tests.support.api_server.handling import Handler
from tests.support.api_server.store import Key

_MOST_BYTES = 3 * 1024**2


class SimulatedApiServer(Handler):
    """Serves built-in kinds and those that CustomResourceDefinitions define, from its memory, on a loopback port.

    What it stores outlives `stop`: a server that starts again on its port has the objects, versions and uids of before.
    """

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.daemon_sets = DaemonSets(self.store, self.writer)
        # what runs while it listens
        self.background = [Collector(self.store, self.kinds).run, self.daemon_sets.run]
        self.url = ""
        self._serving: Serving | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def add_namespace(self, name: str) -> None:
        """Make a namespace. Objects may be in others, too."""
        self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "status": {"phase": "Active"}})

    def put(self, item: Object) -> Object:
        """Make an object what the test wants, status included, past every check. Returns it as it is stored."""
        kind = self.kinds.of_object(item["apiVersion"], item["kind"])
        if kind is None:
            raise KeyError(f"{item['apiVersion']} {item['kind']}")
        metadata = item["metadata"]
        key = Key(kind.resource, metadata.get("namespace", "") if kind.namespaced else "", metadata["name"])
        live = self.store.get(key)
        before = live["metadata"] if live else self.writer.new_metadata()
        return self.store.put(key, {**item, "metadata": {**before, **metadata}})

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """An object by its kind's name, or None; the namespace of one that has none is ""."""
        return next((item for item in self.all(kind) if _place(item) == (namespace, name)), None)

    def all(self, kind: str) -> list[Object]:
        """All objects of a kind."""
        return [item for _, item in self.store.all() if item["kind"] == kind]

    async def start(self, port: int = 0, *, tls: ssl.SSLContext | None = None) -> str:
        """Listen on loopback, with TLS where `tls` is given. Returns the URL."""
        app = web.Application(client_max_size=_MOST_BYTES)
        app.router.add_route("*", "/{path:.*}", self.handle)
        self._serving = Serving(app, drain_seconds=0.1)
        await self._serving.start("127.0.0.1", port, tls)
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


def _place(item: Object) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
