import asyncio
import json
from typing import Any

import pytest

from tests.support.api_client import EXPORTERS, MERGE, NAMESPACE, Client, exporter
from tests.support.places import DATA
from tests.support.waiting import PATIENCE_SECONDS

CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_LAST = "last"  # the object by which a test knows that a watch has told all that was before


async def test_a_watch_tells_of_each_change_once(client: Client) -> None:
    await client.define()
    version = (await client.get(EXPORTERS))["metadata"]["resourceVersion"]
    async with client.watch(f"{EXPORTERS}?watch=true&resourceVersion={version}") as events:
        for interval in (20, 20, 30):
            await client.apply(f"{EXPORTERS}/main", exporter(intervalSeconds=interval))
        await client.ask("PATCH", f"{EXPORTERS}/main", {"status": {"readyNodes": 3}}, kind=MERGE)
        await client.ask("DELETE", f"{EXPORTERS}/main")
        await client.ask("POST", EXPORTERS, exporter(_LAST))
        assert [event["type"] for event in await _up_to_last(events)] == ["ADDED", "MODIFIED", "DELETED"]


async def test_to_a_watch_by_labels_an_object_that_gets_others_is_deleted(client: Client) -> None:
    await _config_map(client, "a", color="red")
    async with client.watch(f"{CONFIG_MAPS}?watch=1&labelSelector=color%3Dred") as events:
        assert (await asyncio.wait_for(events.get(), PATIENCE_SECONDS))["type"] == "ADDED"
        await _config_map(client, "a", color="blue")
        await _config_map(client, "b", color="blue")
        await _config_map(client, "a", color="red")
        await _config_map(client, _LAST, color="red")
        told = await _up_to_last(events)
    assert [(event["type"], event["object"]["metadata"]["labels"]["color"]) for event in told] == [
        ("DELETED", "red"),
        ("ADDED", "red"),
    ]


# issue 15, line 15
async def test_a_watch_of_metadata_alone_tells_no_more(client: Client) -> None:
    """As a real one does: apimachinery's as=PartialObjectMetadata, for events as for lists."""
    await client.ask("POST", CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"big": "x" * 9000}})
    client.server.bookmark_seconds = 0.05
    query = "watch=1&allowWatchBookmarks=true"
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    async with client.watch(f"{CONFIG_MAPS}?{query}", accept) as events:
        told = [await asyncio.wait_for(events.get(), 30) for _ in range(2)]
    assert [event["type"] for event in told] == ["ADDED", "BOOKMARK"]
    for event in told:
        assert {name: event["object"][name] for name in ("kind", "apiVersion")} == {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
        }
        assert event["object"].keys() == {"kind", "apiVersion", "metadata"}
    assert told[0]["object"]["metadata"]["name"] == "a"


async def test_selectors_choose_by_sets_and_by_fields(client: Client) -> None:
    for name, color in (("a", "red"), ("b", "blue"), ("c", "green")):
        await _config_map(client, name, color=color)
    await client.ask("POST", CONFIG_MAPS, {"metadata": {"name": "plain"}})
    chosen = {
        "labelSelector=color%20in%20(red,blue)": ["a", "b"],
        "labelSelector=color%20notin%20(red)": ["b", "c", "plain"],
        "labelSelector=!color": ["plain"],
        "labelSelector=color,color!%3Dred": ["b", "c"],
        "fieldSelector=metadata.name%3Da": ["a"],
        "fieldSelector=metadata.name!%3Da": ["b", "c", "plain"],
    }
    for query, names in chosen.items():
        items = (await client.get(f"{CONFIG_MAPS}?{query}"))["items"]
        assert [item["metadata"]["name"] for item in items] == names, query
    status, answer = await client.ask("GET", f"{CONFIG_MAPS}?fieldSelector=spec.foo%3Dx")
    assert (status, answer["message"]) == (400, "field label not supported: spec.foo")


@pytest.mark.parametrize("query", ["watch=true&timeoutSeconds={}", "timeoutSeconds={}", "limit={}", "watch=1&limit={}"])
@pytest.mark.parametrize("number", ["240.0", "", "x"])
async def test_a_number_that_is_not_whole_is_refused(client: Client, query: str, number: str) -> None:
    """In the words of kube-apiserver 1.36."""
    status, answer = await client.ask("GET", f"{CONFIG_MAPS}?{query.format(number)}")
    said = f'strconv.ParseInt: parsing "{number}": invalid syntax'
    assert (status, answer["reason"], answer["message"]) == (400, "BadRequest", said)


