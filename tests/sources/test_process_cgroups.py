"""Processes in a tree like /proc, and in the machine's own."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from exporter.errors import Unavailable
from exporter.model.measured import HostProcesses, Process, ProcessPlace
from exporter.model.snapshot import Health
from exporter.sources import process_cgroups
from exporter.sources.process_cgroups import MOST_BYTES, Processes, ProcFolder
from exporter.sources.source import MOST_PROCESSES
from tests.support.clock import Clock

ID, OWN_ID = "3f7a" * 16, "b0c1" * 16
UID, OWN_UID = "0f5b2c31-7d0e-4a52-9c7e-5d1f0a9b8c7d", "e2a4c6d8-1111-4222-8333-444455556666"
OWN = f"0::/kubepods/besteffort/pod{OWN_UID}/{OWN_ID}\n"
HERE = ProcessPlace(container_id=ID, pod_uid=UID)


class Proc:
    """A tree like /proc: on a host at first, for an exporter in a pod with hostPID."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.put("self", cgroup=OWN)
        (folder / "self/ns").mkdir()
        (folder / "self/ns/pid").symlink_to("pid:[4026532000]")
        self.put(1, cgroup="0::/init.scope\n")

    def put(
        self,
        pid: int | str,
        *,
        cgroup: str = f"0::/kubepods/pod{UID}/{ID}\n",
        start: int | str = 4711,
        name: str = "python3",
        command: bytes = b"",
        flags: int = 0x00400040,
    ) -> None:
        folder = self.folder / str(pid)
        folder.mkdir(exist_ok=True)
        numbers = [flags if number == 9 else number for number in range(4, 22)]
        fields = " ".join(["S", *map(str, numbers), str(start), "0 " * 30])
        (folder / "stat").write_text(f"{pid} ({name}) {fields}\n")
        (folder / "cgroup").write_text(cgroup)
        (folder / "cmdline").write_bytes(command)
        (folder / "status").write_text("Name:\tx\nUid:\t1000\t1000\t1000\t1000\n")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def read(folder: ProcFolder, pids: list[int]) -> Mapping[int, Process]:
    return folder.read(pids, 0.0).by_pid


def test_processes_and_their_containers(proc: Proc) -> None:
    proc.put(7)
    proc.put(8, cgroup="0::/system.slice/sshd.service\n", start=9000)
    known = read(ProcFolder(proc.folder), [7, 8, 9])
    assert set(known) == {7, 8}
    assert (known[7].place, known[8].place) == (HERE, None)
    assert known[8].started_at - known[7].started_at == pytest.approx((9000 - 4711) / os.sysconf("SC_CLK_TCK"))
    assert (known[7].command, known[7].user) == ("", "")


# issue 18, line 5
def test_a_process_has_the_kernels_name_of_the_program_that_it_runs_now(proc: Proc) -> None:
    folder = ProcFolder(proc.folder)
    proc.put(7, name="a) S (b")
    assert read(folder, [7])[7].name == "a) S (b"
    proc.put(7, name="nvidia-cuda-mps")
    assert read(folder, [7])[7].name == "nvidia-cuda-mps"


# issue 18, line 5
def test_pids_of_init_and_kernel_threads_are_other_processes(proc: Proc) -> None:
    proc.put(1, cgroup="0::/init.scope\n")
    proc.put(7, cgroup="0::/\n", flags=0x04208060)
    proc.put(8, cgroup="0::/\n", flags=0x00400040)
    assert set(read(ProcFolder(proc.folder), [1, 7, 8])) == {8}


def test_a_recycled_pid_is_another_process(proc: Proc) -> None:
    folder = ProcFolder(proc.folder)
    proc.put(7)
    before = read(folder, [7])[7]
    assert read(folder, [7])[7] is before
    proc.put(7, start=5000, cgroup="0::/init.scope\n")
    after = read(folder, [7])[7]
    assert after.place is None
    assert after.started_at > before.started_at


def test_a_process_that_moves_is_followed(proc: Proc) -> None:
    folder = ProcFolder(proc.folder)
    proc.put(7, cgroup="0::/system.slice/containerd.service\n")
    assert read(folder, [7])[7].place is None
    proc.put(7)
    assert read(folder, [7])[7].place == HERE


def test_a_process_that_has_ended_is_told_of_while_it_is_asked_for(proc: Proc) -> None:
    folder = ProcFolder(proc.folder)
    proc.put(7)
    known = read(folder, [7])
    for file in (proc.folder / "7").iterdir():
        file.unlink()
    (proc.folder / "7").rmdir()
    assert read(folder, [7]) == known
    assert read(folder, []) == read(folder, [7]) == {}


def test_commands_and_users_only_where_asked_for(proc: Proc) -> None:
    proc.put(7, name="a) S (b", command=b"python3\0train.py\0--token=x\0")
    proc.put(8, name="a) S (b")
    proc.put(9, command=b"\xff" * 5000)
    known = read(ProcFolder(proc.folder, with_commands=True), [7, 8, 9])
    assert [known[7].command, known[7].user] == ["python3 train.py --token=x", "1000"]
    assert known[8].command == "[a) S (b]"
    assert len(known[9].command) == 1024
    (proc.folder / "7/status").write_text("")
    assert read(ProcFolder(proc.folder, with_commands=True), [7])[7].user == ""


@pytest.mark.parametrize("stat", ["", "7 (x", "7 (x) S 1 2", "7 (x) " + "x " * 60])
def test_what_is_no_stat_is_no_process(proc: Proc, stat: str) -> None:
    proc.put(7)
    (proc.folder / "7/stat").write_text(stat)
    assert read(ProcFolder(proc.folder), [7]) == {}


