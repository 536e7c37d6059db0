"""What KEDA's ScaledObjects scale, asked of a simulated API server over a real socket."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from exporter.cluster.scaled_objects import (
    FAILURE_KEPT_SECONDS,
    KEPT_SECONDS,
    ScaledObjects,
    ScaledObjectTarget,
)
from exporter.errors import SourceError, Unavailable, Unsupported
from exporter.sources.kubernetes.api import KubernetesApi
from tests.support.kubernetes import NAMESPACE, Real, Simulated
from tests.support.real_api import IS_REAL
from tests.support.simulated import World
from tests.support.simulated_api import SimulatedApi
from tests.support.waiting import PATIENCE_SECONDS

PATH = "/apis/keda.sh/v1alpha1/namespaces/ml/scaledobjects/"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def scaling(reference: object) -> dict[str, Any]:
    return {"spec": {"scaleTargetRef": reference, "triggers": []}}


@asynccontextmanager
async def asking(objects: Mapping[str, object]) -> AsyncIterator[tuple[SimulatedApi, ScaledObjects, Clock]]:
    server, clock = SimulatedApi(World()), Clock()
    server.objects = {PATH + name: scaling(reference) for name, reference in objects.items()}
    api = KubernetesApi(url=await server.start(), token_file="/nowhere", ca_file="/nowhere")
    found = ScaledObjects(api=api, on_health=lambda *_: None, clock=clock)
    try:
        yield server, found, clock
    finally:
        await found.close()
        await server.stop()


async def test_a_target_is_asked_for_once_by_all_and_then_again_after_a_while() -> None:
    async with asking({"a": {"name": "trainer"}, "b": {"kind": "StatefulSet", "name": "db"}}) as (api, found, clock):
        assert found.begin() is None
        assert found.health.up is None
        targets = await asyncio.gather(*(found.target("ml", "a") for _ in range(50)))
        assert set(targets) == {ScaledObjectTarget("Deployment", "trainer")}
        assert await found.target("ml", "b") == ScaledObjectTarget("StatefulSet", "db")
        assert len(api.gets) == 2
        clock.now = KEPT_SECONDS - 1
        await found.target("ml", "a")
        assert len(api.gets) == 2
        api.objects[PATH + "a"] = scaling({"name": "other"})
        clock.now = KEPT_SECONDS
        assert await found.target("ml", "a") == ScaledObjectTarget("Deployment", "other")
        ((_, bound),) = found.bounds.items()
        assert bound.used() == 2


@pytest.mark.parametrize(
    "reference",
    [
        None,
        [],
        "trainer",
        {},
        {"name": ""},
        {"name": 7},
        {"name": "a/b"},
        {"name": "n" * 300},
        {"name": "a", "kind": "x/y"},
        {"name": "a", "kind": ["Deployment"]},
    ],
)
async def test_a_scaled_object_that_names_nothing_is_an_error(reference: object) -> None:
    async with asking({"a": reference}) as (_, found, _):
        with pytest.raises(SourceError, match="names no workload"):
            await found.target("ml", "a")


async def test_one_that_is_not_there_is_no_failure_of_the_api() -> None:
    async with asking({}) as (api, found, clock):
        for _ in range(3):
            with pytest.raises(Unsupported, match="knows no ScaledObject ml/a") as error:
                await found.target("ml", "a")
            assert "`workload`" in error.value.trouble.remedy
        assert (len(api.gets), found.health.up) == (1, True), "a failure is kept, too"
        clock.now = FAILURE_KEPT_SECONDS
        api.objects[PATH + "a"] = scaling({"name": "trainer"})
        assert await found.target("ml", "a") == ScaledObjectTarget("Deployment", "trainer")


async def test_a_right_that_is_missing_is_named_and_shown_as_health() -> None:
    async with asking({"a": {"name": "trainer"}}) as (api, found, clock):
        api.failure = (403, {})
        with pytest.raises(Unavailable) as error:
            await found.target("ml", "a")
        assert "get on scaledobjects (API group keda.sh)" in error.value.trouble.remedy
        assert (found.health.up, found.health.trouble) == (False, error.value.trouble)
        api.failure = None
        clock.now = FAILURE_KEPT_SECONDS
        await found.target("ml", "a")
        assert found.health.up


async def test_whoever_waits_when_it_is_closed_gets_an_error_and_no_silence() -> None:
    async with asking({"a": {"name": "trainer"}}) as (_, found, _):
        waiting = asyncio.create_task(found.target("ml", "a"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await found.close()
        with pytest.raises(Unavailable, match="given up"):
            await asyncio.wait_for(waiting, PATIENCE_SECONDS)


# issue 11, "Must show" 6
async def test_the_right_to_get_one_by_its_name_is_all_that_is_needed(tmp_path: Path) -> None:
    server = Real() if IS_REAL else Simulated(tmp_path)
    found = None
    try:
        await server.start()
        clock = Clock()
        api = server.api()
        found = ScaledObjects(api=api, on_health=lambda *_: None, clock=clock)
        with pytest.raises(Unavailable, match="403"):
            await found.target(NAMESPACE, "a")
        await server.allow_keda()
        about = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject"}
        await server.put({**about, "metadata": {"name": "a", "namespace": NAMESPACE}, **scaling({"name": "trainer"})})
        async with asyncio.timeout(30):
            while True:
                clock.now += FAILURE_KEPT_SECONDS
                try:
                    assert await found.target(NAMESPACE, "a") == ScaledObjectTarget("Deployment", "trainer")
                    break
                except Unavailable:  # a real API server takes a moment to know its new roles
                    await asyncio.sleep(0.1)
        with pytest.raises(Unsupported, match="knows no ScaledObject"):
            await found.target(NAMESPACE, "b")
        with pytest.raises(SourceError, match="403"):
            await api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/a")
    finally:
        if found is not None:
            await found.close()
        await server.stop()
