"""A shared GPU, 85 % busy and with 28 GiB in use, of which NVML says less than that.

On every output what is known is right, and what is not is null: no container is idle because nobody sees its processes.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from aiohttp import web

from exporter.model.devices import Claim
from exporter.simulator.pods_api import container_id
from exporter.sources.nvml import nvml_source
from tests.node.test_measuring import own
from tests.support.cluster_role import ClusterRole, running_cluster
from tests.support.components import real
from tests.support.exporter import Exporter, config_of, running
from tests.support.nvml import loads, until_nobody_uses_it
from tests.support.rows import rows_of
from tests.support.simulated import (
    DRA_DRIVER,
    DRA_POOL,
    GPU_RESOURCE,
    SHARED_RESOURCE,
    Container,
    Pod,
    SimulatedNode,
    World,
)
from tests.support.waiting import until
from tests.top.test_once import top_here

GIB, MIB = 2**30, 2**20
PERCENT, USED_MIB, FREE_MIB, WATTS = 85, 28 * 1024, 52 * 1024, 312.5
WHOLE = {"gpu_utilization": PERCENT, "framebuffer_used": USED_MIB, "framebuffer_free": FREE_MIB, "power_usage": WATTS}
UID = "0f5b2c31-7d0e-4a52-9c7e-5d1f0a9b8c{:02d}".format
INIT, KERNEL_THREAD, SERVER, MISSING = 1, 7, 900, 999_999
FAMILIES = {
    "memory_used_bytes": "pod_gpu_memory_used_bytes",
    "utilization_ratio": "pod_gpu_utilization_ratio",
    "processes": "pod_gpu_processes",
}
NOT_SUPPORTED = 3
# one claim, of a GPU that the driver has MPS share out
CLAIM = Claim(
    namespace="ml",
    name="gpu",
    driver=DRA_DRIVER,
    pool=DRA_POOL,
    device="gpu-0",
    cdi_names=(f"k8s.{DRA_DRIVER}/claim={UID(7)}-gpu-0",),
)

Pids = Mapping[str, int]
Known = Mapping[str, float]
NOTHING: Known = {}


def process(pid: int, memory: int, lists: str = "c", gpu: int = 0) -> list[str]:
    return [f"process {gpu} -1 -1 {pid} {one} {memory}" for one in lists]


def sample(pid: int, percent: int, gpu: int = 0) -> list[str]:
    return [f"sample {gpu} {pid} {time.monotonic_ns() // 1000} {percent}"]


def unlike(call: str) -> list[str]:
    return [f"fail {call} {NOT_SUPPORTED} -1"]


def both(pids: Pids, lists: str = "c") -> list[str]:
    return [
        *process(pids["a"], 15 * GIB, lists),
        *sample(pids["a"], 60),
        *process(pids["b"], 12 * GIB, lists),
        *sample(pids["b"], 20),
    ]


def use(gib: float | None, ratio: float | None, processes: int = 1) -> Known:
    memory = None if gib is None else int(gib * GIB)
    known = {"memory_used_bytes": memory, "utilization_ratio": ratio, "processes": processes}
    return {name: value for name, value in known.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Mode:
    """What NVML says, and what is to be known of the pods a and b; `why` it is not more. `idle` is a pod that is."""

    name: str
    says: Callable[[Pids], list[str]]
    a: Known
    b: Known
    why: str = ""
    nobodys: Known = field(default_factory=dict)
    idle: str = ""

    @property
    def of_pods(self) -> Mapping[str, Known]:
        return {"a": self.a, "b": self.b}

    def knows(self, name: str) -> bool:
        return name in self.a and name in self.b


UNLISTED = "memory is in use on "
UNRUN = "and NVML does not say which process runs them"
MODES = (
    Mode(name="lists both", says=both, a=use(15, 0.6), b=use(12, 0.2)),
    Mode(
        name="lists one that is idle",
        says=lambda pids: [*process(pids["a"], 15 * GIB), *sample(pids["a"], 80), *process(pids["b"], 12 * GIB)],
        a=use(15, 0.8),
        b=use(12, 0.0),
        idle="b",
    ),
    # 1
    Mode(name="lists nothing", says=lambda _: [], a=NOTHING, b=NOTHING, why=UNLISTED),
    Mode(
        name="lists nothing, and not how much memory is in use",
        says=lambda _: [*unlike("nvmlDeviceGetMemoryInfo_v2"), *unlike("nvmlDeviceGetMemoryInfo")],
        a=NOTHING,
        b=NOTHING,
        why=UNRUN,
    ),
    Mode(
        name="says nothing at all",
        says=lambda _: [
            *unlike("nvmlDeviceGetMemoryInfo_v2"),
            *unlike("nvmlDeviceGetMemoryInfo"),
            *unlike("nvmlDeviceGetUtilizationRates"),
        ],
        a=NOTHING,
        b=NOTHING,
        why="and says neither how much memory is in use nor how busy it is",
    ),
    # 2
    Mode(
        name="lists pids of another namespace, which are others here",
        says=lambda _: [*process(INIT, 15 * GIB), *sample(INIT, 60), *process(KERNEL_THREAD, 12 * GIB)],
        a=NOTHING,
        b=NOTHING,
        why=UNLISTED,
    ),
    Mode(
        name="lists pids of another namespace, which are nobody's here",
        says=lambda _: [*process(MISSING, 15 * GIB), *sample(MISSING, 60), *process(MISSING + 1, 12 * GIB)],
        a=NOTHING,
        b=NOTHING,
        why=UNLISTED,
    ),
    # 3
    Mode(
        name="lists half",
        says=lambda pids: [*process(pids["a"], 14 * GIB), *sample(pids["a"], 60)],
        a=use(14, 0.6),
        b=NOTHING,
        why=UNLISTED,
    ),
    # 4
    Mode(
        name="MPS: server and clients",
        says=lambda pids: [*process(SERVER, 30 * MIB), *both(pids, "cm")],
        a=use(15, 0.6),
        b=use(12, 0.2),
        nobodys={"memory_used_bytes": 30 * MIB, "utilization_ratio": 0.0, "processes": 0},
    ),
    Mode(
        name="MPS: the server has the clients' time",
        says=lambda pids: [
            *process(SERVER, 30 * MIB),
            *sample(SERVER, 80),
            *process(pids["a"], 15 * GIB, "m"),
            *process(pids["b"], 12 * GIB, "m"),
        ],
        a=use(15, None),
        b=use(12, None),
        why=UNRUN,
        nobodys={"memory_used_bytes": 30 * MIB, "processes": 0},
    ),
    Mode(
        name="MPS before Volta: the server alone",
        says=lambda _: [*process(SERVER, 27 * GIB), *sample(SERVER, 80)],
        a=NOTHING,
        b=NOTHING,
        why=UNLISTED,
        nobodys={"memory_used_bytes": 27 * GIB, "processes": 0},
    ),
    # 5
    Mode(
        name="memory not available",
        says=lambda pids: (
            [line for line in both(pids) if "process" not in line] + [*process(pids["a"], -1), *process(pids["b"], -1)]
        ),
        a=use(None, 0.6),
        b=use(None, 0.2),
        why="NVML does not say how much memory the processes on ",
    ),
    # 6
    Mode(
        name="utilisation not supported",
        says=lambda pids: [*both(pids), *unlike("nvmlDeviceGetProcessUtilization")],
        a=use(15, None),
        b=use(12, None),
        why="NVML does not say for how long kernels of the processes on ",
    ),
)

# --sharing splits only what is not measured, so one case of each kind is enough
WITH_SPLIT = {"lists both", "lists one that is idle", "lists nothing", "lists half", "memory not available"}


class BusyGpus:
    """GPUs that the pods a and b of one workload hold, in shares or whole; NVML says of them what `mode` wants."""

    def __init__(self, node: SimulatedNode, mode: Mode) -> None:
        self.node, self.mode = node, mode
        daemon = Pod(namespace="gpu-operator", name="mps-control-daemon", containers=(Container(name="c"),), uid=UID(9))
        node.world.pods = (*(self._pod(number, name) for number, name in enumerate("ab")), daemon)
        values = {"GPU_UTIL": PERCENT, "FB_USED": USED_MIB, "FB_FREE": FREE_MIB, "POWER_USAGE": WATTS}
        page = "".join(
            f'DCGM_FI_DEV_{name}{{gpu="{gpu.index}",UUID="{gpu.uuid}",modelName="H100"}} {value}\n'
            for name, value in values.items()
            for gpu in node.world.gpus
        )
        # pages differ, as real ones do: one that stays the same is older than a holder whom the exporter met after it
        numbers = count()
        node.dcgm.failure = lambda _: web.Response(text=f"{page}pages_total {next(numbers)}\n")
        node.write_processes()
        proc = node.root / "proc"
        commands = {int(file.parent.name): file.read_bytes() for file in proc.glob("[0-9]*/cmdline")}
        self._pids = {name: pid for pid, line in commands.items() for name in "ab" if f"--pod={name}".encode() in line}
        slice_of = f"kubepods-pod{daemon.uid.replace('-', '_')}.slice"
        container = container_id(daemon, "c").removeprefix("containerd://")
        self._put(SERVER, "nvidia-cuda-mps", f"/kubepods.slice/{slice_of}/cri-containerd-{container}.scope")
        self._put(INIT, "systemd", "/init.scope")
        self._put(KERNEL_THREAD, "kworker/0:1", "/", flags=0x0420_8060)

    def _pod(self, number: int, name: str) -> Pod:
        gpus = self.node.world.gpus
        if gpus[0].claimed:
            container = Container(name="main", claims=(CLAIM,))
        elif gpus[0].shared:
            container = Container(name="main", devices=((SHARED_RESOURCE, f"{gpus[0].uuid}::{number}"),))
        else:
            container = Container(name="main", devices=((GPU_RESOURCE, gpus[number].uuid),))
        owner = ("StatefulSet", "trainer")
        return Pod(namespace="ml", name=name, containers=(container,), uid=UID(number), owner=owner)

    def _put(self, pid: int, name: str, cgroup: str, flags: int = 0) -> None:
        folder = self.node.root / "proc" / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "cgroup").write_text(f"0::{cgroup}\n")
        zeros = " ".join("0" * 12)
        (folder / "stat").write_text(f"{pid} ({name}) S 1 {pid} {pid} 0 -1 {flags} {zeros} 1 0 0\n")

    async def work(self) -> None:
        """Have NVML take samples."""
        while True:
            gpus = self.node.world.gpus
            busy = [f"value {gpu.index} nvmlDeviceGetUtilizationRates {of} {PERCENT}" for gpu in gpus for of in (0, 1)]
            memory = [f"memory {gpu.index} -1 {80 * GIB} 0 {28 * GIB}" for gpu in gpus]
            self.node.nvml.write(gpus, [*memory, *busy, *self.mode.says(self._pids)], is_recut=False)
            await asyncio.sleep(0.2)


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> AsyncIterator[SimulatedNode]:
    """One GPU in shares, or the GPUs that the test wants."""
    simulated = SimulatedNode(World(seed=7, **getattr(request, "param", {"gpus": 1, "shared": 1})))
    real("gcc")
    assert simulated.nvml.build()
    loads(monkeypatch, simulated.nvml)
    monkeypatch.setattr(nvml_source, "AGAIN_SECONDS", 0.3)
    await simulated.start()
    yield simulated
    await until_nobody_uses_it()
    await simulated.stop()


@asynccontextmanager
async def exporter_of(gpus: BusyGpus, sharing: str) -> AsyncIterator[Exporter]:
    node, working = gpus.node, asyncio.create_task(gpus.work())
    config = config_of(
        kubelet_socket=str(node.socket),
        kubelet_pods_socket=str(node.pods_socket),
        dcgm_url=node.url,
        root=str(node.root),
        nvml_mode="on",
        sharing=sharing,
        accounting_interval="300ms",
    )
    try:
        async with running(config) as exporter:
            yield exporter
    finally:
        working.cancel()


async def shown(base: str) -> Any:
    """What `top` shows, as JSON."""
    return json.loads(await asyncio.to_thread(top_here, "--json", "--url", base))


async def comes_true(check: Callable[[], Awaitable[None]]) -> None:
    """Check until it is so: a machine that is late has NVML's samples late, too."""
    wrong: list[AssertionError] = []

    async def is_so() -> bool:
        try:
            await check()
        except AssertionError as error:
            wrong[:] = [error]
            return False
        return True

    await until(is_so, why=lambda: wrong)


