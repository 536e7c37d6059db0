"""ResourceClaims by name, of API servers that serve other versions, or refuse."""

from collections.abc import AsyncIterator

import pytest

from exporter.errors import SourceError, Unsupported
from exporter.sources.kubernetes.api import KubernetesApi
from exporter.sources.kubernetes.resource_claims import ApiClaims
from tests.ownership.test_admin_access import LOOKING, claim, device
from tests.support.simulated import Container, Pod, World
from tests.support.simulated_api import SimulatedApi


def world() -> World:
    made = World(gpus=1, claims=1, seed=1)
    looking = Container(name="main", looks=(claim("c", LOOKING),))
    made.pods = (Pod(namespace="monitoring", name="dcgm-exporter", uid="1", containers=(looking,)),)
    return made


@pytest.fixture(params=["v1", "v1beta2", "v1beta1"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[tuple[SimulatedApi, ApiClaims]]:
    api = SimulatedApi(world(), slice_version=request.param)
    url = await api.start()
    claims = ApiClaims(api=KubernetesApi(url=url, token_file="/x", ca_file="/x"))
    yield api, claims
    await claims.close()
    await api.stop()


# issue 22, line 32
async def test_a_claim_is_read_in_the_version_that_the_server_has(server: tuple[SimulatedApi, ApiClaims]) -> None:
    api, claims = server
    expected = (LOOKING, {device("gpu-0"): True})
    assert await claims.get("monitoring", "c") == expected
    asked = len(api.gets)
    assert await claims.get("monitoring", "c") == expected
    assert len(api.gets) == asked + 1, "by then the version is known"


async def test_a_claim_that_is_not_there_is_said(server: tuple[SimulatedApi, ApiClaims]) -> None:
    _, claims = server
    with pytest.raises(Unsupported, match="resourceclaims/other"):
        await claims.get("monitoring", "other")


async def test_without_the_right_it_says_which_is_missing(server: tuple[SimulatedApi, ApiClaims]) -> None:
    api, claims = server
    api.rules = [("", {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]})]
    with pytest.raises(SourceError) as refused:
        await claims.get("monitoring", "c")
    assert "403" in refused.value.trouble.message
    assert "resourceclaims" in f"{refused.value.trouble.message} {refused.value.trouble.remedy}"
