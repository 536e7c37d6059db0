"""`device-access`: what it does to a real cgroup of version 1, to systemd's command, and what it refuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.cli import device_access
from exporter.cli.main import run
from tests.support.device_cgroup import device_cgroup, within

DEVICES = "Character devices:\n  1 mem\n195 nvidia\n236 nvidia-caps\n510 nvidia-uvm\n\nBlock devices:\n259 blkext\n"
GRANTED = ["c 195:* rwm", "c 236:* rwm", "c 510:* rwm"]
# what systemctl is: it writes down what it is given, and shows of a unit what the test says
SYSTEMCTL = """#!/bin/sh
echo "$@" >>{folder}/asked
case "$1" in
show) cat {folder}/shown;;
*) cat {folder}/refusal >&2; test ! -s {folder}/refusal;;
esac
"""
CLOSED = "LoadState=loaded\nDevicePolicy=closed\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a driver, booted with systemd, and with cgroups of version 1 that are files and folders."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/devices").write_text(DEVICES)
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    put_cgroup(tmp_path, "devices", "devices.allow")
    put_cgroup(tmp_path, "devices/docker/a", "devices.allow")
    put_cgroup(tmp_path, "memory/docker/a", "memory.max")
    put_cgroup(tmp_path, "unified/docker/a", "cgroup.controllers")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "systemctl").write_text(SYSTEMCTL.format(folder=tmp_path))
    (programs / "systemctl").chmod(0o755)
    (tmp_path / "shown").write_text(CLOSED)
    (tmp_path / "refusal").write_text("")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(device_access, "ROOT", tmp_path)
    return tmp_path


def put_cgroup(root: Path, path: str, file: str) -> None:
    folder = root / "sys/fs/cgroup" / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text("")


def asked(root: Path) -> list[str]:
    return (root / "asked").read_text().splitlines()


def written(root: Path, path: str = "devices/docker/a") -> str:
    return (root / "sys/fs/cgroup" / path / "devices.allow").read_text()


def says(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[str]:
    """The lines that it says: on standard output if it succeeds, and the one on standard error if not."""
    assert run(["device-access", *arguments]) == code
    out, err = capsys.readouterr()
    if not code:
        assert not err
        return out.splitlines()
    assert err.count("\n") == 1, err
    return [err.strip().removeprefix("pod-gpu-metrics-exporter: ")]


# issue 13, "Device access"
def test_a_process_in_a_real_cgroup_may_open_the_devices_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Devices that every machine has stand for a GPU's: their groups, mem and tty, are the driver's here."""
    for path in ("proc", "sys/fs"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "proc/devices").write_text("Character devices:\n  1 nvidia\n  5 nvidia-uvm\n\nBlock devices:\n")
    (tmp_path / "sys/fs/cgroup").symlink_to("/sys/fs/cgroup")
    monkeypatch.setattr(device_access, "ROOT", tmp_path)
    code = """
def opens(path):
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError:
        return False
    return True
answer = [opens("/dev/null"), opens("/dev/zero"), opens("/dev/ptmx"), opens("/dev/fuse")]
"""
    with device_cgroup() as folder:
        assert within(folder, code) == [False] * 4
        assert says(capsys, "--cgroup", str(folder), "--dry-run")[0].startswith("would write 'c 1:* rwm' to ")
        assert within(folder, code) == [False] * 4
        # as in /proc/<pid>/cgroup
        assert says(capsys, "--cgroup", f"/{folder.name}") == [
            f"{folder} may open nvidia (major 1)",
            f"{folder} may open nvidia-uvm (major 5)",
        ]
        assert within(folder, code) == [True, True, True, False]
        assert (folder / "devices.list").read_text() == "c 1:* rwm\nc 5:* rwm\n"
        # a cgroup cannot have what the one above it has not
        (folder / "below").mkdir()
        try:
            (folder / "devices.deny").write_text("c 1:* rwm")
            (line,) = says(capsys, "--cgroup", f"{folder}/below", code=1)
            assert "only what the cgroup above it may open itself" in line
        finally:
            (folder / "below").rmdir()


