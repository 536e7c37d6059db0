"""What is kept of each node, for how long, and what the view says of those that are missing."""

from collections.abc import Iterable

import pytest

from exporter.cluster.exporters import known_nodes
from exporter.cluster.exporters.known_nodes import EMPTY_SECONDS, LEFT_SECONDS, KnownExporters
from exporter.cluster.exporters.node_answer import NodeAnswer
from exporter.errors import Trouble
from exporter.model.cluster_view import ClusterView
from exporter.sources.cluster_source import ExporterPlace
from exporter.sources.exporters.asking import GivenPlaces, MemoryBudget
from tests.cluster.exporters.test_node_answer import read, row

REFUSED = Trouble("refused", "nobody listens there", "start it")
MAX_AGE = 30.0
WALL = 1_795_333_031.0


def book() -> KnownExporters:
    return KnownExporters(max_age_seconds=MAX_AGE, looked_for="the Service x/y (--cluster.service)")


def places(*names: str, **cautions: str) -> dict[str, ExporterPlace]:
    return {name: ExporterPlace(url=f"http://{name}", caution=cautions.get(name, "")) for name in names}


def answer(node: str, count: int = 1) -> NodeAnswer:
    return read([row(number, node_name=node) for number in range(count)], node)


def followed(names: Iterable[str]) -> KnownExporters:
    found = book()
    found.follow(places(*names), 0.0)
    return found


def view(found: KnownExporters, now: float) -> ClusterView:
    return found.view(now, WALL, None)


def says(found: KnownExporters, now: float, node: str) -> str:
    trouble = view(found, now).nodes[node].trouble
    assert trouble is not None
    return trouble.message


def test_an_answer_counts_until_it_is_too_old_whatever_fails_meanwhile() -> None:
    found = followed("ab")
    assert view(found, 0.0).missing == ("a", "b")
    assert says(found, 0.0, "a") == "its exporter has not answered yet"
    entry = found.entries["a"]
    found.answered(entry, answer("a", 2), 10.0, WALL)
    shown = view(found, 10.0)
    assert shown.missing == ("b",)
    found.failed(entry, REFUSED)
    assert view(found, 39.9) is shown
    assert view(found, 40.0) is not shown
    assert view(found, 40.0).missing == ("a", "b")
    assert says(found, 40.0, "a") == "nobody listens there; its last answer is of 2026-11-22T07:37:11Z"
    # what it said stands there still: who asks for it says whether old values will do
    assert len(view(found, 40.0).nodes["a"].devices) == 2
    found.answered(entry, answer("a"), 50.0, WALL + 40)
    assert view(found, 50.0).missing == ("b",)
    assert view(found, 50.0).nodes["a"].answered_at_seconds == WALL + 40


# issue 22, line 15
def test_nodes_are_in_the_order_in_which_people_count() -> None:
    names = ["n-2", "n-10", "n-1", "n-11"]
    found = followed(names)
    assert [*view(found, 0.0).nodes] == [*view(found, 0.0).missing] == ["n-1", "n-2", "n-10", "n-11"]


def test_the_view_is_the_same_while_nothing_changes_but_ages() -> None:
    found = followed("ab")
    found.answered(found.entries["a"], answer("a"), 0.0, WALL)
    shown = view(found, 0.0)
    found.follow(places("a", "b"), 5.0)
    assert view(found, 29.0) is shown
    found.failed(found.entries["b"], REFUSED)
    changed = view(found, 29.0)
    assert changed is not shown
    assert changed.nodes["a"] is shown.nodes["a"]
    found.failed(found.entries["b"], REFUSED)
    assert view(found, 29.0) is changed


def test_a_node_that_is_not_ready_says_so() -> None:
    found = book()
    found.follow(places("a", a="its pod is not ready"), 0.0)
    found.failed(found.entries["a"], REFUSED)
    assert says(found, 0.0, "a") == "nobody listens there; its pod is not ready"


