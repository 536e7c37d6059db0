"""A node without dcgm-exporter (--dcgm.mode off): NVML's page in its place, and whoever reads it cannot tell."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from exporter.doctor import checkup
from exporter.model.pages import Page
from exporter.outputs.diagnosis import Level
from exporter.simulator.dcgm_pages import families_of
from exporter.simulator.parts import SHARED_RESOURCE, Container, Pod
from exporter.sources.nvml import library, nvml_reader, nvml_source
from exporter.sources.nvml.library import GPU_IS_LOST, NOT_SUPPORTED, UNINITIALIZED
from exporter.sources.pause import Pause
from tests.node.test_measuring_goes_on import reload
from tests.support.components import LINT, check, real
from tests.support.exporter import Exporter, config_of, running
from tests.support.nvml import loads, until_nobody_uses_it
from tests.support.rows import rows_of
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import PATIENCE_SECONDS, is_quick

SECOND = 1_000_000_000
AGAIN_SECONDS = 0.03
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
# What dcgm-exporter's page has and NVML's has not: it counts these by itself.
MISSING = re.compile(r"DCGM_EXP_\w+")
# between two readings, and DCGM's own two are others
RATE = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"


class Time:
    """The clock of a machine that a test moves."""

    def __init__(self) -> None:
        self.ns = 1_000 * SECOND

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def counters() -> str:
    return "full"


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch, clock: Time, counters: str) -> AsyncIterator[SimulatedNode]:
    """Four GPUs, one in shares and one cut, with dcgm-exporter 4.8.3 beside NVML; time stands still."""
    simulated = SimulatedNode(World(gpus=4, shared=1, mig=1, seed=7, clock=clock), generation="4.8", counters=counters)
    real("gcc")
    assert simulated.nvml.build()
    loads(monkeypatch, simulated.nvml)
    monkeypatch.setattr(nvml_source, "AGAIN_SECONDS", AGAIN_SECONDS)
    monkeypatch.setattr(nvml_source, "PAUSE", Pause(0.05, 0.1))
    monkeypatch.setattr(nvml_source, "LONGEST_PAUSE_SECONDS", 0.1)
    await simulated.start()
    yield simulated
    simulated.nvml.write(simulated.world.gpus)
    await until_nobody_uses_it()
    await simulated.stop()


def without(node: SimulatedNode, **more: str) -> dict[str, str]:
    return {"kubelet_socket": str(node.socket), "dcgm_mode": "off", "nvml_mode": "auto", **more}


def with_dcgm(node: SimulatedNode) -> dict[str, str]:
    return {
        "kubelet_socket": str(node.socket),
        "dcgm_url": node.url,
        "inventory": "file",
        "inventory_file": str(node.inventory_file),
    }


def samples(page: str) -> dict[tuple[str, str], float]:
    """The values of dcgm-exporter's families by name and by the text of the labels, which has an order."""
    found = re.findall(r"^(DCGM_\w+)\{(.*)\} (\S+)$", page, re.MULTILINE)
    return {(name, labels): float(value) for name, labels, value in found}


def types(page: str) -> set[str]:
    return set(re.findall(r"^# TYPE DCGM_.*$", page, re.MULTILINE))


def is_missing(name: str) -> bool:
    return bool(MISSING.fullmatch(name))


async def both(node: SimulatedNode, path: str) -> tuple[str, str]:
    """What an exporter with dcgm-exporter answers, and what one without."""
    answers = []
    for settings in (with_dcgm(node), without(node)):
        async with running(config_of(**settings)) as exporter:
            status, answer = await exporter.get(path)
            assert status == 200, answer
            answers.append(answer)
    return answers[0], answers[1]


