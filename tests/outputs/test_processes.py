"""/processes: what it says of any process, in any command line, and that it is off unless somebody wants it."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import ConfigError
from exporter.model.devices import DeviceKey, Inventory, InventoryGpu, Owners
from exporter.model.driver import GpuProcess
from exporter.model.measured import HostProcesses, Measured, Process, ProcessPlace, Unowned
from exporter.model.pods import Owner
from exporter.model.snapshot import LookContext, Snapshot
from exporter.node.measuring import Measuring
from exporter.node.role import NODE
from exporter.outputs import processes
from exporter.outputs.output import Look
from exporter.ownership.explain import WITHOUT_OWNER
from exporter.service import Service
from exporter.sources.nvml import nvml_source
from exporter.sources.process_cgroups import MOST_COMMAND_BYTES, ProcFolder
from tests.sources.test_process_cgroups import Proc
from tests.support import quick_yaml
from tests.support.answers import answer_of
from tests.support.components import real
from tests.support.exporter import config_of, running
from tests.support.node_parts import source_of
from tests.support.nvml import loads, until_nobody_uses_it
from tests.support.places import ROOT
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import until

ONE, TWO = "GPU-00000001-1111-2222-3333-444455556666", "GPU-00000002-1111-2222-3333-444455556666"
TRAIN = Owner(namespace="ml", pod="train", container="main")
SCHEMA = quick_yaml.load((ROOT / "docs" / "openapi.yaml").read_text())


def validated(body: bytes | str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(body, parse_constant=pytest.fail)
    array = SCHEMA["paths"]["/processes"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema.validate(found, {**array, "components": SCHEMA["components"]})
    return found


def on_gpu(pid: int, uuid: str = ONE, instance: str = "") -> GpuProcess:
    device = DeviceKey(uuid=uuid, instance=instance)
    return GpuProcess(pid=pid, device=device, memory_bytes=2**30, sm_ratio=0.5, kinds=frozenset({"mps", "compute"}))


def of_host(*found: Process) -> HostProcesses:
    return HostProcesses(by_pid={each.pid: each for each in found}, asked_for=frozenset(), read_at=0.0)


def process(pid: int, place: ProcessPlace | None = None, command: str = "python3 train.py") -> Process:
    return Process(pid=pid, started_at=0.0, place=place, command=command, user="1000")


def look(measured: Measured | None, *, is_on: bool = True) -> Look:
    snapshot = Snapshot(
        node="n",
        owners=Owners(),
        joined=None,
        health={},
        assignments_age_seconds=None,
        context=LookContext(exposes_processes=is_on),
        inventory=Inventory(gpus=(InventoryGpu(uuid=TWO, index="2"), InventoryGpu(uuid=ONE, index="10"))),
        measured=measured,
    )
    return Look(snapshot=snapshot)


def told(measured: Measured) -> list[dict[str, Any]]:
    made = answer_of(processes.OUTPUT, look(measured))
    assert made.status == 200
    return validated(b"".join(made.pieces))


def test_a_process_has_its_container_its_device_and_why_it_does_not_count() -> None:
    here = ProcessPlace(container_id="3f7a" * 16, pod_uid="0f5b2c31")
    dockers = ProcessPlace(container_id="b0c1" * 16, is_of_pod=False, engine="docker")
    found = told(
        Measured(
            owned={(DeviceKey(uuid=ONE), TRAIN): (on_gpu(9), on_gpu(8))},
            unowned=(
                Unowned(process=on_gpu(7, TWO, "10"), reason="other_container", place=dockers),
                Unowned(process=on_gpu(70, TWO, "9"), reason="no_container"),
                Unowned(process=on_gpu(71, TWO, "9"), reason="not_assigned", place=here, owner=TRAIN),
                Unowned(process=on_gpu(5, "GPU-unknown"), reason="unread"),
            ),
            host=of_host(process(9, here), process(8, here), process(7, dockers), process(70), process(71, here)),
        )
    )
    # by index (2, then 10, then what has none), by instance and pid
    assert [(row["device_id"], row.get("mig_instance_id"), row["pid"]) for row in found] == [
        ("2", "9", 70),
        ("2", "9", 71),
        ("2", "10", 7),
        ("10", None, 8),
        ("10", None, 9),
        ("", None, 5),
    ]
    by_pid = {row["pid"]: row for row in found}
    assert by_pid[8] == {
        "node_name": "n",
        "pid": 8,
        "command": "python3 train.py",
        "user": "1000",
        "device_uuid": ONE,
        "device_id": "10",
        "container": {
            "namespace": "ml",
            "pod": "train",
            "container": "main",
            "id": "3f7a" * 16,
            "pod_uid": "0f5b2c31",
        },
        "memory_bytes": 2**30,
        "sm_ratio": 0.5,
        "kinds": ["compute", "mps"],
        "reason": "",
        "explanation": "",
    }
    assert by_pid[7]["container"] == {"engine": "docker", "id": "b0c1" * 16}
    assert by_pid[70]["container"] is None
    assert by_pid[71]["container"]["pod"] == "train"
    assert (by_pid[5]["command"], by_pid[5]["user"], by_pid[5]["container"]) == ("", "", None)
    assert {row["pid"]: row["reason"] for row in found if row["reason"]} == {
        7: "other_container",
        70: "no_container",
        71: "not_assigned",
        5: "unread",
    }
    assert by_pid[71]["explanation"] == WITHOUT_OWNER["not_assigned"]


def test_the_command_of_another_process_with_the_pid_is_nobodys_business() -> None:
    gone = Measured(unowned=(Unowned(process=on_gpu(7), reason="gone"),), host=of_host(process(7, command="later")))
    (row,) = told(gone)
    assert (row["command"], row["user"], row["container"]) == ("", "", None)


def test_every_reason_is_described() -> None:
    described = SCHEMA["components"]["schemas"]["Process"]["properties"]["reason"]["enum"]
    assert set(described) == {"", *WITHOUT_OWNER}


def test_no_process_is_an_empty_array_and_unknown_is_none() -> None:
    assert told(Measured()) == []
    refused = answer_of(processes.OUTPUT, look(None))
    assert refused.status == 503
    assert "--nvml.mode" in json.loads(b"".join(refused.pieces))["error"]


def test_off_it_names_the_flag_and_no_process() -> None:
    refused = answer_of(
        processes.OUTPUT, look(Measured(unowned=(Unowned(process=on_gpu(7), reason="unread"),)), is_on=False)
    )
    assert refused.status == 403
    assert "--processes.expose" in json.loads(b"".join(refused.pieces))["error"]


@given(line=st.binary(max_size=2000))
def test_any_command_line_is_valid_json(line: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("proc")
    proc = Proc(folder)
    proc.put(7, command=line)
    found = ProcFolder(folder, with_commands=True).read([7], 0.0)
    measured = Measured(unowned=(Unowned(process=on_gpu(7), reason="no_container"),), host=found)
    (row,) = told(measured)
    arguments = line[:MOST_COMMAND_BYTES].replace(b"\0", b" ").strip()
    assert row["command"] == (arguments.decode(errors="replace") or "[python3]")


def test_of_a_megabyte_only_the_beginning_is_read(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    proc.put(7, command=b"\xff\x1b[2J" + b"x" * 2**20)
    found = ProcFolder(tmp_path, with_commands=True).read([7], 0.0).by_pid[7]
    assert found.command == "\ufffd\x1b[2J" + "x" * (MOST_COMMAND_BYTES - 5)
    body = answer_of(
        processes.OUTPUT,
        look(Measured(unowned=(Unowned(process=on_gpu(7), reason="no_container"),), host=of_host(found))),
    )
    assert b"\x1b" not in b"".join(body.pieces), "a terminal that shows the answer obeys nobody"


def test_a_process_that_becomes_another_program_has_its_command(tmp_path: Path) -> None:
    proc, folder = Proc(tmp_path), ProcFolder(tmp_path, with_commands=True)
    proc.put(7, command=b"sh\0-c\0exec python3")
    folder.read([7], 0.0)
    proc.put(7, command=b"python3")
    assert folder.read([7], 1.0).by_pid[7].command == "python3"


def test_without_nvml_it_cannot_be_meant() -> None:
    with pytest.raises(ConfigError, match=r"--processes.expose: .*--nvml.mode"):
        config_of(processes_expose="on", nvml_mode="off")


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimulatedNode]:
    """Two GPUs, each held as a whole: nobody shares anything."""
    simulated = SimulatedNode(World(gpus=2, seed=3))
    real("gcc")
    assert simulated.nvml.build()
    loads(monkeypatch, simulated.nvml)
    monkeypatch.setattr(nvml_source, "AGAIN_SECONDS", 0.2)
    await simulated.start()
    yield simulated
    await until_nobody_uses_it()
    await simulated.stop()


# issue 10, B: GET /processes
async def test_over_http_it_tells_of_every_gpu_once_it_is_on_and_needs_no_share(node: SimulatedNode) -> None:
    places = {"kubelet_socket": str(node.socket), "dcgm_url": node.url, "root": str(node.root), "nvml_mode": "on"}
    (proc, *_) = sorted((node.root / "proc").glob("1????"))
    (proc / "cmdline").write_bytes(b"python3\0--token=\xff\x1b]0;mine\x07\0" + b"y" * 2**20)
    off = config_of(**places)
    async with running(off) as exporter:
        await exporter.page()
        status, text = await exporter.get("/processes")
        assert status == 403
        assert "token" not in text
        measuring = source_of(exporter.service._role, Measuring)
        processes = measuring._sources[0].processes if measuring._sources else None
        assert not any(each.command or each.user for each in (processes.by_pid if processes else {}).values())
    async with running(config_of(**places, processes_expose="on")) as exporter:

        async def answer() -> str:
            status, text = await exporter.get("/processes")
            assert status in (200, 503)
            return text if status == 200 else ""

        found = validated(await until(answer))
        (hostile,) = [row for row in found if row["pid"] == int(proc.name)]
        assert hostile["command"].startswith("python3 --token=\ufffd\x1b]0;mine\x07 yyy")
        assert len(hostile["command"]) <= MOST_COMMAND_BYTES
        held = {(pod.namespace, pod.name, device) for pod in node.world.listed for device in pod.devices}
        shown = {(row["container"]["namespace"], row["container"]["pod"], row["device_uuid"]) for row in found}
        assert shown == held
        assert {row["user"] for row in found} == {"1000"}
        # it does not need a page: what NVML says is enough
        await node.dcgm.stop()
        assert (await exporter.get("/processes"))[0] == 200


async def test_without_the_hosts_processes_it_says_what_is_missing(node: SimulatedNode) -> None:
    (node.root / "proc/1/cgroup").unlink()
    places = {"kubelet_socket": str(node.socket), "dcgm_url": node.url, "root": str(node.root), "nvml_mode": "auto"}
    async with running(config_of(**places, processes_expose="on")) as exporter:

        async def names_it() -> bool:
            status, text = await exporter.get("/processes")
            assert status == 503
            return "hostPID" in text

        await until(names_it)


async def test_a_reload_turns_it_on_and_off(node: SimulatedNode) -> None:
    places = {"kubelet_socket": str(node.socket), "dcgm_url": node.url, "root": str(node.root), "nvml_mode": "on"}
    configs = {word: config_of(**places, processes_expose=word) for word in ("off", "on")}
    now = "off"
    service = Service(configs[now], NODE, lambda: configs[now])
    try:
        for word in ("on", "off", "on"):
            now = word
            await service.reload()
            status = {"on": 200, "off": 403}[word]

            async def has_turned(status: int = status) -> bool:
                snapshot = await service.collect(None, processes.OUTPUT.needs)
                return answer_of(processes.OUTPUT, Look(snapshot=snapshot)).status == status

            await until(has_turned)
            for _ in range(3):  # and so it stays
                snapshot = await service.collect(None, processes.OUTPUT.needs)
                assert answer_of(processes.OUTPUT, Look(snapshot=snapshot)).status == status
                host = snapshot.measured.host if snapshot.measured else None
                assert word == "on" or not any(each.command for each in (host.by_pid if host else {}).values())
                node.write_processes()
                await asyncio.sleep(0.1)
    finally:
        await service.close()
