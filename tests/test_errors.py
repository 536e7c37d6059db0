"""Failures of sources: every one says what to do, once, and its reason is one of a closed set that is used."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

from exporter import errors
from exporter.errors import MalformedReason, Reason, SourceError, Trouble, UnavailableReason

PACKAGE = Path(errors.__file__).parent
REASONS: dict[str, object] = {
    "Unavailable": UnavailableReason,
    "TimedOut": Literal["deadline"],
    "Malformed": MalformedReason,
    "Unsupported": Literal["unimplemented"],
}


def members(of: object) -> set[str]:
    """The texts of a Literal, or of a union of such."""
    return set(get_args(of)) if get_origin(of) is Literal else set().union(*map(members, get_args(of)))


def raise_sites() -> Iterator[tuple[str, ast.Call]]:
    """Every place where a source's failure, or what is odd about its answer, is put into words."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name == "errors.py" or "_gen" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {*REASONS, "Trouble"}:
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", node


SITES = dict(raise_sites())


def arguments(call: ast.Call) -> tuple[ast.expr, ast.expr, ast.expr]:
    """Reason, message and remedy, as they are written."""
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    reason, message, *rest = call.args
    return reason, message, named.get("remedy") or rest[0]


def texts(written: ast.expr) -> list[str]:
    """What is literally there, inside of an f-string too."""
    return [node.value for node in ast.walk(written) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_there_are_raise_sites() -> None:
    assert len(SITES) > 50


def test_every_kind_of_failure_is_looked_at() -> None:
    assert {kind.__name__ for kind in SourceError.__subclasses__()} == set(REASONS)


@pytest.mark.parametrize("where", SITES)
def test_a_failure_says_what_to_do_and_once(where: str) -> None:
    _, message, remedy = arguments(SITES[where])
    assert not isinstance(remedy, ast.Constant) or (isinstance(remedy.value, str) and remedy.value.strip())
    said = " ".join(texts(message))
    assert "?" not in said, "a question is a remedy, and is not to be in the message too"
    assert " see --" not in said


@pytest.mark.parametrize("where", SITES)
def test_its_reason_is_one_of_its_kind(where: str) -> None:
    call = SITES[where]
    assert isinstance(call.func, ast.Name)
    reason, _, _ = arguments(call)
    allowed = members(REASONS.get(call.func.id, Reason))
    written = set(texts(reason))
    assert written, "a reason is written where the failure is raised"
    assert written <= allowed


def test_no_reason_is_without_use() -> None:
    used = {text for call in SITES.values() for text in texts(arguments(call)[0])}
    assert members(Reason) - used == set()


def test_the_reasons_of_all_kinds_and_that_of_an_odd_answer_are_all_reasons() -> None:
    assert members(Reason) == set().union(*map(members, REASONS.values())) | {"no_pods"}


def test_what_a_peer_says_cannot_begin_a_line_of_its_own() -> None:
    assert str(Trouble("garbage", "a\nb", "look\r\nthere")) == "a b -> look there"
