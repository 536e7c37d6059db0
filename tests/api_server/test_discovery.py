"""The discovery documents, beside those of a real API server."""

import json
from typing import Any

import pytest

from tests.support.api_client import Client
from tests.support.places import DATA

RECORDED = DATA / "kubernetes-1.36" / "discovery"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
# What clients do not read, and what depends on what else is served.
_LEFT_OUT = {"storageVersionHash", "serverAddress"}


@pytest.mark.parametrize(("path", "name"), [("/api/v1", "api-v1.json"), ("/apis/apps/v1", "apis-apps-v1.json")])
async def test_resources_are_told_as_by_a_real_one(client: Client, path: str, name: str) -> None:
    recorded = json.loads((RECORDED / name).read_text())
    answered = await client.get(path)
    theirs = {entry["name"]: _plain(entry) for entry in recorded.pop("resources")}
    ours = {entry["name"]: _plain(entry) for entry in answered.pop("resources")}
    assert answered == recorded
    assert ours
    assert {entry: theirs[entry] for entry in ours} == ours


async def test_the_aggregated_document_tells_resources_as_a_real_one(client: Client) -> None:
    recorded = _resources(json.loads((RECORDED / "apis-aggregated.json").read_text()))
    headers = {"Accept": AGGREGATED}
    async with client.session.get(f"{client.server.url}/apis", headers=headers) as response:
        assert (
            response.headers["Content-Type"] == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        )
        answered = _resources(await response.json(content_type=None))
    assert answered
    assert {where: recorded[where] for where in answered} == answered


async def test_what_is_not_served_is_not_there_in_two_ways(client: Client) -> None:
    assert await client.ask("GET", "/apis/no.such.group/v1/things") == (404, "404 page not found\n")
    status, answer = await client.ask("GET", "/apis/apps/v9/deployments")
    assert (status, answer["message"]) == (404, "the server could not find the requested resource")


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in _LEFT_OUT}


def _resources(document: dict[str, Any]) -> dict[tuple[str, str, str], Any]:
    return {
        (item["metadata"].get("name", ""), version["version"], entry["resource"]): entry
        for item in document["items"]
        for version in item["versions"]
        for entry in version["resources"]
    }
