"""What is read of custom resources, and deploy/operator/crds.yaml: the two say the same."""

import dataclasses
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import kubernetes_validate
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.operator.objects.resources import (
    GPUAutoscalerSpec,
    GPUExporterSpec,
    Object,
    read_exporter,
)
from exporter.outputs.device_rows import METRICS_TO_ASK
from exporter.reading import Invalid, key_of
from tests.operator.specs import (
    CRDS,
    EVERYTHING,
    READERS,
    REFUSED,
    SCALING,
    SCALING_EVERYTHING,
    SCHEMAS,
    VALID,
    Refused,
    broken_rules,
    complaints,
    custom_resource,
    refused_spec,
    rules_of,
)
from tests.support.cel import reviewer
from tests.support.manifests import KUBERNETES

SPECS: dict[str, type] = {"GPUExporter": GPUExporterSpec, "GPUAutoscaler": GPUAutoscalerSpec}
NOWHERE = dataclasses.MISSING


def nodes(schema: Object, path: str) -> Iterator[tuple[str, Object]]:
    """Every schema within a schema, and its path."""
    yield path, schema
    for key, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{key}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key], f"{path}[]")


ALL = [(f"{kind}{path}", node) for kind, schema in SCHEMAS.items() for path, node in nodes(schema, "")]


# issue 14, "Must show" 3
@pytest.mark.parametrize(("path", "schema"), ALL, ids=[path for path, _ in ALL])
def test_every_field_has_a_text_for_kubectl_explain(path: str, schema: Object) -> None:
    # of metadata the API server tells by itself, and takes nothing from a schema
    if path.endswith(".metadata"):
        assert schema == {"type": "object"}
        return
    said = schema["description"]
    assert said[0].isupper() or said.startswith(("auto ",))
    assert said.endswith(".")
    assert "\n" not in said


@pytest.mark.parametrize(("path", "schema"), ALL, ids=[path for path, _ in ALL])
def test_every_size_has_a_bound(path: str, schema: Object) -> None:
    """Rules of CEL are refused by the API server where what they read has none."""
    if path.endswith((".apiVersion", ".kind")) and path.count(".") == 1:
        return
    if schema.get("x-kubernetes-int-or-string") or (schema.get("type") == "string" and "enum" not in schema):
        assert "maxLength" in schema or schema.get("format") == "date-time"
    if schema.get("type") == "array":
        assert {"maxItems", "x-kubernetes-list-type"} <= schema.keys()
    if "additionalProperties" in schema:
        assert "maxProperties" in schema


def both(cls: type, schema: Object, path: str) -> Iterator[tuple[str, "dataclasses.Field[Any]", Object]]:
    """The fields of a dataclass and the properties that they stand for; the same names."""
    declared = {key_of(field): field for field in dataclasses.fields(cls)}
    assert declared.keys() == schema["properties"].keys(), path
    for key, field in declared.items():
        inner = schema["properties"][key]
        yield f"{path}.{key}", field, inner
        schema_of_entry = inner.get("items", inner)
        if "properties" in schema_of_entry:
            yield from both(class_of(cls, field), schema_of_entry, f"{path}.{key}")


def class_of(cls: type, field: "dataclasses.Field[Any]") -> Any:
    """The dataclass in a field's type, such as `tuple[Toleration, ...]` or `Collectors | None`."""
    (found,) = (item for item in parts_of(get_type_hints(cls)[field.name]) if dataclasses.is_dataclass(item))
    return found


def parts_of(hint: Any) -> Iterator[Any]:
    yield hint
    for part in get_args(hint):
        yield from parts_of(part)


FIELDS = [found for kind, cls in SPECS.items() for found in both(cls, SCHEMAS[kind]["properties"]["spec"], kind)]


@pytest.mark.parametrize(("path", "field", "schema"), FIELDS, ids=[path for path, _, _ in FIELDS])
def test_a_field_has_the_same_default_as_in_the_schema(
    path: str, field: "dataclasses.Field[Any]", schema: Object
) -> None:
    default = field.default if field.default_factory is NOWHERE else field.default_factory()
    if "default" in schema:
        assert field.metadata["read"](schema["default"], path) == default
    else:
        assert default in (None, NOWHERE)


@pytest.mark.parametrize(("path", "field", "schema"), FIELDS, ids=[path for path, _, _ in FIELDS])
def test_a_field_has_the_same_bounds_as_in_the_schema(
    path: str, field: "dataclasses.Field[Any]", schema: Object
) -> None:
    def takes(value: object) -> bool:
        try:
            field.metadata["read"](value, path)
        except Invalid:
            return False
        return True

    if schema.get("type") == "integer":
        least, most = schema.get("minimum"), schema.get("maximum")
        if least is not None:
            assert (takes(least), takes(least - 1)) == (True, False)
        if most is not None:
            assert (takes(most), takes(most + 1)) == (True, False)
        assert not takes(True)
    if "enum" in schema and path != "GPUAutoscaler.metric":
        assert all(map(takes, schema["enum"]))
        assert not takes("")
    if "pattern" in schema:
        assert not takes("\n")
        assert not takes("x" * (schema["maxLength"] + 1))


