"""A pod that uses a GPU which it does not hold: named wherever somebody may look, and not at its victim's expense."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import pytest

from exporter.doctor import checkup
from exporter.outputs.diagnosis import Level
from exporter.sources.nvml import nvml_source
from tests.node.test_measuring import of_node, own
from tests.support.components import real
from tests.support.exporter import Exporter, config_of, running
from tests.support.nvml import loads, until_nobody_uses_it
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import until
from tests.top.test_once import top_here

MEMORY, RATIO, PROCESSES = (f"pod_gpu_{name}" for name in ("memory_used_bytes", "utilization_ratio", "processes"))
ENERGY, ALLOCATED = "pod_gpu_energy_joules_total", "pod_gpu_allocated_seconds_total"
_BARE = 77


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimulatedNode]:
    """Two GPUs, each held as a whole; a pod without a GPU uses the first one."""
    simulated = SimulatedNode(World(gpus=2, strangers=1, seed=3), collect_seconds=0)
    real("gcc")
    assert simulated.nvml.build()
    loads(monkeypatch, simulated.nvml)
    monkeypatch.setattr(nvml_source, "AGAIN_SECONDS", 0.2)
    await simulated.start(step_seconds=3600)
    yield simulated
    await until_nobody_uses_it()
    await simulated.stop()


def gpu_of(node: SimulatedNode) -> str:
    (uuid,) = (uuid for pod in node.world.pods for container in pod.containers for uuid in container.uses)
    return uuid


def name_of(node: SimulatedNode) -> str:
    return next(pod.name for pod in node.world.pods if any(container.uses for container in pod.containers))


def holder_of(node: SimulatedNode, uuid: str) -> str:
    return next(pod.name for pod in node.world.pods if uuid in pod.devices)


async def objects(exporter: Exporter) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((await exporter.get("/container/metrics"))[1])
    return found


async def of_stranger(exporter: Exporter, family: str) -> dict[str, str]:
    """The labels of the family's one row with holds="false", once there is one."""

    async def labels() -> dict[str, str] | None:
        rows = [labels for labels, _ in own((await exporter.get("/metrics"))[1], family) if "holds" in labels]
        assert len(rows) <= 1
        return rows[0] if rows else None

    found: dict[str, str] | None = await until(labels)
    assert found is not None
    return found


# issue 18, line 4
async def test_a_stranger_is_named_wherever_processes_are_shown(node: SimulatedNode) -> None:
    uuid, name = gpu_of(node), name_of(node)
    config = config_of(**of_node(node, processes_expose="on"))
    async with running(config) as exporter:
        for family in (MEMORY, RATIO, PROCESSES):
            labels = await of_stranger(exporter, family)
            told = {key: labels[key] for key in ("namespace", "pod", "container", "UUID", "holds")}
            assert told == {
                "namespace": "research",
                "pod": name,
                "container": "shell",
                "UUID": uuid,
                "holds": "false",
            }
        metrics = (await exporter.get("/metrics"))[1]
        assert [value for labels, value in own(metrics, PROCESSES) if not labels["pod"]] == []
        assert {labels["pod"] for labels, _ in own(metrics, MEMORY) if "holds" not in labels} == {
            pod.name for pod in node.world.listed if pod.devices
        }

        rows = await objects(exporter)
        used = {row["device_uuid"]: row["used_by"] for row in rows if "used_by" in row}
        assert [(user["pod"], user["processes"]) for user in used.pop(uuid)] == [(name, 1)]
        assert used == {}

        words = f"used by research/{name}, which does not hold it"
        assert (await exporter.get("/"))[1].count(words) == 1
        shown = await asyncio.to_thread(top_here, "--once", "--url", exporter.base, COLUMNS="160")
        assert words in shown.decode()
        listed = await asyncio.to_thread(top_here, "--once", "--processes", "--url", exporter.base, COLUMNS="160")
        assert f"research/{name}, which does not hold it" in listed.decode()
        processes = json.loads((await exporter.get("/processes"))[1])
        (process,) = (each for each in processes if each["reason"])
        assert (process["reason"], process["container"]["pod"]) == ("not_assigned", name)

    async def warned() -> bool:
        report = (await checkup.examine(config)).report
        findings = [(each.level, each.about) for each in report.findings if each.trouble.message == words]
        return findings == [(Level.WARNING, uuid)] and report.works() and not report.works(strict=True)

    assert await until(warned)


