"""What a ScaledObject scales, resolved through a Kubernetes API, of real node exporters behind a whole cluster role."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import grpc.aio
import pytest

from exporter.cluster.role import CLUSTER, KedaPort
from exporter.service import Service
from tests.cluster.keda.test_conversation import Code, config_of, refusal
from tests.support.exporter import Exporter, Start
from tests.support.keda import Keda
from tests.support.simulated import SimulatedNode

TRIGGER = {"metric": "gpu_utilization", "target": "70"}


def path_of(namespace: str) -> str:
    return f"/apis/keda.sh/v1alpha1/namespaces/{namespace}/scaledobjects/of-a-test"


@asynccontextmanager
async def cluster(node: Exporter, api_url: str) -> AsyncIterator[tuple[str, grpc.aio.Channel]]:
    times = {"cluster__interval": "1h", "cluster__max_age": "2h", "cluster__timeout": "20s"}  # the first answer counts
    config = config_of(cluster__node=f"gpu-node-1={node.base}", kubernetes__url=api_url, **times)
    service = Service(config, CLUSTER, lambda: config)
    try:
        (address,) = await service.listen()
        assert isinstance(service._beside, KedaPort)
        await service.reload()  # what is remembered goes on
        async with grpc.aio.insecure_channel(str(service._beside.address)) as channel:
            yield f"http://{address}", channel
    finally:
        await service.close()


# issue 11, "Must show" 2
async def test_the_scale_target_is_what_autoscale_says_of_the_same_workload(
    start: Start, simulated: SimulatedNode
) -> None:
    node = await start(kubernetes_url=simulated.api_url, kubelet_pods_socket=str(simulated.pods_socket))
    _, text = await node.get("/container/metrics")
    row = next(row for row in json.loads(text) if row["pod"])
    namespace, workload, kind = row["namespace"], row["workload_name"], row["workload_kind"]
    async with cluster(node, simulated.api_url) as (base, channel), aiohttp.ClientSession(base) as session:
        keda = Keda(channel, TRIGGER, name="of-a-test", namespace=namespace)
        assert (await keda.metric_spec()).targetSizeFloat == 70.0, "it needs no API"
        code, text = await refusal(keda)
        assert (code, f"knows no ScaledObject {namespace}/of-a-test" in text) == (Code.FAILED_PRECONDITION, True)
        keda.name = "another"
        simulated.api.objects[path_of(namespace).replace("of-a-test", "another")] = {
            "spec": {"scaleTargetRef": {"name": workload}}
        }
        assert kind == "Deployment"
        value = await keda.value("gpu_utilization")
        async with session.get(f"/autoscale/{namespace}/deployment:{workload}/gpu_utilization") as response:
            assert await response.json() == {"value": value, "pods": 1, "nodes": ["gpu-node-1"], "missing_nodes": []}
        assert await keda.is_active() is (value > 0)
        async with session.get("/metrics") as response:
            metrics = await response.text()
        assert 'source_up{source="scaled_objects"} 1' in metrics
        assert 'pod_gpu_exporter_bound_used{of="scaled_objects"} 2' in metrics


async def test_a_right_that_is_missing_is_an_error_that_names_it(start: Start, simulated: SimulatedNode) -> None:
    async with cluster(await start(), simulated.api_url) as (base, channel):
        simulated.api.failure = (403, {})
        code, text = await refusal(Keda(channel, TRIGGER))
        assert code is Code.UNAVAILABLE
        assert "get on scaledobjects (API group keda.sh) (deploy/keda/rbac.yaml)" in text
        async with aiohttp.ClientSession(base) as session, session.get("/metrics") as response:
            assert 'source_up{source="scaled_objects"} 0' in await response.text()


@pytest.mark.parametrize("name", ["../../secrets/x", "a%2fb", "a?b"])
async def test_no_name_leads_to_another_path_of_the_api(start: Start, simulated: SimulatedNode, name: str) -> None:
    async with cluster(await start(), simulated.api_url) as (_, channel):
        gets = len(simulated.api.gets)
        assert (await refusal(Keda(channel, TRIGGER, name=name)))[0] is Code.INVALID_ARGUMENT
        assert len(simulated.api.gets) == gets