def test_what_the_schema_requires_has_no_default() -> None:
    required = {
        f"{kind}{path.removeprefix('.spec')}.{key}"
        for kind, schema in SCHEMAS.items()
        for path, node in nodes(schema["properties"]["spec"], ".spec")
        for key in node.get("required", ())
    }
    without = {
        path.replace("[]", "")
        for path, field, _ in FIELDS
        if field.default is NOWHERE and field.default_factory is NOWHERE
    }
    assert {path.replace("[]", "") for path in required} == without


def test_the_metrics_are_those_that_the_cluster_role_answers() -> None:
    metric = SCHEMAS["GPUAutoscaler"]["properties"]["spec"]["properties"]["metric"]
    assert metric["enum"] == [*METRICS_TO_ASK]


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("kind", CRDS)
def test_the_definitions_are_valid(kind: str, version: str) -> None:
    kubernetes_validate.validate(CRDS[kind], version, strict=True)


# issue 14, "Must show" 3
@pytest.mark.parametrize("refused", REFUSED, ids=[f"{refused.field}-{refused.change}" for refused in REFUSED])
def test_what_is_refused_names_the_field(refused: Refused) -> None:
    item = custom_resource(refused.kind, refused_spec(refused))
    with pytest.raises(Invalid) as caught:
        READERS[refused.kind](item)
    assert caught.value.field == f"spec.{refused.field}"
    assert str(caught.value).startswith(f"spec.{refused.field}: ")
    parent, _, missing = f"spec.{refused.field}".rpartition(".")
    named = {f"spec.{refused.field}", refused.field.endswith("[1]") and f"spec.{refused.field[:-3]}", parent and parent}
    if refused.by_rule:
        assert complaints(refused.kind, item) == []
        assert f"spec.{refused.field}" in broken_rules(refused.kind, item)
    else:
        assert set(complaints(refused.kind, item)) & named, (complaints(refused.kind, item), missing)


# issue 14, "Must show" 3
def test_every_rule_names_a_field_and_refuses_something() -> None:
    for kind, schema in SCHEMAS.items():
        rules = {rule["rule"] for _, node in nodes(schema, "") for rule in node.get("x-kubernetes-validations", ())}
        refusing = {
            rule["rule"]
            for refused in REFUSED
            if refused.by_rule and refused.kind == kind
            for _, rule, value in rules_of({"spec": {"minReplicas": 1, **refused_spec(refused)}}, schema)
            if reviewer(rule, value, value)
        }
        assert rules - refusing <= {"self == oldSelf"}


def test_the_target_of_an_autoscaler_cannot_be_changed() -> None:
    target = SCHEMAS["GPUAutoscaler"]["properties"]["spec"]["properties"]["scaleTargetRef"]
    (rule,) = target["x-kubernetes-validations"]
    assert reviewer(rule, SCALING["scaleTargetRef"], SCALING["scaleTargetRef"]) is None
    said = reviewer(rule, {"name": "other"}, SCALING["scaleTargetRef"])
    assert said is not None
    assert said.startswith("spec.scaleTargetRef cannot be changed")


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("GPUExporter", {}),
        ("GPUExporter", EVERYTHING),
        ("GPUAutoscaler", SCALING),
        ("GPUAutoscaler", SCALING_EVERYTHING),
    ],
)
def test_what_is_valid_is_read(kind: str, spec: Object) -> None:
    item = custom_resource(kind, spec)
    assert complaints(kind, item) == []
    read = READERS[kind](item)
    for declared in dataclasses.fields(read):  # type: ignore[arg-type]
        default = declared.default if declared.default_factory is NOWHERE else declared.default_factory()
        is_given = key_of(declared) in spec
        assert (getattr(read, declared.name) == default) is not is_given


@settings(max_examples=40)
@given(VALID)
def test_whatever_the_schema_takes_is_read(spec: Object) -> None:
    item = custom_resource("GPUExporter", spec)
    assert complaints("GPUExporter", item) == []
    assert broken_rules("GPUExporter", item) == {}
    assert read_exporter(item) == read_exporter(custom_resource("GPUExporter", {**spec, "unknown": 1}))


PATHS = sorted({path.rpartition(".")[2] for path, _, _ in FIELDS} | {"spec", "x"})
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just("DCGM_FI_A")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(PATHS), inner, max_size=4)),
    max_leaves=12,
)


@given(st.sampled_from([*READERS]), ANYTHING)
def test_nothing_that_comes_from_there_breaks_a_reader(kind: str, given_spec: object) -> None:
    said = "spec"
    try:
        READERS[kind](custom_resource(kind, given_spec))
    except Invalid as refused:
        said = str(refused)
    assert said.startswith("spec")
    assert "\n" not in said


@pytest.mark.parametrize("item", [None, [], "x", 5])
def test_what_is_no_object_is_refused(item: object) -> None:
    for read in READERS.values():
        with pytest.raises(Invalid, match="the object"):
            read(item)
