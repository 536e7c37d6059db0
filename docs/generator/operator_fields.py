"""docs/operator-fields.md: every field of the operator's two kinds, as deploy/operator/crds.yaml describes it."""

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from docs.generator.markdown import code, description, document, prose

CRDS = Path(__file__).parents[2] / "deploy" / "operator" / "crds.yaml"
_INTRO = """\
The fields of the [operator](operator.md)'s two kinds. The default is **bold**. `[]` means each entry of a list. Only
fields marked `needed` are required. `tolerations`, `resources`, `behavior` and `conditions` have the form of
Kubernetes' own: `kubectl explain gpuexporter.spec --recursive` shows what is below them."""
_NEXT = "Next: [the operator](operator.md), [examples](../deploy/operator/examples)"
# objects that have the form of Kubernetes' own, which readers know
_OF_KUBERNETES = (
    ".tolerations[]",
    ".resources.exporter.",
    ".resources.dcgm.",
    ".behavior.",
    ".conditions[]",
    ".observedGeneration",
)
_MOST_VALUES = 8  # of an enum in a cell of a table
_WIDTH = 76  # of a list of values
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
            f"`apiVersion: {definition['spec']['group']}/{version['name']}`; for short {code(names['shortNames'][0])}.",
        ]
        for part in ("spec", "status"):
            described = schema["properties"][part]
            parts += [f"### {names['kind']}.{part}", prose(description(described, f"{part} of {names['kind']}"))]
            parts.append("\n".join(_lines(described, is_given=part == "spec")))
            for path, each, _ in fields(described, ""):
                if len(each.get("enum", ())) > _MOST_VALUES:
                    values = textwrap.fill(" ".join(each["enum"]), _WIDTH, break_on_hyphens=False)
                    parts.append(f"{code(path.removeprefix('.'))} takes one of:\n\n```\n{values}\n```")
    return document("The operator's fields", _INTRO, *parts, _NEXT)


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


def _lines(schema: Json, *, is_given: bool) -> Iterator[str]:
    """A line for each field, but for entries of lists and maps, and for what is Kubernetes' own.

    Only fields that a user gives can be needed.
    """
    for path, described, is_needed in fields(schema, ""):
        if path.endswith(("[]", ".*")) or path.startswith(_OF_KUBERNETES):
            continue
        said = prose(description(described, f"deploy/operator/crds.yaml: the field {path}"))
        takes = ", ".join(
            filter(None, (_takes(described), _default(described), "needed" if is_given and is_needed else ""))
        )
        yield f"- {code(path.removeprefix('.'))} ({takes}): {said}"


def _default(schema: Json) -> str:
    """The default in bold; "" without one, for an empty one, and for one of a few values, which is bold there."""
    default = schema.get("default")
    if (not default and default is not False) or "enum" in schema:
        return ""
    return f"**{code(default if isinstance(default, str) else json.dumps(default))}**"


def _values(schema: Json) -> str:
    return ", ".join(f"**{code(each)}**" if each == schema.get("default") else code(each) for each in schema["enum"])


def _takes(schema: Json) -> str:
    if "enum" in schema:
        return _values(schema) if len(schema["enum"]) <= _MOST_VALUES else "see below"
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if schema["type"] == "array":
        return f"list of at most {schema['maxItems']}"
    if schema["type"] == "object":
        return "map" if "additionalProperties" in schema else "object"
    least, most = schema.get("minimum"), schema.get("maximum")
    if schema.get("exclusiveMinimum"):
        return f"{schema['type']} above {least}"
    return f"{schema['type']}{f', {least} to {most}' if most is not None else ''}"
