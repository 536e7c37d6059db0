"""deploy/operator/crds.yaml in an API server: the simulated one, or the real one that KUBEBUILDER_ASSETS names."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.operator.specs import (
    CRDS,
    EVERYTHING,
    READERS,
    REFUSED,
    SCALING,
    SCALING_EVERYTHING,
    SCHEMAS,
    custom_resource,
    refused_spec,
)
from tests.support.api_client import Client
from tests.support.api_server.server import SimulatedApiServer
from tests.support.cel import reviewer
from tests.support.real_api import IS_REAL, RealServer

BASE = "/apis/pod-gpu-metrics.dev/v1alpha1/namespaces/ml"
PATHS = {"GPUExporter": f"{BASE}/gpuexporters", "GPUAutoscaler": f"{BASE}/gpuautoscalers"}


class RealClient(Client):
    """Asks a real API server as its administrator."""

    def __init__(self, real: RealServer) -> None:
        self._real = real

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",  # noqa: ARG002 - as of the simulated one
        token: str = "",  # noqa: ARG002
    ) -> tuple[int, Any]:
        return await self._real.ask(method, path, body)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    if IS_REAL:
        real = RealServer()
        await real.start()
        try:
            yield await with_definitions(RealClient(real))
        finally:
            await real.stop()
        return
    server = SimulatedApiServer(reviewer=reviewer)
    await server.start()
    async with aiohttp.ClientSession() as session:
        yield await with_definitions(Client(server, session))
    await server.stop()


async def with_definitions(client: Client) -> Client:
    await client.ask(
        "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}
    )
    for definition in CRDS.values():
        await client.define(definition)
    return client


# issue 14, "Must show" 3
async def test_an_invalid_object_is_refused_with_a_message_that_names_the_field(client: Client) -> None:
    for refused in REFUSED:
        item = custom_resource(refused.kind, refused_spec(refused))
        status, said = await client.ask("POST", PATHS[refused.kind], item)
        assert status == 422, (refused, said)
        assert f"spec.{refused.field}" in {cause["field"] for cause in said["details"]["causes"]}, (refused, said)
        assert f"spec.{refused.field}: " in said["message"]


# issue 15, line 17
@pytest.mark.parametrize("kind", CRDS)
def test_kubectl_get_shows_the_state_without_being_asked_for_more(kind: str) -> None:
    columns = CRDS[kind]["spec"]["versions"][0]["additionalPrinterColumns"]
    shown = {column["name"]: column["jsonPath"] for column in columns if not column.get("priority")}
    assert shown["State"] == '.status.conditions[?(@.type=="Ready")].reason'


async def test_the_target_of_an_autoscaler_cannot_be_changed(client: Client) -> None:
    status, item = await client.ask("POST", PATHS["GPUAutoscaler"], custom_resource("GPUAutoscaler", SCALING))
    assert status == 201, item
    item["spec"]["scaleTargetRef"]["name"] = "another"
    status, said = await client.ask("PUT", f"{PATHS['GPUAutoscaler']}/gpus", item)
    assert status == 422
    assert "spec.scaleTargetRef cannot be changed" in said["message"]


async def test_what_is_valid_is_taken_and_gets_the_defaults(client: Client) -> None:
    for kind, name, spec in (
        ("GPUExporter", "every", EVERYTHING),
        ("GPUAutoscaler", "every", SCALING_EVERYTHING),
        ("GPUExporter", "least", {}),
        ("GPUAutoscaler", "least", SCALING),
    ):
        status, item = await client.ask("POST", PATHS[kind], custom_resource(kind, spec, name))
        assert status == 201, item
        if name == "every":
            assert item["spec"] == spec
        else:
            properties = SCHEMAS[kind]["properties"]["spec"]["properties"]
            assert item["spec"].keys() == {*spec, *(key for key, schema in properties.items() if "default" in schema)}
            assert READERS[kind](item) == READERS[kind](custom_resource(kind, spec))
