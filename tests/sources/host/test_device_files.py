"""Which of the driver's device files may be opened: asked of the kernel, by files of devices that every machine has."""

import ctypes
import errno
import os
import stat
from pathlib import Path

import pytest

from exporter.model.driver import DeviceFile, Refusal
from exporter.sources.host import device_files
from exporter.sources.host.device_files import groups_in, look, read_groups
from tests.support.device_cgroup import device_cgroup, within
from tests.support.places import ROOT

NOBODY = 65534
# /dev/null and its like stand for the driver's: what the kernel asks is the same for every character device
MEM = "Character devices:\n  1 nvidia\n  5 /dev/tty\n\nBlock devices:\n259 nvidia-uvm\n"
OLD = "Character devices:\n195 nvidia-frontend\n236 nvidia-caps\n510 nvidia-uvm\n234 nvidia-nvlink\n\nBlock devices:\n"


@pytest.mark.parametrize(
    ("text", "majors"),
    [
        (OLD, {"nvidia-frontend": 195, "nvidia-caps": 236, "nvidia-uvm": 510}),
        (MEM, {"nvidia": 1}),
        ("Character devices:\n195 nvidia\n 195 nvidiactl\n195 nvidia-modeset\n", {"nvidia": 195}),
        ("Character devices:\n508 nvidia-caps-imex-channels\n509 nvidia-nvswitch\n", {}),
        ("Character devices:\n nvidia\nx nvidia\n-1 nvidia\n٢ nvidia\n1 2 nvidia\n", {}),
        ("Block devices:\n195 nvidia\n", {}),
        ("", {}),
    ],
)
def test_the_drivers_groups(text: str, majors: dict[str, int]) -> None:
    assert groups_in(text) == majors


def test_no_more_than_the_bound_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_files, "MOST_BYTES", len(OLD) // 2)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/devices").write_text(OLD)
    assert read_groups(tmp_path) == {"nvidia-frontend": 195}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine whose driver has the major of /dev/null, and no device file yet."""
    if os.geteuid() != 0:
        pytest.skip("run this as root: it makes device files")
    for folder in ("proc", "dev/nvidia-caps"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "proc/devices").write_text(MEM)
    return tmp_path


def put(root: Path, name: str, minor: int = 3, mode: int = 0o666, major: int = 1) -> None:
    path = root / "dev" / name
    os.mknod(path, stat.S_IFCHR | mode, os.makedev(major, minor))
    path.chmod(mode)


def test_only_the_drivers_character_devices_are_looked_at(root: Path) -> None:
    put(root, "nvidia1")
    put(root, "nvidiactl")
    put(root, "nvidia-caps/nvidia-cap7", mode=0o444)
    put(root, "nvidia9", major=4)  # another driver's
    put(root, "null")
    (root / "dev/nvidia-uvm").write_text("")
    os.mkfifo(root / "dev/nvidia-uvm-tools")
    (root / "dev/nvidia2").symlink_to("nvidia1")
    assert look(root) == (
        DeviceFile("/dev/nvidia-caps/nvidia-cap7"),
        DeviceFile("/dev/nvidia1"),
        DeviceFile("/dev/nvidiactl"),
    )


def test_without_a_driver_there_is_nothing_to_say(root: Path) -> None:
    put(root, "nvidia0")
    (root / "proc/devices").write_text("Character devices:\n  1 mem\n")
    assert look(root) is None
    (root / "proc/devices").unlink()
    with pytest.raises(FileNotFoundError):
        look(root)


def test_without_device_files_there_are_none(root: Path) -> None:
    assert look(root) == ()
    (root / "dev/nvidia-caps").rmdir()
    (root / "dev").rmdir()
    assert look(root) == ()


def test_no_more_files_than_the_bound_are_looked_at(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_files, "MOST_FILES", 2)
    for number in range(3):
        put(root, f"nvidia-caps/nvidia-cap{number}")
    assert len(look(root) or ()) == 2


@pytest.mark.parametrize(
    ("mode", "owner", "group", "refusal"),
    [
        (0o666, 0, 0, ""),
        (0o660, 0, 0, "mode"),
        (0o660, 0, NOBODY, ""),
        (0o600, NOBODY, 0, ""),
        (0o444, 0, 0, "mode"),  # read and write both
        (0o066, NOBODY, 0, "mode"),  # the first class that fits decides, not the best
    ],
)
def test_the_mode_of_a_file(root: Path, mode: int, owner: int, group: int, refusal: Refusal) -> None:
    put(root, "nvidia0", mode=mode)
    put(root, "nvidia-caps/nvidia-cap1", mode=0o444)
    os.chown(root / "dev/nvidia0", owner, group)
    for folder in (*root.parents[:2], root):
        folder.chmod(0o755)
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        seen = look(root)
    finally:
        os.seteuid(0)
        os.setegid(0)
    assert seen == (DeviceFile("/dev/nvidia-caps/nvidia-cap1"), DeviceFile("/dev/nvidia0", refusal))


@pytest.mark.parametrize(("mode", "refusal"), [(0o666, "security_module"), (0o600, "mode")])
def test_a_security_module(root: Path, monkeypatch: pytest.MonkeyPatch, mode: int, refusal: Refusal) -> None:
    """No machine of the tests has one: what it makes of faccessat(2) is played."""

    class Refuses:
        def faccessat(self, *_: object) -> int:
            ctypes.set_errno(errno.EACCES)
            return -1

    put(root, "nvidia0", mode=mode)
    os.chown(root / "dev/nvidia0", NOBODY, NOBODY)
    monkeypatch.setattr(device_files, "_libc", Refuses())
    assert look(root) == (DeviceFile("/dev/nvidia0", refusal),)


# issue 13, "Device access"
def test_the_cgroups_rules(root: Path) -> None:
    """In a real cgroup: what may be opened is what look() says, device by device."""
    for name, minor in (("nvidia0", 3), ("nvidia1", 5), ("nvidiactl", 7)):
        put(root, name, minor)
    code = f"""
sys.path.insert(0, {str(ROOT)!r})
from exporter.sources.host.device_files import look
def opens(path):
    try:
        os.close(os.open(path, os.O_RDWR))
    except PermissionError as error:
        return error.errno
    return 0
root = Path(sys.argv[2])
answer = [[file.path, file.refusal, opens(root / file.path[1:])] for file in look(root)]
"""
    with device_cgroup() as folder:
        (folder / "devices.allow").write_text("c 1:5 rw")
        (folder / "devices.allow").write_text("c 1:7 r")
        assert within(folder, code, str(root)) == [
            ["/dev/nvidia0", "cgroup", 1],
            ["/dev/nvidia1", "", 0],
            ["/dev/nvidiactl", "cgroup", 1],
        ]
