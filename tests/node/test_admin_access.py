"""Claims with admin access through the whole node role: dcgm-exporter looks at all GPUs, and a training pod has one."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from exporter.model.devices import Claim
from exporter.simulator.driver_files import CHECKPOINT
from tests.support.exporter import Exporter, config_of, running
from tests.support.node_api import NodeApi
from tests.support.simulated import DRA_DRIVER, DRA_POOL, Container, Pod, SimulatedNode, World
from tests.support.waiting import until

MONITORING = "nvidia-dcgm-exporter"
RATIO = re.compile(r'^pod_gpu_allocated_ratio\{.*pod="([^"]*)".*\} (\S+)$', re.MULTILINE)


def claims(uid: str, namespace: str, *devices: str, share: str = "") -> tuple[Claim, ...]:
    """A claim of these devices, with the names that NVIDIA's driver gives them."""
    claim_uid = f"00000000-0000-4000-8000-{uid:>012}"
    return tuple(
        Claim(
            namespace=namespace,
            name=f"claim-{uid}",
            driver=DRA_DRIVER,
            pool=DRA_POOL,
            device=device,
            cdi_names=(f"k8s.{DRA_DRIVER}/claim={claim_uid}-{device}",),
            share=share,
        )
        for device in devices
    )


def train(node: SimulatedNode, uid: str = "1", share: str = "") -> Pod:
    device = node.world.gpus[0].claim_device
    container = Container(name="main", claims=claims(uid, "ml", device, share=share))
    return Pod(namespace="ml", name="train", uid=f"train-{uid}", containers=(container,))


def dcgm(node: SimulatedNode, uid: str = "2", namespace: str = "monitoring", *, is_look: bool = True) -> Pod:
    """It has a claim of all GPUs, with admin access or without."""
    devices = [device for gpu in node.world.gpus for _, device in gpu.slots if device in gpu.ids_of_claims]
    of_all = claims(uid, namespace, *devices)
    container = Container(name="exporter", looks=of_all) if is_look else Container(name="exporter", claims=of_all)
    return Pod(namespace=namespace, name=MONITORING, uid=f"dcgm-{uid}", containers=(container,))


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    """Two GPUs to be claimed."""
    simulated = SimulatedNode(World(gpus=2, claims=2, seed=7))
    simulated.world.pods = ()
    await simulated.start()
    yield simulated
    await simulated.stop()


def settings(node: SimulatedNode, **more: str) -> dict[str, str]:
    return {
        "kubelet_socket": str(node.socket),
        "kubelet_max_age": "0s",
        "dcgm_url": node.url,
        "accounting_interval": "200ms",
        "root": str(node.root),
        **more,
    }


async def owners(exporter: Exporter) -> list[list[tuple[str, bool]]]:
    """Who holds each GPU, and whether others do, too."""
    mapping = json.loads((await exporter.get("/debug/mapping"))[1])
    return [[(owner["pod"], owner["shared"]) for owner in row["owners"]] for row in mapping["seen"]]


HELD, EVERYBODYS = [[("train", False)], []], [[("train", True), (MONITORING, True)], [(MONITORING, False)]]


# issue 22, line 32
@pytest.mark.parametrize(
    ("says", "expected"),
    [("checkpoint", HELD), ("api", HELD), ("namespace", HELD), ("nobody", EVERYBODYS)],
)
async def test_a_claim_with_admin_access_holds_nothing(
    node: SimulatedNode, api: NodeApi, says: str, expected: list[list[tuple[str, bool]]]
) -> None:
    """Where nobody can say that it has, it is like any other, which is how the kubelet lists it."""
    node.has_checkpoint = says == "checkpoint"
    namespace = "gpu-operator" if says == "namespace" else "monitoring"
    await api.show(train(node), dcgm(node, namespace=namespace))
    more = api.settings if says == "api" else {}
    async with running(config_of(**settings(node, **more))) as exporter:
        page = await exporter.page()
        rows = re.findall(r'^DCGM_FI_DEV_GPU_UTIL\{.*pod="([^"]*)".*\} \d+$', page, re.MULTILINE)
        assert sorted(rows) == sorted(pod for of in expected for pod, _ in of or [("", False)]), "the first page"
        assert await owners(exporter) == expected
        if expected is EVERYBODYS:
            return
        assert 'gpu_shared="true"' not in page
        text = await exporter.until("/metrics", lambda text: "pod_gpu_allocated_ratio{" in text)
        assert RATIO.findall(text) == [("train", "1")]
        assert re.findall(r"^node_gpu_allocated_ratio\{.*\} (\S+)$", text, re.MULTILINE) == ["0.5"], "one of two"
        assigned = json.loads((await exporter.get("/debug/mapping"))[1])["assigned"]
        looks = [row for row in assigned if row["pod"] == MONITORING]
        assert {row["reason"] for row in looks} == {"admin_access"}
        assert {row["uuid"] for row in looks} == {gpu.uuid for gpu in node.world.gpus}
        assert "looks at the device and does not hold it" in looks[0]["explanation"]
        asked = 2 if says == "api" else 0
        await until(lambda: api.asked_for_claims() >= asked)  # a real one notes what it was asked a moment later
        assert api.asked_for_claims() == asked, "each claim once, and none that the checkpoint has"


