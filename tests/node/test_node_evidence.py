"""What the node shows of containers with tokens, through the whole node role."""

import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pytest

from exporter.model.grants import NO_EVIDENCE, Evidence
from exporter.model.pods import Owner
from exporter.node.joining import Joining
from exporter.node.measuring import Measuring
from exporter.simulator.allocators import AckGpushare, Gpushare, Hami, SimulatedAllocator, Volcano
from exporter.sources.kubelet.device_checkpoint import DeviceCheckpoint, device_checkpoint_beside
from exporter.sources.nvml import nvml_source
from exporter.sources.process_environ import Environs
from exporter.sources.source import is_absent
from tests.support.allocators import allocated_node, given_to
from tests.support.components import real
from tests.support.device_checkpoint import alloc_resp, entry, write
from tests.support.exporter import Exporter, config_of, running
from tests.support.node_parts import part_of, source_of
from tests.support.nvml import loads, until_nobody_uses_it
from tests.support.simulated import Container, Pod, SimulatedNode, World

GPU = "nvidia.com/gpu"


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    """Eight GPUs; the allocator's plugin offers ten tokens of each."""
    simulated = SimulatedNode(World(gpus=8, seed=5))
    simulated.world.pods = ()
    await simulated.start()
    yield simulated
    await until_nobody_uses_it()
    await simulated.stop()


def a_pod(name: str, *ids: str, resource: str = GPU) -> Pod:
    devices = tuple((resource, device_id) for device_id in ids)
    uid = str(uuid5(NAMESPACE_OID, name))
    return Pod(namespace="ml", name=name, uid=uid, containers=(Container(name="main", devices=devices),))


def gave(uid: str, ids: list[str], *uuids: str) -> Any:
    return entry(uid, "main", GPU, ids, alloc_resp({"NVIDIA_VISIBLE_DEVICES": ",".join(uuids)}))


def settings(node: SimulatedNode, **more: str | list[str]) -> dict[str, str | list[str]]:
    return {"kubelet_socket": str(node.socket), "dcgm_url": node.url, "kubelet_max_age": "0s", **more}


def evidence_of(exporter: Exporter) -> Evidence:
    """What the owners of the last look were told."""
    joining: Joining = part_of(exporter.service._role, Joining)  # type: ignore[arg-type] # the role is a node
    return joining.owners.evidence


def shown(evidence: Evidence) -> dict[str, list[tuple[str, list[str]]]]:
    """By pod: each source, and the UUIDs that it names."""
    return {
        owner.pod: [(given.source, [ref.uuid for ref in given.refs]) for given in of_owner]
        for (owner, _), of_owner in evidence.items()
    }


# issue 24, part 4
async def test_the_checkpoint_shows_what_the_plugin_gave(node: SimulatedNode) -> None:
    uuids = [gpu.uuid for gpu in node.world.gpus]
    path = Path(device_checkpoint_beside(str(node.socket)))
    node.world.pods = (a_pod("a", f"{uuids[0]}-4"), a_pod("b", f"{uuids[0]}-5", f"{uuids[3]}-1"))
    async with running(config_of(**settings(node))) as exporter:
        await exporter.page()
        assert evidence_of(exporter) is NO_EVIDENCE
        write(
            path,
            gave("u-a", [f"{uuids[0]}-4"], uuids[2]),
            gave("u-b", [f"{uuids[0]}-5", f"{uuids[3]}-1"], uuids[5], uuids[6]),
        )
        await exporter.page()
        first = evidence_of(exporter)
        source = "the kubelet's checkpoint"
        assert shown(first) == {"a": [(source, [uuids[2]])], "b": [(source, [uuids[5], uuids[6]])]}
        await exporter.page()
        assert evidence_of(exporter) is first
        # a container that ended, and one that has its ids now: the kubelet drops the entry before it gives the ids away
        node.world.pods = (a_pod("c", f"{uuids[0]}-4"),)
        write(path, gave("u-c", [f"{uuids[0]}-4"], uuids[7]), gave("u-b", [f"{uuids[0]}-5", f"{uuids[3]}-1"], uuids[5]))
        await exporter.page()
        assert shown(evidence_of(exporter)) == {"c": [(source, [uuids[7]])]}


async def test_a_file_that_the_kubelet_has_not_written_yet_says_nothing(node: SimulatedNode) -> None:
    uuids = [gpu.uuid for gpu in node.world.gpus]
    path = Path(device_checkpoint_beside(str(node.socket)))
    write(path, gave("u-a", [f"{uuids[0]}-4"], uuids[2]))
    os.utime(path, (1.0, 1.0))
    node.world.pods = (a_pod("a", f"{uuids[0]}-4"),)
    async with running(config_of(**settings(node))) as exporter:
        await exporter.page()
        assert shown(evidence_of(exporter))["a"]
        node.world.pods = ()
        await exporter.page()
        node.world.pods = (a_pod("b", f"{uuids[0]}-4"),)
        await exporter.page()
        assert evidence_of(exporter) is NO_EVIDENCE
        write(path, gave("u-b", [f"{uuids[0]}-4"], uuids[3]))
        await exporter.page()
        assert [uuid for _, (uuid,) in shown(evidence_of(exporter))["b"]] == [uuids[3]]


