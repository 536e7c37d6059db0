"""/openapi.json: what answers in JSON, and how. It is docs/openapi.yaml, which a test holds it to."""

from pkgutil import get_data

from exporter.outputs.output import JSON_FORMAT, NOTHING, Answer, Look, Output, answer

_DOCUMENT = get_data(__package__, "openapi.json") or b""


def _make(_: Look) -> Answer:
    return answer(JSON_FORMAT, _DOCUMENT)


OUTPUT = Output(path="/openapi.json", says="the description of the answers in JSON", make=_make, needs=NOTHING)
