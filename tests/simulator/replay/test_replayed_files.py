"""Files of a bundle: they come, change and go with the moments, and none is written elsewhere."""

from pathlib import Path

import pytest

from exporter.errors import ExporterError
from exporter.simulator.replay.replayed_files import ReplayedFiles, page_file

LOG = "root/var/log/containers/pod_ns_main-0123.log"


def below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()}


def test_files_come_change_and_go(tmp_path: Path) -> None:
    files = ReplayedFiles(tmp_path)
    files.show({"root/proc/7/stat": b"7", "root/proc/1/cgroup": b"0::/", "kubelet/a/b.json": b"{}", "inventory": b"1"})
    assert below(tmp_path) == {"root/proc/7/stat", "root/proc/1/cgroup", "kubelet/a/b.json", "inventory"}
    before = (tmp_path / "root/proc/1/cgroup").stat().st_ino
    changed = (tmp_path / "inventory").stat().st_ino
    files.show({"root/proc/1/cgroup": b"0::/", "inventory": b"2", "root/dev/kmsg": b"no file"})
    assert below(tmp_path) == {"root/proc/1/cgroup", "inventory"}
    assert not (tmp_path / "root/proc/7").exists()  # the process has ended
    assert (tmp_path / "root/proc/1/cgroup").stat().st_ino == before
    assert (tmp_path / "inventory").stat().st_ino != changed  # it was renamed into place


def test_a_log_is_a_link(tmp_path: Path) -> None:
    files = ReplayedFiles(tmp_path)
    files.show({LOG: b"/var/log/pods/ns_pod_uid/main/0.log"})
    assert str((tmp_path / LOG).readlink()) == "/var/log/pods/ns_pod_uid/main/0.log"
    files.show({})
    assert below(tmp_path) == set()
    assert (tmp_path / LOG).parent.is_dir()  # the node has the folder though no container runs


def test_a_page_has_its_own_folder(tmp_path: Path) -> None:
    files = ReplayedFiles(tmp_path)
    places = ("page/file:/run/a/dcgm.prom", "page/file:/run/b/dcgm.prom")
    files.show(dict.fromkeys(places, b"x 1\n"))
    assert {Path(path).name for path in below(tmp_path)} == {"dcgm.prom"}
    assert below(tmp_path) == set(map(page_file, places))


@pytest.mark.parametrize(
    "place",
    [
        "root/../../etc/cron.d/x",
        "/etc/passwd",
        "root",
        "etc/passwd",
        "rules/x",
        "page/../../x",
        "root/a\0b",
        "",
    ],
)
def test_no_place_leads_elsewhere(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(ExporterError, match="it is broken"):
        ReplayedFiles(folder).show({place: b"evil"})
    assert below(tmp_path) == set()


@pytest.mark.parametrize("first", [True, False])
def test_nothing_is_written_through_a_link(tmp_path: Path, *, first: bool) -> None:
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    link = {"root/var/log/containers/evil": str(elsewhere).encode()}
    below_it = {"root/var/log/containers/evil/x": b"evil"}
    with pytest.raises(ExporterError):
        ReplayedFiles(folder).show({**link, **below_it} if first else {**below_it, **link})
    assert below(elsewhere) == set()


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(ExporterError, match="cannot be written"):
        ReplayedFiles(tmp_path).show({"root/a": b"", "root/a/b": b""})