async def test_a_watch_from_a_forgotten_version_is_told_so_in_its_stream(client: Client) -> None:
    await _config_map(client, "a")
    version = (await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
    async with client.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={version}") as events:
        client.server.compact()
        assert (await asyncio.wait_for(events.get(), PATIENCE_SECONDS))["type"] == "END"
    async with client.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={version}") as events:
        told = await asyncio.wait_for(events.get(), PATIENCE_SECONDS)
    recorded = json.loads((DATA / "kubernetes-1.36" / "pods-watch-410.jsonl").read_text().splitlines()[0])
    assert told["type"] == recorded["type"] == "ERROR"
    assert {**told["object"], "message": ""} == {**recorded["object"], "message": ""}


async def test_bookmarks_and_the_end_of_a_watch(client: Client) -> None:
    client.server.bookmark_seconds = 0.05
    query = "watch=1&allowWatchBookmarks=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    await _config_map(client, "a")
    async with client.watch(f"{CONFIG_MAPS}?{query}") as events:
        first, mark = await events.get(), await events.get()
        assert first["type"] == "ADDED"
        assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        later = [await asyncio.wait_for(events.get(), PATIENCE_SECONDS) for _ in range(2)]
        assert [event["type"] for event in later] == ["BOOKMARK", "BOOKMARK"]
        while (await asyncio.wait_for(events.get(), PATIENCE_SECONDS))["type"] != "END":
            pass


async def test_a_list_in_pages_is_that_of_its_first_page(client: Client) -> None:
    for name in "abc":
        await _config_map(client, name)
    page = await client.get(f"{CONFIG_MAPS}?limit=2")
    assert page["metadata"]["remainingItemCount"] == 1
    await _config_map(client, "d")
    await client.ask("DELETE", f"{CONFIG_MAPS}/c")
    token = page["metadata"]["continue"]
    rest = await client.get(f"{CONFIG_MAPS}?limit=2&continue={token}")
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c"]
    client.server.compact()
    status, answer = await client.ask("GET", f"{CONFIG_MAPS}?limit=2&continue={token}")
    assert (status, answer["reason"]) == (410, "Expired")
    rest = await client.get(f"{CONFIG_MAPS}?continue={answer['metadata']['continue']}")
    assert [item["metadata"]["name"] for item in rest["items"]] == ["d"]
    assert (await client.ask("GET", f"{CONFIG_MAPS}?continue={token}&resourceVersion=3"))[0] == 400
    everything = await client.get(f"{CONFIG_MAPS}?limit=2&resourceVersion=0")
    assert len(everything["items"]) == 3, "the watch cache of a real one knows no pages"


async def test_versions_that_are_none_or_lie_in_the_future(client: Client) -> None:
    recorded = {"abc": "error-400-resource-version", "999999999": "error-504-resource-version-too-large"}
    for version, code in zip(recorded, (400, 504), strict=True):
        status, answer = await client.ask("GET", f"{CONFIG_MAPS}?resourceVersion={version}")
        assert (status, answer["code"]) == (code, code)
        assert version in answer["message"]


async def test_a_server_that_stopped_has_everything_when_it_starts_again(client: Client) -> None:
    await _config_map(client, "a")
    before = await client.get(f"{CONFIG_MAPS}/a")
    port = int(client.server.url.rpartition(":")[2])
    async with client.watch(f"{CONFIG_MAPS}?watch=1") as events:
        await events.get()
        await client.server.stop()
        assert (await asyncio.wait_for(events.get(), PATIENCE_SECONDS))["type"] == "END"
    await client.server.start(port)
    assert await client.get(f"{CONFIG_MAPS}/a") == before


async def _up_to_last(events: "asyncio.Queue[dict[str, Any]]") -> list[dict[str, Any]]:
    """What comes before the last object."""
    told: list[dict[str, Any]] = []
    while True:
        event = await asyncio.wait_for(events.get(), PATIENCE_SECONDS)
        if event["object"]["metadata"]["name"] == _LAST:
            return told
        told.append(event)


async def _config_map(client: Client, name: str, **labels: str) -> None:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
    await client.apply(f"{CONFIG_MAPS}/{name}", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
