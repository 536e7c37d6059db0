"""The kubelet's links to logs, in a tree of their own."""

import os
import time
from pathlib import Path
from unittest.mock import patch

import pytest

from exporter.model.measured import ProcessPlace
from exporter.model.pods import Owner
from exporter.model.snapshot import Health
from exporter.sources import container_logs
from exporter.sources.container_logs import AGAIN_SECONDS, SETTLED_NS, ContainerLogs
from exporter.usage.process_owners import owner_of
from tests.support.clock import Clock

UID = "0f5b2c31-7d0e-4a52-9c7e-5d1f0a9b8c7d"


def id_of(number: int) -> str:
    return f"{number:064x}"


def owner(container: str = "main", pod: str = "train-0") -> Owner:
    return Owner(namespace="ml", pod=pod, container=container)


def put(root: Path, whose: Owner, number: int, *, uid: str = UID, log: int = 0) -> Path:
    """Make what the kubelet makes for a container; the link."""
    logs = root / f"var/log/pods/{whose.namespace}_{whose.pod}_{uid}/{whose.container}"
    logs.mkdir(parents=True, exist_ok=True)
    folder = root / "var/log/containers"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / (f"{whose.pod}_{whose.namespace}_{whose.container}-{id_of(number)}"[:251] + ".log")
    link.unlink(missing_ok=True)
    link.symlink_to(f"/{(logs / f'{log}.log').relative_to(root)}")
    return link


def settle(root: Path) -> int:
    """A moment at which the folder has not changed for a while, and after which a change has another mtime."""
    time.sleep(0.02)  # a file system's clock ticks every 4 to 10 ms
    return (root / "var/log/containers").stat().st_mtime_ns + SETTLED_NS + 1


def logs_of(root: Path) -> ContainerLogs:
    return ContainerLogs(root=str(root), on_health=lambda *_: None)


def whose(folder: ContainerLogs, number: int, uid: str = UID) -> Owner | None:
    return owner_of(ProcessPlace(container_id=id_of(number), pod_uid=uid), [folder.containers])


def test_containers_come_and_go(tmp_path: Path) -> None:
    folder = logs_of(tmp_path)
    put(tmp_path, owner(), 1)
    first = put(tmp_path, owner("side"), 2)
    folder.look_at_links(settle(tmp_path))
    assert (whose(folder, 1), whose(folder, 2), whose(folder, 3)) == (owner(), owner("side"), None)
    first.unlink()
    put(tmp_path, owner("third"), 3)
    folder.look_at_links(settle(tmp_path))
    assert (whose(folder, 1), whose(folder, 2), whose(folder, 3)) == (owner(), None, owner("third"))


# issue 10, "Must show" 7
def test_nothing_is_read_twice(tmp_path: Path) -> None:
    for number in range(5):
        put(tmp_path, owner(f"c-{number}"), number)
    folder = logs_of(tmp_path)
    with (
        patch.object(os, "readlink", wraps=os.readlink) as readlink,
        patch.object(os, "scandir", wraps=os.scandir) as scan,
    ):
        links = folder.look_at_links(settle(tmp_path))
        assert (readlink.call_count, scan.call_count) == (5, 1)
        assert folder.look_at_links(settle(tmp_path)) is links
        assert (readlink.call_count, scan.call_count) == (5, 1)
        put(tmp_path, owner("late"), 9)
        assert folder.look_at_links(settle(tmp_path)) is not links
        assert (readlink.call_count, scan.call_count) == (6, 2)


def test_a_change_in_the_moment_of_the_look_is_not_missed(tmp_path: Path) -> None:
    put(tmp_path, owner(), 1)
    folder = logs_of(tmp_path)
    place = tmp_path / "var/log/containers"
    changed_ns = place.stat().st_mtime_ns
    folder.look_at_links(changed_ns + 1)
    put(tmp_path, owner("side"), 2)
    os.utime(place, ns=(changed_ns, changed_ns))
    folder.look_at_links(changed_ns + 2)
    assert whose(folder, 2) == owner("side")


