"""`device-access`: lets a systemd unit, or a cgroup, open the character devices of NVIDIA's driver."""

import errno
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import click

from exporter.cli.commands import Help, command
from exporter.errors import ConfigError, ExporterError
from exporter.sources.host.device_files import DEVICES, read_groups

# the root of the machine's folders; tests have another one
ROOT = Path("/")
CGROUPS = "sys/fs/cgroup"
SYSTEMCTL_SECONDS = 30.0
_CONTROLLER = "devices"
_ALLOW = "devices.allow"
_MEMORY = "nvidia-uvm"
_ALL = "rwm"
_UNIT = re.compile(r"[A-Za-z0-9:_.@\\][A-Za-z0-9:_.@\\-]{0,254}")
_NO_DRIVER = (
    "names no group of NVIDIA's: load the driver first (nvidia-smi does so, and nvidia-modprobe -u CUDA's part)"
)
_V2 = (
    "is a cgroup of version 2: its access to devices is a BPF program of whoever made it, and to change that would be"
    " to remove their program, and with it rules of others. Give the container NVIDIA's runtime (runtimeClassName:"
    " nvidia; with Docker --gpus all, or CDI), or a systemd unit its devices with --unit"
)


_HELP = Help(
    usage="--unit NAME | --cgroup PATH",
    says="Let a systemd unit, or a cgroup, open the devices of NVIDIA's driver.",
    groups={
        "Whom": {
            "--unit": "A unit of systemd",
            "--cgroup": "A cgroup of version 1",
        },
        "How": {
            "--persistent": "Also after a restart",
            "--dry-run": "Only say what would be done",
        },
    },
    examples=(
        "device-access --unit dcgm.service",
        "device-access --unit dcgm.service --persistent",
        "device-access --cgroup /system.slice/dcgm.service",
    ),
    more="--help-all says more of each.",
)