# issue 18, line 4
async def test_what_a_stranger_uses_is_nobodys_in_the_accounts(node: SimulatedNode) -> None:
    uuid = gpu_of(node)
    holder = holder_of(node, uuid)

    async def amounts(exporter: Exporter, family: str) -> Mapping[str, float]:
        metrics = (await exporter.get("/metrics"))[1]
        return {labels["pod"]: value for labels, value in own(metrics, family) if labels["UUID"] == uuid}

    async with running(config_of(**of_node(node, accounting_interval="200ms"))) as exporter:
        await of_stranger(exporter, RATIO)
        assert await until(lambda: _grew(lambda: amounts(exporter, ENERGY), "", 100))
        first = await amounts(exporter, ENERGY)
        before_mj = node.world.energy_mj(uuid)
        assert await until(lambda: _grew(lambda: amounts(exporter, ENERGY), "", first[""] + 300))
        last = await amounts(exporter, ENERGY)
        grown = {pod: last[pod] - first[pod] for pod in last}
        drawn = (node.world.energy_mj(uuid) - before_mj) / 1000
        ran = {each.pod: each.activity for each in node.world.machine.running() if each.device_id == uuid}
        assert sum(grown.values()) == pytest.approx(drawn, rel=0.3)
        part = ran[name_of(node)] / sum(ran.values())
        assert grown[""] == pytest.approx(part * sum(grown.values()), rel=0.15)
        # to hold it is the holder's, whoever works there
        held = await amounts(exporter, ALLOCATED)
        assert held[holder] > 0
        assert held.keys() <= {holder, ""}
        assert held.get("", 0) == 0


async def _grew(amounts: Callable[[], Awaitable[Mapping[str, float]]], pod: str, least: float) -> bool:
    return (await amounts()).get(pod, 0) > least


# issue 18, line 4
async def test_the_command_of_a_process_in_no_container_is_shown_if_asked_for(
    node: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    for root in (node.root, node.root / "empty"):
        folder = root / "proc" / str(_BARE)
        folder.mkdir()
        (folder / "cgroup").write_text("0::/user.slice/user-0.slice/session-1.scope\n")
        (folder / "stat").write_text(f"{_BARE} (miner) S 1 {' '.join(['0'] * 17)} 1 0\n")
        (folder / "cmdline").write_text("./miner\0--pool=x\0")
    write = node.write_processes

    def write_with_it() -> list[str]:
        lines = [*write(), f"process 1 -1 -1 {_BARE} c {2**32}"]
        node.nvml.write(node.world.gpus, lines, is_recut=False)
        return lines

    # nobody holds a GPU
    node.world.pods = tuple(pod for pod in node.world.pods if pod.namespace == "kube-system")
    monkeypatch.setattr(node, "write_processes", write_with_it)
    uuid = node.world.gpus[1].uuid
    for word, users in (("on", [("./miner --pool=x", 2**32)]), ("off", [])):
        async with running(config_of(**of_node(node, processes_expose=word))) as exporter:

            async def counted(exporter: Exporter = exporter) -> bool:
                node.write_processes()
                rows = own((await exporter.get("/metrics"))[1], PROCESSES)
                return [labels["UUID"] for labels, _ in rows if not labels["pod"]] == [uuid]

            async def row(exporter: Exporter = exporter, users: object = users) -> Any:
                assert await until(counted)
                (row,) = (row for row in await objects(exporter) if row["device_uuid"] == uuid)
                named = [(user["command"], user["memory_used_bytes"]) for user in row.get("used_by", ())]
                return row if named == users else None

            found: Any = await until(row)
            assert found["state"] == ("outside" if users else "free")
            page = (await exporter.get("/"))[1]
            assert ("used by ./miner --pool=x, which does not hold it" in page) is bool(users)
            assert users or "miner" not in json.dumps(found) + page


# issue 18, line 4
@pytest.mark.parametrize("hidden", ["claims that are not followed", "a resource that is left out", "a silent kubelet"])
async def test_nobody_is_accused_where_it_is_not_known_who_holds_what(
    monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    more = {
        "claims that are not followed": {"dra": "off"},
        "a resource that is left out": {"resources": "example.com/*"},
        "a silent kubelet": {"kubelet_socket": "/nonexistent/kubelet.sock"},
    }[hidden]
    simulated = SimulatedNode(World(gpus=2, claims=2 * ("claims" in hidden), seed=3))
    real("gcc")
    assert simulated.nvml.build()
    loads(monkeypatch, simulated.nvml)
    monkeypatch.setattr(nvml_source, "AGAIN_SECONDS", 0.2)
    await simulated.start(step_seconds=3600)
    try:
        config = config_of(**{**of_node(simulated, processes_expose="on"), **more})
        async with running(config) as exporter:

            async def reasons() -> list[tuple[str, bool]]:
                status, text = await exporter.get("/processes")
                processes = json.loads(text) if status == 200 else []
                return [(each["reason"], bool(each["container"]["pod"])) for each in processes]

            found: Any = await until(reasons)
            assert set(found) == {("unresolved", True)}
            rows = own((await exporter.get("/metrics"))[1], PROCESSES)
            assert rows
            assert all("holds" not in labels for labels, _ in rows)
            assert all("used_by" not in row for row in await objects(exporter))
    finally:
        await until_nobody_uses_it()
        await simulated.stop()
