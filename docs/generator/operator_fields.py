"""docs/operator-fields.md: every field of the operator's two kinds, as deploy/operator/crds.yaml describes it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from docs.generator.markdown import code, description, document, prose, table

CRDS = Path(__file__).parents[2] / "deploy" / "operator" / "crds.yaml"
_INTRO = """\
What [operator.md](operator.md) is about, field by field: the same texts as `kubectl explain gpuexporter.spec
--recursive` and `kubectl explain gpuautoscaler.spec.behavior` show. A `*` stands for a name of your own, `[]` for each
entry of a list. A field without a default may be left out, unless it is needed; what then holds, its text says."""
_HEADS = ("field", "takes", "default", "")
_TOLD_HEADS = ("field", "type", "")
_NEEDED = "needed"
Json = Mapping[str, Any]


def page() -> str:
    """The page."""
    parts: list[str] = []
    for definition in yaml.safe_load_all(CRDS.read_text()):
        names, (version,) = definition["spec"]["names"], definition["spec"]["versions"]
        schema = version["schema"]["openAPIV3Schema"]
        parts += [
            f"## {names['kind']}",
            prose(description(schema, f"deploy/operator/crds.yaml: {names['kind']}")),
            f"{code(definition['spec']['group'])}, {code(version['name'])}; for short {code(names['shortNames'][0])}.",
        ]
        for part in ("spec", "status"):
            described = schema["properties"][part]
            parts += [f"### {names['kind']}.{part}", prose(description(described, f"{part} of {names['kind']}"))]
            rows = _rows(described)
            # fields that only the operator writes have no defaults, and none of them is required
            parts.append(
                table(_HEADS, rows) if part == "spec" else table(_TOLD_HEADS, [_without_default(row) for row in rows])
            )
            refusals = [prose(rule["message"]) for rule in _rules(described)]
            if refusals:
                parts += ["Refused, besides what the table forbids:", "\n".join(f"- {said}" for said in refusals)]
        columns = version["additionalPrinterColumns"]
        told = [(code(each["name"].upper()), code(each["jsonPath"]), _when(each)) for each in columns]
        parts += [f"### {names['kind']}, as a row", table(("column", "of", ""), told)]
    return document("The operator's fields", _INTRO, *parts)


def _when(column: Json) -> str:
    says = prose(column.get("description", ""))
    return f"{says} With `-o wide` alone." if column.get("priority") else says


def fields(schema: Json, path: str) -> Iterator[tuple[str, Json, bool]]:
    """Every field below a schema: its path, its schema, and whether its parent requires it."""
    needed = frozenset(schema.get("required", ()))
    inner: Sequence[tuple[str, Json]] = [(f".{name}", each) for name, each in schema.get("properties", {}).items()]
    if "additionalProperties" in schema:
        inner = [(".*", schema["additionalProperties"])]
    elif "items" in schema:
        inner = [("[]", schema["items"])]
    for name, each in inner:
        yield f"{path}{name}", each, name.removeprefix(".") in needed
        yield from fields(each, f"{path}{name}")


def _without_default(row: Sequence[str]) -> Sequence[str]:
    name, takes, _, said = row
    return (name, takes, said)


def _rows(schema: Json) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for path, described, is_needed in fields(schema, ""):
        default = json.dumps(described["default"]) if "default" in described else ""
        said = prose(description(described, f"deploy/operator/crds.yaml: the field {path}"))
        name = path.removeprefix(".")
        rows.append((code(name), _takes(described), _NEEDED if is_needed else code(default), said))
    return rows


def _takes(schema: Json) -> str:
    if "enum" in schema:
        return ", ".join(code(each) for each in schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if schema["type"] == "array":
        most = schema.get("maxItems")
        return f"list{f' of at most {most}' if most else ''}"
    if schema["type"] == "object":
        return "map" if "additionalProperties" in schema else "object"
    least, most = schema.get("minimum"), schema.get("maximum")
    if schema.get("exclusiveMinimum"):
        return f"{schema['type']} above {least}"
    bounds = {(True, True): f", {least} to {most}", (True, False): f" from {least}", (False, True): f" up to {most}"}
    return f"{schema['type']}{bounds.get((least is not None, most is not None), '')}"


def _rules(schema: Json) -> Iterator[Json]:
    yield from schema.get("x-kubernetes-validations", ())
    for _, each, _ in fields(schema, ""):
        yield from each.get("x-kubernetes-validations", ())
