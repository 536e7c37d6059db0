"""/metrics/nodes: the GPUs that pods hold, as a family that is named after the node.

Tests: tests/outputs/test_mapping.py.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from exporter.exposition.families import Filled, Samples, pieces
from exporter.model.slices import Work
from exporter.outputs.families.mapping import MAP_INFO
from exporter.outputs.output import TEXT_FORMAT, Answer, Look, Output, answer

_INFO = replace(MAP_INFO, help="A pod of this node that holds a GPU; always 1.")


def node_families(of_nodes: Iterable[tuple[str, Samples]]) -> Work[tuple[Filled, ...]]:
    """Families `<node>_info` of nodes' names and samples of MAP_INFO. Nodes whose names become alike share a family."""
    rows: dict[str, dict[tuple[tuple[str, ...], float], None]] = {}
    for node, samples in of_nodes:
        rows.setdefault(family_name_of(node), {}).update(dict.fromkeys(samples))
        yield
    return tuple(Filled(replace(_INFO, name=name), tuple(samples)) for name, samples in rows.items())


def family_name_of(node: str) -> str:
    """`gpu-node-1` becomes `gpu_node_1_info`, `10.0.0.1` becomes `_10_0_0_1_info`."""
    name = re.sub(r"[^a-zA-Z0-9_:]", "_", node) + "_info"
    return f"_{name}" if name[0].isdigit() else name


def _make(look: Look) -> Work[Answer]:
    families = yield from node_families(((look.snapshot.node, MAP_INFO.fill(look)),))
    return answer(TEXT_FORMAT, *(yield from pieces(families)))


OUTPUT = Output(path="/metrics/nodes", says="which pod holds which GPU, a family for this node", make=_make)
