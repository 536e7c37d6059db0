"""The exporters of a GPUExporter are asked how their sources are: real exporters in front of simulated nodes."""

import asyncio
import socket

import pytest

from exporter.operator import exporter_health as module
from exporter.operator.exporter_health import ExporterHealth, url_of_pod
from exporter.operator.exporters.exporter_status import ExporterObjects, status_of
from exporter.operator.objects.kinds import Key
from exporter.sources.exporters.asking import ExporterClient
from tests.cluster.exporters.conftest import (
    Serve,
    whole,
)
from tests.cluster.exporters.conftest import (
    serve as serve,  # noqa: PLC0414 - a fixture
)
from tests.operator.looking import FAST, OWNER, answers, body, by_node, down, looking
from tests.operator.made import NOW, Object, ago, daemon_set, gpu_exporter, pod
from tests.support.exporter import Start
from tests.support.simulated import SimulatedNode
from tests.support.virtual_time import run
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOGETHER_SECONDS", 0.01)


def closed_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


async def test_each_node_in_trouble_is_named_with_the_reason(
    start: Start, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    # issue 14, "Status tells the truth": nodes with kubelet or dcgm trouble and why, from the exporters
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.8)
    nobody = f"http://127.0.0.1:{closed_port()}"
    urls = {
        "all-right": (await start(node_name="all-right")).base,
        "no-kubelet": (await start(node_name="no-kubelet", kubelet_socket="/nowhere/pod-resources/kubelet.sock")).base,
        "no-dcgm": (await start(node_name="no-dcgm", dcgm_url=f"{nobody}/metrics")).base,
        "gone": nobody,
        "hangs": await serve(never),
    }
    async with looking(urls) as (looks, told):
        await until(lambda: looks.troubles(OWNER) is not None and len(by_node(looks)) == 4)
        found = by_node(looks)
        assert OWNER in told
    assert {node: (each.source, each.reason) for node, each in found.items()} == {
        "no-kubelet": ("kubelet", "missing"),
        "no-dcgm": (f"dcgm:{nobody.removeprefix('http://')}", "refused"),
        "gone": ("exporter", "refused"),
        "hangs": ("exporter", "deadline"),
    }
    assert "/nowhere/pod-resources does not exist here" in found["no-kubelet"].message
    for each in found.values():
        assert " -> " in each.message
    assert "no whole answer within 0.8 s" in found["hangs"].message
    seen = ExporterObjects(daemon_set=daemon_set(5), pods=[pod(node) for node in urls], troubles=[*found.values()])
    status = status_of(gpu_exporter(), seen, NOW)
    assert status["nodesInTrouble"] == 4
    degraded = status["conditions"][-1]["message"]
    assert degraded.startswith("4 of 5 nodes are in trouble; ")
    assert all(f" on {node}: {each.message}" in degraded for node, each in found.items())


async def never(writer: asyncio.StreamWriter, _: str) -> None:
    await asyncio.sleep(60)


async def test_a_dcgm_that_goes_and_comes_back(start: Start, simulated: SimulatedNode) -> None:
    base = (await start(node_name="a")).base
    async with looking({"a": base}) as (looks, told):
        await until(lambda: looks.troubles(OWNER) == [])
        await simulated.dcgm.stop()
        await until(lambda: by_node(looks).get("a") is not None)
        assert by_node(looks)["a"].source.startswith("dcgm:")
        await until(lambda: len(told) == 2)
        await asyncio.sleep(0.4)
        assert len(told) == 2, "nothing has changed since"
        await simulated.dcgm.start(port=int(simulated.url.partition("//")[2].partition("/")[0].rpartition(":")[2]))
        await until(lambda: looks.troubles(OWNER) == [])
        await until(lambda: len(told) == 3)


async def test_what_fails_once_is_no_trouble(serve: Serve) -> None:
    respond, heads = answers(body(), body(kubelet=down()), body(), body(dcgm=down()), body())
    async with looking({"a": await serve(respond)}) as (looks, told):
        seen = []
        while len(heads) < 7:
            seen.append(looks.troubles(OWNER))
            await asyncio.sleep(0.01)
        assert not any(seen)
        assert told == [OWNER], "once, when it was known"


async def test_a_failure_is_asked_for_again_soon(serve: Serve) -> None:
    respond, heads = answers(body(kubelet=down()))
    async with looking({"a": await serve(respond)}, every_seconds=60) as (looks, _):
        await until(lambda: bool(looks.troubles(OWNER)))
        assert len(heads) == 2


