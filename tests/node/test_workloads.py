"""Workloads in /container/metrics, through the whole node role."""

import json
from typing import Any

from tests.support.exporter import Exporter, Start
from tests.support.simulated import SimulatedNode


async def rows(exporter: Exporter, query: str = "") -> list[dict[str, Any]]:
    status, text = await exporter.get(f"/container/metrics{query}")
    assert status == 200
    found: list[dict[str, Any]] = json.loads(text)
    return found


async def test_the_very_first_answer_has_them_and_the_second_asks_nobody(
    start: Start, simulated: SimulatedNode
) -> None:
    exporter = await start(kubernetes_url=simulated.api_url, kubelet_pods_socket=str(simulated.pods_socket))
    held = [row for row in await rows(exporter) if row["pod"]]
    assert held
    for row in held:
        assert (row["workload_name"], row["workload_kind"]) == (row["pod"].rpartition("-")[0], "Deployment")
    assert all("workload_name" not in row for row in await rows(exporter) if not row["pod"])
    gets = len(simulated.api.gets)
    assert gets > 0
    name = held[0]["workload_name"]
    chosen = await rows(exporter, f"?workload={name}")
    assert {row["workload_name"] for row in chosen} == {name}
    assert len(simulated.api.gets) == gets


async def test_by_the_api_alone(start: Start, simulated: SimulatedNode) -> None:
    exporter = await start(kubernetes_url=simulated.api_url, pods_source="api", node_name="gpu-node-1")
    assert {row["workload_kind"] for row in await rows(exporter) if row["pod"]} == {"Deployment"}


async def test_labels_name_them(start: Start, simulated: SimulatedNode) -> None:
    exporter = await start(
        kubernetes_url=simulated.api_url,
        kubelet_pods_socket=str(simulated.pods_socket),
        workload_labels=["no-such-label", "team"],
    )
    # the first look waits for workloads, but not for ever
    await exporter.until(
        "/container/metrics", lambda text: all("workload_name" in row for row in json.loads(text) if row["pod"])
    )
    held = [row for row in await rows(exporter) if row["pod"]]
    assert {(row["workload_name"], row["workload_kind"]) for row in held} == {
        (row["namespace"], "Deployment") for row in held
    }


async def test_no_api_access_leaves_them_out_and_all_else_works(start: Start, simulated: SimulatedNode) -> None:
    exporter = await start()
    found = await rows(exporter)
    assert any(row["pod"] for row in found)
    assert not any("workload_name" in row or "workload_kind" in row for row in found)
    _, metrics = await exporter.get("/metrics")
    assert 'source="pods"' not in metrics, "nobody asked for it"


async def test_an_api_that_refuses(start: Start, simulated: SimulatedNode) -> None:
    exporter = await start(kubernetes_url=simulated.api_url, kubelet_pods_socket=str(simulated.pods_socket))
    simulated.api.failure = (403, {})
    held = [row for row in await rows(exporter) if row["pod"]]
    assert {row["workload_kind"] for row in held} == {"ReplicaSet"}, "the nearest that is known"
    gets = len(simulated.api.gets)
    await rows(exporter)
    assert len(simulated.api.gets) == gets, "and it is left alone for a while"
