"""/metrics/nodes: pods and the GPUs that they hold, a family for each node, as the node's own exporter writes it.

Tests: tests/cluster/test_role.py.
"""

from exporter.cluster.outputs.look import ClusterLook, answered, missing_header, why_nothing
from exporter.exposition.families import Samples, pieces
from exporter.model.cluster_view import NodeView
from exporter.model.slices import Work
from exporter.outputs.nodes import node_families
from exporter.outputs.output import TEXT_FORMAT, Answer, Output, answer, line


def _pods(node: NodeView) -> Samples:
    rows = [held.row for held in node.devices if held.row.pod]
    return [((row.row_device[1], row.model_name, row.namespace, node.name, row.pod), 1.0) for row in rows]


def _make(look: ClusterLook) -> Work[Answer]:
    view = look.view
    why = why_nothing(view)
    if why:
        return line(why, 503)
    missing = "".join(f"# node {name} is missing: {view.nodes[name].trouble}\n" for name in view.missing)
    if view.trouble:
        missing += f"# it is not known which other nodes there are: {view.trouble}\n"
    families = yield from node_families((node.name, _pods(node)) for node in answered(view))
    texts = yield from pieces(families)
    return answer(TEXT_FORMAT, missing.encode("utf-8", "replace"), *texts)._replace(headers=missing_header(view))


OUTPUT = Output(path="/metrics/nodes", says="which pod holds which GPU, a family for each node", make=_make)
