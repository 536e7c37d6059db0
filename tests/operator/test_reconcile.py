"""The worker: what the API server does not let it see or write holds up nothing else."""

import asyncio
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import pytest

from exporter.errors import SourceError, Unavailable
from exporter.lenient import AnyObject
from exporter.operator import reconcile
from exporter.operator.api.event_writer import Events
from exporter.operator.api.reader import Reader
from exporter.operator.api.writer import Refused, Writer
from exporter.operator.controllers import ExporterController
from exporter.operator.event_texts import Event
from exporter.operator.exporter_health import ExporterHealth
from exporter.operator.objects.kinds import GPU_AUTOSCALER, GPU_EXPORTER, POD, Key, Kind, key_of
from exporter.operator.objects.needs_write import WritePlan
from exporter.operator.outputs import OperatorMetrics
from exporter.operator.reconcile import DesiredObjects, LookResult, Reconciler
from exporter.operator.work_queue import EVERYTHING, WorkQueue
from tests.operator.made import Object, daemon_set, gpu_exporter, pod

FORBIDDEN = Unavailable("permission", "the Kubernetes API refuses it with 403", remedy="the service account needs it")
AWAY = Unavailable("unreachable", "nobody answers", remedy="wait")
REFUSED = Refused("/x", 422, "is invalid", "Invalid")
MINE = Key("GPUExporter", "ml", "gpu")


def scaler(namespace: str = "ml") -> Object:
    return {"kind": "GPUAutoscaler", "metadata": {"name": "trainer", "namespace": namespace}}


def config_maps(names: str) -> list[Object]:
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} for name in names]


Fails = dict[Any, SourceError]


def check(fails: Fails, *places: object) -> None:
    for place in places:
        if place in fails:
            raise fails[place]


class Stored(Reader):
    """What is there, and which of it cannot be read: of a kind, or of a kind in a namespace."""

    def __init__(self, *items: Object, fails: Fails | None = None) -> None:
        self.items = {key_of(item): item for item in items}
        self.fails = fails or {}

    async def get(self, key: Key) -> AnyObject | None:
        return self.items.get(key)

    async def keys(self, kind: Kind, namespace: str | None) -> set[Key]:
        return {key_of(item) for item in await self.listed(kind, namespace, {})}

    async def listed(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str] = MappingProxyType({}), **_: object
    ) -> Sequence[AnyObject]:
        check(self.fails, kind.name, (kind.name, namespace))
        return [
            item
            for key, item in self.items.items()
            if key.kind == kind.name and namespace in (None, key.namespace) and not labels
        ]


class Written(Writer):
    """The names of what was applied and deleted, and which cannot be."""

    def __init__(self, fails: Fails | None = None) -> None:
        self.applied: list[str] = []
        self.deleted: list[str] = []
        self._fails = fails or {}

    async def apply(self, item: Object, _: AnyObject | None) -> Object:
        name = item["metadata"]["name"]
        check(self._fails, name)
        self.applied.append(name)
        return item

    async def delete(self, item: AnyObject) -> None:
        name = item["metadata"]["name"]
        check(self._fails, name)
        self.deleted.append(name)

    async def apply_status(self, owner: AnyObject, status: Mapping[str, Any]) -> Object:  # noqa: ARG002 - as a Writer has it
        return {}


class Told(Events):
    """Events that nobody hears of."""

    def __init__(self) -> None:
        pass

    async def tell(self, *_: object, **__: object) -> None:
        pass


class Noting:
    """A controller that wants three objects in place of three others, and remembers what it was asked."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.outcomes: list[LookResult] = []
        self.kept: list[AbstractSet[Key]] = []

    async def desired(self, *_: object) -> DesiredObjects:
        wanted, gone = map(config_maps, ("abc", "xyz"))
        plan = WritePlan([(item, None) for item in wanted], gone, [], [])
        return DesiredObjects(plan=plan, live={key_of(item): item for item in gone})

    async def status(self, outcome: LookResult) -> Mapping[str, object]:
        self.outcomes.append(outcome)
        return {"told": True}

    def events(self, *_: object) -> Sequence[Event]:
        return ()

    def keep_only(self, keys: AbstractSet[Key]) -> None:
        self.kept.append({*keys})

    async def gone(self, _: Key) -> Sequence[AnyObject]:
        return ()


def reconciler(stored: Stored, *controllers: Noting, written: Written | None = None) -> tuple[Reconciler, WorkQueue]:
    work = WorkQueue()
    made = Reconciler(
        writer=written or Written(),
        reader=stored,
        events=Told(),
        controllers=controllers,
        namespaces=("ml", "dev"),
        work=work,
        metrics=OperatorMetrics(),
    )
    made.served = frozenset({GPU_EXPORTER, GPU_AUTOSCALER})
    return made, work


async def looked_at(made: Reconciler, work: WorkQueue, *keys: Key) -> None:
    """Until nothing is to be done now. No time passes: what is tried again later is not."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    with patch.object(loop, "time", lambda: now):
        for key in keys:
            work.add(key)
        running = asyncio.create_task(made.run())
        for _ in range(100):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})