def rounded(uses: Mapping[str, Any]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in uses.items()}


class Look:
    """What the exporter's outputs say of the two pods. Whatever is asked, and when: nothing is 0 by ignorance."""

    def __init__(self, exporter: Exporter, mode: Mode) -> None:
        self._exporter, self._mode = exporter, mode

    async def objects(self) -> dict[str, dict[str, Any]]:
        _, text = await self._exporter.get("/container/metrics")
        rows = {row["pod"]: row for row in json.loads(text)}
        for pod, known in self._mode.of_pods.items():
            row = rows.get(pod, {})
            zeros = {name for name, value in row.get("measured", {}).items() if not value}
            assert zeros <= {name for name, value in known.items() if not value}, row
            if pod != self._mode.idle:
                assert row.get("state") != "idle", row
        return rows

    async def families(self) -> dict[str, dict[str, float]]:
        """By pod ("" for nobody) what its families say of its use, under the names of JSON."""
        _, text = await self._exporter.get("/metrics")
        found: dict[str, dict[str, float]] = {}
        for name, family in FAMILIES.items():
            for labels, value in own(text, family):
                assert "holds" not in labels, "there is no stranger"
                found.setdefault(labels["pod"], {})[name] = value
        for labels, seconds in own(text, "pod_gpu_idle_seconds_total"):
            assert not seconds or labels["pod"] == self._mode.idle, "no container is idle, so no alert fires"
        return found

    async def why_not(self) -> str:
        unmeasured = (await self._mapping())["unmeasured"]
        return unmeasured["message"] if unmeasured else ""

    async def servers(self) -> list[str]:
        """The containers of MPS' servers."""
        of_nobody = (await self._mapping())["processes_of_nobody"] or {"processes": []}
        return [each["owner"] for each in of_nobody["processes"] if each["reason"] == "mps_server"]

    async def _mapping(self) -> Any:
        return json.loads((await self._exporter.get("/debug/mapping"))[1])


