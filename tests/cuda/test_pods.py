"""Real programs in containers' cgroups, the real probe, and the exporter's own pages: whose calls they are."""

import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from exporter.probe import probe_source
from exporter.simulator.parts import Pod
from exporter.simulator.pods_api import container_id
from tests.cuda.containers import LIBRARIES, Container, Runtime, cgroup_of, container
from tests.cuda.probing import NarrowProc, probing
from tests.cuda.programs import Program
from tests.support.exporter import config_of, running
from tests.support.simulated import SimulatedNode, World

RUNTIMES: tuple[Runtime, ...] = ("containerd", "crio")


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimulatedNode]:
    monkeypatch.setattr(probe_source, "TURN_SECONDS", 0.2)
    simulated = SimulatedNode(World(gpus=8, seed=3))
    await simulated.start()
    yield simulated
    await simulated.stop()


def with_one_gpu(node: SimulatedNode) -> list[tuple[Pod, str, str]]:
    """Pods with a container that holds one whole GPU: its name, and the GPU's UUID."""
    uuids = {gpu.uuid for gpu in node.world.gpus}
    return [
        (pod, each.name, each.devices[0][1])
        for pod in node.world.listed
        for each in pod.containers
        if len(each.devices) == 1 and each.devices[0][1] in uuids
    ]


Rows = dict[tuple[str, str, str], float]  # by namespace, pod and UUID


def rows_of(family: str, metrics: str) -> Rows:
    found = re.findall(rf"^{family}{{(.*)}} (\S+)$", metrics, re.MULTILINE)
    labels = [(dict(re.findall(r'(\w+)="([^"]*)"', text)), float(value)) for text, value in found]
    return {(of["namespace"], of["pod"], of["UUID"]): value for of, value in labels}


def launches(metrics: str) -> Rows:
    return rows_of("pod_gpu_cuda_kernel_launches_total", metrics)


def released(metrics: str) -> Rows:
    return rows_of("pod_gpu_cuda_memory_released_at_exit_bytes_total", metrics)


# issue 13, "Must show" 4
async def test_programs_in_containers_count_for_their_pods_and_gpus(node: SimulatedNode, tmp_path: Path) -> None:
    with probing(Path("/proc")):
        pass  # where the machine lets it
    narrow = NarrowProc(tmp_path)
    shutil.rmtree(node.root / "proc")
    (node.root / "proc").symlink_to(narrow.folder)
    (one, one_name, gpu), (two, two_name, other), *_ = with_one_gpu(node)
    with ExitStack() as stack:

        def started(pod: Pod, name: str, runtime: Runtime) -> Container:
            id_ = container_id(pod, name).removeprefix("containerd://")
            root = tmp_path / runtime
            root.mkdir()
            return stack.enter_context(container(root, cgroup_of(pod.uid, id_, runtime)))

        places = [started(one, one_name, "containerd"), started(two, two_name, "crio")]
        programs = [
            stack.enter_context(Program(script, before=place.before, libraries=LIBRARIES))
            for place, script in zip(
                places, ("repeat 3; launch 0 1 1 1 1 1 1 0; end; malloc 0 4096", "launch 0 1 1 1 32 1 1 0"), strict=True
            )
        ]
        narrow.show(*(pid for place in places for pid in place.pids))
        config = config_of(
            kubelet_socket=str(node.socket),
            dcgm_url=node.url,
            root=str(node.root),
            inventory_file=str(node.inventory_file),
            probe_mode="on",
            probe_interval="500ms",
        )
        async with running(config) as exporter:
            # a library of each container's own, and the C library of both
            await exporter.until("/metrics", lambda page: "pod_gpu_exporter_probe_programs 3\n" in page)
            truths = [program.done() for program in programs]
            wanted = {
                (one.namespace, one.name, gpu): float(truths[0].counts[0].launches),
                (two.namespace, two.name, other): float(truths[1].counts[0].launches),
            }
            await exporter.until("/metrics", lambda page: launches(page) == wanted)
            for program in programs:
                program.end()
            left = {of: 4096.0 if of[1] == one.name else 0.0 for of in wanted}
            page = await exporter.until("/metrics", lambda page: released(page) == left)
            assert launches(page) == wanted
            devices = json.loads((await exporter.get("/container/metrics"))[1])
    of_one = next(of["cuda"] for of in devices if of["pod"] == one.name and of["device_uuid"] == gpu)
    assert (of_one["kernel_launches"], of_one["memory_released_at_exit_bytes"], of_one["processes"]) == (3, 4096, 0)
