"""What is refused beyond what was recorded, with the field's name in the answer."""

from typing import Any

import pytest

from tests.support.api_client import EXPORTERS, MERGE, NAMESPACE, Client, exporter
from tests.support.api_server.validation import problems
from tests.support.cel import reviewer

APPS = f"/apis/apps/v1/namespaces/{NAMESPACE}"
CORE = f"/api/v1/namespaces/{NAMESPACE}"


@pytest.mark.parametrize(
    ("schema", "value", "reason", "said"),
    [
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, 0, "Invalid", "should be greater than 0"),
        ({"type": "number", "maximum": 2}, 2.5, "Invalid", "Invalid value: 2.5: spec.x in body should be less than or"),
        ({"type": "integer"}, 1.5, "TypeInvalid", 'must be of type integer: "number"'),
        ({"type": "integer"}, True, "TypeInvalid", 'must be of type integer: "boolean"'),
        ({"type": "string"}, None, "TypeInvalid", 'must be of type string: "null"'),
        ({"type": "string", "nullable": True}, None, "", ""),
        ({"type": "string", "maxLength": 2}, "abc", "TooLong", "Too long: may not be more than 2 bytes"),
        ({"type": "string", "minLength": 1}, "", "Invalid", "should be at least 1 chars long"),
        ({"type": "string", "pattern": "^[A-Z]+$"}, "a", "Invalid", "should match '^[A-Z]+$'"),
        ({"type": "string", "format": "date-time"}, "today", "Invalid", "must be of type date-time"),
        ({"type": "array", "maxItems": 1, "items": {}}, [1, 2], "TooMany", "Too many: 2: must have at most 1 items"),
        ({"type": "array", "minItems": 1, "items": {}}, [], "Invalid", "should have at least 1 items"),
        ({"x-kubernetes-int-or-string": True}, "25%", "", ""),
        ({"x-kubernetes-int-or-string": True}, [], "TypeInvalid", "must be of type integer,string"),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1, "b": 2}, "Invalid", "(oneOf). Found 2 valid"),
        ({"anyOf": [{"required": ["a"]}]}, {}, "Invalid", '"spec.x" must validate at least one schema (anyOf)'),
        ({"not": {"required": ["a"]}}, {"a": 1}, "Invalid", "must not validate the schema (not)"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"a": 1}, "TypeInvalid", "spec.x.a in body"),
        (
            {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {}},
            [{"k": 1, "v": 1}, {"k": 1, "v": 2}],
            "Duplicate",
            'Duplicate value: {"k":1}',
        ),
    ],
)
def test_each_rule_of_a_schema(schema: dict[str, Any], value: Any, reason: str, said: str) -> None:
    whole = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": schema}}}}
    found = problems({"spec": {"x": value}}, None, whole, None)
    assert [cause.reason for cause in found] == ([f"FieldValue{reason}"] if reason else [])
    assert all(said in cause.message and cause.field.startswith("spec.x") for cause in found)


def test_a_rule_in_cel_may_name_another_field_and_another_reason() -> None:
    rule = {"rule": "!has(self.a)", "message": "no a, please", "fieldPath": ".a", "reason": "FieldValueForbidden"}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-validations": [rule]}}}
    [cause] = problems({"spec": {"a": 1}}, None, schema, reviewer)
    assert (cause.field, cause.reason, cause.message) == ("spec.a", "FieldValueForbidden", "Forbidden: no a, please")
    assert problems({"spec": {"a": 1}}, None, schema, None) == []


def test_a_rule_on_what_was_before_is_not_asked_of_what_is_new() -> None:
    rule = {"rule": "self == oldSelf", "messageExpression": "'was ' + oldSelf"}
    schema = {"type": "object", "properties": {"x": {"type": "string", "x-kubernetes-validations": [rule]}}}
    assert problems({"x": "a"}, None, schema, reviewer) == []
    assert problems({"x": "a"}, {"x": "a"}, schema, reviewer) == []
    assert [cause.message for cause in problems({"x": "b"}, {"x": "a"}, schema, reviewer)] == [
        'Invalid value: "b": was a'
    ]


async def test_an_apply_of_a_field_that_no_schema_declares_is_the_servers_fault(client: Client) -> None:
    await client.define()
    path, kind = f"{EXPORTERS}/main?fieldManager=tests", "application/apply-patch+yaml"
    status, answer = await client.ask("PATCH", path, exporter(interval=3), kind=kind)
    said = "failed to create typed patch object (ml/main; gpu.example.com/v1, Kind=GPUExporter)"
    assert (status, answer["message"]) == (500, f"{said}: .spec.interval: field not declared in schema")


