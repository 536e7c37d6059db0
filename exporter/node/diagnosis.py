"""What a look at a node amounts to: the findings of `doctor`, which the running exporter shows on /debug/mapping."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from exporter import __version__
from exporter.config.node import Config
from exporter.model.snapshot import Snapshot
from exporter.outputs.findings.of_devices import of_attribution, of_devices, summary
from exporter.outputs.findings.of_sources import SocketPlace, of_kubelet, of_other_sources, of_pages
from exporter.outputs.findings.report import Finding, Level, Report

MOUNTS = Path("/proc/self/mountinfo")


def diagnose(config: Config, snapshot: Snapshot) -> Report:
    """Everything worth saying, the sources first."""
    return Report(
        summary=summary(snapshot),
        findings=(
            *_of_settings(config),
            *of_kubelet(snapshot, look_at(config.kubelet.socket)),
            *of_pages(snapshot),
            *of_other_sources(snapshot),
            *of_attribution(snapshot),
            *of_devices(snapshot),
        ),
    )


def as_json(config: Config, snapshot: Snapshot) -> Mapping[str, Any]:
    """What /debug/mapping says beside the mapping: the program, its settings (no secret is in them), and the report."""
    return {
        "version": __version__,
        "settings": config.shown(),
        "doctor": diagnose(config, snapshot).as_json(),
    }


def look_at(socket: str, mounts: Path = MOUNTS) -> SocketPlace:
    """What the file system says of a socket. `mounts` is in the form of /proc/self/mountinfo (proc(5))."""
    path = Path(socket)
    try:
        points = {_unescape(line.split()[4]) for line in mounts.read_text(encoding="utf-8").splitlines() if line}
    except (OSError, UnicodeDecodeError, IndexError):
        points = set()
    return SocketPlace(
        path=socket,
        folder_exists=_is_folder(path.parent),
        is_mount_point=socket in points or str(path.resolve()) in points,
    )


def _of_settings(config: Config) -> Iterator[Finding]:
    for doubt in config.doubts:
        yield Finding(level=Level.WARNING, about="settings", says=doubt.says, remedy=doubt.remedy)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except PermissionError:
        return True  # behind a folder that may not be looked into: what is missing is the right


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