@pytest.mark.parametrize("forbidden", ["GPUAutoscaler", ("GPUAutoscaler", "ml"), ("GPUExporter", "dev")])
async def test_a_kind_or_a_namespace_that_may_not_be_read_holds_up_no_other(forbidden: Any) -> None:
    stored = Stored(gpu_exporter(), scaler("dev"), fails={forbidden: FORBIDDEN})
    exporters, scalers = Noting(GPU_EXPORTER), Noting(GPU_AUTOSCALER)
    await looked_at(*reconciler(stored, exporters, scalers), EVERYTHING)
    assert [key_of(outcome.owner) for outcome in exporters.outcomes] == [MINE]
    assert len(scalers.outcomes) == (0 if forbidden == "GPUAutoscaler" else 1)
    # of those that could not be listed nobody knows that they are gone
    assert exporters.kept == []


async def test_what_is_gone_is_remembered_by_nobody() -> None:
    exporters = Noting(GPU_EXPORTER)
    made, work = reconciler(Stored(gpu_exporter()), exporters)
    await looked_at(made, work, EVERYTHING)
    assert exporters.kept == [{MINE}]
    made.served = frozenset()  # the definition went
    await looked_at(made, work, EVERYTHING)
    assert exporters.kept[1:] == [frozenset()]


@pytest.mark.parametrize("failure", [FORBIDDEN, REFUSED])
async def test_an_object_that_may_not_be_written_holds_up_no_other(failure: SourceError) -> None:
    written, controller = Written({"b": failure, "x": failure}), Noting(GPU_EXPORTER)
    made, work = reconciler(Stored(gpu_exporter()), controller, written=written)
    await looked_at(made, work, MINE)
    assert (written.applied, written.deleted) == (["a", "c"], ["y", "z"])
    (outcome,) = controller.outcomes
    assert outcome.refused == [failure, failure]
    assert sorted(key.name for key in outcome.live) == ["a", "c", "x"]
    assert [change.verb for change in outcome.changes] == ["deleted", "deleted", "created", "created"]
    assert len(work) == 1, "it is tried again"


class Needless(Written):
    """An API server to which what it has is the same as what is applied, though it is written otherwise."""

    async def apply(self, item: Object, there: AnyObject | None) -> Object:
        return {**await super().apply(item, there), "metadata": dict((there or item)["metadata"])}


class Wanting(Noting):
    """A controller that wants objects which are there already, each with its version."""

    there: Sequence[Object] = ()

    async def desired(self, *_: object) -> DesiredObjects:
        wanted = [{**item, "metadata": {"name": item["metadata"]["name"]}, "wanted": True} for item in self.there]
        return DesiredObjects(plan=WritePlan(list(zip(wanted, self.there, strict=True)), [], [], []), live={})


async def test_an_apply_that_changed_nothing_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "MOST_NEEDLESS", 2)
    written, controller = Needless(), Wanting(GPU_EXPORTER)
    made, work = reconciler(Stored(gpu_exporter()), controller, written=written)
    maps = config_maps("abc")
    for item in maps:
        item["metadata"]["resourceVersion"] = "1"

    async def applied(*there: Object) -> list[str]:
        controller.there, written.applied = there, []
        await looked_at(made, work, MINE)
        return written.applied

    a, b, c = maps
    assert [await applied(a) for _ in range(2)] == [["a"], []]
    assert await applied({**a, "data": {"x": "somebody's"}}) == ["a"]
    assert controller.outcomes[-1].changes == []
    # no more are remembered than may be
    assert [await applied(a, b), await applied(a, b), await applied(a, b, c), await applied(a)] == [
        ["a", "b"], [], ["c"], ["a"],
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "applied"), [("b", ["a"]), ("x", [])])
async def test_while_the_api_does_not_answer_nothing_more_is_asked(name: str, applied: list[str]) -> None:
    written, controller = Written({name: AWAY}), Noting(GPU_EXPORTER)
    await looked_at(*reconciler(Stored(gpu_exporter()), controller, written=written), MINE)
    assert written.applied == applied
    assert controller.outcomes == []


def reason(status: Mapping[str, Any]) -> str:
    return next(str(each["reason"]) for each in status["conditions"] if each["type"] == "Degraded")


async def test_an_exporter_whose_pods_may_not_be_listed_says_so() -> None:
    looks = ExporterHealth(on_change=lambda _: None)
    stored = Stored(gpu_exporter(), fails={POD.name: FORBIDDEN})
    live = {Key("DaemonSet", "ml", "gpu"): daemon_set(1)}
    outcome = LookResult(owner=gpu_exporter(), desired=None, live=live)
    status = await ExporterController(stored, looks).status(outcome)
    assert (reason(status), status["nodesReady"]) == ("Forbidden", 1)
    stored.fails = {POD.name: AWAY}
    with pytest.raises(Unavailable, match="nobody answers"):
        await ExporterController(stored, looks).status(outcome)


async def test_exporters_of_others_than_there_are_are_asked_no_more() -> None:
    looks = ExporterHealth(on_change=lambda _: None)
    other = MINE._replace(name="other")
    for key, ip in ((MINE, "10.0.0.1"), (other, "10.0.0.2")):
        looks.follow(key, [pod(ip=ip)])
    ExporterController(Stored(), looks).keep_only({other})
    assert looks.bounds["operator_exporters"].used() == 1
    assert looks.troubles(MINE) is None
