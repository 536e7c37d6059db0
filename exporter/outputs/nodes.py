"""/metrics/nodes: which pod holds which GPU, as a family that is named after the node."""

from exporter.outputs.families import render
from exporter.outputs.mapping import node_families
from exporter.outputs.output import TEXT_FORMAT, Answer, Look, Output, answer


def _make(look: Look) -> Answer:
    return answer(TEXT_FORMAT, render(node_families((look.snapshot,))))


OUTPUT = Output(path="/metrics/nodes", says="which pod holds which GPU, a family for this node", make=_make)