def test_a_place_that_is_gone_is_missing_for_a_while_and_then_forgotten() -> None:
    """A DaemonSet that is updated deletes a pod before it makes the next one: the node is still there."""
    found = followed("ab")
    for name in "ab":
        found.answered(found.entries[name], answer(name), 0.0, WALL)
    assert found.follow(places("a"), 10.0) == []
    assert view(found, 10.0).missing == ()
    assert found.entries["b"].has_left
    assert "is gone from the Service x/y" in says(found, 31.0, "b")
    found.follow(places("a"), 10.0 + LEFT_SECONDS - 1)
    assert "b" in view(found, 10.0 + LEFT_SECONDS - 1).nodes
    found.follow(places("a"), 10.0 + LEFT_SECONDS)
    assert list(view(found, 10.0 + LEFT_SECONDS).nodes) == ["a"]
    assert found.bounds["answers_kept_bytes"].used() == answer("a").kept_bytes


def test_a_place_that_is_back_elsewhere_is_asked_at_once() -> None:
    found = followed("ab")
    found.follow(places("a"), 10.0)
    (moved,) = found.follow({**places("a"), "b": ExporterPlace(url="http://elsewhere")}, 20.0)
    assert (moved.key, moved.has_left) == ("b", False)
    assert view(found, 500.0).nodes.keys() == {"a", "b"}


def test_no_place_at_all_is_not_believed_at_once() -> None:
    found = followed("ab")
    assert found.follow({}, 10.0) == []
    assert not any(entry.has_left for entry in found.entries.values())
    found.follow(places("a", "b"), 20.0)
    found.follow({}, 30.0)
    found.follow({}, 29.9 + EMPTY_SECONDS)
    assert not any(entry.has_left for entry in found.entries.values())
    found.follow({}, 30.0 + EMPTY_SECONDS)
    assert all(entry.has_left for entry in found.entries.values())


def test_no_place_from_the_start_is_a_trouble_and_not_an_empty_cluster() -> None:
    found = book()
    found.follow({}, 0.0)
    trouble = view(found, 0.0).trouble
    assert trouble is not None
    assert trouble.message == "there is no node exporter: the Service x/y (--cluster.service) names none"


def test_places_that_are_not_known_are_a_trouble() -> None:
    assert book().view(0.0, WALL, REFUSED).trouble is REFUSED


def test_too_many_nodes_are_a_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_nodes, "MOST_NODES", 2)
    found = followed("abc")
    trouble = view(found, 0.0).trouble
    assert trouble is not None
    assert "there are 3 node exporters" in trouble.message
    assert list(view(found, 0.0).nodes) == ["a", "b"]
    found.follow(places("a"), 1.0)
    assert view(found, 1.0).trouble is None


def test_what_is_said_of_a_round() -> None:
    found = followed("abcdefgh")
    assert found.verdict() == (None, None)
    for name in "bcdefgh":
        found.failed(found.entries[name], REFUSED)
    error, odd = found.verdict()
    assert error is None
    assert odd is not None
    assert odd.message == (
        "7 of 8 node exporters do not answer as they should: b, c, d, e, f and 2 more;"
        " the first one: nobody listens there"
    )
    found.failed(found.entries["a"], REFUSED)
    error, odd = found.verdict()
    assert (error is not None, odd) == (True, None)


def test_an_answer_of_a_node_that_was_forgotten_is_not_kept() -> None:
    found = followed("a")
    entry = found.entries.pop("a")
    found.answered(entry, answer("a"), 0.0, WALL)
    assert entry.answer is None
    assert found.bounds["answers_kept_bytes"].used() == 0


def test_the_one_with_the_most_loses_where_there_is_no_room() -> None:
    room, lost = MemoryBudget(100), list[str]()
    for holder, size in (("a", 30), ("b", 40), ("c", 20), ("a", 35)):
        room.hold(holder, size, lambda holder=holder: lost.append(holder))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    assert (lost, room.used) == ([], 95)
    room.hold("d", 10, lambda: lost.append("d"))
    assert (lost, room.used) == (["b"], 65)
    room.hold("e", 1_000, lambda: lost.append("e"))
    assert (lost, room.used) == (["b", "e"], 65)
    room.free("a")
    room.free("a")
    assert room.used == 30


def test_urls_are_given_with_and_without_what_follows_them() -> None:
    given = GivenPlaces([("a", "http://a:1/"), ("b", "http://b:1/gpu/container/metrics"), ("", "https://u:p@c:1/gpu")])
    assert {key: place.url for key, place in given.places.items()} == {
        "a": "http://a:1",
        "b": "http://b:1/gpu",
        "c:1/gpu": "https://u:p@c:1/gpu",
    }