def test_what_is_no_link_of_the_kubelets_is_passed_over(tmp_path: Path) -> None:
    put(tmp_path, owner(), 1)
    place = tmp_path / "var/log/containers"
    (place / "notes.log").write_text("a file")
    (place / "folder.log").mkdir()
    os.mkfifo(place / "pipe.log")
    (place / "passwd.log").symlink_to("/etc/passwd")
    (place / os.fsdecode(b"\xff\n.log")).symlink_to("/etc")
    folder = logs_of(tmp_path)
    folder.look_at_links(settle(tmp_path))
    assert whose(folder, 1) == owner()
    assert len(folder.containers.by_id) == 1


# issue 10, "Must show" 4
def test_a_cut_name_counts_while_its_pod_has_one_container(tmp_path: Path) -> None:
    long = owner(pod="p" * 200)
    put(tmp_path, long, 1)
    folder = logs_of(tmp_path)
    folder.look_at_links(settle(tmp_path))
    assert whose(folder, 1) == whose(folder, 2) == long
    # a second one is about to start: its log's folder is there, its link is not
    (tmp_path / f"var/log/pods/ml_{long.pod}_{UID}/second").mkdir()
    folder.look_at_links(settle(tmp_path))
    assert whose(folder, 1) is None


def test_a_cut_name_may_come_to_mean_a_new_pod(tmp_path: Path) -> None:
    long, later = owner(pod="p" * 200), UID.replace("0", "1")
    folder = logs_of(tmp_path)
    put(tmp_path, long, 1)
    folder.look_at_links(settle(tmp_path))
    put(tmp_path, long, 2, uid=later)
    folder.look_at_links(settle(tmp_path))
    assert (whose(folder, 1), whose(folder, 2, later)) == (None, long)


def test_without_the_logs_of_pods_a_cut_name_says_nothing(tmp_path: Path) -> None:
    long = owner(pod="p" * 200)
    put(tmp_path, long, 1)
    (tmp_path / "var/log/pods").rename(tmp_path / "elsewhere")
    folder = logs_of(tmp_path)
    folder.look_at_links(settle(tmp_path))
    assert whose(folder, 1) is None


async def test_the_source_says_how_it_goes(tmp_path: Path) -> None:
    told: list[Health] = []
    clock = Clock()
    source = ContainerLogs(root=str(tmp_path), on_health=lambda _, health: told.append(health), clock=clock)
    first = source.begin()
    assert first is not None
    await first
    assert (told[-1].up, told[-1].reason) == (False, "missing")
    assert "mount the host's /var/log/containers" in told[-1].remedy
    put(tmp_path, owner(), 1)
    assert source.begin() is None
    clock.ahead += AGAIN_SECONDS
    assert source.begin() is None
    reading = source.task
    assert reading is not None
    await reading
    assert (told[-1].up, told[-1].trouble, len(told)) == (True, None, 2)
    assert len(source.containers.by_id) == source.bounds["container_logs"].used() == 1
    assert told[-1].last_success_at_seconds == pytest.approx(time.time(), abs=60)
    # somebody saw a process a moment ago, whose container may be a new one
    put(tmp_path, owner("side"), 2)
    source.look_after(clock() - 0.1)
    assert (source.begin(), source.task) == (None, reading)
    clock.ahead += 0.1
    source.look_after(clock())
    assert source.begin() is None
    assert source.task is not reading
    assert source.task is not None
    await source.task
    assert len(source.containers.by_id) == 2
    await source.close()


async def test_a_folder_without_end_is_read_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_logs, "MOST_LINKS", 3)
    for number in range(5):
        put(tmp_path, owner(f"c-{number}"), number)
    source = ContainerLogs(root=str(tmp_path), on_health=lambda *_: None)
    reading = source.begin()
    assert reading is not None
    await reading
    assert len(source.containers.by_id) == 3
    assert (source.health.up, source.health.reason) == (True, "oversize")
    await source.close()
