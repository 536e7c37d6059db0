"""Finding node exporters, against a real Kubernetes API where there is one, else the simulated one.

The end of pytest's report says which it was.
"""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from exporter.cluster.exporters.discovery import (
    MOST_FOUND,
    ExporterPlaces,
    read_pod,
    read_slice,
)
from exporter.sources.cluster_source import ExporterPlace
from tests.support.cluster_settings import endpoint_slices, labelled_pods
from tests.support.kubernetes import (
    NAMESPACE,
    ApiServer,
    Real,
    Simulated,
    endpoint_slice,
    manifest,
    pod,
)
from tests.support.places import DATA
from tests.support.real_api import IS_REAL, Object
from tests.support.waiting import until

RECORDED = DATA / "kubernetes-1.36"
READY: Object = {"ready": True, "serving": True, "terminating": False}
NOT_READY: Object = {"ready": False, "serving": False, "terminating": False}
ENDING: Object = {"ready": False, "serving": True, "terminating": True}
Find = Callable[..., ExporterPlaces]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def real() -> AsyncIterator[Real | None]:
    if not IS_REAL:
        yield None
        return
    server = Real()
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


@pytest.fixture
async def server(real: Real | None, tmp_path: Path) -> AsyncIterator[ApiServer]:
    if real is not None:
        yield real
        await real.remove_all()
        return
    simulated = Simulated(tmp_path)
    await simulated.start()
    yield simulated
    await simulated.stop()


@pytest.fixture
async def find(server: ApiServer) -> AsyncIterator[Find]:
    made: list[ExporterPlaces] = []

    def build(by: str = "service", **settings: str) -> ExporterPlaces:
        api, on_health = server.api(), lambda _name, _health: None
        if by == "service":
            found = endpoint_slices(api=api, namespace=NAMESPACE, service="exporter", on_health=on_health, **settings)
        else:
            labels = (("app", "exporter"),)
            found = labelled_pods(api=api, namespace=NAMESPACE, selector=labels, port=9400, on_health=on_health)
        made.append(found)
        return found

    yield build
    for found in made:
        await found.close()


def list_to(places: ExporterPlaces, objects: list[Object]) -> None:
    """A whole list, as the API gives it."""
    places._replace([places._read(item) for item in objects])


def of(places: ExporterPlaces) -> dict[str, str]:
    """URL and caution by node."""
    return {node: f"{place.url} {place.caution}".strip() for node, place in (places.places or {}).items()}


def is_known(places: ExporterPlaces) -> bool:
    return places.places is not None


# issue 11, "Must show" 6
async def test_endpoints_of_a_service_are_followed(server: ApiServer, find: Find) -> None:
    await server.put(endpoint_slice("one", {"a": READY, "b": NOT_READY}))
    await server.put(endpoint_slice("other", {"c": READY}))
    await server.put(endpoint_slice("foreign", {"d": READY}, service="another"))
    found = find()
    assert not is_known(found)
    changes: list[int] = []
    found.follow(lambda: changes.append(len(found.places or {})))
    found.begin()
    await until(lambda: is_known(found), 30)
    a, b, c = "http://10.1.0.97:9400", "http://10.1.0.98:9400 its pod is not ready", "http://10.1.0.99:9400"
    assert of(found) == {"a": a, "b": b, "c": c}
    assert changes == [3]
    before = found.places
    await server.put(endpoint_slice("other", {"c": READY, "d": READY}))
    await until(lambda: "d" in of(found))
    assert before is not None
    assert before["a"] is (found.places or {})["a"]
    await server.put(endpoint_slice("one", {"a": ENDING}))
    await until(lambda: "b" not in of(found))
    assert of(found)["a"] == f"{a} its pod is ending"
    await server.remove(endpoint_slice("other", {}))
    await until(lambda: list(of(found)) == ["a"])
    assert found.health.up


