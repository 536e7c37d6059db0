import asyncio
import json
from typing import Any

from tests.support.api_client import APPLY, DEFINITIONS, EXPORTERS, MERGE, NAMESPACE, RECORDED, Client, exporter
from tests.support.waiting import until

CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
REPLICA_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"
FOREGROUND = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"}


async def test_what_is_owned_goes_after_its_owner(client: Client) -> None:
    owner = await _owner(client)
    await _config_map(client, "owned", owner)
    await _config_map(client, "alone")
    status, answer = await client.ask("DELETE", f"{EXPORTERS}/main")
    assert (status, answer["status"]) == (200, "Success")
    await until(lambda: [item["metadata"]["name"] for item in client.server.all("ConfigMap")] == ["alone"])


async def test_an_owner_deleted_in_the_foreground_goes_last(client: Client) -> None:
    """In the order of the versions that were recorded."""
    owner = await _owner(client)
    await _config_map(client, "main-exporter", owner)
    deployment = await client.apply(f"{DEPLOYMENTS}/main-exporter", _of("Deployment", "main-exporter", owner))
    await client.apply(f"{REPLICA_SETS}/main-exporter", _of("ReplicaSet", "main-exporter", _reference(deployment)))
    before = client.server.store.version
    status, answer = await client.ask("DELETE", f"{EXPORTERS}/main", FOREGROUND)
    assert (status, answer["metadata"]["finalizers"]) == (200, ["foregroundDeletion"])
    await until(lambda: client.server.get("GPUExporter", NAMESPACE, "main") is None)
    told = [(change.what, change.item["kind"]) for change in client.server.store.since(before)]
    assert told == [
        ("MODIFIED", "GPUExporter"),
        ("DELETED", "ConfigMap"),
        ("MODIFIED", "Deployment"),
        ("DELETED", "ReplicaSet"),
        ("DELETED", "Deployment"),
        ("DELETED", "GPUExporter"),
    ]
    recorded = [json.loads(line) for line in (RECORDED / "gc-deployments.jsonl").read_text().splitlines()]
    ours = [change for change in client.server.store.since(before) if change.item["kind"] == "Deployment"]
    assert [ours[0].what, ours[-1].what] == [recorded[0]["type"], recorded[-1]["type"]]
    assert ours[0].item["metadata"]["finalizers"] == recorded[0]["object"]["metadata"]["finalizers"]


async def test_dependents_of_an_orphaned_object_stay(client: Client) -> None:
    owner = await _owner(client)
    await _config_map(client, "owned", owner)
    await client.ask("DELETE", f"{EXPORTERS}/main", {"propagationPolicy": "Orphan"})
    await until(lambda: client.server.get("GPUExporter", NAMESPACE, "main") is None)
    assert "ownerReferences" not in (await client.get(f"{CONFIG_MAPS}/owned"))["metadata"]


async def test_who_has_another_owner_left_stays(client: Client) -> None:
    first, second = await _owner(client, "first"), await _owner(client, "second")
    await _config_map(client, "owned", {**first, "controller": False}, second)
    await client.ask("DELETE", f"{EXPORTERS}/first")
    await until(lambda: len(_owners(client)) == 1)
    assert _owners(client) == [second["uid"]]


async def test_an_owner_of_the_same_name_and_another_uid_is_none(client: Client) -> None:
    owner = await _owner(client)
    await _config_map(client, "owned", {**owner, "uid": "another"})
    await until(lambda: client.server.all("ConfigMap") == [])


async def test_what_is_in_no_namespace_is_not_collected_for_an_owner_in_one(client: Client) -> None:
    owner = await _owner(client)
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/owned"
    metadata = {"name": "owned", "ownerReferences": [owner]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, "rules": []}
    await client.apply(path, role)
    await client.ask("DELETE", f"{EXPORTERS}/main")
    await asyncio.sleep(0.1)
    assert (await client.ask("GET", path))[0] == 200


async def test_a_finalizer_holds_an_object_until_it_is_removed(client: Client) -> None:
    await client.define()
    held = exporter("held")
    held["metadata"]["finalizers"] = ["example.com/cleanup"]
    await client.ask("POST", EXPORTERS, held)
    await client.ask("DELETE", f"{EXPORTERS}/held")
    await asyncio.sleep(0.05)
    more = {"metadata": {"finalizers": ["example.com/cleanup", "example.com/more"]}}
    status, answer = await client.ask("PATCH", f"{EXPORTERS}/held", more, kind="application/merge-patch+json")
    assert (status, answer["details"]["causes"][0]["field"]) == (422, "metadata.finalizers")
    await client.ask("DELETE", f"{DEFINITIONS}/gpuexporters.gpu.example.com")
    await asyncio.sleep(0.05)
    assert client.server.get("GPUExporter", NAMESPACE, "held") is not None
    none = {"metadata": {"finalizers": None}}
    status, _ = await client.ask("PATCH", f"{EXPORTERS}/held", none, kind="application/merge-patch+json")
    assert status == 200
    await until(lambda: client.server.all("CustomResourceDefinition") == [])


async def test_a_namespace_goes_with_all_that_is_in_it(client: Client) -> None:
    await _config_map(client, "there")
    _, answer = await client.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
    assert answer["status"]["phase"] == "Terminating"
    await until(lambda: client.server.get("Namespace", "", NAMESPACE) is None)
    assert client.server.all("ConfigMap") == []
    status, answer = await client.ask("POST", CONFIG_MAPS, {"metadata": {"name": "late"}})
    assert (status, answer["message"]) == (404, f'namespaces "{NAMESPACE}" not found')


async def test_a_namespace_that_goes_takes_nothing_new_in(client: Client) -> None:
    await client.ask("POST", CONFIG_MAPS, {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}})
    await client.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
    late = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}}
    for method, path, kind in (
        ("POST", CONFIG_MAPS, "application/json"),
        ("PATCH", f"{CONFIG_MAPS}/late?fieldManager=tests", APPLY),
    ):
        status, answer = await client.ask(method, path, late, kind=kind)
        assert (status, answer["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
        assert answer["message"] == (
            f'configmaps "late" is forbidden: unable to create new content in namespace {NAMESPACE} because it is being'
            " terminated"
        )
    held = f"{CONFIG_MAPS}/held"
    # what is there may be changed, so that it can go
    assert (await client.ask("PATCH", held, {"metadata": {"finalizers": None}}, kind=MERGE))[0] == 200
    await until(lambda: client.server.get("Namespace", "", NAMESPACE) is None)


def _owners(client: Client) -> list[str]:
    found = client.server.get("ConfigMap", NAMESPACE, "owned")
    return [reference["uid"] for reference in (found or {})["metadata"]["ownerReferences"]]


async def _owner(client: Client, name: str = "main") -> dict[str, Any]:
    if not client.server.all("CustomResourceDefinition"):
        await client.define()
    _, item = await client.ask("POST", EXPORTERS, exporter(name))
    return _reference(item)


def _reference(item: dict[str, Any]) -> dict[str, Any]:
    about = {"apiVersion": item["apiVersion"], "kind": item["kind"], "name": item["metadata"]["name"]}
    return {**about, "uid": item["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}


def _of(kind: str, name: str, *owners: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "main:1"}]}}
    metadata = {"name": name, "namespace": NAMESPACE, "ownerReferences": list(owners)}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


async def _config_map(client: Client, name: str, *owners: dict[str, Any]) -> None:
    metadata = {"name": name, "namespace": NAMESPACE, **({"ownerReferences": list(owners)} if owners else {})}
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}}
    await client.apply(f"{CONFIG_MAPS}/{name}", item)