# issue 10, "Must show" 5
@pytest.mark.parametrize("counters", ["default", "full"])
async def test_the_page_is_dcgm_exporters_as_far_as_nvml_knows(node: SimulatedNode, counters: str) -> None:
    ours_by_dcgm, ours = await both(node, "/gpu/metrics")
    of_dcgm, of_nvml = samples(ours_by_dcgm), samples(ours)
    assert {name for name, _ in of_dcgm} - {name for name, _ in of_nvml} == {
        name for name, _ in of_dcgm if is_missing(name)
    }
    known = {key: value for key, value in of_dcgm.items() if not is_missing(key[0])}
    assert known.keys() <= of_nvml.keys(), "the same labels in the same order"
    assert {key: of_nvml[key] for key in known if key[0] != RATE} == {
        key: value for key, value in known.items() if key[0] != RATE
    }
    assert {line for line in types(ours_by_dcgm) if not is_missing(line.split()[2])} <= types(ours)
    # with the default counters there is more than dcgm-exporter has, but never another name
    full = {family.name for family in families_of("4.8", "full")}
    assert {name for name, _ in of_nvml} <= full
    if counters == "full":
        assert of_nvml.keys() == known.keys()


# issue 10, "Must show" 5
async def test_promtool_is_content(node: SimulatedNode, promtool: Path) -> None:
    async with running(config_of(**without(node))) as exporter:
        code, complaints = check(promtool, (await exporter.page()).encode())
    names = re.compile(r"DCGM_\w+ (?:counter metrics should have|metric names should not|label names should)")
    assert code in (0, LINT), complaints
    others = [line for line in complaints if not names.match(line)]
    by_dcgm = check(promtool, node.dcgm.page().encode())[1]
    assert set(others) <= set(by_dcgm), "nothing that it would not say of dcgm-exporter's own page"


# issue 10, "Must show" 5
async def test_the_json_is_the_same_as_far_as_nvml_knows(node: SimulatedNode) -> None:
    of_dcgm, of_nvml = (json.loads(answer) for answer in await both(node, "/container/metrics"))
    assert len(of_nvml) == len(of_dcgm) >= 10
    known = 0
    for ours, theirs in zip(of_nvml, of_dcgm, strict=True):
        assert list(ours) == list(theirs)
        for field, value in ours.items():
            if value is not None and field not in ("timestamp", "read_at"):
                assert value == theirs[field], field
                known += 1
    assert known > 30 * (len(of_nvml) - 1)
    devices = [each for each in of_nvml if each["entity"] != "mig-parent"]
    assert all(each["graphics_engine_active"] is not None for each in devices), "from the first look on"
    assert any(each["pod"] and each["power_usage"] and each["framebuffer_used"] for each in of_nvml)


async def go_on(node: SimulatedNode, clock: Time, seconds: int) -> None:
    """Time passes on the machine, and enough of it here that NVML is asked again."""
    clock.ns += seconds * SECOND
    node.write_processes()
    await asyncio.sleep(2 * AGAIN_SECONDS)


async def test_a_scrape_brings_what_is_so_now(node: SimulatedNode, clock: Time) -> None:
    """And not what NVML said when somebody looked last, however long ago that was."""
    uuid = node.world.gpus[0].uuid
    async with running(config_of(**without(node))) as exporter:
        seen = []
        for _ in range(3):
            ((of, energy),) = rows_of(await exporter.page())[ENERGY][uuid].items()
            assert of != ("", "")
            assert energy == node.world.energy_mj(uuid)
            seen.append(energy)
            await go_on(node, clock, 60)
        assert seen == sorted(set(seen))


async def test_scrapes_at_one_time_share_a_reading(node: SimulatedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_source, "AGAIN_SECONDS", 60.0)
    made = []

    def make(**fields: Any) -> Page:
        made.append(Page(**fields))
        return made[-1]

    monkeypatch.setattr("exporter.sources.nvml.nvml_source.Page", make)
    async with running(config_of(**without(node))) as exporter:
        pages = await asyncio.gather(*(exporter.page() for _ in range(20)))
        await exporter.page()
    assert len({page.partition("# HELP pod_gpu_exporter")[0] for page in pages}) == 1
    assert len(made) == 1


def share_one_gpu(node: SimulatedNode) -> str:
    """Two pods have a share each of the GPU that is shared, and nobody else has any GPU. Returns its UUID."""
    uuid = next(gpu.uuid for gpu in node.world.gpus if gpu.shared)
    node.world.pods = tuple(
        Pod(
            namespace="ml",
            name=name,
            uid=f"uid-{name}",
            owner=("Deployment", "train-resnet"),
            containers=(Container(name="main", devices=((SHARED_RESOURCE, f"{uuid}::{number}"),)),),
        )
        for number, name in enumerate("ab")
    )
    node.write_processes()
    return uuid


