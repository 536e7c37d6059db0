import time

import aiohttp
import pytest

from tests.support.api_client import NAMESPACE, Client

CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
BODY = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}}


async def test_the_next_requests_are_refused_and_the_one_after_them_is_not(client: Client) -> None:
    client.server.faults.add("busy", times=2, seconds=3)
    for _ in range(2):
        async with client.session.get(client.server.url + CONFIG_MAPS) as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "3")
            assert await response.text() == "Too many requests, please try again later.\n"
    assert (await client.ask("GET", CONFIG_MAPS))[0] == 200
    assert client.server.faults.given == 2


async def test_a_share_of_the_requests_is_refused_by_a_seed(client: Client) -> None:
    client.server.faults.add("unavailable", share=0.5)
    codes = [(await client.ask("GET", CONFIG_MAPS))[0] for _ in range(40)]
    assert 8 < codes.count(503) < 32
    client.server.faults.end()
    assert (await client.ask("GET", CONFIG_MAPS))[0] == 200


async def test_a_fault_is_one_of_some_verbs_and_of_a_resource(client: Client) -> None:
    client.server.faults.add("conflict", verbs={"create"}, resource="configmaps")
    assert (await client.ask("GET", CONFIG_MAPS))[0] == 200
    status, answer = await client.ask("POST", CONFIG_MAPS, BODY)
    assert (status, answer["reason"]) == (409, "Conflict")
    assert (await client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}}))[0] == 201
    assert client.server.all("ConfigMap") == []


async def test_every_kind_of_fault_has_its_code(client: Client) -> None:
    codes = {"busy": 429, "initializing": 429, "conflict": 409, "unavailable": 503, "error": 500}
    for answer, code in codes.items():
        client.server.faults.add(answer, times=1)
        assert (await client.ask("GET", CONFIG_MAPS))[0] == code, answer


async def test_an_answer_that_is_lost_was_given(client: Client) -> None:
    client.server.faults.add("lost", times=1)
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.ask("POST", CONFIG_MAPS, BODY)
    status, answer = await client.ask("POST", CONFIG_MAPS, BODY)
    assert (status, answer["reason"]) == (409, "AlreadyExists")


async def test_an_answer_that_is_slow_is_the_right_one(client: Client) -> None:
    client.server.faults.add("slow", times=1, seconds=0.2)
    began = time.monotonic()
    assert (await client.ask("GET", CONFIG_MAPS))[0] == 200
    assert time.monotonic() - began >= 0.2


async def test_writes_are_noted_with_whether_they_changed_anything(client: Client) -> None:
    path = f"{CONFIG_MAPS}/a"
    for data in ("b", "b", "c"):
        await client.apply(path, {**BODY, "data": {"a": data}})
    await client.ask("PATCH", f"{path}?dryRun=All", {"data": {"a": "d"}}, kind="application/merge-patch+json")
    await client.ask("DELETE", path)
    await client.ask("DELETE", path)
    assert [(w.verb, w.manager, w.name, w.code, w.changed) for w in client.server.writes] == [
        ("patch", "tests", "a", 201, True),
        ("patch", "tests", "a", 200, False),
        ("patch", "tests", "a", 200, True),
        ("patch", "tests", "a", 200, False),
        ("delete", "tests", "a", 200, True),
        ("delete", "tests", "a", 404, False),
    ]
    assert {w.resource for w in client.server.writes} == {"configmaps"}
