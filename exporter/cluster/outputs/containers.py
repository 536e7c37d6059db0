"""/container/metrics: the objects of all nodes, as their exporters wrote them, with the node role's filters.

The answer is an array like a node's. So a header names the missing nodes, whose last objects are too old and left out.

Tests: tests/cluster/test_role.py, tests/cluster/test_many_rows.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from itertools import islice

from exporter.cluster.outputs.look import ClusterLook, answered, missing_header, why_nothing
from exporter.model.cluster_view import ClusterView, HeldDevice
from exporter.model.slices import ITEMS_A_SLICE, Work
from exporter.outputs.containers import FILTERS, wrong_query
from exporter.outputs.output import JSON_FORMAT, Answer, Output, Question, json_refusal


def render(view: ClusterView, filters: Mapping[str, str]) -> Work[Sequence[bytes]]:
    """The array in pieces. `filters` has the wanted value by query parameter; an empty value filters nothing."""
    node = filters.get("node", "")
    wanted = [(FILTERS[name], value) for name, value in filters.items() if value and name != "node"]
    devices: Iterator[HeldDevice] = (
        held for answer in answered(view) if node in ("", answer.name) for held in answer.devices
    )
    if wanted:
        devices = (held for held in devices if all(getattr(held.row, field) == value for field, value in wanted))
    pieces = [b"["]
    while some := b",".join([held.text for held in islice(devices, ITEMS_A_SLICE)]):
        pieces += (b"," if len(pieces) > 1 else b"", some)
        yield
    return (*pieces, b"]\n")


def _refuse(question: Question) -> Answer | None:
    wrong = wrong_query(question.query)
    return json_refusal(wrong, HTTPStatus.BAD_REQUEST) if wrong else None


def _make(look: ClusterLook) -> Work[Answer]:
    view = look.view
    filters = dict(look.question.query)
    one = view.nodes.get(filters.get("node", ""))
    why = f"node {one.name} has not answered: {one.trouble}" if one and one.trouble else why_nothing(view)
    # a question about one node that has answered does not need the list of all nodes
    if not why and view.trouble and not one:
        why = f"it is not known which nodes there are: {view.trouble}"
    headers = missing_header(view)
    if why:
        return json_refusal(why, HTTPStatus.SERVICE_UNAVAILABLE)._replace(headers=headers)
    pieces = yield from render(view, filters)
    return Answer(JSON_FORMAT, pieces, sum(map(len, pieces)), headers=headers)


OUTPUT = Output(path="/container/metrics", says="the containers of all nodes, as JSON", make=_make, refuse=_refuse)
