"""Events on pods that held a GPU at an XID, with what a node exporter answers."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from exporter.dcgm.xids import XIDS
from exporter.errors import Malformed
from exporter.model.cluster_view import NodeEvent
from exporter.model.kernel import DeviceEvent
from exporter.model.pods import Owner
from exporter.model.slices import at_once
from exporter.operator import pod_events as module
from exporter.operator.objects.kinds import EVENT
from exporter.operator.pod_events import AGAIN_SECONDS, MOST_IN_NAMESPACE
from exporter.outputs.event_rows import kernel_rows as rows
from exporter.sources.exporters.exporter_events import MOST_ROW_CHARS, read_events
from tests.cluster.exporters.conftest import (
    Serve,
    whole,
)
from tests.cluster.exporters.conftest import (
    serve as serve,  # noqa: PLC0414 - a fixture
)
from tests.operator.looking import OWNER, answers, body, by_node, looking
from tests.operator.made import Object, daemon_set
from tests.operator.made import pod as made_pod
from tests.operator.test_exporter_status import of as status_of
from tests.operator.test_exporter_status import says
from tests.operator.test_rights import named
from tests.operator.told import NAMESPACES, RealTold, SimulatedTold, Told, answered, pod, xid
from tests.support.api_server.server import SimulatedApiServer
from tests.support.real_api import IS_REAL
from tests.support.real_cluster import RealCluster
from tests.support.waiting import until
from tests.support.xids import INFORMING, OF_NOBODY

READS_LOG = body("a", **{"kernel-log": {"up": True, "reason": "", "message": "", "remedy": ""}})
TRAIN = ("ml", "train-0")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[RealCluster | None]:
    if not IS_REAL:
        yield None
        return
    made = RealCluster("a")
    try:
        await made.start()
        for name in NAMESPACES:
            status, answer = await made.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
            assert status == 201, answer
        yield made
    finally:
        await made.stop()


@pytest.fixture
async def simulated(tmp_path: Path) -> AsyncIterator[SimulatedTold]:
    api = SimulatedApiServer()
    for name in NAMESPACES:
        api.add_namespace(name)
    await api.start()
    yield SimulatedTold(api, tmp_path)
    await api.stop()


@pytest.fixture
async def told(cluster: RealCluster | None, simulated: SimulatedTold, tmp_path: Path) -> AsyncIterator[Told]:
    """A real API server where there is one; what one has to be told to do, the simulated one alone does."""
    if cluster is None:
        yield simulated
        return
    real = RealTold(cluster, tmp_path)
    yield real
    await real.forget_all()


# issue 30, "Told to the team"
async def test_the_pod_that_held_the_gpu_is_told(told: Told) -> None:
    uid = await told.put(pod())
    async with told.operator() as made:
        await told.hear(made, xid(79))
    (event,) = await told.events()
    assert event["note"] == (
        "Xid 79 on GPU 3 (GPU has fallen off the bus) while this pod held it; drain the node and restart it; if it"
        " comes back, ask the vendor of the node"
    )
    assert (event["type"], event["reason"], event["reportingController"]) == (
        "Warning",
        "GpuXid",
        "pod-gpu-metrics-operator",
    )
    assert event["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "train-0",
        "namespace": "ml",
        "uid": uid,
    }
    assert event["metadata"]["namespace"] == "ml"
    assert event["eventTime"] == "2026-11-22T11:59:00.000000Z"


# The event, and the pod that bears the holder's name now.
NOT_TOLD: dict[str, tuple[DeviceEvent, Object | None]] = {
    "the pod is gone": (xid(), None),
    "another pod of its name came after": (xid(ago=60), pod(ago=50, uid="u2")),
    "it began in the second of the XID": (xid(ago=60), pod(ago=60)),
    "a pod of its name is on another node": (xid(), pod(node="b")),
    "its kubelet does not know it yet": (xid(), {**pod(), "status": {}}),
    "nobody can say who held it": (xid(holders=None), pod()),
    "nobody held it": (xid(holders=()), pod()),
    "it is no XID": (xid(None, kind="lost"), pod()),
    # issue 22, line 4: a StatefulSet made it anew on another GPU, and the kubelet knew it before the XID
    "a pod that was made anew never held it": (xid(pod_uids=((("ml", "train-0"), "u1"),)), pod(uid="u2")),
    "it is no error": (xid(154), pod()),  # issue 22, line 7
    "it is an NVSwitch's": (xid(12028, kind="sxid"), pod()),
    "it is older than an hour": (xid(ago=AGAIN_SECONDS), pod(ago=9000)),
    "the node's clock is of tomorrow": (xid(ago=-86_400), pod()),
    "a name that is a path": (xid(79, "../../nodes"), pod()),
    "a name that is a selector": (xid(79, "train-0,metadata.namespace=ml"), pod()),
    "a namespace that is a path": (xid(namespace="ml/pods/train-0?x="), pod()),
}


@pytest.mark.parametrize("case", NOT_TOLD)
async def test_nobody_is_told_of_what_another_had(told: Told, case: str) -> None:
    event, there = NOT_TOLD[case]
    if there:
        await told.put(there)
    async with told.operator() as made:
        await told.hear(made, event)
        await told.put(pod("other"))
        await told.hear(made, xid(48, "other"))
    assert [event["regarding"]["name"] for event in await told.events()] == ["other"]


# issue 22, line 4
async def test_the_pod_of_the_event_s_uid_is_told(told: Told) -> None:
    uid = await told.put(pod(ago=60))
    async with told.operator() as made:
        await told.hear(made, xid(ago=60, pod_uids=((TRAIN, uid),)))
    assert [event["regarding"]["uid"] for event in await told.events()] == [uid]


# issue 22, line 4
async def test_a_pod_that_was_made_anew_is_told_of_its_own_xids_alone(told: Told) -> None:
    """As a StatefulSet makes it, on another GPU: its kubelet knew it before an XID of the GPU of the first one."""
    first = await told.put(pod(ago=600, uid="u1"))
    second = await told.put(pod(ago=120, uid="u2"))
    assert first != second
    async with told.operator() as made:
        await told.hear(made, xid(79, ago=60, pod_uids=((TRAIN, first),)))
        assert await told.events() == []
        await told.hear(made, xid(48, ago=30, gpu=4, pod_uids=((TRAIN, second),)))
    assert [(event["note"][:15], event["regarding"]["uid"]) for event in await told.events()] == [
        ("Xid 48 on GPU 4", second)
    ]


# issue 22, line 7
@pytest.mark.parametrize("code", [code for code in XIDS if code])
async def test_an_xid_that_only_informs_is_no_warning(told: Told, code: int) -> None:
    await told.put(pod())
    async with told.operator() as made:
        await told.hear(made, xid(code))
    expected = [] if code in OF_NOBODY else ["Normal"] if code in INFORMING else ["Warning"]
    assert [event["type"] for event in await told.events()] == expected
    assert not any("nothing: the GPU is well" in event["note"] for event in await told.events())


# issue 22, line 7
async def test_what_only_informs_leaves_warnings_their_place(told: Told) -> None:
    names = [f"train-{number}" for number in range(MOST_IN_NAMESPACE)]
    for name in names:
        await told.put(pod(name, uid=name))
    async with told.operator() as made:
        for code in (45, 79):
            for name in names:
                await told.hear(made, xid(code, name))
    kinds = Counter(event["type"] for event in await told.events())
    assert kinds == {"Normal": MOST_IN_NAMESPACE // 2, "Warning": MOST_IN_NAMESPACE // 2}


async def test_each_pod_that_shared_the_gpu_is_told_once(told: Told) -> None:
    for name in ("a", "b"):
        await told.put(pod(name, uid=name))
    event = xid(79, "a", "b")
    again = tuple(Owner(namespace="ml", pod="a", container=name) for name in ("one", "two"))
    async with told.operator() as made:
        await told.hear(made, event, xid(13, holders=again))
        await told.hear(made, event)
    assert sorted((event["regarding"]["name"], event["note"][:6]) for event in await told.events()) == [
        ("a", "Xid 13"),
        ("a", "Xid 79"),
        ("b", "Xid 79"),
    ]


async def test_a_device_an_xid_and_a_pod_are_told_once_an_hour(told: Told) -> None:
    await told.put(pod(ago=9000))
    async with told.operator() as made:
        await told.hear(made, xid(ago=60))
        await told.hear(made, xid(ago=30), xid(ago=60))
        assert len(await told.events()) == 1
        await told.hear(made, xid(ago=30, gpu=4), xid(31, ago=30))
        assert len(await told.events()) == 3
        told.now += AGAIN_SECONDS
        await told.hear(made, xid(ago=-AGAIN_SECONDS))
    assert len(await told.events()) == 3, "the API server has it still"


async def test_what_the_api_server_has_forgotten_is_told_anew(told: Told) -> None:
    await told.put(pod(ago=9000))
    async with told.operator() as made:
        await told.hear(made, xid())
        await told.forget((await told.events())[0])
        await told.hear(made, xid(ago=30))
        assert not await told.events()
        told.now += AGAIN_SECONDS
        await told.hear(made, xid(ago=-AGAIN_SECONDS))
    assert [("series" in event, event["eventTime"]) for event in await told.events()] == [
        (False, "2026-11-22T13:00:00.000000Z")
    ]


async def test_another_leader_tells_nothing_again(told: Told) -> None:
    await told.put(pod())
    async with told.operator() as made:
        await told.hear(made, xid(ago=60))
    before = await told.events()
    async with told.operator() as made:
        # the first row is told already, the second is within the hour of it
        await told.hear(made, xid(ago=30), xid(ago=60))
        assert await told.events() == before
        await told.hear(made, xid(48, ago=20))
    assert len(await told.events()) == 2


async def test_a_namespace_is_told_so_much_whoever_leads(told: Told) -> None:
    names = [f"pod-{number}" for number in range(2 * MOST_IN_NAMESPACE)]
    for name in names:
        await told.put(pod(name, uid=name, ago=9000))
    await told.put(pod("other", namespace="vision", ago=9000))
    for some in (names[: MOST_IN_NAMESPACE // 2], names, names):
        async with told.operator() as made:
            await told.hear(made, *(xid(79, name) for name in some))
    assert len(await told.events()) == MOST_IN_NAMESPACE
    async with told.operator() as made:
        await told.hear(made, xid(79, "other", namespace="vision"))
        assert len(await told.events()) == MOST_IN_NAMESPACE + 1
        told.now += AGAIN_SECONDS
        await told.hear(made, xid(79, names[15], ago=60 - AGAIN_SECONDS))
    assert len(await told.events()) == MOST_IN_NAMESPACE + 2


async def test_events_of_others_take_no_place(told: Told) -> None:
    await told.put(pod())
    async with told.operator() as made:
        await told.hear(made, xid())
        (event,) = await told.events()
        for number in range(MOST_IN_NAMESPACE):
            about = {**event["metadata"], "name": f"other.{number}"}
            await told.put({**event, "metadata": about, "reportingController": "somebody-else"})
    await told.put(pod("another", uid="u2"))
    async with told.operator() as made:
        await told.hear(made, xid(79, "another"))
    assert {event["regarding"]["name"] for event in await told.events()} == {"train-0", "another"}


async def test_a_right_that_is_missing_is_told_once_and_costs_little(simulated: SimulatedTold) -> None:
    await simulated.put(pod())
    await simulated.put(pod("other", namespace="vision", uid="u2"))
    events: Object = {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["list", "create"]}
    simulated.api.users = {"token-a": "operator-a"}
    pods = ("", {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]})
    simulated.api.rules = [pods, ("vision", events)]
    async with simulated.operator() as made:
        await simulated.hear(made, xid())
        (trouble,) = made.troubles(OWNER)
        assert trouble.reason == "Forbidden"
        assert "no events are written on pods of the namespace ml" in trouble.message
        assert trouble.remedy
        assert simulated.changed == [OWNER]
        asked = len(simulated.api.asked)
        for _ in range(100):
            await simulated.hear(made, xid())
        assert len(simulated.api.asked) == asked
        await simulated.hear(made, xid(79, "other", namespace="vision"))
        assert [event["regarding"]["name"] for event in await simulated.events()] == ["other"]
        assert made.troubles(OWNER), "of one namespace says nothing of another"
        simulated.api.rules = [pods, ("", events)]
        simulated.now += 31
        await simulated.hear(made, xid())
        assert len(await simulated.events()) == 2
        assert made.troubles(OWNER) == []
        assert simulated.changed == [OWNER, OWNER]


# issue 22, line 9
@pytest.mark.kubernetes
async def test_the_policy_as_shipped_refuses_them_and_every_exporter_is_ready(told: Told, cluster: RealCluster) -> None:
    await told.put(pod())
    async with told.operator() as made:
        await told.hear(made, xid(48))
        (event,) = await told.events()
        await cluster.make_policies()
        try:
            await until(partial(is_answered, cluster, event, 422))  # it takes a moment until they are in force
            await told.hear(made, xid(79))
            (trouble,) = made.troubles(OWNER)
        finally:
            await cluster.end_policies()
            await until(partial(is_answered, cluster, event, 201))
        assert await told.events() == [event]
        told.now += 31
        await told.hear(made, xid(79))
        assert made.troubles(OWNER) == []
    assert [each["note"][:6] for each in await told.events()] == ["Xid 48", "Xid 79"]
    assert trouble.reason == "Refused"
    assert "events on pods are for operators that are let write them" in trouble.message
    status = status_of(daemon_set=daemon_set(3), event_troubles=[trouble])
    assert says(status, "EventsWritten") == ("False", "Refused")
    assert says(status, "Ready") == ("True", "AllNodesReady")


async def is_answered(cluster: RealCluster, event: Object, expected: int) -> bool:
    """Whether the API server answers the operator so where it writes such an event."""
    path = f"{EVENT.path('ml')}?dryRun=All"
    again = {**event, "metadata": {"name": "again", "namespace": "ml"}}
    status, answer = await cluster.ask("POST", path, again, token=cluster.tokens["a"])
    assert status in (201, 422), answer
    return status == expected


async def test_the_rights_of_the_manifest_suffice(simulated: SimulatedTold) -> None:
    await simulated.put(pod())
    simulated.api.users = {"token-a": "operator-a"}
    simulated.api.rules = [("", rule) for rule in named("ClusterRole", "pod-gpu-metrics-operator")["rules"]]
    async with simulated.operator() as made:
        await simulated.hear(made, xid())
        assert made.troubles(OWNER) == []
    assert len(await simulated.events()) == 1


async def test_a_busy_api_server_is_asked_again_later(simulated: SimulatedTold) -> None:
    await simulated.put(pod())
    fault = simulated.api.faults.add("busy", resource="events", seconds=60)
    async with simulated.operator() as made:
        await simulated.hear(made, xid())
        assert not await simulated.events()
        given = simulated.api.faults.given
        assert made.troubles(OWNER) == [], "it passes by itself"
        fault.times = 0
        simulated.now += 29
        await simulated.hear(made, xid())
        assert simulated.api.faults.given == given
        assert not await simulated.events()
        simulated.now += 2
        await simulated.hear(made, xid())
    assert len(await simulated.events()) == 1


async def test_a_flood_is_bounded(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    await told.put(pod())
    async with told.operator() as made:
        flood = answered(xid())
        for number in range(1000):
            many = [NodeEvent(**{**_fields(flood[0]), "code": 1 + number * 100 + each}) for each in range(100)]
            made.hear(OWNER, "a", many)
        assert made.waiting.qsize() == module.MOST_WAITING
        await made.waiting.join()
    assert len(await told.events()) == MOST_IN_NAMESPACE


def _fields(event: NodeEvent) -> dict[str, Any]:
    return {name: getattr(event, name) for name in NodeEvent.__dataclass_fields__}


async def test_an_odd_gpu_and_an_unknown_xid_are_told_in_bounds(told: Told) -> None:
    await told.put(pod("p" * 253, uid="u1"))
    async with told.operator() as made:
        await told.hear(made, xid(9999, "p" * 253, index="\x1b[31m\n" + "3" * 500))
    (event,) = await told.events()
    assert event["note"].startswith("Xid 9999 on GPU [31m 333")
    assert event["note"].isprintable()
    assert len(event["note"]) < 400
    assert len(event["metadata"]["name"]) <= 253


HOSTILE: dict[str, Callable[[Object], Any]] = {
    "no array": lambda row: {"events": [row]},
    "another node's": lambda row: [{**row, "node_name": "b"}],
    "a moment without a zone": lambda row: [{**row, "at": "2026-11-22T12:00:00"}],
    "a moment that is none": lambda row: [{**row, "at": 5}],
    "a row that is too long": lambda row: [{**row, "text": "x" * MOST_ROW_CHARS}],
    "too many": lambda row: [row] * 101,
    "no objects": lambda _: [79],
}


@pytest.mark.parametrize("case", HOSTILE)
def test_an_answer_that_is_none_is_refused(case: str) -> None:
    content = HOSTILE[case](rows("a", (xid(),))[0])
    with pytest.raises(Malformed) as refused:
        at_once(read_events(json.dumps(content).encode(), "a"))
    assert len(str(refused.value.trouble)) < 600


ODD: dict[str, Callable[[Object], Any]] = {
    "a code that is text": lambda row: [{**row, "code": "79"}],
    "a code that is huge": lambda row: [{**row, "code": 10**30}],
    "holders that are none": lambda row: [{**row, "holders": {"a": 1}}],
    "a holder without a pod": lambda row: [{**row, "holders": [{"namespace": "ml"}]}],
    "a field that is missing": lambda row: [{name: value for name, value in row.items() if name != "holders"}],
    "a pod whose name is no name": lambda row: [{**row, "holders": [{"namespace": "ml", "pod": 5}]}],
    "holders without end": lambda row: [{**row, "holders": [[]] * 5000}],
}


@pytest.mark.parametrize("case", ODD)
async def test_what_an_answer_does_not_say_is_told_to_nobody(told: Told, case: str) -> None:
    await told.put(pod())
    content = json.dumps(ODD[case](rows("a", (xid(),))[0])).encode()
    async with told.operator() as made:
        made.hear(OWNER, "a", at_once(read_events(content, "a")))
        await made.waiting.join()
    assert not await told.events()


async def test_an_exporter_is_asked_for_events_where_they_are_wanted(serve: Serve) -> None:
    heads: list[str] = []
    heard: list[tuple[str, int | None]] = []

    async def respond(writer: asyncio.StreamWriter, head: str) -> None:
        heads.append(head.split()[1])
        events = json.dumps(rows("a", (xid(),))).encode()
        writer.write(whole(events if heads[-1] == "/events" else READS_LOG))

    def hear(_: object, node: str, events: Sequence[NodeEvent]) -> None:
        heard.extend((node, event.code) for event in events)

    async with looking({"a": await serve(respond)}, on_events=hear) as (looks, _):
        await until(lambda: len(heads) > 3)
        assert {*heads} == {"/debug/mapping"}
        looks.follow(OWNER, [made_pod("a")], has_events=True)
        await until(lambda: bool(heard))
        assert heard[0] == ("a", 79)
        assert looks.troubles(OWNER) == []


@pytest.mark.parametrize(
    ("status", "content", "expected"), [("200 OK", b"[1]", "garbage"), ("500 Oops", b"{}", "http_status")]
)
async def test_an_answer_without_events_is_a_trouble(serve: Serve, status: str, content: bytes, expected: str) -> None:
    async def respond(writer: asyncio.StreamWriter, head: str) -> None:
        is_events = head.split()[1] == "/events"
        writer.write(whole(content, status=status) if is_events else whole(READS_LOG))

    async with looking({"a": await serve(respond)}) as (looks, _):
        looks.follow(OWNER, [made_pod("a")], has_events=True)
        await until(lambda: bool(by_node(looks)))
        assert by_node(looks)["a"].reason == expected


async def test_an_exporter_that_does_not_read_its_log_is_not_asked(serve: Serve) -> None:
    respond, heads = answers(body("a"))
    async with looking({"a": await serve(respond)}) as (looks, _):
        looks.follow(OWNER, [made_pod("a")], has_events=True)
        await until(lambda: len(heads) > 3)
        assert not any("/events" in head for head in heads)
        assert looks.troubles(OWNER) == []