@pytest.mark.parametrize("path", ["/sys/fs/cgroup/devices/docker/a", "/docker/a", "/docker//a/", "//docker/./a"])
def test_a_cgroup_of_version_1(root: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    where = "/sys/fs/cgroup/devices/docker/a"
    assert says(capsys, f"--cgroup={path}", "--dry-run") == [
        f"would write '{rule}' to {where}/devices.allow, for {group}"
        for rule, group in zip(GRANTED, ("nvidia", "nvidia-caps", "nvidia-uvm"), strict=True)
    ]
    assert written(root) == ""
    assert says(capsys, f"--cgroup={path}") == [
        f"{where} may open nvidia (major 195)",
        f"{where} may open nvidia-caps (major 236)",
        f"{where} may open nvidia-uvm (major 510)",
    ]
    # the kernel takes one rule a write
    assert written(root) == GRANTED[-1]
    assert written(root, "devices") == ""


# issue 13, "Device access"
@pytest.mark.parametrize("version_1", [True, False])
def test_a_cgroup_of_version_2_is_left_alone(root: Path, version_1: bool, capsys: pytest.CaptureFixture[str]) -> None:
    path = "/sys/fs/cgroup/unified/docker/a"
    if not version_1:
        path = "/docker/b"
        put_cgroup(root, "docker/b", "cgroup.controllers")
        (root / "sys/fs/cgroup/devices/devices.allow").unlink()
    before = {file: file.read_bytes() for file in root.rglob("*") if file.is_file()}
    (line,) = says(capsys, f"--cgroup={path}", code=1)
    for part in ("is a cgroup of version 2", "BPF program", "rules of others", "runtimeClassName: nvidia", "--unit"):
        assert part in line
    assert {file: file.read_bytes() for file in root.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(
    ("path", "code", "part"),
    [
        ("", 2, "without .. and links"),
        ("docker/a", 2, "without .. and links"),
        ("/sys/fs/cgroup/devices/../devices/docker/a", 2, "without .. and links"),
        ("/../../..", 2, "without .. and links"),
        ("/docker\n/a", 2, "without .. and links"),
        ("/docker/link", 2, "without .. and links"),
        ("/docker/link/a", 2, "without .. and links"),
        ("/docker/a/devices.allow", 2, "without .. and links"),
        ("/docker/b", 1, "there is no cgroup /sys/fs/cgroup/devices/docker/b"),
        ("/docker/" + "x" * 300, 1, "cannot be opened: File name too long"),
        ("/sys/fs/cgroup/memory/docker/a", 1, "has no devices.allow: name the cgroup below /sys/fs/cgroup/devices"),
    ],
)
def test_what_is_no_cgroup(root: Path, path: str, code: int, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "sys/fs/cgroup/devices/docker/link").symlink_to("/")
    (line,) = says(capsys, f"--cgroup={path}", code=code)
    assert part in line


def test_a_link_in_place_of_the_rules_is_not_written_through(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = root / "sys/fs/cgroup/devices/docker/a/devices.allow"
    file.unlink()
    (root / "other").write_text("as before")
    file.symlink_to(root / "other")
    assert "does not take" in says(capsys, "--cgroup=/docker/a", code=1)[0]
    assert (root / "other").read_text() == "as before"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(st.sampled_from(["..", ".", "", "docker", "a", "link", "sys", "fs", "cgroup"]) | st.text(max_size=5))
)
def test_no_path_leads_out_of_the_cgroups(root: Path, parts: list[str]) -> None:
    """Whatever is named, only rules of cgroups are written."""
    link = root / "sys/fs/cgroup/devices/docker/link"
    if not link.is_symlink():
        link.symlink_to(root / "outside")
        put_cgroup(root, "../../../outside", "devices.allow")
    run(["device-access", f"--cgroup=/{'/'.join(parts)}"])
    assert (root / "outside/devices.allow").read_text() == ""


# issue 13, "Device access"
@pytest.mark.parametrize(
    ("flags", "how", "until"),
    [([], "--runtime -- ", "until the machine restarts"), (["--persistent"], "-- ", "for good")],
)
def test_a_unit(root: Path, flags: list[str], how: str, until: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = "dcgm-exporter@0.service"
    groups = ("nvidia", "nvidia-caps", "nvidia-uvm")
    (line,) = says(capsys, "--unit", name, "--dry-run", *flags)
    quoted = " ".join(f"'DeviceAllow=char-{group} rwm'" for group in groups)
    assert line == f"would run: systemctl set-property {how}{name} {quoted}"
    assert len(asked(root)) == 1
    assert says(capsys, "--unit", name, *flags) == [
        f"{name} may open nvidia (major 195) {until}",
        f"{name} may open nvidia-caps (major 236) {until}",
        f"{name} may open nvidia-uvm (major 510) {until}",
    ]
    given = " ".join(f"DeviceAllow=char-{group} rwm" for group in groups)
    assert asked(root)[1:] == [
        f"show --property=LoadState,DevicePolicy,DeviceAllow -- {name}",
        f"set-property {how}{name} {given}",
    ]


@pytest.mark.parametrize(
    ("shown", "is_set"),
    [
        (CLOSED, True),
        ("LoadState=loaded\nDevicePolicy=strict\nDeviceAllow=\n", True),
        ("LoadState=loaded\nDevicePolicy=auto\nDeviceAllow=/dev/fuse rwm\nDeviceAllow=char-pts rw\n", True),
        ("LoadState=loaded\nDevicePolicy=auto\nDeviceAllow=\n", False),
        ("LoadState=loaded\nDevicePolicy=auto\n", False),
    ],
)
def test_a_unit_that_may_open_all_devices_loses_none(
    root: Path, shown: str, is_set: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its first DeviceAllow= would: see DevicePolicy=auto in systemd.resource-control(5)."""
    (root / "shown").write_text(shown)
    lines = says(capsys, "--unit=a.service")
    assert (len(asked(root)) == 2) is is_set
    if not is_set:
        assert lines == [
            "a.service may open every device already (DevicePolicy=auto without DeviceAllow=): nothing is done"
        ]


@pytest.mark.parametrize(
    "unit", ["", "a/b.service", "../a", "-H", "--runtime", "a b", "a*.service", "a.service\n", "é.service", "x" * 256]
)
def test_what_is_no_name_of_a_unit(root: Path, unit: str, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = says(capsys, f"--unit={unit}", code=2)
    assert "it takes the name of one unit, of letters, digits and" in line
    assert not (root / "asked").exists()


def test_a_unit_that_systemd_does_not_know(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "shown").write_text("LoadState=not-found\nDevicePolicy=auto\n")
    assert says(capsys, "--unit=a", code=1) == ["a: systemd has no such unit loaded (not-found)"]
    (root / "shown").write_text("")
    assert says(capsys, "--unit=a", code=1) == ["a: systemd has no such unit loaded (it says nothing)"]


def test_what_systemctl_says_of_its_failure_is_said(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "refusal").write_text("Failed to set unit properties:\nAccess denied\n")
    assert says(capsys, "--unit=a", code=1) == ["systemctl set-property: Failed to set unit properties: Access denied"]


def test_without_systemd(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "run/systemd/system").rmdir()
    assert "systemd does not run here" in says(capsys, "--unit=a", code=1)[0]
    (root / "run/systemd/system").mkdir()
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "systemd does not run here" in says(capsys, "--unit=a", code=1)[0]


def test_a_systemctl_that_hangs_is_not_waited_for(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "bin/systemctl").write_text("#!/bin/sh\nexec sleep 30\n")
    monkeypatch.setattr(device_access, "SYSTEMCTL_SECONDS", 0.2)
    assert "timed out after 0.2 seconds" in says(capsys, "--unit=a", code=1)[0]


def test_without_a_driver(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "proc/devices").write_text("Character devices:\n  1 mem\n")
    assert "load the driver first" in says(capsys, "--cgroup=/docker/a", code=1)[0]
    (root / "proc/devices").unlink()
    assert says(capsys, "--unit=a", code=1) == ["/proc/devices cannot be read: No such file or directory"]


def test_a_driver_without_cudas_part(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "proc/devices").write_text("Character devices:\n195 nvidia-frontend\n")
    assert says(capsys, "--cgroup=/docker/a") == [
        "/sys/fs/cgroup/devices/docker/a may open nvidia-frontend (major 195)",
        "/proc/devices does not name nvidia-uvm, which CUDA needs: nvidia-modprobe -u loads it; run this again then",
    ]


@pytest.mark.parametrize("arguments", [[], ["--unit=a", "--cgroup=/a"], ["--cgroup=/a", "--persistent"]])
def test_flags_that_do_not_go_together(root: Path, arguments: list[str]) -> None:
    assert run(["device-access", *arguments]) == 2


def test_a_cgroup_that_is_mounted_for_reading_alone(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in a container."""
    if os.geteuid() != 0:
        pytest.skip("run this as root: it mounts a file")
    file = root / "sys/fs/cgroup/devices/docker/a/devices.allow"
    code = f"mount --bind {file} {file} && mount -o remount,ro,bind {file}"
    program = (
        "from pathlib import Path; from exporter.cli import device_access; from exporter.cli.main import run;"
        f"device_access.ROOT = Path({str(root)!r}); raise SystemExit(run(['device-access', '--cgroup=/docker/a']))"
    )
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{code} && exec "$0" -c "$1"', sys.executable, program],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert ended.returncode == 1
    assert "only root may, on the machine itself" in ended.stderr
