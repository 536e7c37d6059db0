"""/autoscale/<namespace>/<workload>/<metric>: one number for an autoscaler, or the reason why there is none.

The question is in the path, since KEDA's metrics-api scaler leaves out the query.
"""

import json
from http import HTTPStatus

from exporter.cluster.outputs.look import ClusterLook
from exporter.cluster.questions import read_question
from exporter.cluster.scaling import Unanswerable, scaled
from exporter.outputs.output import JSON_FORMAT, Answer, Need, Output, Question, answer, json_refusal


def _refuse(question: Question) -> Answer | None:
    if question.query:
        return _no_number(
            Unanswerable(HTTPStatus.BAD_REQUEST, "there are no parameters: the whole question is in the path")
        )
    try:
        read_question(question.rest)
    except Unanswerable as error:
        return _no_number(error)
    return None


def _make(look: ClusterLook) -> Answer:
    try:
        found = scaled(look.view, read_question(look.question.rest))
    except Unanswerable as error:
        return _no_number(error)
    said = {
        "value": found.value,
        "pods": found.pods,
        "nodes": found.nodes,
        "missing_nodes": found.missing_nodes,
    }
    return answer(JSON_FORMAT, json.dumps(said).encode() + b"\n")


def _no_number(error: Unanswerable) -> Answer:
    said = {"error": str(error), "missing_nodes": error.missing_nodes}
    return json_refusal(json.dumps(said).encode() + b"\n", error.status)


OUTPUT = Output(
    path="/autoscale/",
    says="<namespace>/<workload>/<metric>: one number for an autoscaler",
    make=_make,
    needs=frozenset({Need.NODE}),
    refuse=_refuse,
    is_below=True,
)