def test_cgroups_that_are_too_long_are_not_read(proc: Proc) -> None:
    proc.put(7, cgroup=f"0::/kubepods/pod{UID}/{ID}/" + "x" * MOST_BYTES)
    proc.put(8)
    (proc.folder / "8/cgroup").unlink()
    assert read(ProcFolder(proc.folder), [7, 8]) == {}


def test_the_kubelets_root_is_that_of_the_exporters_own_pod(proc: Proc) -> None:
    proc.put(7, cgroup=f"0::/docker/{OWN_ID}/kubepods/pod{UID}/{ID}\n")
    proc.put(8, cgroup=f"0::/k8s/kubepods/pod{UID}/{ID}\n")
    known = read(ProcFolder(proc.folder), [7, 8])
    assert (known[7].place, known[8].place) == (
        ProcessPlace(container_id=OWN_ID, is_of_pod=False, engine="docker"),
        None,
    )
    proc.put("self", cgroup=OWN.replace("/kubepods", "/k8s/kubepods"))
    known = read(ProcFolder(proc.folder), [7, 8])
    assert (known[7].place is None or not known[7].place.is_of_pod, known[8].place) == (True, HERE)


@pytest.mark.parametrize(
    ("own", "first", "sees"),
    [
        pytest.param(OWN, "0::/init.scope\n", True, id="hostPID"),
        pytest.param(OWN, "0::/\n", True, id="hostPID, init at the root"),
        pytest.param("0::/\n", "0::/../../../../init.scope\n", True, id="hostPID, a cgroup namespace"),
        pytest.param(OWN, OWN, False, id="no hostPID"),
        pytest.param("0::/\n", "0::/\n", False, id="no hostPID, a cgroup namespace"),
        pytest.param("0::/\n", f"0::/../cri-containerd-{ID}.scope\n", False, id="the pod's PID namespace"),
        pytest.param(OWN, f"0::/kubepods/besteffort/pod{OWN_UID}/{ID}\n", False, id="that without one"),
        pytest.param(OWN, None, False, id="other users' processes are hidden"),
    ],
)
def test_without_the_hosts_pids_nothing_is_known(proc: Proc, own: str, first: str | None, *, sees: bool) -> None:
    proc.put("self", cgroup=own)
    proc.put(7)
    if first is None:
        (proc.folder / "1/cgroup").unlink()
    else:
        proc.put(1, cgroup=first)
    folder = ProcFolder(proc.folder)
    if sees:
        assert set(read(folder, [7])) == {7}
    else:
        with pytest.raises(Unavailable, match="does not show the processes of the host") as told:
            read(folder, [7])
        assert "hostPID: true" in told.value.trouble.remedy


def test_in_the_first_pid_namespace_all_is_seen(proc: Proc) -> None:
    proc.put(1, cgroup=OWN)
    (proc.folder / "self/ns/pid").unlink()
    (proc.folder / "self/ns/pid").symlink_to("pid:[4026531836]")
    proc.put(7)
    assert set(read(ProcFolder(proc.folder), [7])) == {7}


def test_a_process_of_this_machine(proc: Proc) -> None:
    script = "print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        before = time.monotonic()
        assert child.stdout
        child.stdout.readline()  # until it runs, its command is that of whoever started it, or none
        (proc.folder / str(child.pid)).symlink_to(f"/proc/{child.pid}")
        folder = ProcFolder(proc.folder, with_commands=True)
        process = read(folder, [child.pid])[child.pid]
        assert before - 60 < process.started_at <= before
        assert process.user == str(os.getuid())
        assert process.command == f"{sys.executable} -c {script}"
        child.communicate(b"\n")


async def test_the_source_reads_once_for_each_word_of_the_driver(proc: Proc) -> None:
    told: list[Health] = []
    clock = Clock()
    source = Processes(folder=str(proc.folder), on_health=lambda _, health: told.append(health), clock=clock)
    proc.put(7)
    first = source.begin()
    assert first is not None
    await first
    assert source.processes is not None
    assert (source.processes.by_pid, source.processes.asked_for) == ({}, frozenset())  # nobody wanted any
    clock.ahead += 1.0
    source.want(frozenset({7, 8}), clock())
    assert source.begin() is None
    reading = source.task
    assert reading not in (None, first)
    assert reading is not None
    await reading
    now: HostProcesses = source.processes
    assert (set(now.by_pid), set(now.asked_for), now.read_at) == ({7}, {7, 8}, clock())
    assert source.bounds["processes"].used() == 1
    clock.ahead += 100.0
    source.begin()
    assert source.task is reading
    await source.close()
    assert (len(told), told[-1].up, told[-1].trouble) == (2, True, None)


async def test_without_host_pid_the_source_says_what_is_missing_unasked(proc: Proc) -> None:
    proc.put(1, cgroup=OWN)
    source = Processes(folder=str(proc.folder), on_health=lambda *_: None)
    first = source.begin()
    assert first is not None
    await first
    assert source.processes is None
    assert (source.health.up, source.health.reason) == (False, "missing")
    assert "hostPID: true" in source.health.remedy
    await source.close()


# issue 10, "Must show" 7
async def test_a_look_reads_a_bounded_number_of_processes(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_cgroups, "MOST_PROCESSES", 5)
    for pid in range(100, 120):
        proc.put(pid)
    source = Processes(folder=str(proc.folder), on_health=lambda *_: None)
    source.want(frozenset(range(100, 120)), 0.0)
    first = source.begin()
    assert first is not None
    await first
    assert source.processes is not None
    assert set(source.processes.by_pid) == source.processes.asked_for == set(range(100, 105))
    assert (source.health.up, source.health.reason) == (True, "oversize")
    await source.close()
    assert MOST_PROCESSES == 2000
