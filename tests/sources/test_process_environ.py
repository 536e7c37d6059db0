"""The environments of containers' first processes: which variables are kept, of whom, and when they are read."""

import os
from pathlib import Path

import pytest

from exporter.errors import Unavailable
from exporter.model.measured import HostProcesses, Process, ProcessPlace
from exporter.sources import process_environ
from exporter.sources.process_cgroups import ProcFolder
from exporter.sources.process_environ import MOST_BYTES, EnvironFolder, Environs, first_processes

UID = "7f0c1d2e-0000-4000-8000-00000000000{}"
GPU = "GPU-9567a9e7-341e-bb7e-fcf5-788d8caa50f9"
SECRETS = b"PATH=/bin\0AWS_SECRET_ACCESS_KEY=hidden\0"


def container(number: int) -> str:
    return f"{number:064x}"


def place(number: int) -> ProcessPlace:
    return ProcessPlace(container_id=container(number), pod_uid=UID.format(number))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, cgroup in (("1", "0::/init.scope\n"), ("self", "0::/user.slice\n")):
        (tmp_path / "proc" / name).mkdir(parents=True)
        (tmp_path / "proc" / name / "cgroup").write_text(cgroup)
    (tmp_path / "proc" / "meminfo").touch()
    return tmp_path


def run(root: Path, pid: int, of: int | None, environ: bytes, *, ticks: int = 100) -> Path:
    """A process of this container (None: of the host), started this many ticks after the boot."""
    folder = root / "proc" / str(pid)
    folder.mkdir(exist_ok=True)
    cgroup = "/system.slice/sshd.service" if of is None else f"/kubepods/pod{UID.format(of)}/{container(of)}"
    (folder / "cgroup").write_text(f"0::{cgroup}\n")
    (folder / "stat").write_text(f"{pid} (python) S 1 {' '.join(['0'] * 17)} {ticks} 0\n")
    (folder / "environ").write_bytes(environ)
    return folder


def test_only_variables_that_name_devices_are_kept_of_an_environment(root: Path) -> None:
    run(root, 11, 1, SECRETS + f"NVIDIA_VISIBLE_DEVICES={GPU}\0CUDA_DEVICE_MEMORY_LIMIT_0=1024m\0".encode())
    run(root, 21, 2, b"NVIDIA_VISIBLE_DEVICES=1\0")
    run(root, 31, None, b"NVIDIA_VISIBLE_DEVICES=2\0")
    environments, refused = EnvironFolder(root / "proc").read(frozenset({container(1)}), 1000.0)
    assert environments.by_place == {place(1): {"NVIDIA_VISIBLE_DEVICES": GPU, "CUDA_DEVICE_MEMORY_LIMIT_0": "1024m"}}
    assert (environments.read_at, refused) == (1000.0, 0)
    by_uid, _ = EnvironFolder(root / "proc").read(frozenset({UID.format(2)}), 1000.0)
    assert by_uid.by_place == {place(2): {"NVIDIA_VISIBLE_DEVICES": "1"}}


def test_the_first_process_of_a_container_counts(root: Path) -> None:
    """A process of kubectl exec may have a lower pid, where pids have wrapped around."""
    run(root, 11, 1, b"NVIDIA_VISIBLE_DEVICES=7\0", ticks=900)
    run(root, 4000, 1, b"NVIDIA_VISIBLE_DEVICES=1\0", ticks=100)
    environments, _ = EnvironFolder(root / "proc").read(frozenset({container(1)}), 1000.0)
    assert environments.by_place == {place(1): {"NVIDIA_VISIBLE_DEVICES": "1"}}


def test_processes_outside_of_containers_are_the_first_of_none() -> None:
    places = [None, ProcessPlace(container_id="", pod_uid="u"), ProcessPlace(container_id="d", is_of_pod=False)]
    by_pid = {pid: Process(pid=pid, started_at=1.0, place=of) for pid, of in enumerate([*places, place(1), place(1)])}
    host = HostProcesses(by_pid=by_pid, asked_for=frozenset(by_pid), read_at=1.0)
    assert {of: process.pid for of, process in first_processes(host).items()} == {place(1): 3}


def test_an_environment_is_read_once_but_again_while_the_container_starts(root: Path) -> None:
    """Until the runtime starts the container's program, the first process is a helper of the runtime's."""
    reader = EnvironFolder(root / "proc")
    wanted = frozenset({container(1)})
    run(root, 11, 1, SECRETS, ticks=100)
    begun = ProcFolder(root / "proc").read([11], 0.0).by_pid[11].started_at
    assert reader.read(wanted, begun + 1)[0].by_place == {}
    run(root, 11, 1, b"NVIDIA_VISIBLE_DEVICES=1\0", ticks=100)
    assert reader.read(wanted, begun + 2)[0].by_place == {place(1): {"NVIDIA_VISIBLE_DEVICES": "1"}}
    run(root, 11, 1, b"NVIDIA_VISIBLE_DEVICES=2\0", ticks=100)
    assert reader.read(wanted, begun + 3)[0].by_place == {place(1): {"NVIDIA_VISIBLE_DEVICES": "1"}}
    run(root, 11, 1, b"NVIDIA_VISIBLE_DEVICES=2\0", ticks=2000)
    assert reader.read(wanted, begun + 30)[0].by_place == {place(1): {"NVIDIA_VISIBLE_DEVICES": "2"}}


def test_odd_environments_are_read_as_far_as_they_go(root: Path) -> None:
    reader = EnvironFolder(root / "proc")
    wanted = frozenset(map(container, range(1, 5)))
    run(root, 11, 1, b"\xff\xfe=1\0NVIDIA_VISIBLE_DEVICES=\xff\0=\0\0")
    run(root, 21, 2, b"A=" + b"x" * MOST_BYTES + b"\0NVIDIA_VISIBLE_DEVICES=1\0")
    run(root, 31, 3, b"A=" + b"x" * (MOST_BYTES - 30) + f"\0NVIDIA_VISIBLE_DEVICES={GPU},{GPU}\0".encode())
    (run(root, 41, 4, b"") / "environ").unlink()
    environments, refused = reader.read(wanted, 1000.0)
    assert environments.by_place == {place(1): {}, place(2): {}, place(3): {}}, "a cut list is no list"
    assert refused == 0


async def test_without_the_right_it_says_which_one_is_missing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(root, 11, 1, b"NVIDIA_VISIBLE_DEVICES=1\0")
    source = Environs(root=str(root), on_health=lambda *_: None)
    source.want(frozenset({container(1)}))

    def refuse(*_: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(process_environ, "_read_below", refuse)
        attempt = source.begin()
        assert attempt is not None
        await attempt
    assert source.health.reason == "permission"
    assert "SYS_PTRACE" in source.health.remedy
    await source.look_again()
    assert source.health.up
    assert source.environments.by_place == {place(1): {"NVIDIA_VISIBLE_DEVICES": "1"}}
    await source.close()


def test_without_the_hosts_processes_it_says_so(root: Path) -> None:
    (root / "proc/1/cgroup").write_text(f"0::/kubepods/pod{UID.format(1)}/{container(1)}\n")
    with pytest.raises(Unavailable, match="does not show the processes of the host"):
        EnvironFolder(root / "proc").read(frozenset(), 1.0)


def test_its_own_environment_as_linux_shows_it() -> None:
    """The process that runs the tests has one of its own."""
    folder = os.open("/proc/self", os.O_RDONLY)
    try:
        assert b"PATH=" in process_environ._read_below(folder, "environ")
    finally:
        os.close(folder)
