"""Troubles: each says what to do, once; a source's reason is one of a closed set that is used."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

from exporter import errors
from exporter.errors import MalformedReason, SourceError, Trouble, UnavailableReason

PACKAGE = Path(errors.__file__).parent
REASONS: dict[str, object] = {
    "Unavailable": UnavailableReason,
    "TimedOut": Literal["deadline"],
    "Malformed": MalformedReason,
    "Unsupported": Literal["unimplemented"],
}
# the floors whose troubles are the health of a source: their reasons are values of a label
HEALTH = ("model", "sources", "node")


def members(of: object) -> set[str]:
    """The texts of a Literal, or of a union of such."""
    return set(get_args(of)) if get_origin(of) is Literal else set().union(*map(members, get_args(of)))


# of what answers: a kubelet that lists no pod, a receiver that takes a part of a push, and a page in another unit
ALL_REASONS = {"no_pods", "partial", "unit"}.union(*map(members, REASONS.values()))


TREES = {
    str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(PACKAGE.rglob("*.py"))
    if "_gen" not in path.parts
}
CLASSES = {
    node.name: (where, node)
    for where, tree in TREES.items()
    for node in ast.walk(tree)
    if isinstance(node, ast.ClassDef)
}


def base_of(name: str) -> str:
    """The house's class that a class is made of; "" for none."""
    bases = [ast.unparse(base) for base in CLASSES[name][1].bases]
    return next((base for base in bases if base in CLASSES), "")


def is_a(name: str, kind: str) -> bool:
    """Whether a class is `kind`, or made of it."""
    return name == kind or (base_of(name) != "" and is_a(base_of(name), kind))


def parameters(name: str) -> list[str]:
    """What a class, or the one it is made of, is given: first what may be given by place."""
    own = [each for each in CLASSES[name][1].body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    if own:
        return [each.arg for each in (*own[0].args.args[1:], *own[0].args.kwonlyargs)]
    return ["reason", "message", "remedy"] if name == "Trouble" else parameters(base_of(name))


ERRORS = {name for name in CLASSES if is_a(name, "ExporterError")}
KINDS = {name for name in ERRORS if is_a(name, "SourceError")}


@dataclass(frozen=True)
class Site:
    """A place that puts a failure, or what is odd about an answer, into words; what it leaves to its class is None."""

    kind: str
    reason: ast.expr | None
    message: ast.expr | None
    remedy: ast.expr | None

    @property
    def reasons(self) -> object:
        """Those of its kind."""
        return next((reasons for name, reasons in REASONS.items() if is_a(self.kind, name)), None)


def site(kind: str, call: ast.Call) -> Site:
    given = dict(zip(parameters(kind), call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    return Site(kind, given.get("reason"), given.get("message"), given.get("remedy"))


def raise_sites() -> Iterator[tuple[str, Site]]:
    """Every place where a source's failure, or what is odd about its answer, is put into words."""
    for where, tree in TREES.items():
        for node in ast.walk(tree) if where != "errors.py" else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {*KINDS, "Trouble"}:
                yield f"{where}:{node.lineno}", site(node.func.id, node)
    for name in KINDS:
        where, defined = CLASSES[name]
        for node in ast.walk(defined) if where != "errors.py" else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "super().__init__":
                yield f"{where}:{node.lineno}", site(base_of(name), node)


SITES = dict(raise_sites())
KINDS_OF_NAMES = {"UnavailableReason": UnavailableReason, "MalformedReason": MalformedReason}


def typed_fields() -> Iterator[tuple[str, object]]:
    """Fields of classes that carry a reason: mypy holds their values to the type that is written there."""
    for tree in TREES.values():
        for node in ast.walk(tree):
            for field in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    kind = KINDS_OF_NAMES.get(ast.unparse(field.annotation))
                    if kind is not None:
                        yield field.target.id, kind


TYPED_FIELDS = dict(typed_fields())


def texts(written: ast.expr | None) -> list[str]:
    """What is literally there, inside of an f-string too."""
    nodes = ast.walk(written) if written is not None else ()
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_there_are_raise_sites() -> None:
    assert len(SITES) > 50


def test_every_kind_of_failure_is_looked_at() -> None:
    assert {kind.__name__ for kind in SourceError.__subclasses__()} == set(REASONS)
    assert {"BadBinary", "HttpRefusal", "Refused", "SlowAnswer"} < KINDS
    assert {site.kind for site in SITES.values()} >= KINDS - {"SourceError"}


# They end a command, or never leave the room that raises them, so their text alone says what to do.
WITHOUT_TROUBLE = {
    "AttachFailed",
    "AttachSlow",
    "BadElf",
    "ConfigError",
    "DamagedBundle",
    "DuplicateKey",
    "Gone",
    "Invalid",
    "KubectlRefusal",
    "PortTaken",
    "OtherProtocol",
    "TooSlow",
    "Unreadable",
}


def test_an_error_of_another_kind_than_a_source_s_is_named_here() -> None:
    assert {"ExporterError", *WITHOUT_TROUBLE} == ERRORS - KINDS


@pytest.mark.parametrize("where", SITES)
def test_a_failure_says_what_to_do_and_once(where: str) -> None:
    one = SITES[where]
    # a class that is given none names one itself, where it calls the one that it is made of
    assert one.remedy is not None or one.kind == "Trouble" or "remedy" not in parameters(one.kind)
    assert not isinstance(one.remedy, ast.Constant) or str(one.remedy.value).strip()
    words = " ".join(texts(one.message))
    assert "?" not in words, "a question is a remedy, and is not to be in the message too"
    assert " see --" not in words


@pytest.mark.parametrize("where", SITES)
def test_its_reason_is_one_of_its_kind(where: str) -> None:
    one = SITES[where]
    if one.reason is None:
        return  # its class has it
    written = set(texts(one.reason))
    if isinstance(one.reason, ast.Attribute) and one.reason.attr in TYPED_FIELDS:
        written |= members(TYPED_FIELDS[one.reason.attr])
    is_handed_on = ast.unparse(one.reason).rpartition(".")[2] == "reason"
    if one.reasons is not None or where.startswith(HEALTH):
        # healths.py: the reason that a node's exporter names of its own sources
        assert written or is_handed_on or where.startswith("sources/exporters/healths.py"), (
            "a reason is written where the failure is raised, or in a field of that type"
        )
        assert written <= (members(one.reasons) if one.reasons is not None else ALL_REASONS | {""})
    else:
        assert all(re.fullmatch(r"([A-Z][A-Za-z]*)?", word) for word in written - ALL_REASONS), "a condition's reason"


def test_no_reason_is_without_use() -> None:
    used = {text for one in SITES.values() for text in texts(one.reason)}
    of_one_reason = {"deadline", "unimplemented"}  # TimedOut's and Unsupported's; that these are raised is held above
    assert ALL_REASONS - used - of_one_reason == set()


def test_what_a_peer_says_cannot_begin_a_line_of_its_own() -> None:
    assert str(Trouble("garbage", "a\nb", "look\r\nthere")) == "a b -> look there"


def test_without_a_remedy_there_is_no_arrow() -> None:
    assert str(Trouble("", "nothing\ncan be done")) == "nothing can be done"
