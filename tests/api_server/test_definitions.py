import asyncio
import copy
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.api_client import DEFINITION, DEFINITIONS, EXPORTERS, RECORDED, Client, exporter
from tests.support.api_server import definitions
from tests.support.api_server.definitions import INITIALIZING_SECONDS, NOT_FOUND_SECONDS
from tests.support.waiting import PATIENCE_SECONDS, until

NAME = DEFINITION["metadata"]["name"]


async def test_a_definition_is_served_a_while_after_it_is_established(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.server.definitions.not_found_seconds = client.server.definitions.initializing_seconds = 300.0
    assert await client.ask("GET", EXPORTERS) == (404, "404 page not found\n")
    await client.ask("POST", DEFINITIONS, DEFINITION)
    conditions = (await client.get(f"{DEFINITIONS}/{NAME}"))["status"]["conditions"]
    assert {told["type"]: told["status"] for told in conditions} == {"NamesAccepted": "True", "Established": "True"}
    defined_at = time.monotonic()
    seen: list[tuple[int, Any]] = []
    for seconds in (0.0, 200.0, 400.0, 700.0):
        clock = SimpleNamespace(monotonic=lambda seconds=seconds: defined_at + seconds)
        monkeypatch.setattr(definitions, "time", clock)
        answer = await client.ask("GET", EXPORTERS)
        if answer not in seen:
            seen.append(answer)
    recorded = [json.loads(line) for line in (RECORDED / "crd-becomes-served.jsonl").read_text().splitlines()]
    assert [code for code, _ in seen] == [line["list_status"] for line in recorded]
    assert abs(NOT_FOUND_SECONDS - recorded[1]["t"]) < 0.03
    assert abs(INITIALIZING_SECONDS - (recorded[2]["t"] - recorded[1]["t"])) < 0.03
    busy = json.loads((RECORDED / "crd-again-list-after-429.json").read_text())
    assert seen[:2] == [(404, (RECORDED / "crd-again-list-after-404.txt").read_text()), (429, busy)]


async def test_deleting_a_definition_deletes_its_objects_and_ends_their_watches(client: Client) -> None:
    await client.define()
    await client.ask("POST", EXPORTERS, exporter())
    version = (await client.get(EXPORTERS))["metadata"]["resourceVersion"]
    sweep, client.server.collector.sweep = client.server.collector.sweep, lambda: None  # type: ignore[method-assign]
    async with client.watch(f"{EXPORTERS}?watch=1&resourceVersion={version}") as events:
        _, answer = await client.ask("DELETE", f"{DEFINITIONS}/{NAME}")
        recorded = json.loads((RECORDED / "crd-delete.json").read_text())
        assert answer["metadata"]["finalizers"] == recorded["metadata"]["finalizers"]
        assert answer["metadata"]["generation"] == recorded["metadata"]["generation"] == 1
        assert "deletionGracePeriodSeconds" not in answer["metadata"]
        assert _of(answer, "Terminating") == _of(recorded, "Terminating")
        status, refused = await client.ask("POST", EXPORTERS, exporter("other"))
        assert (status, refused["reason"]) == (405, "MethodNotAllowed")
        sweep()  # only now: a busy machine asks late
        assert (await asyncio.wait_for(events.get(), PATIENCE_SECONDS))["type"] == "DELETED"
        await until(lambda: client.server.get("CustomResourceDefinition", "", NAME) is None)
        assert (await client.ask("GET", EXPORTERS))[0] == 404
        assert (await asyncio.wait_for(events.get(), PATIENCE_SECONDS))["type"] == "END"


async def test_what_a_definition_defines_stands_in_the_discovery(client: Client) -> None:
    groups = (await client.get("/apis"))["groups"]
    assert "gpu.example.com" not in [group["name"] for group in groups]
    await client.define()
    groups = (await client.get("/apis"))["groups"]
    assert "gpu.example.com" in [group["name"] for group in groups]
    listed = (await client.get("/apis/gpu.example.com/v1"))["resources"]
    assert [entry["name"] for entry in listed] == ["gpuexporters", "gpuexporters/status"]
    assert listed[0]["kind"] == "GPUExporter"


async def test_a_definition_is_refused_whose_name_is_not_that_of_its_resource(client: Client) -> None:
    status, answer = await client.ask("POST", DEFINITIONS, {**DEFINITION, "metadata": {"name": "exporters"}})
    assert status == 422
    assert 'must be spec.names.plural+"."+spec.group' in answer["message"]


@pytest.mark.parametrize(
    ("schema", "field", "said"),
    [
        ({}, ".type", "must not be empty for specified object fields"),
        ({"type": "text"}, ".type", "Unsupported value"),
        ({"type": "array"}, ".items", "must be specified"),
        ({"type": "integer", "minimum": 1, "default": 0}, ".default", "should be greater than or equal to 1"),
        ({"type": "object", "additionalProperties": {}, "properties": {"a": {"type": "string"}}}, "", "exclusive"),
        ({"type": "array", "uniqueItems": True, "items": {"type": "string"}}, ".uniqueItems", "quadratic"),
        ({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}, "", "if and only if"),
        (
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}},
            },
            ".items.properties[k].default",
            "must have a default or be a required property",
        ),
        ({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}, "", "must be atomic"),
        ({"type": "string", "x-kubernetes-validations": [{"rule": ""}]}, "", "rule is not specified"),
    ],
)
async def test_a_definition_is_refused_whose_schema_is_not_structural(
    client: Client, schema: dict[str, Any], field: str, said: str
) -> None:
    definition = copy.deepcopy(DEFINITION)
    version = definition["spec"]["versions"][0]
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["x"] = schema
    status, answer = await client.ask("POST", DEFINITIONS, definition)
    assert status == 422
    [cause] = [cause for cause in answer["details"]["causes"] if said in cause["message"]]
    assert cause["field"].startswith(f"spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[x]{field}")


def _of(item: dict[str, dict[str, list[dict[str, str]]]], kind: str) -> dict[str, str]:
    found = next(told for told in item["status"]["conditions"] if told["type"] == kind)
    return {key: value for key, value in found.items() if key != "lastTransitionTime"}