# issue 18, line 5
@pytest.mark.parametrize(
    ("mode", "sharing"),
    [
        *((mode, "copy") for mode in MODES),
        *((mode, "split") for mode in MODES if mode.name in WITH_SPLIT),
    ],
    ids=lambda of: getattr(of, "name", of),
)
async def test_what_nvml_says_is_right_on_every_output_and_the_rest_is_null(
    node: SimulatedNode, mode: Mode, sharing: str
) -> None:
    await says_what_is_known(node, mode, sharing)


# issue 18, line 5
@pytest.mark.parametrize("node", [{"gpus": 1, "claims": 1}], indirect=True)
@pytest.mark.parametrize("mode", [mode for mode in MODES if "MPS" in mode.name], ids=lambda mode: mode.name)
async def test_clients_of_mps_by_claim_have_their_own_use(node: SimulatedNode, mode: Mode) -> None:
    await says_what_is_known(node, mode, "copy")


async def says_what_is_known(node: SimulatedNode, mode: Mode, sharing: str) -> None:
    """On every output."""
    async with exporter_of(BusyGpus(node, mode), sharing) as exporter:
        look = Look(exporter, mode)

        async def measured_as_known() -> None:
            rows, families = await look.objects(), await look.families()
            assert {pod: rounded(rows[pod].get("measured", {})) for pod in "ab"} == mode.of_pods
            assert {pod: rounded(families.get(pod, {})) for pod in "ab"} == mode.of_pods
            assert rounded(families.get("", {})).items() >= mode.nobodys.items()
            why = await look.why_not()
            assert bool(why) is bool(mode.why)
            assert mode.why in why
            assert await look.servers() == (["gpu-operator/mps-control-daemon/c"] if "MPS" in mode.name else [])

        await comes_true(measured_as_known)

        async def rows_follow() -> None:
            page = rows_of(await exporter.page())
            (used,), (busy,) = page["DCGM_FI_DEV_FB_USED"].values(), page["DCGM_FI_DEV_GPU_UTIL"].values()
            of_pods = {pod: (float(used[pod, "main"]), float(busy[pod, "main"])) for pod in "ab"}
            for pod, (mib, percent) in of_pods.items():
                known = mode.of_pods[pod]
                whole_mib = USED_MIB / 2 if sharing == "split" else USED_MIB
                assert mib == (known["memory_used_bytes"] / MIB if mode.knows("memory_used_bytes") else whole_mib)
                assert percent == (known["utilization_ratio"] * 100 if mode.knows("utilization_ratio") else PERCENT)
            if mode.knows("memory_used_bytes"):
                assert sum(used.values()) == USED_MIB
            objects = await look.objects()
            assert all(objects[pod]["whole_device"] == WHOLE and "used_by" not in objects[pod] for pod in "ab")
            assert {pod: objects[pod]["state"] for pod in "ab"} == {
                pod: "idle" if pod == mode.idle else "used" for pod in "ab"
            }

        await comes_true(rows_follow)

        async def people_see_it() -> None:
            _, page = await exporter.get("/")
            # in the line of the GPU, whose holders have their own alone (issue 22, line 30)
            assert [page.count(f'"value">{words}<') for words in ("85 %", "28.0/80.0 GiB", "313 W")] == [1, 1, 1]
            assert "does not hold" not in page
            assert page.count("held but idle</span>") == (1 if mode.idle else 0)
            (device,) = (await shown(exporter.base))["devices"]
            assert (device["utilization_percent"], device["memory_used_mib"], device["power_watts"]) == (
                PERCENT,
                USED_MIB,
                WATTS,
            )
            for owner in device["owners"]:
                known = mode.of_pods[owner["pod"]]
                ratio = known.get("utilization_ratio")
                assert owner["utilization_percent"] == (None if ratio is None else pytest.approx(ratio * 100))
                memory = known.get("memory_used_bytes")
                assert owner["memory_used_mib"] == (None if memory is None else memory / MIB)

        await comes_true(people_see_it)
        if mode.idle:

            async def idle_is_counted() -> None:
                _, text = await exporter.get("/metrics")
                idle = {labels["pod"]: seconds for labels, seconds in own(text, "pod_gpu_idle_seconds_total")}
                assert idle["b"] > 1
                assert not idle["a"]

            await comes_true(idle_is_counted)
        async with running_cluster({"cluster.node": [f"gpu-node-1={exporter.base}"]}) as role:
            await comes_true(lambda: autoscalers_get_what_is_known(role, mode))