# issue 11, "Must show" 6
async def test_pods_by_their_labels_are_followed(server: ApiServer, find: Find) -> None:
    await server.allow_pods()
    for item in (pod("a"), pod("b", ip=""), pod("d", app="another")):
        await server.put(item)
    found = find("labels")
    found.begin()
    await until(lambda: is_known(found), 30)
    assert of(found) == {"a": "http://10.1.0.97:9400", "b": ""}
    await server.put(pod("c", is_ready=False))
    # a real API server makes the pod before its status is written: for a moment it has no address
    await until(lambda: of(found).get("c") == "http://10.1.0.99:9400 its pod is not ready (phase Pending)")
    await server.put(pod("a", app="another"))
    await until(lambda: "a" not in of(found))
    await server.remove(pod("b"))
    await until(lambda: list(of(found)) == ["c"])


# issue 11, "Must show" 6
async def test_the_manifest_gives_no_right_to_pods(find: Find) -> None:
    found = find("labels")
    found.begin()
    await until(lambda: found.health.up is False and found.health.reason != "http_status", 30)
    assert not is_known(found)
    assert found.health.reason == "permission"
    assert found.health.remedy == "the service account needs list and watch on pods (deploy/cluster.yaml)"


# issue 11, "Must show" 6
async def test_what_was_known_outlives_an_api_server_that_restarts(server: ApiServer, find: Find) -> None:
    await server.put(endpoint_slice("one", {"a": READY}))
    found = find()
    found.begin()
    await until(lambda: found.places, 30)
    before = found.places
    await server.restart()
    assert found.places is before
    await server.put(endpoint_slice("one", {"a": READY, "b": READY}))
    await until(lambda: "b" in of(found), 40)


@pytest.mark.kubernetes
async def test_a_real_api_server_takes_the_manifest(real: Real) -> None:
    for item in manifest():
        path = real.path_of(item)
        status, answer = await real.ask("POST", f"{path}?dryRun=All&fieldValidation=Strict", item)
        # what the test itself has made is there
        assert status in (201, 409), answer


@pytest.mark.skipif(IS_REAL, reason="a real API server forgets old versions after minutes")
async def test_a_forgotten_version_costs_a_list_and_nothing_else(server: Simulated, find: Find) -> None:
    await server.put(endpoint_slice("one", {"a": READY}))
    found = find()
    found.begin()
    await until(lambda: found.places)
    server.server.compact()
    await server.put(endpoint_slice("one", {"b": READY}))
    await until(lambda: list(of(found)) == ["b"])
    assert server.server.lists == 2


@pytest.mark.parametrize(
    ("ports", "wanted", "port"),
    [
        ([{"name": "", "port": 1}], "", 1),
        ([{"name": None, "port": 1, "protocol": "TCP"}], "", 1),
        ([{"name": "dcgm", "port": 1}, {"name": "metrics", "port": 2}], "", 2),
        ([{"name": "dcgm", "port": 1}, {"name": "metrics", "port": 2}], "dcgm", 1),
        ([{"name": "dcgm", "port": 1}, {"name": "metrics", "port": 2}], "9", 9),
        ([{"name": "dcgm", "port": 1}, {"name": "other", "port": 2}], "", 0),
        ([{"name": "metrics", "port": 1, "protocol": "UDP"}], "", 0),
        ([{"name": "metrics", "port": None}], "", 0),
        ([{"name": "metrics", "port": 1}], "http", 0),
        (None, "", 0),
    ],
)
def test_which_port_of_a_service_is_asked(ports: list[Object] | None, wanted: str, port: int) -> None:
    (found,) = read_slice(endpoint_slice("one", {"a": READY}, ports=ports), wanted)
    assert (found.address.port if found.address else 0) == port
    assert bool(found.caution) is not bool(port)


