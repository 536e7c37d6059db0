"""Operators that tell pods of XIDs, and the API server: a real one where there is one, else the simulated one."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from exporter.model.cluster_view import NodeEvent
from exporter.model.kernel import DeviceEvent, KernelEvent
from exporter.model.pods import Owner
from exporter.model.slices import at_once
from exporter.operator.api.event_writer import Events
from exporter.operator.api.reader import Reader
from exporter.operator.api.writer import Writer
from exporter.operator.objects.kinds import EVENT, POD, Kind
from exporter.operator.objects.object_fields import written
from exporter.operator.pod_events import PodEvents
from exporter.outputs.event_rows import kernel_rows as rows
from exporter.sources.exporters.exporter_events import read_events
from tests.operator.looking import OWNER
from tests.operator.made import Object
from tests.support.api_server.server import SimulatedApiServer
from tests.support.real_cluster import RealCluster

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC).timestamp()
NAMESPACES = ("ml", "vision")
_USER = "a"
_GIVEN = {"uid", "resourceVersion", "creationTimestamp", "managedFields"}  # by the API server


def xid(
    code: int | None = 79,
    *pods: str,
    ago: float = 60.0,
    gpu: int = 3,
    namespace: str = "ml",
    kind: Any = "xid",
    **more: Any,
) -> DeviceEvent:
    """An event as a node exporter keeps it; `ago` is in seconds before NOW."""
    holders = tuple(Owner(namespace=namespace, pod=pod, container="main") for pod in pods or ("train-0",))
    event = KernelEvent(kind=kind, sequence=1, booted_us=1, address="0000:65:00.0", code=code, text="pid=1")
    about = {"at_seconds": NOW - ago, "uuid": f"GPU-{gpu}", "index": str(gpu), "holders": holders, **more}
    return DeviceEvent(event=event, **about)


def answered(*events: DeviceEvent, node: str = "a") -> Sequence[NodeEvent]:
    """The same as the operator reads it of the exporter's answer."""
    return at_once(read_events(json.dumps(rows(node, events)).encode(), node))


def pod(
    name: str = "train-0", *, namespace: str = "ml", node: str = "a", ago: float = 600.0, uid: str = "u1"
) -> Object:
    """A pod that began `ago` seconds before NOW. A real API server gives it another `uid`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": uid},
        "spec": {"nodeName": node},
        "status": {"startTime": written(datetime.fromtimestamp(NOW - ago, UTC)), "phase": "Running"},
    }


class Told:
    """An API server with its namespaces, and operators, one after another, that tell pods."""

    def __init__(self, url: str, token_file: Path, ca_file: Path) -> None:
        self.url, self.now = url, NOW
        self.changed: list[object] = []
        self._token_file, self._ca_file = token_file, ca_file

    async def put(self, item: Object) -> str:
        """A pod or an event is there, and what else has its name is not. Returns its uid."""
        raise NotImplementedError

    async def events(self) -> list[Object]:
        """Those of all namespaces, in the order in which they were written."""
        raise NotImplementedError

    @asynccontextmanager
    async def operator(self) -> AsyncIterator[PodEvents]:
        """A process that works, until it is left."""
        writer = Writer(
            url=self.url,
            token_file=str(self._token_file),
            ca_file=str(self._ca_file),
            on_answer=lambda *_: None,
            seed=1,
        )
        made = PodEvents(Reader(writer), Events(writer, "operator-a"), self.changed.append, lambda: self.now)
        task = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await writer.close()

    async def hear(self, made: PodEvents, *events: DeviceEvent, node: str = "a") -> None:
        """A node's answer comes, and is dealt with."""
        made.hear(OWNER, node, answered(*events, node=node))
        await made.waiting.join()

    async def forget(self, event: Object) -> None:
        """The API server has the event no longer."""
        raise NotImplementedError


class SimulatedTold(Told):
    """The simulated one, which does as `api` is told."""

    def __init__(self, api: SimulatedApiServer, folder: Path) -> None:
        self.api = api
        (folder / "token").write_text("token-a")
        super().__init__(api.url, folder / "token", folder / "ca.crt")

    async def put(self, item: Object) -> str:
        """A pod or an event is there, and what else has its name is not. Returns its uid."""
        return str(self.api.put(item)["metadata"]["uid"])

    async def events(self) -> list[Object]:
        """Those of all namespaces, in the order in which they were written."""
        return self.api.all("Event")

    async def forget(self, event: Object) -> None:
        """The API server has the event no longer."""
        async with aiohttp.ClientSession() as session, session.delete(self.url + _path(EVENT, event)) as answer:
            assert answer.status == 200, await answer.text()


class RealTold(Told):
    """A real one, with the rights of the operator's manifest."""

    def __init__(self, cluster: RealCluster, folder: Path) -> None:
        self._cluster = cluster
        (folder / "token").write_text(cluster.tokens[_USER])
        super().__init__(cluster.url, folder / "token", cluster.ca_file)

    async def put(self, item: Object) -> str:
        """A pod or an event is there, and what else has its name is not. Returns its uid."""
        kind = POD if item.get("kind") == POD.name else EVENT  # of a list, each item lacks it
        about = {name: value for name, value in item["metadata"].items() if name not in _GIVEN}
        item = {**item, "metadata": about}
        if kind is POD:
            item["spec"] = {**item["spec"], "containers": [{"name": "main", "image": "registry.example.com/none"}]}
        await self._cluster.ask("DELETE", _path(kind, item), {"gracePeriodSeconds": 0})
        status, made = await self._cluster.ask("POST", kind.path(about["namespace"]), item)
        assert status == 201, made
        if item.get("status"):
            status, answer = await self._cluster.ask("PATCH", f"{_path(kind, item)}/status", {"status": item["status"]})
            assert status == 200, answer
        return str(made["metadata"]["uid"])

    async def events(self) -> list[Object]:
        """Those of all namespaces, in the order in which they were written."""
        status, answer = await self._cluster.ask("GET", EVENT.path(None))
        assert status == 200, answer
        ours = [each for each in answer["items"] if each["metadata"]["namespace"] in NAMESPACES]
        return sorted(ours, key=lambda each: int(each["metadata"]["resourceVersion"]))

    async def forget(self, event: Object) -> None:
        """The API server has the event no longer."""
        status, answer = await self._cluster.ask("DELETE", _path(EVENT, event))
        assert status == 200, answer

    async def forget_all(self) -> None:
        """Let the next test begin with nothing."""
        for kind in (POD, EVENT):
            for namespace in NAMESPACES:
                status, answer = await self._cluster.ask("DELETE", kind.path(namespace), {"gracePeriodSeconds": 0})
                assert status == 200, answer


def _path(kind: Kind, item: Object) -> str:
    return kind.path(item["metadata"]["namespace"], item["metadata"]["name"])
