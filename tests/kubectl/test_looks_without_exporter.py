"""Looks at dcgm-exporters, one after the other: what is late comes later, and what is fresh is not asked for again."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from exporter.kubectl import nothing_installed
from exporter.kubectl.api_proxy import ApiAnswer, ApiProxy
from exporter.kubectl.nothing_installed import NothingInstalled, notes
from exporter.kubectl.page_rows import PageRows
from exporter.lenient import AnyObject
from exporter.top.transport import Gone
from tests.support.waiting import wait_until

UUID = "GPU-1e2feb89-414c-443c-9027-c4d1c386bbc4"


def page(*pods: str, more: str = "") -> bytes:
    """A page of one GPU, with a sample for each pod ("" for none)."""
    lines = []
    for pod in pods:
        labels = f',container="main",namespace="ml",pod="{pod}"' if pod else ""
        lines.append(f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="{UUID}",device="nvidia0"{labels}{more}}} 97\n')
    return "".join(lines).encode()


class FakeApi:
    """Answers as ApiProxy does, from what a test puts into it; a held page waits for `held` to be set."""

    def __init__(self, *nodes: str) -> None:
        self.pages = {node: page("a") for node in nodes}
        self.held: dict[str, threading.Event] = {}
        self.asked: list[str] = []
        self.gpu_nodes: tuple[str, ...] = ()
        self.exporters = [_pod(node, node, "gpu-operator") for node in nodes]

    def get(self, path: str, seconds: float, **_: Any) -> ApiAnswer:
        node = path.split("/pods/")[1].partition(":")[0]
        self.asked.append(node)
        if node in self.held:
            assert self.held[node].wait(seconds + 30)
        return ApiAnswer(200, self.pages[node])

    def item(self, path: str, _: float, **parameters: Any) -> AnyObject:
        if path.startswith("/api/v1/nodes"):
            return {"items": [{"metadata": {"name": name}} for name in self.gpu_nodes]}
        named = parameters.get("fieldSelector", "").removeprefix("spec.nodeName=")
        if named:
            return {"items": [_pod("a", named, "ml")]}
        return {"items": self.exporters}


def _pod(name: str, node: str, namespace: str) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Running"}}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nothing_installed, "_QUIET_SECONDS", 0.02)
    monkeypatch.setattr(nothing_installed, "_LATER_SECONDS", 0.02)


@contextmanager
def asking(api: FakeApi, wait_seconds: float = 0.05) -> Iterator[NothingInstalled]:
    try:
        yield NothingInstalled(cast("ApiProxy", api), "", wait_seconds)
    finally:
        for event in api.held.values():
            event.set()


def test_those_that_hang_leave_the_others_their_turn() -> None:
    """A NetworkPolicy may be in the way of most pods."""
    hung = [f"h{number}" for number in range(200)]
    api = FakeApi(*hung, "z")
    api.held = {name: threading.Event() for name in hung}
    with asking(api) as reader:
        answer = reader.ask("devices")
        assert {row.node_name for row in answer.rows} == {"z"}
        assert {node.message for node in answer.shown.missing} == {"dcgm-exporter gives no answer within 0.05 s"}


def test_who_was_not_asked_is_not_said_to_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nothing_installed, "_AT_ONCE", 2)
    api = FakeApi("a", "h1", "h2", "z")
    api.held = {"h1": threading.Event(), "h2": threading.Event()}
    with asking(api) as reader:
        missing = {node.name: node.message for node in reader.ask("devices").shown.missing}
    silent = "dcgm-exporter gives no answer within 0.05 s"
    not_asked = "dcgm-exporter has not been asked yet, since too many others do not answer"
    assert missing == {"h1": silent, "h2": silent, "z": not_asked}


def test_a_late_page_comes_with_a_later_look() -> None:
    api = FakeApi("n10", "n3", "n2", "n1")
    api.held["n2"] = threading.Event()
    with asking(api) as reader:
        first = reader.ask("devices")
        assert [row.node_name for row in first.rows] == ["n1", "n3", "n10"]
        (missing,) = first.shown.missing
        assert (missing.name, missing.message) == ("n2", "dcgm-exporter gives no answer within 0.05 s")
        api.held["n2"].set()
        wait_until(lambda: len(reader.ask("devices").rows) == 4)
        later = reader.ask("devices")
        assert [row.node_name for row in later.rows] == ["n1", "n2", "n3", "n10"]
        assert not later.shown.missing
        # what is fresh is not asked for again: dcgm-exporter itself reads every 30 s
        assert sorted(api.asked) == ["n1", "n10", "n2", "n3"]


def test_a_node_without_a_page_is_named_and_all_without_one_are_an_error() -> None:
    api = FakeApi("n1", "n2")
    api.pages["n1"] = b"<html>no page</html>\n"
    with asking(api) as reader:
        (missing,) = reader.ask("devices").shown.missing
        assert (missing.name, missing.message) == ("n1", "dcgm-exporter sends no page of metrics")
    api.pages["n2"] = b"node_load1 3\n"
    with (
        asking(api) as reader,
        pytest.raises(
            Gone, match=r"on n1, dcgm-exporter sends no page of metrics \(and on 1 node for other reasons\) -> look at"
        ),
    ):
        reader.ask("devices")


def test_a_gpu_node_without_dcgm_exporter_is_named() -> None:
    api = FakeApi("n1")
    api.gpu_nodes = ("n1", "n10", "n2")
    with asking(api) as reader:
        wait_until(lambda: reader.ask("devices").shown.missing)
        missing = reader.ask("devices").shown.missing
    assert [(node.name, node.message) for node in missing] == [
        ("n2", "no dcgm-exporter runs there"),
        ("n10", "no dcgm-exporter runs there"),
    ]


def test_of_two_dcgm_exporters_on_a_node_one_is_enough() -> None:
    api = FakeApi("first", "second", "third")
    api.exporters = [_pod(name, "n1", "gpu-operator") for name in ("first", "second", "third")]
    api.exporters[0]["status"]["phase"] = "Pending"
    api.pages |= {"first": page("a"), "second": b"", "third": page("a")}
    with asking(api) as reader:
        assert [row.node_name for row in reader.ask("devices").rows] == ["n1"]
        assert api.asked == ["second", "third"]
    api.pages["third"] = b""
    with (
        asking(api) as reader,
        pytest.raises(Gone, match="dcgm-exporter's page is empty -> look at the log of dcgm-exporter"),
    ):
        reader.ask("devices")


def test_processes_are_on_no_page() -> None:
    with asking(FakeApi("n1")) as reader:
        assert reader.ask("processes").shown.processes_trouble.startswith("dcgm-exporter's page has no processes -> ")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"Forbidden\n", "dcgm-exporter sends no page of metrics"),
        (b"node_load1 3\n", "dcgm-exporter's page has no GPU"),
        (b"x 1\n" * 60_000, "dcgm-exporter's page has more than 50000 lines"),
    ],
)
def test_what_is_no_page_of_gpus_is_said(body: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        PageRows("n1").of(body, 0)


def test_a_page_that_names_several_pods_of_a_gpu_has_a_row_for_each() -> None:
    rows = PageRows("n1").of(page("a", "b"), 0)
    assert [(row.node_name, row.pod, row.gpu_shared, row.gpu_utilization) for row in rows] == [
        ("n1", "a", True, 97),
        ("n1", "b", True, 97),
    ]
    assert "Pods share GPUs: no page says what each of them uses." in notes(rows)
