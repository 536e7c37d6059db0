"""Whatever answers in an exporter's place: a trouble of that node, and no more."""

from collections.abc import Sequence

import pytest

from exporter.sources.exporters import healths
from tests.cluster.exporters.conftest import (
    Serve,
    says,
    whole,
)
from tests.cluster.exporters.conftest import (
    serve as serve,  # noqa: PLC0414 - a fixture
)
from tests.operator.looking import OWNER, body, by_node, down, looking
from tests.support.waiting import until

HOSTILE: Sequence[tuple[str, bytes, str]] = [
    ("not JSON", b"hello", "it is not JSON"),
    ("a list", b"[]", "does not say how its sources are"),
    ("no sources", b'{"node": "a", "sources": {}}', "does not say how its sources are"),
    ("deep", b"[" * 100_000, "it is not JSON"),
    ("another node", body("b"), "answers as the node 'b', and runs on 'a'"),
    ("a source that is none", body(kubelet=[1]), "does not say how its source 'kubelet' is"),
    ("a source without a state", body(kubelet={"up": "yes"}), "does not say how its source 'kubelet' is"),
    ("many sources", body(**{f"s{number}": down() for number in range(65)}), "more than 64 sources"),
    ("a large number", b'{"node": "a", "sources": {"x": ' + b"9" * 5000 + b"}}", "it is not JSON"),
    ("too long", b" " * (healths.MOST_BYTES + 1), f"it answers more than {healths.MOST_BYTES}"),
]


@pytest.mark.parametrize(("answer", "why"), [each[1:] for each in HOSTILE], ids=[each[0] for each in HOSTILE])
async def test_an_answer_that_is_none_is_a_trouble_of_that_node(serve: Serve, answer: bytes, why: str) -> None:
    async with looking({"a": await serve(says(whole(answer)))}) as (looks, _):
        await until(lambda: bool(looks.troubles(OWNER)))
        found = by_node(looks)["a"]
    assert (found.source, why in found.message) == ("exporter", True), found.message


async def test_what_a_source_says_stays_on_one_line_and_within_bounds(serve: Serve) -> None:
    odd = {"x" * 400: down(reason="NOT ONE OF OURS", message="a\nb\x1b[0m" + "y" * 4000)}
    async with looking({"a": await serve(says(whole(body(**odd))))}) as (looks, _):
        await until(lambda: bool(looks.troubles(OWNER)))
        found = by_node(looks)["a"]
    assert (len(found.source), found.reason, len(found.message)) == (253, "unknown", 1024)
    assert found.message.isprintable()


async def test_a_password_and_tls_before_it_are_troubles_with_a_remedy(serve: Serve) -> None:
    refuses = says(whole(b"", status="401 Unauthorized"))
    async with looking({"a": await serve(refuses)}) as (looks, _):
        await until(lambda: bool(looks.troubles(OWNER)))
        found = by_node(looks)["a"]
    assert found.reason == "permission"
    assert "the exporters that the operator makes ask for no password" in found.message
