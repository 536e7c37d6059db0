"""docs/endpoints.md: every path of each role, and the fields of the answers in JSON."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from docs.generator.markdown import code, description, document, prose, table
from exporter.cluster.outputs.cluster_outputs import OUTPUTS as CLUSTER_OUTPUTS
from exporter.operator.outputs import OUTPUTS as OPERATOR_OUTPUTS
from exporter.outputs.node_outputs import OUTPUTS
from exporter.outputs.output import Output

_INTRO = """\
All of them answer GET and HEAD alone, and change nothing. Where a password or a client certificate is asked for
(`--web.config.file`), all need it but those that the kubelet probes. Under load every path but these may be a 503 with
`Retry-After`."""
_KEDA = """\
With `--keda.listen-address` it also answers KEDA's triggers `external` and `external-push`, over gRPC on a port of its
own ([cluster.md](cluster.md))."""
_JSON = """\
The same as [OpenAPI 3.1](openapi.yaml), which node and cluster role serve at `/openapi.json`."""
_FIELDS = {
    "Container": "An object of /container/metrics",
    "Process": "An object of /processes",
    "Event": "An object of /events",
}
# the page for people names neither itself nor its own parts
_UNSAID = {"/": "a page for people", "/healthz": "the same as /-/healthy"}
Json = Mapping[str, Any]


def page() -> str:
    """The page."""
    from docs.generator.everything import FOLDER  # noqa: PLC0415 - that module imports this one

    api = yaml.safe_load((FOLDER / "openapi.yaml").read_text())
    return document(
        "Endpoints",
        _INTRO,
        "## Of a node's exporter",
        _table(OUTPUTS),
        "## Of the cluster role",
        _table(CLUSTER_OUTPUTS),
        _KEDA,
        "## Of the operator",
        _table(OPERATOR_OUTPUTS),
        "## What answers in JSON",
        _JSON,
        *_operations(api),
        *_objects(api),
    )


def _table(outputs: Sequence[Output[Any]]) -> str:
    rows = [(code(_path(output)), prose(_says(output)), "yes" if output.is_probe else "") for output in outputs]
    return table(("path", "answers", "a probe"), rows)


def _path(output: Output[Any]) -> str:
    return f"{output.path}{output.says.partition(':')[0]}" if output.is_below else output.path


def _says(output: Output[Any]) -> str:
    says = output.says.partition(": ")[2] if output.is_below else output.says
    return says or _UNSAID.get(output.path, "a part of the page for people")


def _operations(api: Json) -> Iterator[str]:
    for path, methods in api["paths"].items():
        operation = methods["get"]
        yield f"### {path}"
        yield prose(f"{operation['summary']}. {description(operation, f'docs/openapi.yaml: {path}')}")
        parameters = operation.get("parameters", ())
        if parameters:
            rows = [(code(each["name"]), each["in"], prose(_of_parameter(each))) for each in parameters]
            yield table(("parameter", "in", ""), rows)
        says: dict[str, list[str]] = {}
        for status, said in operation["responses"].items():
            says.setdefault(prose(_response(api, said, path)), []).append(status)
        yield table(("status", ""), ((", ".join(statuses), text) for text, statuses in says.items()))


def _of_parameter(parameter: Json) -> str:
    allowed = parameter["schema"].get("enum")
    said: str = parameter.get("description", "")
    if allowed:
        said += " One of: " + ", ".join(allowed)
    elif "example" in parameter:
        said += f" Such as {parameter['example']}"
    return said.strip()


def _response(api: Json, said: Json, path: str) -> str:
    found = description(_followed(api, said), f"docs/openapi.yaml: a response of {path}")
    headers = [
        f"Header {name}: {description(header, f'docs/openapi.yaml: header {name} of {path}')}"
        for name, header in said.get("headers", {}).items()
    ]
    return " ".join((found, *headers))


def _objects(api: Json) -> Iterator[str]:
    for name, title in _FIELDS.items():
        schema = api["components"]["schemas"][name]
        needed = frozenset(schema["required"])
        yield f"### {title}"
        yield table(("field", "type", "may be left out", ""), _fields(api, schema, needed))


def _fields(api: Json, schema: Json, needed: frozenset[str], prefix: str = "") -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for name, described in schema["properties"].items():
        followed = _followed(api, described)
        optional = "" if prefix or name in needed else "yes"
        rows.append((code(f"{prefix}{name}"), _type(followed), optional, prose(described.get("description", ""))))
        if "properties" in followed:
            rows += _fields(api, followed, needed, f"{prefix}{name}.")
    return rows


def _type(schema: Json) -> str:
    if "enum" in schema:
        return ", ".join(code(each) for each in schema["enum"] if each)
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return " or ".join(kinds)


def _followed(api: Json, described: Json) -> Json:
    """The description that a $ref leads to; without a $ref, the description itself."""
    if "$ref" not in described:
        return described
    found: Json = api
    for part in described["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return found
