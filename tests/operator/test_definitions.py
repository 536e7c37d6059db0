"""deploy/operator/crds.yaml in a real API server. What can be said without one is in test_resources.py."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

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
from tests.support.real_api import RealServer
from tests.support.waiting import until

BASE = "/apis/pod-gpu-metrics.dev/v1alpha1/namespaces/ml"
PATHS = {"GPUExporter": f"{BASE}/gpuexporters", "GPUAutoscaler": f"{BASE}/gpuautoscalers"}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
Ask = Callable[..., Awaitable[tuple[int, Any]]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ask() -> AsyncIterator[Ask]:
    """Asks a real API server that has both definitions."""
    server = RealServer()
    try:
        await server.start()
        await server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "ml"}})
        for definition in CRDS.values():
            status, answer = await server.ask("POST", DEFINITIONS, definition)
            assert status == 201, answer
        for path in PATHS.values():
            await until(lambda path=path: _is_served(server, path))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        yield server.ask
    finally:
        await server.stop()


async def _is_served(server: RealServer, path: str) -> bool:
    return (await server.ask("GET", path))[0] == 200


# issue 14, "Must show" 3
@pytest.mark.kubernetes
@pytest.mark.asyncio(loop_scope="module")
async def test_an_invalid_object_is_refused_with_a_message_that_names_the_field(ask: Ask) -> None:
    for refused in REFUSED:
        item = custom_resource(refused.kind, refused_spec(refused))
        status, answer = await ask("POST", PATHS[refused.kind], item)
        assert status == 422, (refused, answer)
        assert f"spec.{refused.field}" in {cause["field"] for cause in answer["details"]["causes"]}, (refused, answer)
        assert f"spec.{refused.field}: " in answer["message"]


# issue 15, line 17
@pytest.mark.parametrize("kind", CRDS)
def test_kubectl_get_shows_the_state_without_being_asked_for_more(kind: str) -> None:
    columns = CRDS[kind]["spec"]["versions"][0]["additionalPrinterColumns"]
    shown = {column["name"]: column["jsonPath"] for column in columns if not column.get("priority")}
    assert shown["State"] == '.status.conditions[?(@.type=="Ready")].reason'


@pytest.mark.kubernetes
@pytest.mark.asyncio(loop_scope="module")
async def test_the_target_of_an_autoscaler_cannot_be_changed(ask: Ask) -> None:
    status, item = await ask("POST", PATHS["GPUAutoscaler"], custom_resource("GPUAutoscaler", SCALING))
    assert status == 201, item
    item["spec"]["scaleTargetRef"]["name"] = "another"
    status, answer = await ask("PUT", f"{PATHS['GPUAutoscaler']}/gpus", item)
    assert status == 422
    assert "spec.scaleTargetRef cannot be changed" in answer["message"]


@pytest.mark.kubernetes
@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_valid_is_taken_and_gets_the_defaults(ask: Ask) -> None:
    for kind, name, spec in (
        ("GPUExporter", "every", EVERYTHING),
        ("GPUAutoscaler", "every", SCALING_EVERYTHING),
        ("GPUExporter", "least", {}),
        ("GPUAutoscaler", "least", SCALING),
    ):
        status, item = await ask("POST", PATHS[kind], custom_resource(kind, spec, name))
        assert status == 201, item
        if name == "every":
            assert item["spec"] == spec
        else:
            properties = SCHEMAS[kind]["properties"]["spec"]["properties"]
            assert item["spec"].keys() == {*spec, *(key for key, schema in properties.items() if "default" in schema)}
            assert READERS[kind](item) == READERS[kind](custom_resource(kind, spec))
