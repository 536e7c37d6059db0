"""The simulated API server's answers, each beside a recording of a real one."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.api_server.comparing import Words, differences
from tests.support.api_server.answers import Object
from tests.support.api_server.server import SimulatedApiServer
from tests.support.places import DATA
from tests.support.waiting import PATIENCE_SECONDS

RECORDED = DATA / "kubernetes-1.36"
PODS, NAMESPACE = "/api/v1/pods", "pod-gpu-metrics"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


class Client:
    """Asks a server; an answer is a status and a body, text where it is no JSON."""

    def __init__(self, server: SimulatedApiServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self._session = session

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self._session.get(self.server.url + path, headers=headers) as response:
            is_json = response.content_type == "application/json"
            return response.status, await response.json() if is_json else await response.text()

    async def delete(self, path: str) -> None:
        async with self._session.delete(self.server.url + path) as response:
            assert response.status == 200

    async def watched(self, path: str, count: int) -> list[Object]:
        """The first events of a watch."""
        async with self._session.get(self.server.url + path) as response, asyncio.timeout(PATIENCE_SECONDS):
            return [json.loads(await response.content.readline()) for _ in range(count)]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    server = SimulatedApiServer()
    await server.start()
    async with aiohttp.ClientSession() as session:
        yield Client(server, session)
    await server.stop()


def recorded(name: str) -> Any:
    text = (RECORDED / name).read_text()
    return json.loads(text) if name.endswith(".json") else text


def pod(name: str = "a") -> Object:
    about = {"name": name, "namespace": "ml", "labels": {"app": "a"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": {"nodeName": "n"}}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/v1/no-such", "answers/404-resource.json"),
        ("/apis/apps/v9/deployments", "answers/404-resource.json"),
        ("/apis/no.such.group/v1/things", "operator/01-list-before-crd.txt"),
        (f"{PODS}?fieldSelector=spec.foo%3Dx", "answers/400-field-selector.json"),
    ],
)
async def test_a_missing_object_is_answered_as_by_a_real_server(client: Client, path: str, name: str) -> None:
    body = recorded(name)
    assert await client.get(path) == (body["code"] if isinstance(body, dict) else 404, body)


async def test_a_user_without_rights_is_refused_as_by_a_real_server(client: Client) -> None:
    client.server.users = {"token": "nobody"}
    client.server.rules = []
    assert await client.get(PODS, Authorization="Bearer another") == (401, recorded("401.json"))
    for name in ("pods-list-403.json", "replicaset-get-403.json"):
        body = recorded(name)
        user, *_, where, _ = body["message"].partition("User ")[2].split('"')[1:]
        namespace, item = f"/namespaces/{where}" if where else "", body["details"].get("name")
        path = f"/apis/apps/v1{namespace}/replicasets/{item}" if item else PODS
        status, answer = await client.get(path, Authorization="Bearer token")
        assert status == 403
        assert answer == {**body, "message": body["message"].replace(user, "nobody")}


@pytest.mark.parametrize(
    ("answer", "name"),
    [("initializing", "operator/crd-again-list-after-429.json"), ("busy", "answers/429-too-many.txt")],
)
async def test_a_server_that_has_no_time_says_so_as_a_real_one(client: Client, answer: str, name: str) -> None:
    client.server.faults.add(answer, times=1)
    assert await client.get(PODS) == (429, recorded(name))
    assert (await client.get(PODS))[0] == 200


async def test_a_definition_is_refused_as_recorded_until_it_is_served(client: Client) -> None:
    lines = (RECORDED / "operator" / "crd-becomes-served.jsonl").read_text().splitlines()
    for answer in ("not served", "initializing"):
        client.server.faults.add(answer, times=1, resource="pods")
    for line in map(json.loads, lines):
        status, _ = await client.get(PODS)
        assert status == line["list_status"]


async def test_a_watch_from_a_forgotten_version_is_refused_in_its_stream(client: Client) -> None:
    version = client.server.put(pod())["metadata"]["resourceVersion"]
    client.server.store.compact()
    [event] = await client.watched(f"{PODS}?watch=1&resourceVersion={version}", 1)
    theirs = json.loads((RECORDED / "pods-watch-410.jsonl").read_text())
    theirs["object"]["message"] = event["object"]["message"]
    assert event == theirs
    assert event["object"]["message"].startswith("too old resource version: ")


async def test_a_page_of_a_forgotten_list_is_refused(client: Client) -> None:
    for name in "abc":
        client.server.put(pod(name))
    _, page = await client.get(f"{PODS}?limit=2")
    token = page["metadata"]["continue"]
    client.server.put(pod("d"))
    _, rest = await client.get(f"{PODS}?limit=2&continue={token}")
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c"], "a list is of the version of its first page"
    client.server.store.compact()
    status, body = await client.get(f"{PODS}?limit=2&continue={token}")
    assert (status, [*differences(body, recorded("continue-410.json"))]) == (410, ["left out: .metadata.continue"])


async def test_to_a_watch_by_labels_an_object_that_gets_others_is_deleted(client: Client) -> None:
    """endpointslices.jsonl: an endpoint goes, a slice is made, gets another Service's label, and the first goes."""
    listed, *events = map(json.loads, (RECORDED / "endpointslices.jsonl").read_text().splitlines())
    kind = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice"}
    client.server.put({**listed["items"][0], **kind})
    label = "kubernetes.io/service-name"
    service = listed["items"][0]["metadata"]["labels"][label]
    query = f"labelSelector={label}%3D{service}"
    _, answer = await client.get(f"{SLICES}?{query}")
    version = answer["metadata"]["resourceVersion"]
    changed, made, taken, gone = (event["object"] for event in events[:4])
    client.server.put(changed)
    client.server.put(made)
    about = {**taken["metadata"], "labels": {label: "another"}}
    client.server.put({**taken, "metadata": about})
    await client.delete(f"{SLICES}/{gone['metadata']['name']}")
    client.server.bookmark_seconds = 0.05
    watch = f"{SLICES}?watch=1&allowWatchBookmarks=true&resourceVersion={version}&{query}"
    ours = await client.watched(watch, len(events))
    words, their_words = Words(), Words()
    for one, other in zip(ours, events, strict=True):
        lines = [*differences(words.plain(one), their_words.plain(other))]
        assert all(line.startswith("left out: .object.") for line in lines if one["type"] == "BOOKMARK"), lines
        assert lines == [] or one["type"] == "BOOKMARK"


async def test_metadata_alone_comes_in_the_form_that_was_recorded(client: Client) -> None:
    client.server.put(pod())
    _, answer = await client.get(PODS, Accept=_METADATA)
    form = recorded("answers/metadata-only-list.json")
    assert [{name: part[name] for name in ("kind", "apiVersion")} for part in (answer, answer["items"][0])] == [
        {name: part[name] for name in ("kind", "apiVersion")} for part in (form, form["items"][0])
    ]
    assert answer["items"][0].keys() == form["items"][0].keys()


@pytest.mark.parametrize(("path", "name"), [("/api/v1", "api-v1.json"), ("/apis/apps/v1", "apis-apps-v1.json")])
async def test_the_discovery_names_kinds_as_a_real_one(client: Client, path: str, name: str) -> None:
    theirs = recorded(f"discovery/{name}")
    _, answer = await client.get(path)
    by_name = {entry["name"]: entry for entry in theirs.pop("resources")}
    entries = answer.pop("resources")
    assert answer == theirs
    assert entries
    for entry in entries:
        real = by_name[entry["name"]]
        assert {*entry["verbs"]} <= {*real["verbs"]}
        assert entry == {**{field: real[field] for field in entry}, "verbs": entry["verbs"]}
