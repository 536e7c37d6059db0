"""/openapi.json: what answers in JSON, and how. It is docs/openapi.yaml, which a test holds it to."""

from importlib.resources import files

from exporter.outputs.output import JSON_FORMAT, NOTHING, Answer, Look, Output, answer

_DOCUMENT = (files("exporter.outputs") / "openapi.json").read_bytes()


def _make(_: Look) -> Answer:
    return answer(JSON_FORMAT, _DOCUMENT)


OUTPUT = Output(path="/openapi.json", says="what answers in JSON, and how", make=_make, needs=NOTHING)
