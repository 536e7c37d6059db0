"""One look at a node for `doctor`: every source asked once, and what the file system says of the kubelet's socket."""

import io
import json
import platform
import re
import sys
import tarfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from exporter import __version__
from exporter.config import Config
from exporter.model import Snapshot
from exporter.node import Node
from exporter.outputs import families, findings, gpu_metrics, mapping, own_metrics
from exporter.outputs.findings import Finding, SocketPlace

MOUNTS = Path("/proc/self/mountinfo")


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


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except PermissionError:
        return True  # behind a folder that may not be looked into: what is missing is the right


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


class Checkup:
    """What one look showed."""

    def __init__(self, config: Config, snapshot: Snapshot, found: tuple[Finding, ...], metrics: bytes) -> None:
        self.findings = found
        self._config = config
        self._snapshot = snapshot
        self._metrics = metrics

    def report(self) -> str:
        """For a terminal."""
        return findings.render(self.findings)

    def works(self) -> bool:
        """Whether the main job works."""
        return findings.works(self.findings)

    def write_bundle(self, path: Path) -> None:
        """All of it as a .tar.gz for a bug report. No token, no password: they are in none of these.

        Raises:
            OSError: it cannot be written.
        """
        page = gpu_metrics.render(self._snapshot)
        files = {
            "report.txt": self.report(),
            "mapping.json": json.dumps(mapping.debug(self._snapshot), indent=2),
            "gpu-metrics.prom": b"".join(page[0]) if page else families.why_not(self._snapshot),
            "metrics.prom": self._metrics,
            "settings.json": json.dumps(_without_secrets(asdict(self._config)), indent=2),
            "versions.txt": f"exporter {__version__}\npython {sys.version}\n{platform.platform()}\n",
        }
        with tarfile.open(path, "w:gz") as archive:
            for name, content in files.items():
                body = content if isinstance(content, bytes) else content.encode("utf-8", "replace")
                entry = tarfile.TarInfo(f"pod-gpu-metrics-exporter/{name}")
                entry.size, entry.mtime = len(body), int(time.time())
                archive.addfile(entry, io.BytesIO(body))


async def examine(config: Config) -> Checkup:
    """Ask every source once, with their own timeouts."""
    node = Node(config)
    try:
        snapshot = await node.collect(None)
        own = families.render((*own_metrics.families(snapshot, node.telemetry), *mapping.families(snapshot)))
        metrics = families.complaints(snapshot) + own
        found = findings.examine(snapshot, look_at(config.kubelet_socket))
    finally:
        await node.close()
    return Checkup(config, snapshot, found, metrics)


def _without_secrets(settings: Mapping[str, Any]) -> dict[str, Any]:
    """URLs without user information and without what follows a question mark, which may be a token."""
    hidden = dict(settings)
    for name in ("dcgm_urls", "kubernetes_url"):
        value = hidden[name]
        hidden[name] = [_plain(url) for url in value] if isinstance(value, list | tuple) else value and _plain(value)
    return hidden


def _plain(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}{'?…' if parts.query else ''}"
