"""Cgroups named as containers': made beside those of others, and removed without them."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from tests.hardware import standing_in
from tests.hardware.standing_in import Cgroups, holder

GPU = "GPU-00000000-1111-2222-3333-444455556666"


@pytest.fixture
def hierarchy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders in place of cgroups, in which a file for processes does not come by itself."""
    for name in ("cgroup.controllers", "cgroup.procs"):
        (tmp_path / name).touch()
    monkeypatch.setattr(standing_in, "HIERARCHIES", tmp_path)
    monkeypatch.setattr(standing_in, "_GONE_SECONDS", 0.3)
    return tmp_path


def empty(folder: Path) -> None:
    """As the kernel does when processes end: the files of a cgroup hinder nobody from removing it."""
    for file in folder.rglob("cgroup.procs"):
        if file.parent != folder:
            file.unlink()


def test_a_process_is_put_into_the_container_of_its_pod_and_all_is_removed(hierarchy: Path) -> None:
    cgroups = Cgroups()
    assert cgroups.why_not == ""
    pod = holder("train", GPU)
    cgroups.enter(4711, pod)
    (of_container,) = hierarchy.rglob("cri-containerd-*.scope")
    assert (of_container / "cgroup.procs").read_text() == "4711"
    assert f"kubepods-burstable-pod{pod.uid.replace('-', '_')}.slice" == of_container.parent.name
    assert len(cgroups.remove()) == 4, "its process has not ended"
    empty(hierarchy)
    assert cgroups.remove() == []
    assert [path.name for path in hierarchy.iterdir() if path.is_dir()] == []


def test_cgroups_of_others_stay_and_are_no_fault(hierarchy: Path) -> None:
    cgroups = Cgroups()
    cgroups.enter(4711, holder("train", GPU))
    others = hierarchy / "kubepods.slice" / "kubepods-burstable.slice" / "kubepods-burstable-podof_others.slice"
    others.mkdir()
    empty(hierarchy)
    assert cgroups.remove() == []
    assert others.exists()
    assert [path.name for path in others.parent.iterdir()] == [others.name]


def test_where_no_cgroup_can_be_made_it_says_why(hierarchy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mkdir(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as read_only:
        read_only.setattr(Path, "mkdir", mkdir)
        assert Cgroups().why_not == f"no cgroup can be made: Read-only file system ({hierarchy})"
    (hierarchy / "cgroup.procs").unlink()
    assert Cgroups().why_not == f"{hierarchy} is no cgroup"


def test_real_cgroups_where_root_may_make_them() -> None:
    cgroups = Cgroups()
    if cgroups.why_not:
        pytest.skip(cgroups.why_not)
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            cgroups.enter(process.pid, holder("train", GPU))
            assert "cri-containerd-" in Path(f"/proc/{process.pid}/cgroup").read_text()
        finally:
            process.kill()
    assert cgroups.remove() == []