async def test_a_node_without_tokens_reads_no_checkpoint(node: SimulatedNode) -> None:
    uuid = node.world.gpus[0].uuid
    write(Path(device_checkpoint_beside(str(node.socket))), gave("u-a", [uuid], uuid))
    node.world.pods = (a_pod("a", uuid),)
    async with running(config_of(**settings(node))) as exporter:
        await exporter.page()
        source = source_of(exporter.service._role, DeviceCheckpoint)
        assert is_absent(source.health)
        assert source.entries == ()
        assert evidence_of(exporter) is NO_EVIDENCE
        assert "device-checkpoint" not in (await exporter.get("/metrics"))[1]


async def test_a_checkpoint_that_cannot_be_used_is_told(node: SimulatedNode) -> None:
    uuid = node.world.gpus[0].uuid
    path = Path(device_checkpoint_beside(str(node.socket)))
    path.parent.mkdir()
    path.write_text("{")
    node.world.pods = (a_pod("a", f"{uuid}-4"),)
    async with running(config_of(**settings(node))) as exporter:
        await exporter.page()
        assert 'source_up{source="device-checkpoint"} 0' in (await exporter.get("/metrics"))[1]
        assert "kubelet_internal_checkpoint" in (await exporter.get("/debug/mapping"))[1]


@pytest.fixture
def nvml(node: SimulatedNode, monkeypatch: pytest.MonkeyPatch) -> SimulatedNode:
    """The node with NVML."""
    real("gcc")
    assert node.nvml.build()
    loads(monkeypatch, node.nvml)
    monkeypatch.setattr(nvml_source, "AGAIN_SECONDS", 0.1)
    return node


def run_process(node: SimulatedNode, pod: Pod, *, pid: int, environ: str = "") -> None:
    """A process of the pod's container, with this environment."""
    container = f"{pid:064x}"
    files = node.root / "proc" / str(pid)
    files.mkdir()
    (files / "cgroup").write_text(f"0::/kubepods/pod{pod.uid}/{container}\n")
    (files / "stat").write_text(f"{pid} (python) S 1 {' '.join(['0'] * 17)} 1 0\n")
    link = node.root / f"var/log/containers/{pod.name}_{pod.namespace}_main-{container}.log"
    link.symlink_to(f"/var/log/pods/{pod.namespace}_{pod.name}_{pod.uid}/main/0.log")
    (files / "environ").write_text(environ)


# issue 24, part 4
async def test_nvml_shows_where_a_container_computes_and_that_stays(nvml: SimulatedNode) -> None:
    uuids = [gpu.uuid for gpu in nvml.world.gpus]
    pod = a_pod("a", f"{uuids[0]}-4")
    nvml.world.pods = (pod, a_pod("b", f"{uuids[0]}-5"))
    async with running(config_of(**settings(nvml, root=str(nvml.root), nvml_mode="on"))) as exporter:
        await exporter.page()
        assert evidence_of(exporter) is NO_EVIDENCE
        run_process(nvml, pod, pid=4242)
        nvml.nvml.write(nvml.world.gpus, [f"process 6 -1 -1 4242 c {2**30}"], is_recut=False)
        wanted = {"a": [("NVML", [uuids[6]])]}
        await exporter.until_page(lambda _: shown(evidence_of(exporter)) == wanted)
        ((_, (given,)),) = evidence_of(exporter).items()
        assert not given.is_whole
        assert given.refs[0].shared, "a token stands for a share"
        evidence = evidence_of(exporter)
        nvml.nvml.write(nvml.world.gpus, [], is_recut=False)
        measuring = source_of(exporter.service._role, Measuring)
        await exporter.until_page(lambda _: measuring.looked_up is not None and not measuring.looked_up[0].processes)
        assert evidence_of(exporter) is evidence
        nvml.world.pods = ()
        await exporter.until_page(lambda _: evidence_of(exporter) is NO_EVIDENCE)


