"""The cluster role's page as HTML: which nodes it names, and the devices of how many; tests/browser/ opens it."""

import re
from typing import Any

import pytest

from exporter.cluster.outputs import page
from exporter.cluster.outputs.look import ClusterLook
from exporter.errors import Trouble
from exporter.model.cluster_view import ClusterView, HeldDevice
from exporter.model.device_row import DeviceRow, in_its_state
from exporter.model.slices import at_once
from exporter.outputs.output import NO_QUESTION
from tests.support.clusters import GONE, held, held_of, node_of, view_of


def whole(device: HeldDevice, **fields: Any) -> HeldDevice:
    """The same with these fields, and in the state that follows."""
    return held_of(in_its_state(device.row._replace(**fields)))


def html(view: ClusterView, node: str = "", **asked: str) -> str:
    query = (*((("node", node),) if node else ()), *asked.items())
    question = NO_QUESTION._replace(query=query)
    look = ClusterLook(view=view, health={}, at_seconds=1005.0, question=question)
    return b"".join(at_once(page.render(look)).pieces).decode()


def figures(made: str) -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r'id="figure-(\w+)">(\d+)<', made)}


def strip(made: str, node: str) -> tuple[str, ...]:
    """The name of a node's strip, its title's end, and what a screen reader hears."""
    match = re.search(
        rf'<li data-key="{node}"><a [^>]* title="([^"]*)"><bdi>(.*?)</bdi></a> <span class="seen">(.*?)</', made
    )
    assert match is not None
    return match[2], match[1].rpartition("; ")[2], match[3]


BUSY, IDLE, FREE = (
    whole(held("a", "GPU-1"), gpu_utilization=50),
    whole(held("b", "GPU-2", values={"gpu_utilization": 0.0}), gpu_utilization=0),
    whole(held("", "GPU-3", values={}), gpu_utilization=None),
)


def test_every_node_has_its_figures() -> None:
    view = view_of(node_of("n1", BUSY, IDLE, FREE), node_of("n2", whole(held("z", "GPU-9", node="n2"))))
    made = html(view)
    assert figures(made) == {
        "gpus": 4,
        "instances": 0,
        "held": 3,
        "idle": 1,
        "free": 1,
        "failing": 0,
        "outside": 0,
        "unknown": 0,
    }
    assert strip(made, "n1") == ("n1", "last answer 00:16:40 UTC", "1 used, 1 held but idle, 1 free")
    assert re.findall(r'class="cell (\w+)" href="([^"]*)" title="([^"]*)"', made)[0] == (
        "used",
        "?node=n1&amp;fold=none#device-n1/0",
        "GPU 0: used, ml/a",
    )
    assert '<ul id="trouble" class="alert" hidden></ul>' in made


def test_a_node_that_is_asked_for_is_alone() -> None:
    view = view_of(node_of("n1", BUSY), node_of("n2", whole(held("z", "GPU-9", node="n2"))))
    made = html(view, "n2")
    assert "<title>GPUs of n2</title>" in made
    assert figures(made)["gpus"] == 1
    assert "GPU-9" in made
    assert "GPU-1<" not in made
    assert "No node &lt;x&gt; is known." in html(view, "<x>")


@pytest.mark.parametrize(
    ("view", "says"),
    [
        (
            view_of(node_of("n1", BUSY), node_of("n2", trouble=GONE)),
            f"Nodes are missing, and their GPUs with them: n2: {GONE}",
        ),
        (
            view_of(node_of("n1", BUSY), trouble=Trouble("permission", "no <list>", "give the role")),
            "It is not known which nodes there are: no <list> -> give the role",
        ),
    ],
)
def test_what_is_missing_is_said_on_top(view: ClusterView, says: str) -> None:
    escaped = says.replace(">", "&gt;").replace("<", "&lt;")
    assert f'<ul id="trouble" class="alert"><li><bdi>{escaped}</bdi></li></ul>' in html(view)


def test_a_node_that_never_answered_has_no_figures() -> None:
    made = html(view_of(node_of("n1", BUSY), node_of("n2", trouble=GONE, at=None)))
    assert strip(made, "n2") == ("n2", "missing, has not answered yet", "missing, has not answered yet")
    assert made.count(str(GONE).partition(" ->")[0]) == 1, "it is said once"


def test_many_nodes_are_folded_and_a_page_has_so_many_lines() -> None:
    nodes = [
        node_of(f"n{number}", *(whole(held(f"p{gpu}", f"GPU-{gpu}", node=f"n{number}")) for gpu in range(8)))
        for number in range(40)
    ]
    made = html(view_of(*nodes))
    assert made.count('<tr role="row" class="node used"') == 40
    assert made.count('<a class="pod"') == 0
    assert figures(made)["gpus"] == 320
    made = html(view_of(*nodes), fold="none")
    assert made.count('<a class="pod"') == 200
    assert "Show more (120 lines are not shown)" in made


def test_names_of_nodes_are_text_and_part_of_an_address() -> None:
    name = "<b>&\"'/?\u202e"
    made = html(view_of(node_of(name, BUSY)))
    assert '<a href="?node=%3Cb%3E%26%22%27%2F%3F%E2%80%AE"' in made
    assert r"<bdi>&lt;b&gt;&amp;&quot;&#x27;/?\u{202e}</bdi>" in made


def test_an_exporter_of_another_version_may_leave_fields_out() -> None:
    made = html(view_of(node_of("n1", held_of(DeviceRow(node_name="n1", device_uuid="GPU-1", pod="a")))))
    assert made.count('<span class="none">unknown</span>') == 4