# issue 22, line 32
@pytest.mark.parametrize("says", ["checkpoint", "api"])
async def test_a_new_pod_of_the_name_may_hold_what_the_old_one_looked_at(
    node: SimulatedNode, api: NodeApi, says: str
) -> None:
    """And the other way round."""
    node.has_checkpoint = says == "checkpoint"
    more = api.settings if says == "api" else {}
    async with running(config_of(**settings(node, **more))) as exporter:
        for number in range(6):
            is_look = number % 2 == 0
            await api.show(dcgm(node, uid=str(10 + number), is_look=is_look))
            expected = [[], []] if is_look else [[(MONITORING, False)], [(MONITORING, False)]]
            await until(lambda expected=expected: are(exporter, expected))  # type: ignore[misc] # see waiting.py


async def are(exporter: Exporter, expected: list[list[tuple[str, bool]]]) -> bool:
    return await owners(exporter) == expected


# issue 22, line 32
@pytest.mark.parametrize("says", ["checkpoint", "api"])
async def test_a_look_takes_no_gpu_while_the_kubelet_starts(node: SimulatedNode, api: NodeApi, says: str) -> None:
    """dcgm-exporter's pod is made anew meanwhile, and is listed first."""
    node.has_checkpoint = says == "checkpoint"
    more = api.settings if says == "api" else {}
    await api.show(dcgm(node), train(node))
    async with running(config_of(**settings(node, **more))) as exporter:
        await until(lambda: are(exporter, HELD))
        for number in range(2):
            uids = [str(20 + 3 * number + one) for one in range(3)]
            looking = [replace(dcgm(node, uid=uid), name=f"{MONITORING}-{uid}") for uid in uids]
            await api.show(*looking, train(node))
            restart = asyncio.create_task(
                node.restart_kubelet(down_seconds=0.05, empty_seconds=0.1, partial_seconds=0.4)
            )
            calls = node.kubelet.calls
            while not restart.done() or node.kubelet.calls < calls + 10:
                assert await owners(exporter) == HELD
                await asyncio.sleep(0.01)


# issue 22, line 32
async def test_a_look_at_mig_instances_holds_none_of_them() -> None:
    node = SimulatedNode(World(gpus=1, claims=1, dynamic=1, seed=5))
    node.world.pods = ()
    first = node.world.gpus[0]
    instance = next(device for _, device in first.slots if device != first.claim_device)
    holder = Pod(
        namespace="ml",
        name="train",
        uid="train",
        containers=(Container(name="main", claims=claims("1", "ml", instance)),),
    )
    node.world.pods = (holder,)
    await node.start()
    try:
        node.world.pods = (holder, dcgm(node))
        assert any(claim.device == instance for claim in node.world.pods[1].containers[0].looks)
        async with running(config_of(**settings(node))) as exporter:
            mapping = json.loads(await exporter.until("/debug/mapping", lambda text: '"train"' in text))
            held = {row["gpu_i_id"]: [owner["pod"] for owner in row["owners"]] for row in mapping["seen"]}
            assert [pods for pods in held.values() if pods] == [["train"]]
            assert {row["reason"] for row in mapping["assigned"] if row["pod"] == MONITORING} == {"admin_access"}
    finally:
        await node.stop()


# issue 22, line 32
async def test_shares_of_a_gpu_that_is_looked_at_stay_shares(node: SimulatedNode) -> None:
    other = replace(train(node, uid="3", share="b"), name="train-2")
    node.world.pods = (train(node, share="a"), other, dcgm(node))
    async with running(config_of(**settings(node))) as exporter:
        await until(lambda: are(exporter, [[("train", True), ("train-2", True)], []]))


# issue 22, line 32
async def test_what_was_known_stays_while_the_checkpoint_is_away_or_broken(node: SimulatedNode) -> None:
    node.world.pods = (train(node), dcgm(node))
    path = node.socket.parent / CHECKPOINT
    async with running(config_of(**settings(node))) as exporter:
        await until(lambda: are(exporter, HELD))
        node.has_checkpoint = False
        path.write_text('{"checksum": 1, "v1": {"prepared')
        node.world.pods = (
            *node.world.pods,
            replace(
                train(node, uid="4"),
                name="new",
                containers=(Container(name="main", claims=claims("4", "ml", node.world.gpus[1].claim_device)),),
            ),
        )
        new_one = [[("train", False)], [("new", False)]]
        await until(lambda: are(exporter, new_one))
        sources = json.loads((await exporter.get("/debug/mapping"))[1])["sources"]
        assert sources["dra-checkpoint"]["up"] is False
        assert "look at the pod of NVIDIA's DRA driver" in sources["dra-checkpoint"]["remedy"]
        path.unlink()
        node.world.pods = node.world.pods[:2]
        await until(lambda: are(exporter, HELD))


# issue 22, line 32
async def test_the_namespaces_of_admin_access_can_be_named(node: SimulatedNode) -> None:
    node.has_checkpoint = False
    node.world.pods = (train(node), dcgm(node, namespace="observability"))
    given = settings(node, claims_admin_namespaces="observability")
    async with running(config_of(**given)) as exporter:
        assert await owners(exporter) == HELD
