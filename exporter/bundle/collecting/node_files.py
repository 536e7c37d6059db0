"""The files that sources may read, by their places in a bundle. Of a file that tells more, only the needed parts stay.

- the driver's own, /proc/driver/nvidia and /proc/driver/nvidia-caps/mig-minors, and /proc/devices, as they are;
- CDI specs, the kubelet's checkpoint of devices and the DRA driver's of claims, with what is read of them: these files
  also tell environments, mounts and hooks of containers;
- the files of --inventory.file, --device-rules and --dcgm.file, as they are;
- the names of the links in /var/log/containers, which say whose they are.

Nothing is read of a process but /proc/PID/cgroup and /proc/PID/stat: neither its command line nor its environment.

Tests: tests/bundle/test_collecting.py.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from exporter.bundle.collecting.needed_parts import checkpoint_parts
from exporter.config.files import read_at_most
from exporter.config.node_settings import Config
from exporter.errors import Trouble
from exporter.sources import claim_access, container_logs, driver_inventory
from exporter.sources.cdi import cdi_source, specs
from exporter.sources.host import device_files
from exporter.sources.kubelet import device_checkpoint
from exporter.sources.source import MOST_LINKS, MOST_PROCESSES

MOST_BYTES = 16 * 1024 * 1024
_DRIVER = str(Path(driver_inventory.FOLDER).parent)
_MOST_DRIVER_FILES = 2_000
_MOST_DRIVER_BYTES = 64 * 1024
_MOST_DEPTH = 6

_Reduce = Callable[[bytes], bytes]
# A place, the file's path, and what makes of its content what is kept.
_Place = tuple[str, str, _Reduce]


def read_all(config: Config, pids: Iterable[int]) -> tuple[dict[str, bytes], dict[str, Trouble]]:
    """The content of each file that is there, by its place; and why others cannot be read, by their paths.

    It takes as long as the files take: a driver that has lost a GPU may be slow.

    Args:
        config: the settings that name files, and the root of the others.
        pids: the processes on the node's GPUs, by their numbers on the host.
    """
    contents: dict[str, bytes] = {}
    troubles: dict[str, Trouble] = {}
    for place, path, reduce in _places(config, pids):
        try:
            contents[place] = reduce(read_at_most(path, MOST_BYTES))
        except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
            continue
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", "") or str(error)
            troubles[path] = Trouble("permission", f"{path} cannot be read: {why}", "run doctor as the exporter runs")
    contents.update(_logs(config.root))
    return contents, troubles


def _places(config: Config, pids: Iterable[int]) -> Iterator[_Place]:
    """The files that there may be, those of the driver first."""
    base = config.root.rstrip("/")
    for path in (*_driver_files(base), base + cdi_source.MINORS, f"{base}/{device_files.DEVICES}"):
        yield f"root{path.removeprefix(base)}", path, _as_it_is
    for folder in cdi_source.FOLDERS:
        for path in _specs(base + folder):
            yield f"root{path.removeprefix(base)}", path, specs.needed_parts
    of_processes = [f"proc/{pid}/{name}" for pid in sorted(pids)[:MOST_PROCESSES] for name in ("cgroup", "stat")]
    for place in ("proc/1/cgroup", "proc/self/cgroup", *of_processes):
        yield f"root/{place}", f"{base}/{place}", _as_it_is
    socket = config.kubelet.socket
    of_plugins = device_checkpoint.device_checkpoint_beside(socket)
    yield f"kubelet/{device_checkpoint.CHECKPOINT}", of_plugins, device_checkpoint.needed_parts
    yield f"kubelet/{claim_access.CHECKPOINT}", claim_access.checkpoint_beside(socket), checkpoint_parts
    if config.devices.inventory_file:
        yield "inventory", config.devices.inventory_file, _as_it_is
    if config.devices.rules_file:
        yield "rules", config.devices.rules_file, _as_it_is
    for path in config.dcgm.files:
        yield f"page/file:{path}", path, _as_it_is


def _as_it_is(content: bytes) -> bytes:
    return content


def _driver_files(base: str) -> Iterator[str]:
    """The paths of the driver's text files."""
    files = _below(Path(base + _DRIVER), _MOST_DEPTH)
    yield from islice(files, _MOST_DRIVER_FILES)


def _below(folder: Path, depth: int) -> Iterator[str]:
    """The regular files in a folder and in those below it, without links."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink():
            continue
        if entry.is_dir() and depth:
            yield from _below(entry, depth - 1)
        elif entry.is_file() and entry.stat().st_size <= _MOST_DRIVER_BYTES:
            yield str(entry)


def _specs(folder: str) -> Iterator[str]:
    """The paths of the CDI specs in a folder."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, specs.MOST_ENTRIES))
    except OSError:
        return
    for name in names[: specs.MOST_FILES]:
        if name.endswith((".json", ".yaml")):
            yield f"{folder}/{name}"


def _logs(root: str) -> Iterator[tuple[str, bytes]]:
    """The links to containers' logs by their places, each with what it links to: both say whose log it is."""
    folder = Path(root) / container_logs.FOLDER
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, MOST_LINKS)]
    except OSError:
        return
    for name in names:
        with suppress(OSError):  # it is no link, or it is gone
            yield f"root/{container_logs.FOLDER}/{name}", os.fsencode((folder / name).readlink())
