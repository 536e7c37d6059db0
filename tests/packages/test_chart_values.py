"""The chart's values: each does something, is in the schema, in values.yaml and in the README, and is explained."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema
import pytest
import yaml

from tests.support.chart import CHART, VALUES, helm, merged, rendered_texts
from tests.support.chart_values import EXAMPLES, at
from tests.support.golden import Golden
from tests.support.manifests import Object

SCHEMA: Object = json.loads((CHART / "values.schema.json").read_text())
README = CHART / "README.md"
pytestmark = pytest.mark.real


def leaves(schema: Object, path: str = "") -> Iterator[str]:
    """What can be set: the schema says which tables have keys of ours."""
    for key, inner in schema["properties"].items():
        if "properties" in inner:
            yield from leaves(inner, f"{path}{key}.")
        elif key != "global":  # Helm's own
            yield f"{path}{key}"


PATHS = list(leaves(SCHEMA))


def value_at(values: Object, path: str) -> Any:
    value: Any = values
    for key in path.split("."):
        value = value[key]
    return value


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


def test_values_and_schema_have_the_same_keys() -> None:
    def walk(values: Object, schema: Object) -> None:
        assert set(values) == set(schema["properties"]) - {"global"}
        # templates/_mistakes.tpl refuses other keys, and says what was meant: Helm would only refuse them
        assert "additionalProperties" not in schema
        for key, inner in values.items():
            if "properties" in schema["properties"][key]:
                walk(inner, schema["properties"][key])

    walk(VALUES, SCHEMA)


def test_every_value_has_an_example() -> None:
    assert list(EXAMPLES) == PATHS


@cache
def texts_without(context: str) -> dict[str, str]:
    """What the chart makes of what stands around a value: many values have the same."""
    return rendered_texts(json.loads(context))


# issue 12, "Must show" 4
@pytest.mark.parametrize("path", EXAMPLES)
def test_every_value_does_something(path: str) -> None:
    value, context = EXAMPLES[path]
    assert rendered_texts(merged(context, at(path, value))) != texts_without(json.dumps(context))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"mod": "sidecar"}, "mod"),
        ({"mode": "operator"}, "mode"),
        ({"image": {"tag": 1.2}}, "tag"),
        ({"kubeletPath": "var/lib"}, "kubeletPath"),
        ({"basicAuth": {"users": {"prometheus": "a plain password"}}}, "users"),
        ({"serviceMonitor": {"enabled": True, "interval": "30"}}, "interval"),
        ({"rollingUpdate": {"maxUnavailble": 1}}, "maxUnavailble"),
        ({"tlsServerConfig": {"enabled": True}}, "existingSecret"),
        ({"serviceMonitor": {"enabled": True}, "service": {"enabled": False}}, "service.enabled"),
        ({"cluster": {"enabled": True}, "service": {"enabled": False}}, "service.enabled"),
        ({"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}, "set podMonitor.enabled to false"),
        ({"image": {"digest": "0f" * 32}}, "digest"),
        ({"image": {"digest": f"sha256:{'0f' * 32}", "tag": "1.0"}}, 'set image.digest to ""'),
    ],
)
def test_a_wrong_value_is_refused_and_named(values: Object, says: str) -> None:
    with pytest.raises(helm().HelmError, match=re.escape(says)):
        rendered_texts(values)


def explanations() -> dict[str, str]:
    """The comment above each key of values.yaml, by path."""
    lines = (CHART / "values.yaml").read_text().splitlines()

    def walk(node: yaml.MappingNode, path: str) -> Iterator[tuple[str, str]]:
        for key, value in node.value:
            above: list[str] = []
            for line in reversed(lines[: key.start_mark.line]):
                if not re.match(rf" {{{key.start_mark.column}}}# ", line):
                    break
                above.insert(0, line.strip().removeprefix("# "))
            yield f"{path}{key.value}", " ".join(above)
            if isinstance(value, yaml.MappingNode):
                yield from walk(value, f"{path}{key.value}.")

    document = yaml.compose("\n".join(lines))
    assert isinstance(document, yaml.MappingNode)
    found = dict(walk(document, ""))
    return {path: found[path] for path in PATHS}


def test_every_value_is_explained() -> None:
    for path, text in explanations().items():
        assert re.fullmatch(r"[A-Za-z/0-9\[].*\.", text), f"{path} has no sentence above it in values.yaml"


def table() -> str:
    rows = ["| value | default | |", "|---|---|---|"]
    for path, text in explanations().items():
        default = json.dumps(value_at(VALUES, path), ensure_ascii=False)
        rows.append(f"| `{path}` | `{default}` | {text} |")
    return "\n".join(rows) + "\n"


def test_the_readme_has_the_table_of_values(golden: Golden) -> None:
    before, begin, rest = README.read_text().partition("<!-- values -->\n")
    _, end, after = rest.partition("<!-- end of values -->")
    assert end
    golden.holds(README, before + begin + table() + end + after)
