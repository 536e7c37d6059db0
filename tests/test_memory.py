"""The memory that the kernel lets the process have, by the cgroups of both versions."""

from pathlib import Path

import pytest

from exporter.memory import limit_bytes

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