async def autoscalers_get_what_is_known(role: ClusterRole, mode: Mode) -> None:
    """A number where each pod's part is known, else an error: no autoscaler gets a 0 of ignorance."""
    sums: dict[str, float | None] = {family: together(mode, name) for name, family in FAMILIES.items()}
    ratio, memory = together(mode, "utilization_ratio"), together(mode, "memory_used_bytes")
    sums |= {"gpu_utilization": None if ratio is None else ratio * 100}
    sums |= {"framebuffer_used": None if memory is None else memory / MIB}
    for metric, value in sums.items():
        status, text = await role.get(f"/autoscale/ml/trainer/{metric}")
        if value is None:
            assert status in (409, 503), (metric, text)
            assert "value" not in json.loads(text)
        else:
            assert status == 200, (metric, text)
            assert json.loads(text)["value"] == pytest.approx(value)
    _, page = await role.get("/")
    assert all(f'"value">{words}<' in page for words in ("85 %", "28.0/80.0 GiB", "313 W"))


def together(mode: Mode, name: str) -> float | None:
    return sum(known[name] for known in mode.of_pods.values()) if mode.knows(name) else None


# issue 18, line 5
async def test_an_exporter_without_the_hosts_pids_measures_nothing_and_says_why(node: SimulatedNode) -> None:
    """Then the driver's pids are those of the exporter's own namespace, or none."""
    mode = Mode(name="no hostPID", says=lambda _: [*process(INIT, 15 * GIB)], a=NOTHING, b=NOTHING)
    gpus = BusyGpus(node, mode)
    (node.root / "proc/1/cgroup").unlink()
    async with exporter_of(gpus, "copy") as exporter:
        look = Look(exporter, mode)

        async def says_why() -> None:
            assert "does not show the processes of the host" in await look.why_not()
            rows = await look.objects()
            assert {rows[pod]["state"] for pod in "ab"} == {"used"}
            assert await look.families() == {}

        await comes_true(says_why)


