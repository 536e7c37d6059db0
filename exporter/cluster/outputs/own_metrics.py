"""/metrics: what the cluster role says of itself and of the nodes that it knows."""

from exporter.cluster.outputs.families import FAMILIES
from exporter.cluster.outputs.look import ClusterLook
from exporter.exposition.families import render
from exporter.outputs.complaints import complaints
from exporter.outputs.families.family import filled
from exporter.outputs.output import TEXT_FORMAT, Answer, Output, answer


def _make(look: ClusterLook) -> Answer:
    body = complaints(look.health) + render(filled(FAMILIES, look)) + look.telemetry.render_process()
    return answer(TEXT_FORMAT, body)


OUTPUT = Output(path="/metrics", says="the role's own metrics, and which nodes are missing", make=_make)