# issue 10, "Must show" 5
async def test_energy_is_split_and_counted_without_dcgm(node: SimulatedNode, clock: Time) -> None:
    """Increases of the parts add up to the GPU's, and the accounts count by the owner."""
    uuid = share_one_gpu(node)
    async with running(config_of(**without(node, sharing="split", accounting_interval="50ms"))) as exporter:
        first = rows_of(await exporter.page())[ENERGY][uuid]
        assert set(first) == {("a", "main"), ("b", "main"), ("", "")}
        before = node.world.energy_mj(uuid)
        for _ in range(5):
            await go_on(node, clock, 7)
            last = rows_of(await exporter.page())[ENERGY][uuid]
        grown = {of: last[of] - first[of] for of in first}
        assert sum(grown.values()) == node.world.energy_mj(uuid) - before > 1_000_000
        assert grown["a", "main"] > 0 < grown["b", "main"]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (joules := energies(await accounts(exporter), uuid)) or not all(joules.values()):
                await go_on(node, clock, 1)
        assert set(joules) >= {"a", "b"}


async def accounts(exporter: Exporter) -> str:
    return (await exporter.get("/metrics"))[1]


def energies(metrics: str, uuid: str) -> dict[str, float]:
    found = re.findall(r"^pod_gpu_energy_joules_total\{(.*)\} (\S+)$", metrics, re.MULTILINE)
    of = [(dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)) for labels, value in found]
    return {labels["pod"]: value for labels, value in of if labels["UUID"] == uuid and labels["pod"]}


async def test_measured_memory_and_the_rest_are_the_devices(node: SimulatedNode) -> None:
    uuid = share_one_gpu(node)
    async with running(config_of(**without(node, root=str(node.root)))) as exporter:
        page = await exporter.until_page(lambda page: ("", "") in rows_of(page)["DCGM_FI_DEV_FB_USED"][uuid])
        used = rows_of(page)["DCGM_FI_DEV_FB_USED"][uuid]
        whole = {key: value for key, value in samples(node.dcgm.page()).items() if key[0] == "DCGM_FI_DEV_FB_USED"}
        assert sum(used.values()) == next(value for (_, labels), value in whole.items() if uuid in labels)


async def test_reloads_from_dcgm_exporter_to_nvml_and_back_fail_no_scrape(node: SimulatedNode) -> None:
    async with running(config_of(**with_dcgm(node))) as exporter:
        before = samples(await exporter.page())
        for settings, made_by in ((without(node), "nvml"), (with_dcgm(node), "dcgm"), (without(node), "nvml")):
            await reload(exporter, **settings)
            status, text = await exporter.get("/gpu/metrics")
            assert status == 200, text
            assert {key: value for key, value in samples(text).items() if key[0] == ENERGY} == {
                key: value for key, value in before.items() if key[0] == ENERGY
            }
            assert (f'source_up{{source="{made_by}' in text, "source_up" in text) == (True, True)


