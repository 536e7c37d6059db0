"""The exporter as a process, with the probe on, in front of a simulated node and of real programs in containers."""

import asyncio
import json
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from exporter.model.cuda import CudaCounts, CudaUse
from exporter.outputs.cuda_use import as_object
from exporter.simulator.pods_api import container_id
from tests.cuda.containers import LIBRARIES, Driver, Runtime, cgroup_of, container, uid
from tests.cuda.needs import root
from tests.cuda.probing import NarrowProc, probing
from tests.cuda.programs import Program, built
from tests.support.components import real
from tests.support.simulated import Container, Pod, SimulatedNode, World
from tests.support.waiting import PATIENCE_SECONDS, until

# as in a DaemonSet: the node's /var/log, in the mount namespace of the exporter
BELOW_ROOT = ("sh", "-ec", 'mount --bind "$1/var/log" /var/log; shift; exec "$@"', "below")
WITHOUT_CAPABILITIES = ("setpriv", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all")
# times differ from clock to clock; how often it was synchronised before the probe was there nobody knows
INEXACT = ("sync_seconds", "active_seconds", "synchronizations")

# the last that it does, and what it leaves allocated
LAST = r'^pod_gpu_cuda_allocation_failures_total{.*pod="\w.*} 1'
LEFT = 700
WORK = """
    device {0}; launch 1 7 1 1 32 2 1 3000000; repeat 11; launch 0 1 2 3 64 1 1 1000; end;
    malloc {0}1 5000; malloc {0}2 700; free {0}1; copy 1 4096; copyasync 2 33 1; sync 0; devicesync; graph 0 0; sync 0;
    launch 0 1 1 1 1 1 1 -719; malloc {0}3 2000000000000
"""


@dataclass
class Running:
    """A running exporter, and what it has logged."""

    process: asyncio.subprocess.Process
    session: aiohttp.ClientSession
    base: str
    log: list[str]

    async def get(self, path: str) -> str:
        async with self.session.get(self.base + path) as response:
            assert response.status == 200
            return await response.text()

    async def until(self, pattern: str, times: int = 1) -> str:
        """The page of its own metrics, once it has this."""
        page = ""

        async def has_it() -> bool:
            nonlocal page
            page = await self.get("/metrics")
            return len(re.findall(pattern, page, re.MULTILINE)) >= times

        await until(has_it, why=lambda: page)
        return page

    async def end(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await self.process.wait() == (0 if number == signal.SIGTERM else -number)


def places_of(node: SimulatedNode) -> list[str]:
    return [f"--kubelet.socket={node.socket}", f"--dcgm.url={node.url}", f"--inventory.file={node.inventory_file}"]


@asynccontextmanager
async def serving(node: SimulatedNode, *before: str | Path, mode: str = "--probe.mode=on") -> AsyncIterator[Running]:
    """The exporter with the probe on; `before` is what starts it, and `mode` may name a file of settings."""
    unshare: list[str | Path] = [real("unshare"), "--mount", "--propagation", "private", "--", *BELOW_ROOT, node.root]
    serve = [sys.executable, "-m", "exporter", "serve", mode, "--probe.interval=1s", "--nvml.mode=off"]
    process = await asyncio.create_subprocess_exec(
        *unshare, *before, *serve, *places_of(node), "--web.listen-address=127.0.0.1:0", stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr
    log: list[str] = []
    stderr = process.stderr

    async def read() -> None:
        while line := await stderr.readline():
            log.append(line.decode())

    reading = asyncio.create_task(read())
    try:
        (address,) = await until(lambda: re.findall(r"address=(\S+)", "".join(log)))
        async with aiohttp.ClientSession() as session:
            yield Running(process, session, f"http://{address}", log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await reading


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    """Three pods with GPUs: the first one has two."""
    simulated = SimulatedNode(World(gpus=4, seed=3))
    uuids = [gpu.uuid for gpu in simulated.world.gpus]
    simulated.world.pods = tuple(
        Pod(namespace="ml", name=name, uid=uid(number), containers=(Container(name="main", devices=devices),))
        for number, (name, held) in enumerate({"train": (0, 2), "serve": (1,), "lab": (3,)}.items())
        for devices in [tuple(("nvidia.com/gpu", uuids[index]) for index in held)]
    )
    await simulated.start()
    yield simulated
    await simulated.stop()


def placed(stack: ExitStack, folder: Path, pod: Pod, runtime: Runtime, driver: Driver, **environment: str) -> Program:
    """A program in the container of a pod, which works on each of its GPUs."""
    root = folder / pod.name
    root.mkdir()
    name = container_id(pod, "main").removeprefix("containerd://")
    made = stack.enter_context(container(root, cgroup_of(pod.uid, name, runtime, driver), built().over_driver))
    work = [WORK.format(ordinal) for ordinal, _ in enumerate(pod.devices)]
    script = f"knock; {'; '.join(work)}"
    return stack.enter_context(Program(script, before=made.before, libraries=LIBRARIES, environment=environment))


def labels_in(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.replace('"', "").split(","))


def uses_in(page: str) -> dict[tuple[str, str], dict[str, Any]]:
    """By pod and UUID, the families pod_gpu_cuda_* as `as_object` has them."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for family, text, number in re.findall(r"^pod_gpu_cuda_(\w+){(.*)} (\S+)$", page, re.MULTILINE):
        labels, name = labels_in(text), family.removesuffix("_total")
        of_row = found.setdefault((labels["pod"], labels["UUID"]), {"errors": {}})
        by = labels.get("direction") or labels.get("code")
        of_name = of_row.setdefault(name, {}) if by else of_row
        of_name[by or name] = float(number)
    return found


def same_but_times(seen: Mapping[str, Any], did: CudaCounts) -> None:
    wanted = as_object(CudaUse(counts=did, processes=1))
    assert seen.keys() == wanted.keys()
    exact = wanted.keys() - set(INEXACT)
    assert {name: seen[name] for name in exact} == {name: wanted[name] for name in exact}


def same(seen: Mapping[str, Any], did: CudaCounts) -> None:
    same_but_times(seen, did)
    wanted = as_object(CudaUse(counts=did, processes=1))
    # a program that waits for a CPU inside a call seems to wait for its GPU
    assert 0.8 * wanted["active_seconds"] - 0.01 < seen["active_seconds"] < 1.2 * wanted["active_seconds"] + 0.25


@pytest.fixture
def may_probe(tmp_path: Path) -> None:
    with probing(NarrowProc(tmp_path).folder):
        pass


# issue 13, "Must show" 4
async def test_what_programs_ask_is_told_of_their_pods(node: SimulatedNode, tmp_path: Path, may_probe: None) -> None:
    train, serve, lab = node.world.pods
    uuids = [gpu.uuid for gpu in node.world.gpus]
    with ExitStack() as stack:
        programs = [
            # it numbers its GPUs the other way round
            placed(stack, tmp_path, train, "containerd", "systemd", CUDA_VISIBLE_DEVICES="1,0"),
            placed(stack, tmp_path, serve, "crio", "cgroupfs"),
            placed(stack, tmp_path, lab, "containerd", "cgroupfs"),
        ]
        async with serving(node) as exporter:
            for program in programs:
                program.go()
            # each is probed from its next call on
            await exporter.until(r'^pod_gpu_cuda_synchronizations_total{.*pod="\w.*} [1-9]', times=3)
            truths = [program.done().counts for program in programs]
            page = await exporter.until(LAST, times=4)
            did = {
                ("train", uuids[2]): truths[0][0],
                ("train", uuids[0]): truths[0][1],
                ("serve", uuids[1]): truths[1][0],
                ("lab", uuids[3]): truths[2][0],
            }
            uses = {key: use for key, use in uses_in(page).items() if key[0]}
            of_json = {
                (told["pod"], told["device_uuid"]): told["cuda"]
                for told in json.loads(await exporter.get("/container/metrics"))
            }
            assert uses.keys() == of_json.keys() == did.keys()
            for key, counts in did.items():
                same(uses[key], counts)
                same(of_json[key], counts)

            programs[2].end()
            page = await exporter.until(rf"^pod_gpu_cuda_memory_released_at_exit_bytes_total{{.*}} {LEFT}$")
            ended = uses_in(page)["lab", uuids[3]]
            assert (ended["memory_allocated_bytes"], ended["processes"], ended["kernel_launches"]) == (0, 0, 13)
            await exporter.end()
    assert not [line for line in exporter.log if "level=warning" in line or "level=error" in line]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_programs_run_as_fast_as_before_once_the_exporter_has_ended(
    node: SimulatedNode, tmp_path: Path, may_probe: None, number: int
) -> None:
    # a library of its own; who else probes all of the machine leaves it with its last user
    copied = Path(shutil.copytree(built().own, tmp_path / "own"))
    async with serving(node) as exporter:
        with Program("knock; spin 50000", libraries=copied) as program:
            program.go()
            # outside of pods
            await exporter.until(r'^pod_gpu_cuda_synchronizations_total{.*pod="".*} [1-9]')
            slow = program.done().spin_ns
            await exporter.end(number)
    await until(lambda: spin(copied) <= 0.3 * slow)


def spin(libraries: Path) -> float:
    with Program("spin 50000", libraries=libraries) as program:
        return program.done().spin_ns


# issue 13, "Must show" 8
async def test_where_bpf_is_not_permitted_the_probe_says_so_in_one_line(node: SimulatedNode) -> None:
    root()
    real("setpriv")
    async with serving(node, *WITHOUT_CAPABILITIES) as exporter:
        page = await exporter.until(r'source_up{source="probe"} 0')
        assert "pod_gpu_cuda_" not in page
        (line,) = [line for line in exporter.log if "source=probe" in line]
        assert "level=warning" in line
        assert "the capabilities BPF, PERFMON" in line
        for pod in node.world.pods:
            assert f'pod="{pod.name}"' in await exporter.get("/gpu/metrics")
        await exporter.end()
    doctor = [*WITHOUT_CAPABILITIES, sys.executable, "-m", "exporter", "doctor", "--probe.mode=on", *places_of(node)]
    asked = await asyncio.create_subprocess_exec(*doctor, stdout=asyncio.subprocess.PIPE)
    said = (await asked.communicate())[0].decode().splitlines()
    (line,) = [line for line in said if line.startswith("warning") and "probe" in line]
    assert line.startswith("warning  probe: the CUDA probe is not permitted here (")