# issue 24, part 4
async def test_the_environment_of_first_processes_counts_if_the_user_wants_it(node: SimulatedNode) -> None:
    uuids = [gpu.uuid for gpu in node.world.gpus]
    pod, other = a_pod("a", f"{uuids[0]}-4"), a_pod("b", uuids[1])
    node.world.pods = (pod, other)
    run_process(node, pod, pid=4242, environ=f"SECRET=1\0NVIDIA_VISIBLE_DEVICES={uuids[6]}\0CUDA_DEVICE_SM_LIMIT=45\0")
    run_process(node, other, pid=4343, environ="NVIDIA_VISIBLE_DEVICES=all\0")
    given = settings(node, root=str(node.root))
    async with running(config_of(**given)) as exporter:
        await exporter.page()
        assert evidence_of(exporter) is NO_EVIDENCE
    async with running(config_of(**given, allocators_environ="on")) as exporter:
        await exporter.page()
        wanted = {"a": [("the environment", [uuids[6]])]}
        assert shown(evidence_of(exporter)) == wanted
        ((_, (of_a,)),) = evidence_of(exporter).items()
        assert [(grant.allocator, grant.cores_percent) for grant in of_a.grants] == [("HAMi", 45)]
        source = source_of(exporter.service._role, Environs)
        assert "SECRET" not in str(source.environments)
        evidence, environments = evidence_of(exporter), source.environments
        await exporter.page()
        assert evidence_of(exporter) is evidence
        assert source.environments is environments, "nothing is missing, so nothing is read"
        # another pod: it is looked for at once, and until it is there again and again
        new = a_pod("c", f"{uuids[0]}-5")
        node.world.pods = (pod, new)
        await exporter.page()
        assert shown(evidence_of(exporter)) == wanted
        run_process(node, new, pid=4444, environ=f"NVIDIA_VISIBLE_DEVICES={uuids[3]}\0")
        await exporter.until_page(lambda _: "c" in shown(evidence_of(exporter)))
        assert shown(evidence_of(exporter)) == {**wanted, "c": [("the environment", [uuids[3]])]}
        node.world.pods = ()
        await exporter.page()
        assert evidence_of(exporter) is NO_EVIDENCE


async def test_a_pod_that_is_made_anew_does_not_have_the_environment_of_before(node: SimulatedNode) -> None:
    uuids = [gpu.uuid for gpu in node.world.gpus]
    pod = a_pod("a", f"{uuids[0]}-4")
    node.world.pods = (pod,)
    run_process(node, pod, pid=4242, environ=f"NVIDIA_VISIBLE_DEVICES={uuids[6]}\0")
    async with running(config_of(**settings(node, root=str(node.root)), allocators_environ="on")) as exporter:
        await exporter.page()
        assert shown(evidence_of(exporter))["a"]
        rmtree(node.root / "proc/4242")
        anew = replace(a_pod("a", f"{uuids[0]}-7"), uid=str(uuid5(NAMESPACE_OID, "anew")))
        node.world.pods = (anew,)
        await exporter.page()
        assert evidence_of(exporter) is NO_EVIDENCE
        run_process(node, anew, pid=4343, environ=f"NVIDIA_VISIBLE_DEVICES={uuids[2]}\0")
        await exporter.until_page(lambda _: shown(evidence_of(exporter)) == {"a": [("the environment", [uuids[2]])]})


# issue 24, part 4
@pytest.mark.parametrize("kind", [Hami, Volcano, Gpushare, AckGpushare])
async def test_the_checkpoint_is_right_of_every_container_as_pods_come_and_go(kind: type[SimulatedAllocator]) -> None:
    """Nobody says the pods' uids, and some pods are made anew under their names."""
    node = allocated_node(kind(), speed=200)
    node.has_device_checkpoint = True
    await node.start()
    seen: set[Owner] = set()
    index = {gpu.uuid: str(gpu.index) for gpu in node.world.gpus}
    try:
        async with running(config_of(**settings(node, resources=["nvidia.com/*", kind.resource]))) as exporter:
            for step in range(10):
                node.world.live()
                if step % 3 == 0:
                    node.world.remake(next(pod for pod in node.world.pods if pod.devices))
                really = given_to(node.world)
                await exporter.page()
                evidence = evidence_of(exporter)
                for (owner, _), (given,) in evidence.items():
                    names = [ref.uuid or ref.index for ref in given.refs]
                    if owner in really:
                        uuids = [part.uuid for part in really[owner]]
                        assert names in (uuids, [index[uuid] for uuid in uuids]), owner
                        seen.add(owner)
                assert really.keys() <= {owner for owner, _ in evidence}
                rows = json.loads((await exporter.get("/container/metrics"))[1])
                assert {
                    (
                        row["namespace"],
                        row["pod"],
                        row["container"],
                        row["device_uuid"],
                        row.get("requested_memory_mib"),
                    )
                    for row in rows
                    if row["pod"]
                } == {
                    (owner.namespace, owner.pod, owner.container, part.uuid, part.memory_mib)
                    for owner, parts in really.items()
                    for part in parts
                }
    finally:
        await node.stop()
    assert len(seen) > 10
