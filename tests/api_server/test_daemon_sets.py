from typing import Any

import pytest

from tests.support.api_client import NAMESPACE, Client
from tests.support.waiting import until

PATH = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/main"
GPU = {"nvidia.com/gpu.present": "true"}
TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}


def daemon_set(image: str = "main:1", **spec: Any) -> dict[str, Any]:
    labels = {"app": "main"}
    inner = {"containers": [{"name": "main", "image": image}], "nodeSelector": GPU, **spec}
    template = {"metadata": {"labels": labels}, "spec": inner}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "main", "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


@pytest.fixture(autouse=True)
def nodes(client: Client) -> None:
    client.server.daemon_sets.add_node("a", GPU)
    client.server.daemon_sets.add_node("b", GPU, taints=(TAINT,))
    client.server.daemon_sets.add_node("c", {})


def status(client: Client) -> dict[str, Any]:
    found = client.server.get("DaemonSet", NAMESPACE, "main")
    told: dict[str, Any] = (found or {})["status"]
    return told


def places(client: Client) -> list[str]:
    return sorted(pod["spec"]["nodeName"] for pod in client.server.all("Pod"))


async def test_a_pod_runs_on_each_node_that_is_meant_and_tolerated(client: Client) -> None:
    await client.apply(PATH, daemon_set())
    await until(lambda: places(client) == ["a"])
    await client.apply(PATH, daemon_set(tolerations=[{"operator": "Exists"}]))
    await until(lambda: places(client) == ["a", "b"] and status(client).get("numberReady") == 2)
    assert status(client)["observedGeneration"] == 2
    client.server.daemon_sets.add_node("d", GPU)
    await until(lambda: status(client)["desiredNumberScheduled"] == 3)
    client.server.daemon_sets.remove_node("a")
    await until(lambda: places(client) == ["b", "d"] and status(client)["desiredNumberScheduled"] == 2)


async def test_the_status_tells_of_nodes_that_are_not_ready(client: Client) -> None:
    client.server.daemon_sets.unready = {"a"}
    await client.apply(PATH, daemon_set())
    await until(lambda: status(client).get("numberUnavailable") == 1)
    assert (status(client)["desiredNumberScheduled"], status(client)["numberReady"]) == (1, 0)
    client.server.daemon_sets.unready.clear()
    client.server.daemon_sets.settle()
    assert status(client)["numberReady"] == 1
    assert "numberUnavailable" not in status(client)


async def test_another_template_makes_other_pods_and_the_same_none(client: Client) -> None:
    await client.apply(PATH, daemon_set())
    await until(lambda: status(client).get("numberReady") == 1)
    [before] = client.server.all("Pod")
    version = client.server.store.version
    await client.apply(PATH, daemon_set())
    client.server.daemon_sets.settle()
    assert client.server.store.version == version
    await client.apply(PATH, daemon_set("main:2"))
    await until(lambda: client.server.all("Pod")[:1] not in ([], [before]))
    await until(lambda: status(client)["observedGeneration"] == 2)
    [after] = client.server.all("Pod")
    assert (before["metadata"]["uid"] != after["metadata"]["uid"], after["spec"]["containers"][0]["image"]) == (
        True,
        "main:2",
    )


async def test_pods_go_with_their_daemon_set(client: Client) -> None:
    await client.apply(PATH, daemon_set())
    await until(lambda: places(client) == ["a"])
    await client.ask("DELETE", PATH)
    await until(lambda: client.server.all("Pod") == [])
