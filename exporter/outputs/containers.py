"""/container/metrics: JSON, one object for each device (a GPU or a MIG instance) and container that holds it."""

from collections.abc import Iterable, Mapping, Sequence

from exporter.model.device_row import DeviceRow
from exporter.model.node_answers import EVENTS_HEADER, OWNERS_UNKNOWN_HEADER
from exporter.model.slices import Work
from exporter.outputs.complaints import why_not
from exporter.outputs.device_rows import are_owners_unknown, rows
from exporter.outputs.event_rows import newest_event
from exporter.outputs.output import JSON_FORMAT, OF_OBJECTS, Answer, Look, Output, Question, answer, json_refusal

# Query parameter → the field with which it is compared.
_FIELDS = ("pod", "namespace", "container", "node_name", "workload_name")
FILTERS = {field.removesuffix("_name"): field for field in _FIELDS}
_OBJECTS_A_PIECE = 200


def render(device_rows: Sequence[DeviceRow], filters: Mapping[str, str]) -> Work[Sequence[bytes]]:
    """The array of these rows as objects, in pieces.

    `filters` are by query parameter; an empty filter does not count.
    """
    # a library of 1 MiB, which a node that nobody asks for JSON does without
    from exporter.model.device_row_json import as_json  # noqa: PLC0415

    chosen = device_rows
    for name, value in filters.items():
        if value:
            chosen = [row for row in chosen if getattr(row, FILTERS[name]) == value]
    pieces = [b"["]
    for start in range(0, len(chosen), _OBJECTS_A_PIECE):
        array = as_json(chosen[start : start + _OBJECTS_A_PIECE])
        pieces += (b"," if start else b"", array[1:-1])
        yield
    return (*pieces, b"]\n")


def wrong_query(given: Iterable[tuple[str, str]]) -> str:
    """The fault of a query's parameters in words; "" if there is none."""
    names = [name for name, _ in given]
    for name in names:
        if name not in FILTERS:
            return f"{name!r} is not a parameter; the parameters are {', '.join(FILTERS)}"
        if names.count(name) > 1:
            return f"{name!r} is given {names.count(name)} times; give it once"
    return ""


def _refuse(question: Question) -> Answer | None:
    wrong = wrong_query(question.query)
    return json_refusal(wrong, 400) if wrong else None


def _make(look: Look) -> Work[Answer]:
    if look.snapshot.joined is None:
        return json_refusal(why_not(look.snapshot), 503)
    device_rows = yield from rows(look.snapshot)
    pieces = yield from render(device_rows, dict(look.question.query))
    headers = {OWNERS_UNKNOWN_HEADER: "true"} if are_owners_unknown(look.snapshot, device_rows) else {}
    newest = newest_event(look.snapshot)
    if newest is not None:
        headers[EVENTS_HEADER] = newest
    return answer(JSON_FORMAT, *pieces)._replace(headers=tuple(headers.items()))


OUTPUT = Output(
    path="/container/metrics", says="the same by container, as JSON", make=_make, needs=OF_OBJECTS, refuse=_refuse
)
