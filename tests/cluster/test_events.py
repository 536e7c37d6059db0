"""/events of the cluster role, and its page: errors in the kernel's logs of nodes, which are asked for new ones."""

import asyncio
import html
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from exporter.model.kernel import DeviceEvent, KernelEvent
from exporter.model.node_answers import EVENTS_HEADER
from exporter.model.pods import Owner
from exporter.outputs.event_rows import kernel_rows
from tests.cluster.exporters.conftest import (
    Serve,
    whole,
)
from tests.cluster.exporters.conftest import (
    serve as serve,  # noqa: PLC0414 - a fixture
)
from tests.cluster.exporters.test_node_answer import row
from tests.node.test_kernel_log import LOST, KernelNode, reading
from tests.support.cluster_role import ClusterRole, running_cluster
from tests.support.waiting import until

Json = dict[str, Any]


def event(at_seconds: float, code: int = 79, **more: Any) -> DeviceEvent:
    held_by = (Owner(namespace="ml", pod="train-0", container="main"),)
    about = {"uuid": "GPU-1", "index": "1", "holders": held_by, **more}
    said = KernelEvent(kind="xid", sequence=1, booted_us=1, address="0000:65:00.0", code=code, text="pid=1")
    return DeviceEvent(event=said, at_seconds=at_seconds, **about)


class Node:
    """A node exporter that says what a test has it say. `events` None: it does not read its log."""

    def __init__(self, name: str, *events: DeviceEvent, is_on: bool = True) -> None:
        self.name = name
        self.events: Sequence[DeviceEvent] | None = events if is_on else None
        self.asked: Counter[str] = Counter()
        self.content: Callable[[], bytes] = lambda: json.dumps(kernel_rows(name, tuple(self.events or ()))).encode()
        self.newest: Callable[[], str] = lambda: str(len(self.events or ()))

    async def __call__(self, writer: asyncio.StreamWriter, head: str) -> None:
        path = head.split()[1]
        self.asked[path] += 1
        if path == "/events":
            writer.write(whole(self.content()))
        else:
            headers = [] if self.events is None else [f"{EVENTS_HEADER}: {self.newest()}"]
            writer.write(whole(json.dumps([row(1, node_name=self.name)]).encode(), *headers))


async def flags(serve: Serve, *nodes: Node) -> dict[str, list[str]]:
    given = [f"{node.name}={await serve(node)}" for node in nodes]
    return {"cluster.node": given, "cluster.interval": ["50ms"]}


async def events(role: ClusterRole) -> tuple[list[Json], str]:
    async with role.session.get(f"{role.base}/events") as response:
        assert response.status == 200, await response.text()
        return json.loads(await response.read()), response.headers.get("X-Missing-Nodes", "")


async def test_the_events_of_all_nodes_are_one_list(serve: Serve) -> None:
    one, other = Node("n1", event(300, 48), event(100, 13)), Node("n2", event(200))
    off = Node("n3", is_on=False)
    async with running_cluster(await flags(serve, one, other, off)) as role:
        await until(lambda: off.asked.total() > 2 and other.asked["/events"] > 0 and one.asked["/events"] > 0)
        await until(lambda: _are_listed(role, 3))
        rows, missing = await events(role)
        assert [(each["node_name"], each["code"]) for each in rows] == [("n1", 48), ("n2", 79), ("n1", 13)]
        assert rows[1] == kernel_rows("n2", (event(200),))[0]
        assert missing == ""
        other.events = (event(400, 31), event(200))
        await until(lambda: other.asked["/events"] == 2)
        rounds = one.asked["/container/metrics"]
        await until(lambda: one.asked["/container/metrics"] > rounds + 3)
        # who has nothing new is asked for nothing more
        assert (one.asked["/events"], other.asked["/events"], off.asked["/events"]) == (1, 2, 0)
        rows, _ = await events(role)
        assert [each["code"] for each in rows] == [31, 48, 79, 13]


async def test_the_last_hundred_are_kept_also_of_a_node_that_is_made_anew(serve: Serve) -> None:
    nodes = [Node(f"n{number}", *(event(1000 * at + number) for at in range(90, 0, -1))) for number in range(3)]
    async with running_cluster(await flags(serve, *nodes)) as role:
        await until(lambda: all(node.asked["/events"] for node in nodes))
        await until(lambda: all(node.asked["/container/metrics"] > 3 for node in nodes))
        rows, _ = await events(role)
        assert len(rows) == 100
        assert [each["at"] for each in rows] == sorted((each["at"] for each in rows), reverse=True)
        assert rows[-1]["at"] == "1970-01-01T15:50:02.000Z"  # 57 000 s and 2
        nodes[0].events = ()  # its exporter began anew
        await until(lambda: nodes[0].asked["/events"] == 2)
        assert (await events(role))[0] == rows


HOSTILE: dict[str, Callable[[Json], object]] = {
    "no JSON array": lambda _: {},
    "of another node": lambda row: [{**row, "node_name": "n1"}],
    "without a moment": lambda row: [{**row, "at": "soon"}],
    "too many": lambda row: [row] * 101,
    "too large a row": lambda row: [{**row, "text": "x" * 40_000}],
    "nested without end": lambda _: json.loads("[" * 300 + "]" * 300),
}


