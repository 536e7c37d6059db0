"""What a node is made of, for tests that look inside."""

from typing import Any, TypeVar

from exporter.node.kept_accounts import KeptAccounts
from exporter.node.node import Node

T = TypeVar("T")


def sources_of(node: Any, kind: type[T]) -> list[T]:
    """The sources of this kind."""
    return [source for source in node.sources if isinstance(source, kind)]


def source_of(node: Any, kind: type[T]) -> T:
    """The only source of this kind."""
    (source,) = sources_of(node, kind)
    return source


def part_of(node: Node, kind: type[T]) -> T:
    """The only part of this kind."""
    (part,) = (part for part in node.parts if isinstance(part, kind))
    return part


def accounts_of(node: Node) -> KeptAccounts:
    """What its accounts are kept in."""
    return node.handover.the(KeptAccounts)