def test_a_pod_with_both_ip_families_is_asked_by_ipv4(server: ApiServer) -> None:
    found = labelled_pods(
        api=server.api(), namespace="x", selector=(), port=1, scheme="https", on_health=lambda _name, _health: None
    )
    list_to(found, [pod("a", name="x", is_ready=False, ip="10.0.0.1"), pod("a", name="y", ip="fd00::1")])
    assert found.places == {"a": ExporterPlace(url="https://[fd00::1]:1")}
    found = endpoint_slices(api=server.api(), namespace="x", service="y", on_health=lambda _name, _health: None)
    six = endpoint_slice("six", {"a": READY}, addressType="IPv6")
    six["endpoints"][0]["addresses"] = ["fd00::1"]
    list_to(found, [six, endpoint_slice("four", {"a": {}})])
    assert of(found) == {"a": "http://10.1.0.97:9400"}


def test_an_endpoint_without_a_node_is_known_by_its_address() -> None:
    item = endpoint_slice("one", {"a": READY})
    del item["endpoints"][0]["nodeName"]
    (found,) = read_slice(item, "")
    assert (found.node, str(found.address)) == ("", "10.1.0.97:9400")


def test_a_pod_that_has_ended_has_no_address() -> None:
    item = pod("a")
    item["status"]["phase"] = "Failed"
    (found,) = read_pod(item, 9400)
    assert found.address is None
    del item["spec"]["nodeName"]
    assert read_pod(item, 9400) == ()


@pytest.mark.parametrize("address", ["", "a/b", "a@b", "a b", "[::1]", None, 7])
def test_what_is_no_address_is_refused(address: object) -> None:
    item = endpoint_slice("one", {"a": READY})
    item["endpoints"][0]["addresses"] = [address]
    with pytest.raises((ValueError, TypeError)):
        read_slice(item, "")


def test_more_than_is_read_is_said(server: ApiServer) -> None:
    found = endpoint_slices(api=server.api(), namespace="x", service="y", on_health=lambda _name, _health: None)
    many = [endpoint_slice(f"s{number}", {f"n{letter}": READY for letter in range(1000)}) for number in range(21)]
    with pytest.raises(Exception, match=f"at most {MOST_FOUND} are read"):
        list_to(found, many)


def test_what_a_real_api_server_told_of_endpoint_slices(server: ApiServer) -> None:
    """A slice whose label is changed is told of as deleted; a bookmark holds no endpoint."""
    listed, *events = map(json.loads, (RECORDED / "endpointslices.jsonl").read_text().splitlines())
    found = endpoint_slices(api=server.api(), namespace="x", service="y", on_health=lambda _name, _health: None)
    a, b, c = "http://10.1.0.97:9400", "http://10.1.0.98:9400 its pod is not ready", "http://10.1.0.99:9400"
    ending = f"{a} its pod is ending"
    list_to(found, listed["items"])
    assert of(found) == {"a": a, "b": b}
    for event, expected in zip(events, ({"a": ending}, {"a": ending, "c": c}, {"a": ending}, {}, {}), strict=True):
        found._take(event)
        assert (event["type"], of(found)) == (event["type"], expected)


@pytest.mark.skipif(IS_REAL, reason="it is about the simulated one")
async def test_the_simulated_one_refuses_as_a_real_one_does(server: Simulated, find: Find) -> None:
    base = server.url
    listing = f"{base}/api/v1/namespaces/{NAMESPACE}/pods"
    watch = f"{base}/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices?watch=1&resourceVersion=0"
    async with aiohttp.ClientSession() as session:
        async with session.get(listing) as response:
            assert response.status == 403
            refused = await response.json()
        async with session.get(watch) as response:
            assert response.status == 200
            gone = json.loads(await response.text())
    recorded = json.loads((RECORDED / "pods-list-403.json").read_text())
    assert {**refused, "message": ""} == {**recorded, "message": ""}
    assert ' cannot list resource "pods" in API group "" in the namespace ' in refused["message"]
    recorded = json.loads((RECORDED / "pods-watch-410.jsonl").read_text())
    recorded["object"]["message"] = gone["object"]["message"]
    assert gone == recorded
