"""The memory that the kernel lets the process have, by the cgroups of both versions."""

from pathlib import Path

import pytest

from exporter.bundle.collecting.budget import MOST_BYTES, budget_bytes
from exporter.memory import limit_bytes, room_bytes

MI = 2**20
POD = "kubepods.slice/kubepods-pod1.slice"
V1 = "5:devices:/a\n4:memory:/docker/c\n0::/\n"
NONE_OF_V1 = 0x7FFFFFFFFFFFF000


# issue 22, line 16
@pytest.mark.parametrize(
    ("cgroup", "files", "limit"),
    [
        # a container with a namespace of cgroups of its own
        ("0::/\n", {"memory.max": f"{128 * MI}\n"}, 128 * MI),
        ("0::/\n", {"memory.max": "max\n"}, None),
        # a service of systemd, and a container on the node's namespace
        ("0::/system.slice/x.service\n", {"system.slice/x.service/memory.max": f"{256 * MI}\n"}, 256 * MI),
        (f"0::/{POD}/c\n", {f"{POD}/memory.max": f"{64 * MI}\n", f"{POD}/c/memory.max": f"{128 * MI}\n"}, 64 * MI),
        (f"0::/{POD}/c\n", {"memory.max": f"{128 * MI}\n"}, 128 * MI),
        (V1, {"memory/memory.limit_in_bytes": f"{128 * MI}\n"}, 128 * MI),
        (V1, {"memory/docker/c/memory.limit_in_bytes": f"{NONE_OF_V1}\n"}, None),
        (V1, {"memory/docker/c/memory.limit_in_bytes": "noise\n"}, None),
        (V1, {}, None),
        (None, {"memory.max": f"{128 * MI}\n"}, None),
    ],
)
def test_the_limit_is_the_least_of_the_process_cgroups(
    cgroup: str | None, files: dict[str, str], limit: int | None, tmp_path: Path
) -> None:
    if cgroup is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert limit_bytes(tmp_path) == limit


# issue 25, part 1
@pytest.mark.parametrize(
    ("cgroup", "top", "limit", "used", "statistics", "room"),
    [
        ("0::/\n", "", ("memory.max", 128), ("memory.current", 90), "anon 1\nfile 20971520\nshmem 0\n", 58),
        ("0::/\n", "", ("memory.max", 128), ("memory.current", 90), "file 20971520\nshmem 20971520\n", 38),
        (V1, "memory", ("memory.limit_in_bytes", 256), ("memory.usage_in_bytes", 100), "total_cache 10485760\n", 166),
        ("0::/\n", "", ("memory.max", 64), ("memory.current", 90), "file 0\n", -26),
        ("0::/\n", "", ("memory.max", 64), ("memory.elsewhere", 90), "file 0\n", None),
    ],
)
def test_the_room_is_what_no_process_there_uses(
    cgroup: str,
    top: str,
    limit: tuple[str, int],
    used: tuple[str, int],
    statistics: str,
    room: int | None,
    tmp_path: Path,
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(cgroup)
    folder = tmp_path / "sys/fs/cgroup" / top
    folder.mkdir(parents=True)
    for name, mib in (limit, used):
        (folder / name).write_text(f"{mib * MI}\n")
    (folder / "memory.stat").write_text(statistics)
    assert room_bytes(tmp_path) == (None if room is None else room * MI)


def test_a_bundle_takes_a_third_of_what_is_left() -> None:
    rooms = (None, 1024 * MI, 54 * MI, 24 * MI, -1)
    assert [budget_bytes(room) for room in rooms] == [MOST_BYTES, MOST_BYTES, 10 * MI, 0, 0]
