"""That the tests' containers are what the probe meets on a node: roots, libraries and cgroups of their own."""

from pathlib import Path

import pytest

from exporter.model.measured import ProcessPlace
from exporter.usage.process_owners import read_cgroups
from tests.cuda.containers import LIBRARIES, Driver, Runtime, cgroup_of, container, container_id, uid
from tests.cuda.programs import Program, built


@pytest.mark.parametrize("driver", ["systemd", "cgroupfs"])
@pytest.mark.parametrize("runtime", ["containerd", "crio"])
def test_a_program_is_in_the_cgroup_that_a_runtime_names(tmp_path: Path, runtime: Runtime, driver: Driver) -> None:
    with (
        container(tmp_path, cgroup_of(uid(7), container_id(8), runtime, driver)) as made,
        Program("launch 0 1 1 1 1 1 1 0", before=made.before, libraries=LIBRARIES) as program,
    ):
        (pid,) = made.pids
        text = Path(f"/proc/{pid}/cgroup").read_text()
        truth = program.done()
    assert read_cgroups(text) == ProcessPlace(container_id=container_id(8), pod_uid=uid(7))
    assert truth.counts[0].launches == 1
    assert not any(folder.exists() for folder in made.folders)
    assert not any(folder.parent.exists() for folder in made.folders)


def test_every_container_has_a_copy_of_its_own_at_the_same_path(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    for root in roots:
        root.mkdir()
    with (
        container(roots[0], cgroup_of(uid(1), container_id(1))) as a,
        container(roots[1], cgroup_of(uid(1), container_id(2))) as b,
    ):
        with (
            Program("", before=a.before, libraries=LIBRARIES),
            Program("", before=b.before, libraries=LIBRARIES, variant="linked"),
        ):
            seen = [Path(f"/proc/{pid}/root/{LIBRARIES}/libcudart.so.13").stat() for pid in (*a.pids, *b.pids)]
            maps = [Path(f"/proc/{pid}/maps").read_text() for pid in (*a.pids, *b.pids)]
        assert len({(each.st_dev, each.st_ino) for each in (*seen, built().runtime.stat())}) == 3
    assert all(f" {LIBRARIES}/libcudart.so.13\n" in text for text in maps)