async def failed(exporter: Exporter) -> str:
    """The reason of the first scrape that fails; all before it are whole."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            status, text = await exporter.get("/gpu/metrics")
            if status != 200:
                assert status == 503
                return text
            await asyncio.sleep(0.02)


async def whole(exporter: Exporter) -> None:
    await exporter.until_page(bool)


# issue 10, "Must show" 6
async def test_while_nvml_hangs_no_old_page_is_told_and_no_scrape_waits_long(
    node: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml_source, "DEADLINE_SECONDS", 0.4)
    async with running(config_of(**without(node))) as exporter:
        await exporter.page()
        node.nvml.write(node.world.gpus, ["hang nvmlDeviceGetPowerUsage 60000"])
        assert "nvmlDeviceGetPowerUsage has not come back" in await failed(exporter)
        assert (await exporter.get("/gpu/metrics"))[0] == 503
        assert await is_quick(lambda: exporter.get("/gpu/metrics"), 0.2), "who asks again is told at once"
        metrics = await accounts(exporter)
        assert 'pod_gpu_exporter_source_up{source="nvml"} 0\n' in metrics
        assert (await exporter.get("/-/healthy"))[0] == 200
        node.nvml.write(node.world.gpus)
        node.write_processes()
        await whole(exporter)


# issue 10, "Must show" 6
@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ((f"fail nvmlInitWithFlags {UNINITIALIZED} -1", f"fail nvmlDeviceGetCount_v2 {UNINITIALIZED} -1"), "NVML"),
        ((f"fail nvmlDeviceGetUUID {GPU_IS_LOST} -1", f"fail nvmlDeviceGetPowerUsage {GPU_IS_LOST} -1"), "off the bus"),
    ],
)
async def test_a_failure_of_nvml_is_one_of_the_page_until_it_is_back(
    node: SimulatedNode, monkeypatch: pytest.MonkeyPatch, lines: tuple[str, ...], says: str
) -> None:
    for seconds in ("LOST_SECONDS", "INVENTORY_SECONDS", "UNTOLD_SECONDS"):
        monkeypatch.setattr(nvml_reader, seconds, 0.1)
    async with running(config_of(**without(node))) as exporter:
        await exporter.page()
        node.nvml.write(node.world.gpus, lines)
        assert says in await failed(exporter)
        node.nvml.write(node.world.gpus)
        node.write_processes()
        await whole(exporter)


# issue 10, "Must show" 6
async def test_a_lost_gpu_costs_no_other_and_doctor_says_so(node: SimulatedNode) -> None:
    lines = node.write_processes()
    lost = node.world.gpus[1].uuid
    node.nvml.write(node.world.gpus, [*lines, f"fail nvmlDeviceGetPowerUsage {GPU_IS_LOST} 1"])
    async with running(config_of(**without(node))) as exporter:
        page = await exporter.page()
    assert lost not in {labels.split('UUID="')[1].split('"')[0] for _, labels in samples(page)}
    assert all(gpu.uuid in page for gpu in node.world.gpus if gpu.uuid != lost)
    seen = await checkup.examine(config_of(**without(node)))
    (finding,) = (each for each in seen.report.findings if "this device is gone" in each.trouble.message)
    assert lost in " ".join((finding.about, *finding.devices))
    assert "drain the node" in finding.trouble.remedy
    assert {each.level for each in seen.report.findings if each.about == "nvml"} == {Level.OK}


async def test_doctor_is_content_with_nvml_alone(node: SimulatedNode) -> None:
    seen = await checkup.examine(config_of(**without(node)))
    assert seen.report.works(), seen.report.render()
    assert {each.level for each in seen.report.findings if each.about in ("nvml", "page")} == {Level.OK}


@pytest.mark.parametrize(
    ("lines", "says", "remedy"),
    [
        (None, "there is no", "mount the node's libnvidia-ml.so.1"),
        ([], "NVML knows no GPU here", "NVIDIA_VISIBLE_DEVICES=all"),
    ],
)
async def test_doctor_says_why_there_is_no_page(
    node: SimulatedNode, monkeypatch: pytest.MonkeyPatch, lines: Iterable[str] | None, says: str, remedy: str
) -> None:
    if lines is None:
        monkeypatch.setattr(library, "NAME", "/nonexistent/libnvidia-ml.so.1")
    else:
        node.nvml.write((), lines)
    seen = await checkup.examine(config_of(**without(node)))
    (finding,) = (each for each in seen.report.findings if each.about == "nvml" and each.level != Level.OK)
    assert (finding.level, says in finding.trouble.message, remedy in finding.trouble.remedy) == (
        Level.PROBLEM,
        True,
        True,
    ), finding
    assert not seen.report.works()


async def test_what_a_gpu_does_not_support_is_null_and_not_0(node: SimulatedNode) -> None:
    lines = node.write_processes()
    node.nvml.write(node.world.gpus, [*lines, f"fail nvmlDeviceGetPowerUsage {NOT_SUPPORTED} -1"])
    async with running(config_of(**without(node))) as exporter:
        assert "POWER_USAGE" not in await exporter.page()
        told = json.loads((await exporter.get("/container/metrics"))[1])
    assert {each["power_usage"] for each in told} == {None}