# issue 18, line 5
@pytest.mark.parametrize("node", [{"gpus": 2}], indirect=True)
async def test_who_holds_a_whole_gpu_is_not_idle_by_ignorance_either(node: SimulatedNode) -> None:
    mode = Mode(
        name="lists only what runs on the other GPU",
        says=lambda pids: [*process(pids["b"], 27 * GIB, gpu=1), *sample(pids["b"], 80, gpu=1)],
        a=NOTHING,
        b=use(27, 0.8),
        why=UNLISTED,
    )
    async with exporter_of(BusyGpus(node, mode), "copy") as exporter:
        look = Look(exporter, mode)

        async def only_the_other_is_measured() -> None:
            rows, families = await look.objects(), await look.families()
            assert {pod: rounded(rows[pod].get("measured", {})) for pod in "ab"} == mode.of_pods
            assert {pod: rounded(families.get(pod, {})) for pod in "ab"} == mode.of_pods
            assert {rows[pod]["state"] for pod in "ab"} == {"used"}
            assert mode.why in await look.why_not()
            devices = (await shown(exporter.base))["devices"]
            # issue 22, line 13: what the state is made of is measured of b
            by_pod = {device["owners"][0]["pod"]: device for device in devices}
            assert {pod: device["utilization_percent"] for pod, device in by_pod.items()} == {"a": PERCENT, "b": 80}
            assert {device["memory_used_mib"] for device in devices} == {USED_MIB}

        await comes_true(only_the_other_is_measured)