@command(_HELP, "device-access")
@click.option("--unit", metavar="NAME", help="A unit of systemd, such as dcgm-exporter.service.")
@click.option(
    "--cgroup", metavar="PATH", help="A cgroup of version 1: below /sys/fs/cgroup, or as in /proc/PID/cgroup."
)
@click.option("--persistent", is_flag=True, help="With --unit: also after a restart of the machine.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
def device_access(unit: str | None, cgroup: str | None, persistent: bool, dry_run: bool) -> None:
    """Let a systemd unit, or a cgroup, open the devices of NVIDIA's driver.

    It runs on the machine itself, as root. Every group of devices that the driver has registered is granted, whole:
    /dev/nvidia* and /dev/nvidiactl, /dev/nvidia-uvm*, /dev/nvidia-caps/*. What the modes of the files refuse stays
    refused.
    """
    if (unit is None) == (cgroup is None):
        raise ConfigError("device-access: give --unit NAME or --cgroup PATH, one of the two")
    if persistent and unit is None:
        raise ConfigError("--persistent: a cgroup has no setting that would outlive it; it goes with --unit")
    below = PurePosixPath() if cgroup is None else _below_the_root(cgroup)
    if unit is not None and not _UNIT.fullmatch(unit):
        raise ConfigError(
            f"--unit: {unit!r} is not allowed; it takes the name of one unit, of letters, digits and :-_.@\\, such as"
            " dcgm-exporter.service"
        )
    try:
        majors = read_groups(ROOT)
    except OSError as error:
        raise ExporterError(f"/{DEVICES} cannot be read: {error.strerror}") from error
    if not majors:
        raise ExporterError(f"/{DEVICES} {_NO_DRIVER}")
    if unit is not None:
        lines = _grant_to_unit(unit, majors, persistent=persistent, dry_run=dry_run)
    else:
        lines = _grant_to_cgroup(cgroup or "", below, majors, dry_run=dry_run)
    for line in lines:
        print(line)
    if _MEMORY not in majors:
        print(f"/{DEVICES} does not name {_MEMORY}, which CUDA needs: nvidia-modprobe -u loads it; run this again then")


def _grant_to_unit(unit: str, majors: Mapping[str, int], *, persistent: bool, dry_run: bool) -> Iterator[str]:
    """Grant the devices to a unit. Return the lines for the user. Raises ExporterError if systemd does not do it."""
    systemctl = shutil.which("systemctl")
    if systemctl is None or not (ROOT / "run/systemd/system").is_dir():
        raise ExporterError(
            "systemd does not run here (no systemctl, or no /run/systemd/system): run this on the machine itself, or"
            " use --cgroup"
        )
    shown = dict(
        line.split("=", 1)
        for line in _run(systemctl, "show", "--property=LoadState,DevicePolicy,DeviceAllow", "--", unit).splitlines()
        if "=" in line
    )
    if shown.get("LoadState") != "loaded":
        raise ExporterError(f"{unit}: systemd has no such unit loaded ({shown.get('LoadState') or 'it says nothing'})")
    if shown.get("DevicePolicy") == "auto" and not shown.get("DeviceAllow"):
        # a first DeviceAllow= would take every other device away from the unit
        yield f"{unit} may open every device already (DevicePolicy=auto without DeviceAllow=): nothing is done"
        return
    how = ["set-property", *([] if persistent else ["--runtime"]), "--", unit]
    # char-<group> means every device of a group in /proc/devices: systemd.resource-control(5)
    properties = [f"DeviceAllow=char-{group} {_ALL}" for group in majors]
    if dry_run:
        yield f"would run: {shlex.join(['systemctl', *how, *properties])}"
        return
    _run(systemctl, *how, *properties)
    until = "for good" if persistent else "until the machine restarts"
    for group, major in majors.items():
        yield f"{unit} may open {group} (major {major}) {until}"


def _run(systemctl: str, *arguments: str) -> str:
    """The output of systemctl. Raises ExporterError: it cannot be run, fails, or takes too long."""
    try:
        ended = subprocess.run(  # noqa: S603 - no shell, and the unit's name follows --
            [systemctl, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=SYSTEMCTL_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ExporterError(f"systemctl {arguments[0]}: {error}") from error
    if ended.returncode:
        raise ExporterError(f"systemctl {arguments[0]}: {ended.stderr.strip() or f'exit code {ended.returncode}'}")
    return ended.stdout


def _grant_to_cgroup(path: str, below: PurePosixPath, majors: Mapping[str, int], *, dry_run: bool) -> Iterator[str]:
    """Grant the devices to a cgroup. Return the lines for the user.

    `path` is the cgroup as the user named it, and `below` is its place below /sys/fs/cgroup.

    Raises:
        ConfigError: a part of `below` is no folder.
        ExporterError: it is no cgroup of version 1, or the kernel refuses.
    """
    shown = f"/{CGROUPS}/{below}"
    folder = _open(below, path)
    try:
        if not _has(folder, _ALLOW):
            if _has(folder, "cgroup.controllers"):
                raise ExporterError(f"{shown} {_V2}")
            raise ExporterError(f"{shown} has no {_ALLOW}: name the cgroup below /{CGROUPS}/{_CONTROLLER}")
        for group, major in majors.items():
            rule = f"c {major}:* {_ALL}"
            if dry_run:
                yield f"would write '{rule}' to {shown}/{_ALLOW}, for {group}"
            else:
                _write(folder, rule, shown)
                yield f"{shown} may open {group} (major {major})"
    finally:
        os.close(folder)


def _below_the_root(path: str) -> PurePosixPath:
    """The cgroup's place below /sys/fs/cgroup. Raises ConfigError if it is elsewhere, or may be."""
    if not path.startswith("/") or ".." in path.split("/") or not path.isprintable():
        raise ConfigError(_not_allowed(path))
    pure = PurePosixPath(path.lstrip("/"))
    if pure.is_relative_to(CGROUPS):
        return pure.relative_to(CGROUPS)
    # if version 1 has the controller, it decides about devices, even if version 2 is mounted beside it
    return _CONTROLLER / pure if (ROOT / CGROUPS / _CONTROLLER / _ALLOW).exists() else pure


def _has(folder: int, name: str) -> bool:
    return os.access(name, os.F_OK, dir_fd=folder, follow_symlinks=False)


def _open(below: PurePosixPath, path: str) -> int:
    """Open a cgroup's folder part by part, so that no link leads out. Raises the same as `_grant_to_cgroup`."""
    try:
        folder = os.open(ROOT / CGROUPS, os.O_RDONLY | os.O_DIRECTORY)
        for part in below.parts:
            above = folder
            try:
                folder = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
            finally:
                os.close(above)
    except NotADirectoryError:
        raise ConfigError(_not_allowed(path)) from None
    except FileNotFoundError:
        raise ExporterError(f"there is no cgroup /{CGROUPS}/{below}") from None
    except OSError as error:
        raise ExporterError(f"/{CGROUPS}/{below} cannot be opened: {error.strerror}") from error
    return folder


def _not_allowed(path: str) -> str:
    return (
        f"--cgroup: {path!r} is not allowed; it takes the folder of a cgroup below /{CGROUPS}, or a path as in"
        " /proc/PID/cgroup; without .. and links"
    )


def _write(folder: int, rule: str, shown: str) -> None:
    """Allow a device in the cgroup that is open as `folder`. Raises ExporterError: the kernel refuses."""
    try:
        file = os.open(_ALLOW, os.O_WRONLY | os.O_NOFOLLOW, dir_fd=folder)
        try:
            os.write(file, rule.encode())
        finally:
            os.close(file)
    except OSError as error:
        # the kernel has the same words for both reasons
        why = (
            "only root may, on the machine itself, and only what the cgroup above it may open itself"
            if error.errno in {errno.EPERM, errno.EACCES, errno.EROFS}
            else error.strerror
        )
        raise ExporterError(f"{shown}/{_ALLOW} does not take '{rule}': {why}") from error