@pytest.mark.parametrize(
    ("path", "item", "field"),
    [
        ("configmaps", {"metadata": {"labels": {"a": "b" * 64}}}, "metadata.labels"),
        ("configmaps", {"metadata": {"labels": {"a b": "c"}}}, "metadata.labels"),
        ("configmaps", {"metadata": {"ownerReferences": [{"kind": "A"}]}}, "metadata.ownerReferences.apiVersion"),
        ("configmaps", {"data": {"a": "b" * 1024**2 + "c"}}, ""),
        ("services", {"metadata": {"name": "1a"}}, "metadata.name"),
        ("daemonsets", {"spec": {"template": {"spec": {"containers": [{}]}}}}, "spec.selector"),
        (
            "daemonsets",
            {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {"containers": [{}]}}}},
            "spec.template.metadata.labels",
        ),
        ("horizontalpodautoscalers", {"spec": {"minReplicas": 0, "maxReplicas": 1}}, "spec.minReplicas"),
        ("horizontalpodautoscalers", {"spec": {"minReplicas": 3, "maxReplicas": 2}}, "spec.maxReplicas"),
    ],
)
async def test_rules_of_built_in_kinds_name_the_field(
    client: Client, path: str, item: dict[str, Any], field: str
) -> None:
    roots = {"daemonsets": APPS, "horizontalpodautoscalers": f"/apis/autoscaling/v2/namespaces/{NAMESPACE}"}
    body = {**item, "metadata": {"name": "a", **item.get("metadata", {})}}
    status, answer = await client.ask("POST", f"{roots.get(path, CORE)}/{path}", body)
    assert (status, answer["details"]["causes"][0]["field"]) == (422, field), answer


async def test_what_cannot_change_is_refused(client: Client) -> None:
    labels = {"a": "b"}
    template = {"metadata": {"labels": {**labels, "c": "d"}}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    await client.ask("POST", f"{APPS}/daemonsets", {"metadata": {"name": "a"}, "spec": spec})
    other = {"spec": {"selector": {"matchLabels": {"c": "d"}}}}
    status, answer = await client.ask("PATCH", f"{APPS}/daemonsets/a", other, kind=MERGE)
    assert (status, answer["details"]["causes"][0]["field"]) == (422, "spec.selector")
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings"
    await client.ask("POST", bindings, {"metadata": {"name": "a"}, "roleRef": {"kind": "Role", "name": "a"}})
    status, answer = await client.ask("PATCH", f"{bindings}/a", {"roleRef": {"name": "b"}}, kind=MERGE)
    assert status == 422
    assert "cannot change roleRef" in answer["message"]


async def test_an_event_of_core_v1_is_read_in_both_versions(client: Client) -> None:
    about = {"kind": "GPUExporter", "name": "main", "namespace": NAMESPACE}
    event = {
        "metadata": {"generateName": "main."}, "involvedObject": about, "message": "made", "reason": "Created",
        "type": "Normal", "reportingComponent": "tests", "reportingInstance": "",
    }  # fmt: skip
    status, answer = await client.ask("POST", f"{CORE}/events", event)
    assert (status, answer["apiVersion"], answer["message"]) == (201, "v1", "made")
    events = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"
    [newer] = (await client.get(events))["items"]
    assert (newer["note"], newer["regarding"], newer["reportingController"]) == ("made", about, "tests")
    wrong = {**event, "involvedObject": {**about, "namespace": "other"}}
    assert (await client.ask("POST", f"{CORE}/events", wrong))[0] == 422


async def test_null_is_a_default_where_there_is_one(client: Client) -> None:
    await client.define()
    _, answer = await client.ask("POST", EXPORTERS, exporter(intervalSeconds=None))
    assert answer["spec"]["intervalSeconds"] == 15


@pytest.mark.parametrize(
    ("time", "status"),
    [
        ("2026-11-22T10:00:00.000000Z", 201),
        ("2026-11-22T10:00:00.123456+01:00", 201),
        (None, 201),
        ("2026-11-22T10:00:00Z", 400),
        ("2026-11-22T10:00:00.123Z", 400),
        (7, 400),
    ],
)
async def test_the_times_of_a_lease_have_six_digits_of_a_second(client: Client, time: object, status: int) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    item = {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "a", "renewTime": time}}
    assert (await client.ask("POST", path, item))[0] == status


async def test_what_is_made_has_no_version_yet(client: Client) -> None:
    item = {"metadata": {"name": "copied", "resourceVersion": "7"}}
    status, answer = await client.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", item)
    assert (status, answer["message"]) == (500, "resourceVersion should not be set on objects to be created")
