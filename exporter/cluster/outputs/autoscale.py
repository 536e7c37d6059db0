"""/autoscale/<namespace>/<workload>/<metric>: one number for an autoscaler, or the reason why there is none.

The whole question is in the path, since KEDA's metrics-api scaler leaves out the query.

Tests: tests/cluster/test_role.py.
"""

import json
from http import HTTPStatus

from exporter.cluster.outputs.look import ClusterLook
from exporter.cluster.scaling import Unanswerable, read_question, scaled
from exporter.outputs.output import JSON_FORMAT, Answer, Output, Question, answer, json_refusal


def _refuse(question: Question) -> Answer | None:
    if question.query:
        why = "there are no parameters: the whole question is in the path"
        return json_refusal(why, HTTPStatus.BAD_REQUEST, missing_nodes=())
    try:
        read_question(question.rest)
    except Unanswerable as error:
        return _no_number(error)
    return None


def _make(look: ClusterLook) -> Answer:
    try:
        question = read_question(look.question.rest)
        result = look.workloads.check(question, scaled(look.view, question))
    except Unanswerable as error:
        return _no_number(error)
    content = {"value": result.value, "pods": result.pods, "nodes": result.nodes, "missing_nodes": ()}
    return answer(JSON_FORMAT, json.dumps(content).encode() + b"\n")


def _no_number(error: Unanswerable) -> Answer:
    return json_refusal(str(error), error.status, missing_nodes=error.missing_nodes)


OUTPUT = Output(
    path="/autoscale/",
    says="<namespace>/<workload>/<metric>: one number for an autoscaler",
    make=_make,
    refuse=_refuse,
    is_below=True,
)