async def test_one_lost_answer_forgets_nothing(serve: Serve) -> None:
    asked = 0

    async def respond(writer: asyncio.StreamWriter, _: str) -> None:
        nonlocal asked
        asked += 1
        writer.write(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n" if asked == 4 else whole(body(kubelet=down())))

    async with looking({"a": await serve(respond)}) as (looks, _):
        await until(lambda: bool(looks.troubles(OWNER)))
        while asked < 6:
            assert by_node(looks)["a"].source == "kubelet"
            await asyncio.sleep(0.005)


async def test_durations_in_a_message_make_no_new_trouble(serve: Serve) -> None:
    bodies = [body(kubelet=down(message=f"no answer within {number}.5 s")) for number in range(1, 9)]
    respond, heads = answers(*bodies)
    async with looking({"a": await serve(respond)}) as (looks, told):
        await until(lambda: len(heads) > 7)
        assert "no answer within 2.5 s" in by_node(looks)["a"].message
        assert told.count(OWNER) == 1


async def test_until_all_have_been_asked_nothing_is_known(serve: Serve) -> None:
    gate = asyncio.Event()

    async def waits(writer: asyncio.StreamWriter, _: str) -> None:
        await gate.wait()
        writer.write(whole(body("b")))

    respond, heads = answers(body())
    async with looking({"a": await serve(respond), "b": await serve(waits)}) as (looks, told):
        await until(lambda: len(heads) > 1)
        assert looks.troubles(OWNER) is None
        assert not told
        gate.set()
        await until(lambda: looks.troubles(OWNER) == [])
        # a node that comes later does not make the others unknown
        looks.follow(OWNER, [pod("a"), pod("b"), pod("c")])
        assert looks.troubles(OWNER) == []
        looks.forget(OWNER)
        assert looks.troubles(OWNER) is None
        assert looks.bounds["operator_exporters"].used() == 0


async def test_a_node_that_is_gone_has_no_trouble_and_is_not_asked(serve: Serve) -> None:
    respond, heads = answers(body(kubelet=down()))
    async with looking({"a": await serve(respond)}) as (looks, _):
        await until(lambda: bool(looks.troubles(OWNER)))
        looks.follow(OWNER, [pod("a", deletionTimestamp=ago(1))])
        assert looks.troubles(OWNER) == []
        before = len(heads)
        await asyncio.sleep(0.3)
        assert len(heads) <= before + 1  # one may have been on its way


def test_who_does_not_answer_is_asked_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SELDOM_SECONDS", 60.0)
    asked: list[str] = []

    async def refuse(_: object, url: str) -> bytes:
        asked.append(url)
        raise ConnectionRefusedError(url)

    monkeypatch.setattr(ExporterClient, "ask", refuse)

    async def scenario() -> None:
        async with looking({"a": "http://127.0.0.1:1"}, every_seconds=5, again_seconds=1) as (looks, _):
            await asyncio.sleep(60)
            assert 3 <= len(asked) <= 6
            assert "a fault of the operator itself: ConnectionRefusedError" in by_node(looks)["a"].message

    run(scenario())


async def test_no_more_than_a_few_are_asked_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    at_work = most = done = 0

    async def slow(_: object, url: str) -> bytes:
        nonlocal at_work, most, done
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0.01)
        at_work, done = at_work - 1, done + 1
        return body(url.rpartition("/")[2])

    monkeypatch.setattr(ExporterClient, "ask", slow)
    urls = {f"n{number}": f"http://x/n{number}" for number in range(100)}
    async with looking(urls, every_seconds=30) as (looks, told):
        await until(lambda: looks.troubles(OWNER) == [])
        assert (most, done) == (module.AT_ONCE, 100)
        await until(lambda: bool(told))
        assert told == [OWNER]


async def test_it_begins_again_where_it_ended(serve: Serve) -> None:
    """A process that is the leader again asks all exporters that it knew."""
    respond, heads = answers(body())
    urls = {"a": await serve(respond)}
    looks = ExporterHealth(on_change=lambda _: None, url_of=lambda _: urls["a"], **FAST)
    looks.follow(OWNER, [pod("a")])
    for _ in range(2):
        before = len(heads)
        task = asyncio.create_task(looks.run())
        await until(lambda before=before: len(heads) > before + 1)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        task.cancel()
        await asyncio.wait({task})


async def test_too_many_pods_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PODS", 3)
    looks = ExporterHealth(on_change=lambda _: None)
    for owner in ("one", "other"):
        looks.follow(Key("GPUExporter", "ml", owner), [pod(f"{owner}-{number}") for number in range(2)])
    assert looks.bounds["operator_exporters"].used() == 3


@pytest.mark.parametrize(
    ("status", "url"),
    [
        ({"phase": "Running", "podIP": "10.1.2.3"}, "http://10.1.2.3:9400"),
        ({"phase": "Running", "podIP": "fd00::7"}, "http://[fd00::7]:9400"),
        ({"phase": "Pending", "podIP": "10.1.2.3"}, ""),
        ({"phase": "Running"}, ""),
        ({"phase": "Running", "podIP": "127.0.0.1"}, ""),
        ({"phase": "Running", "podIP": "169.254.169.254"}, ""),
        ({"phase": "Running", "podIP": "::"}, ""),
        ({"phase": "Running", "podIP": "example.com/@10.0.0.1"}, ""),
        ({"phase": "Running", "podIP": 7}, ""),
    ],
)
def test_where_a_pod_answers(status: Object, url: str) -> None:
    assert url_of_pod({"status": status}) == url