@pytest.mark.parametrize("case", HOSTILE)
async def test_a_node_whose_events_cannot_be_read_is_named_and_keeps_its_devices(serve: Serve, case: str) -> None:
    good, bad = Node("n1", event(100)), Node("n2", event(200))
    content = json.dumps(HOSTILE[case](kernel_rows("n2", (event(200),))[0])).encode()
    bad.content = lambda: content
    async with running_cluster(await flags(serve, good, bad)) as role:
        await until(lambda: bad.asked["/events"] > 1 and good.asked["/events"] > 0)
        await until(lambda: _has(role, "n2"))
        await until(lambda: _are_listed(role, 1))
        rows, missing = await events(role)
        assert ([each["node_name"] for each in rows], missing) == (["n1"], "n2")
        assert {each["node_name"] for each in await role.json("/container/metrics")} == {"n1", "n2"}
        bad.events = None
        await until(lambda: _has(role, ""))


async def _has(role: ClusterRole, missing: str) -> bool:
    return (await events(role))[1] == missing


async def _are_listed(role: ClusterRole, count: int) -> bool:
    """A node that was asked for its events may not have been read yet."""
    return len((await events(role))[0]) == count


async def test_a_node_that_is_gone_is_named_and_its_events_stay(serve: Serve) -> None:
    node = Node("n1", event(100))
    given = await flags(serve, node)
    given["cluster.node"].append("n2=http://127.0.0.1:1")
    async with running_cluster(given) as role:
        await until(lambda: node.asked["/events"] > 0)
        await until(lambda: _has(role, "n2"))
        await until(lambda: _are_listed(role, 1))


async def test_a_node_with_news_in_each_answer_costs_one_request_more(serve: Serve) -> None:
    node = Node("n1", event(100))
    node.newest = lambda: "x" * 5000 + str(node.asked.total())
    async with running_cluster(await flags(serve, node)) as role:
        await until(lambda: node.asked["/container/metrics"] > 5)
        assert node.asked["/events"] <= node.asked["/container/metrics"]
        await until(lambda: _are_listed(role, 1))


async def test_prometheus_has_no_events(serve: Serve) -> None:
    async with running_cluster({"cluster.prometheus": ["http://127.0.0.1:1"]}) as role:
        status, body = await role.get("/events")
    assert status == 404
    assert json.loads(body)["error"].startswith("Prometheus has no events: ask the node exporters")


async def test_where_no_node_answers_there_is_no_list() -> None:
    async with running_cluster({"cluster.node": ["n1=http://127.0.0.1:1"]}) as role:
        status, body = await role.get("/events")
    assert status == 503
    assert "no node has answered" in json.loads(body)["error"]


def listed(page: str) -> list[list[str]]:
    """The rows of the page's list of events, as people read them."""
    section = re.search(r'<table id="events-table".*?</table>', page, re.DOTALL)
    rows = re.findall(r"<tr role=\"row\"><th scope=\"row\".*?</tr>", section[0]) if section else []
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", each) for each in rows]
    return [[html.unescape(re.sub(r"<[^>]+>", "", cell)) for cell in each] for each in cells]


async def test_the_page_lists_the_last_ones(serve: Serve) -> None:
    one = Node("n1", event(1000), *(event(number) for number in range(99, 0, -1)))
    evil = "<script>alert(1)</script>\u202e"
    other = Node("n2", event(2000, 12345, index=evil), event(1500, holders=None))
    row_of = kernel_rows("n2", tuple(other.events or ()))
    odd = {"node_name": "n2", "at": "1970-01-01T00:22:00.000Z", "kind": [evil], "holders": {"a": 1}}
    rows_of = [{**row_of[0], "name": [evil], "remedy": "y" * 9000}, row_of[1], odd]
    other.content = lambda: json.dumps(rows_of).encode()
    async with running_cluster(await flags(serve, one, other)) as role:
        await until(lambda: one.asked["/events"] and other.asked["/events"])
        await until(lambda: _is_listed(role, 20))
        page = (await role.get("/"))[1]
        rows = listed(page)
        assert "<script>alert" not in page
        assert rows[0][:4] == ["1970-01-01 00:33:20 UTC", "n2", "<script>alert(1)</script>\\u{202e}", rows[0][3]]
        assert len(rows[0][5]) == 200
        assert rows[1][4] == "unknown"
        assert rows[2][1:] == ["n2", "", "['<script>alert(1)</script>\\u202e']", "", ""]
        assert rows[3] == [
            "1970-01-01 00:16:40 UTC",
            "n1",
            "1",
            "XID 79 GPU has fallen off the bus",
            "ml/train-0",
            "drain the node and restart it; if it comes back, ask the vendor of the node",
        ]
        assert {each[1] for each in listed((await role.get("/?node=n1"))[1])} == {"n1"}


async def _is_listed(role: ClusterRole, count: int) -> bool:
    return len(listed((await role.get("/"))[1])) == count


async def test_a_real_node_is_heard_by_the_role_and_shown_on_both_pages(tmp_path: Path) -> None:
    node = KernelNode(tmp_path)
    await node.simulated.start()
    try:
        async with reading(node.config()) as exporter:
            given = {"cluster.node": [f"gpu-node-1={exporter.base}"], "cluster.interval": ["50ms"]}
            async with running_cluster(given) as role:
                assert listed((await exporter.get("/"))[1]) == []
                node.write(LOST.format(77))
                await until(lambda: _is_listed(role, 1))
                assert await role.json("/events") == json.loads((await exporter.get("/events"))[1])
                (row_of_role,), (row_of_node,) = listed((await role.get("/"))[1]), listed((await exporter.get("/"))[1])
                assert row_of_role == [row_of_node[0], "gpu-node-1", *row_of_node[1:]]
                assert row_of_node[3] == "ml/first"
    finally:
        await node.close()
