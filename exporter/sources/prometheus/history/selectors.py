"""PromQL for the report: selectors of rows, with what --match adds and with the nodes that are meant. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence

_MATCH = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)(=~|!~|!=|=)(.*)", re.DOTALL)
# Some proxies take no longer address than 8 KiB, and every byte of this may become three there.
_MOST_CHARS = 2000


def quoted(text: str) -> str:
    """A text as PromQL writes one."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def read_match(text: str) -> str:
    """`cluster=a`, `cluster!=a`, `node=~gpu-.*` as a matcher of PromQL, with quotes around the value or without.

    Raises:
        ValueError: it is none.
    """
    found = _MATCH.fullmatch(text)
    if not found:
        raise ValueError(text)
    name, operator, value = found.groups()
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = value[1:-1]
    return f"{name}{operator}{quoted(value)}"


def of_nodes(nodes: Sequence[str]) -> str:
    """The matcher of rows of these nodes."""
    return f"node=~{quoted('|'.join(re.escape(node) for node in nodes))}"


def batches(nodes: Iterable[str], most: int = 50) -> Iterator[Sequence[str]]:
    """The nodes in a stable order, as many at a time as an address can hold."""
    batch: list[str] = []
    chars = 0
    for node in sorted(nodes):
        if batch and (len(batch) == most or chars + len(node) > _MOST_CHARS):
            yield batch
            batch, chars = [], 0
        batch.append(node)
        chars += len(node) + 1
    if batch:
        yield batch


def selector(family: str, matchers: Iterable[str]) -> str:
    """A family's series."""
    return f"{family}{{{', '.join(matchers)}}}"
