"""What a node is made of, for tests that look inside."""

from exporter.node.kept_accounts import KeptAccounts
from exporter.node.node import Node


def accounts_of(node: Node) -> KeptAccounts:
    """What its accounts are kept in."""
    return node.handover.the(KeptAccounts)
