"""The source of the node's containers by id, from the kubelet's links in /var/log/containers.

The kubelet makes a link when it has started a container, and removes it with the container. The folder is read only
after it has changed, and a link only once: its name has the container's id, so it never means another container. A name
that was cut may, so its link is read every time, and /var/log/pods shows whether its pod has only one container.
"""

import asyncio
import os
import time
from itertools import islice
from pathlib import Path

from exporter.errors import Trouble, Unavailable
from exporter.sources.polled import Polled
from exporter.sources.source import MOST_LINKS, Bound, Bounds, Clock, OnHealth
from exporter.usage.process_owners import Containers, LogLink, containers_of_logs, read_log_link

NAME = "container-logs"
FOLDER = "var/log/containers"
PODS_FOLDER = "var/log/pods"
# The most links with cut names. Names are cut from 186 characters on, and few users have such names.
MOST_CUT = 200
AGAIN_SECONDS = 1.0
# Two changes within a tick of the file system's clock have the same time. A tick is at most 10 ms, or 2 s on VFAT.
SETTLED_NS = 2_100_000_000


class ContainerLogs(Polled):
    """The containers of the node, looked up on a thread every second, or after `look_after`."""

    def __init__(self, *, root: str, on_health: OnHealth, clock: Clock = time.monotonic) -> None:
        """`root` is the folder that has the host's files: "/" if they are mounted at their own places."""
        super().__init__(NAME, on_health, again_seconds=AGAIN_SECONDS, clock=clock)
        self.containers = Containers()
        self.bounds: Bounds = {"container_logs": Bound(MOST_LINKS, lambda: len(self._links))}
        self._folder = Path(root) / FOLDER
        self._pods = Path(root) / PODS_FOLDER
        self._links: dict[str, LogLink | None] = {}
        self._has_more = False
        self._changed_ns: int | None = None
        self._made_from: tuple[tuple[LogLink, ...], tuple[LogLink, ...]] = ((), ())

    async def _look(self) -> Trouble | None:
        try:
            await asyncio.to_thread(self.look_at_links, time.time_ns())
        except OSError as why:
            raise _unavailable(why) from why
        return _TOO_MANY if self._has_more else None

    def look_at_links(self, now_ns: int) -> Containers:
        """The containers; the same object as long as nothing changed. `now_ns` is the time in ns since 1970.

        Raises OSError: there is no folder.
        """
        changed_ns = self._folder.stat().st_mtime_ns
        if changed_ns != self._changed_ns:
            self._links = self._read()
            self._changed_ns = changed_ns if now_ns - changed_ns > SETTLED_NS else None
        links = tuple(link for link in self._links.values() if link)
        cut = islice((link for link in links if not link.container_id), MOST_CUT)
        alone = tuple(link for link in cut if self._is_alone(link))
        if (links, alone) != self._made_from:
            self._made_from = (links, alone)
            self.containers = containers_of_logs(links, alone)
        return self.containers

    def _read(self) -> dict[str, LogLink | None]:
        with os.scandir(self._folder) as entries:
            names = [entry.name for entry in islice(entries, MOST_LINKS + 1)]
        self._has_more = len(names) > MOST_LINKS
        return {name: self._read_link(name) for name in names[:MOST_LINKS]}

    def _read_link(self, name: str) -> LogLink | None:
        link = self._links.get(name)
        if link is not None and link.container_id:
            return link
        try:
            return read_log_link(name, str((self._folder / name).readlink()))
        except OSError:
            return None  # it is no link, or it is gone

    def _is_alone(self, link: LogLink) -> bool:
        """Whether the pod has only one container. The kubelet makes a container's log folder before the container."""
        try:
            with os.scandir(self._pods / link.folder) as entries:
                names = [entry.name for entry in islice(entries, 2)]
        except OSError:
            return False
        return names == [link.owner.container]


_TOO_MANY = Trouble(
    "oversize",
    f"/{FOLDER} has more than {MOST_LINKS} entries: the others are not read",
    "no node has that many containers: who fills the folder?",
)


def _unavailable(why: OSError) -> Unavailable:
    remedy = f"mount the host's /{FOLDER} and /{PODS_FOLDER} read-only, or have pods told of (--pods.source)"
    if isinstance(why, FileNotFoundError):
        return Unavailable("missing", f"there is no /{FOLDER}: containers are not known by their ids", remedy=remedy)
    return Unavailable("permission", f"/{FOLDER} cannot be read: {why.strerror or why}", remedy=remedy)
