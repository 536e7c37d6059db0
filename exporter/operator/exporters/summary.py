"""Many troubles of many nodes → a sentence for people, and a list that is short enough. Pure.

What fails for the same reason on many nodes is said once, and hides nothing else: one node with a trouble of its own is
in the list beside a thousand others.
"""

from collections.abc import Iterable, Sequence
from itertools import islice, zip_longest

from exporter.operator.exporters.nodes import NodeTrouble
from exporter.operator.objects.parts import and_more, one_line

_MOST_KINDS = 4
_MOST_NAMED = 5
_MOST_CHARS = 600


def by_kind(troubles: Iterable[NodeTrouble]) -> list[list[NodeTrouble]]:
    """Those with one source and one reason together, the most frequent first; each node of a kind once."""
    kinds: dict[tuple[str, str], dict[str, NodeTrouble]] = {}
    for trouble in sorted(troubles):
        kinds.setdefault((trouble.source, trouble.reason), {}).setdefault(trouble.node, trouble)
    return [list(kind.values()) for _, kind in sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0]))]


def listed(troubles: Iterable[NodeTrouble], most: int) -> list[NodeTrouble]:
    """At most so many of them, in order: of each kind the first, then of each the second, and so on."""
    in_turn = (each for of_each in zip_longest(*by_kind(troubles)) for each in of_each if each is not None)
    return sorted(islice(in_turn, most))


def summary(troubles: Sequence[NodeTrouble], nodes: int) -> str:
    """Which nodes, why, and what to do. `nodes` are all that there are to be; 0 where that is not known."""
    in_trouble = {trouble.node for trouble in troubles}
    of_all = f" of {nodes}" if nodes >= len(in_trouble) else ""
    kinds = by_kind(troubles)
    said = [
        f"{kind[0].source} ({kind[0].reason}) on {and_more([trouble.node for trouble in kind], _MOST_NAMED)}:"
        f" {one_line(kind[0].message, _MOST_CHARS)}"
        for kind in kinds[:_MOST_KINDS]
    ]
    if len(kinds) > _MOST_KINDS:
        said.append(f"and {len(kinds) - _MOST_KINDS} more kinds of trouble, see troubles")
    noun = "node is" if (nodes or len(in_trouble)) == 1 else "nodes are"
    return f"{len(in_trouble)}{of_all} {noun} in trouble; {'; '.join(said)}"
