"""PromQL that is made of what users and nodes are called."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.report.history.collect import batches, of_nodes, read_match, selector


@pytest.mark.parametrize(
    ("text", "matcher"),
    [
        ("cluster=a", 'cluster="a"'),
        ('cluster="a"', 'cluster="a"'),
        ("cluster!=a=b", 'cluster!="a=b"'),
        ("node=~gpu-.*", 'node=~"gpu-.*"'),
        ("node!~a|b", 'node!~"a|b"'),
        ('a="} or vector(1) #', 'a="\\"} or vector(1) #"'),
        ("a=", 'a=""'),
    ],
)
def test_a_match_is_one_matcher(text: str, matcher: str) -> None:
    assert read_match(text) == matcher


@pytest.mark.parametrize("text", ["", "a", "=b", "1a=b", "a b=c", "a-b=c", '{a="b"}'])
def test_what_is_no_match_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text) or "^$"):
        read_match(text)


def test_a_selector() -> None:
    nodes = of_nodes(["", "a/n.1", "n.1", 'b/x"\n'])
    assert selector("up", ['a="b"', nodes]) == 'up{a="b", node=~"|n\\\\.1|x\\"\\\\\\n"}'


def test_each_batch_is_as_long_as_an_address_has_room_for() -> None:
    of_199 = [f"{number:0199}" for number in range(30)]  # with what joins them ten are 2,000 characters
    assert [*map(len, batches(of_199))] == [10, 10, 10]
    assert [*map(len, batches(map(str, range(120))))] == [50, 50, 20]
    assert [*map(len, batches([*of_199[:9], "9" * 200]))] == [10]
    assert [*map(len, batches([*of_199[:9], "9" * 201]))] == [9, 1]


@given(st.lists(st.text(min_size=1, max_size=300), unique=True, max_size=200))
def test_batches_hold_every_node_once_and_are_short(nodes: list[str]) -> None:
    made = list(batches(nodes))
    assert [node for batch in made for node in batch] == sorted(nodes)
    assert all(batch for batch in made)
    assert all(len(batch) <= 50 and sum(map(len, batch)) <= 2000 for batch in made)
