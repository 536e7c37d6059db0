"""The node's GPUs and MIG instances by its CDI specs: the files in /etc/cdi and /var/run/cdi.

NVIDIA's container toolkit, device plugin and DRA driver write them for the container runtime. Together with the
driver's list of MIG capabilities they say which instance a MIG UUID is, and neither takes a library or a privilege.
What they mean is attribution's (attribution/cdi.py).

The files are looked at every second, on a thread, whoever scrapes: so a GPU that is cut anew is known before the next
scrape, and no scrape waits. A file is read again when it has changed. One that cannot be used is refused, and what it
said last stays in force.
"""

import asyncio
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from exporter.attribution.cdi import CdiDevice, Place, inventory_of, read_mig_minors, read_spec
from exporter.config.files import Identity, identity_of, unique_keys
from exporter.config.regular import open_regular
from exporter.errors import DuplicateKey, Malformed, SourceError, Trouble, Unavailable
from exporter.model.devices import Inventory
from exporter.model.snapshot import Health
from exporter.sources.source import PATIENCE_SECONDS, Attempt, Attempts, Bound, OnHealth, absent

NAME = "cdi"
FOLDERS = ("/etc/cdi", "/var/run/cdi")
MINORS = "/proc/driver/nvidia-caps/mig-minors"
AGAIN_SECONDS = 1.0
MOST_ENTRIES = 4096  # of a folder
MOST_FILES = 512  # of these that are specs: the DRA driver writes one for each claim
MOST_BYTES = 1024 * 1024  # of a file; the spec of 8 GPUs in 7 instances each has some 150 KiB, the list of MINORS 100
MOST_DEVICES = 8192  # GPUs and MIG instances of all files together
_SUFFIXES = (".json", ".yaml")  # all others are no specs, by CDI's own rule
_ABSENT = absent(
    f"there is no CDI spec in {' or '.join(FOLDERS)}",
    "where NVIDIA's container toolkit or device plugin writes some, mount the two folders read-only",
)
_NO_MINORS = Trouble(
    "missing",
    f"CDI specs name MIG instances, and {MINORS} does not list their capabilities",
    "mount nothing over /proc/driver; until then nothing here says which instances these are",
)
_KEPT = "have it written anew (nvidia-ctk cdi generate); until then what it said last counts"
_NEVER: Identity = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A file: what it was when it was read, what it says, and why it cannot be used now ("" where it can)."""

    identity: Identity
    devices: tuple[CdiDevice, ...] = ()
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Specs:
    """All files by their paths, and what is wrong with their folders."""

    files: Mapping[str, Spec]
    wrong: tuple[str, ...] = ()

    @property
    def devices(self) -> int:
        """How many devices they have together."""
        return sum(len(spec.devices) for spec in self.files.values())


def look(folders: tuple[str, ...], before: Specs) -> Specs:
    """Read the files that have changed since `before`, which is returned where none has."""
    files: dict[str, Spec] = {}
    wrong: list[str] = []
    left = MOST_DEVICES
    for folder in folders:
        try:
            paths = _specs_in(folder, wrong)
        except OSError as why:
            wrong.append(f"{folder} cannot be read: {why.strerror}")
            paths = [path for path in before.files if str(Path(path).parent) == folder]
        for path in paths:
            known, identity = before.files.get(path), identity_of(path)
            if identity is not None:  # else it was removed since the folder was listed
                is_same = known is not None and known.identity == identity
                files[path] = known if known and is_same else _read(path, identity, known, left)
                left = max(0, left - len(files[path].devices))
    specs = Specs(files=files, wrong=tuple(wrong))
    return before if specs == before else specs


def _specs_in(folder: str, wrong: list[str]) -> list[str]:
    """The paths of a folder's specs, by their names, without links that lead out of it.

    Raises:
        OSError: it is there, and cannot be read.
    """
    try:
        with os.scandir(folder) as entries:
            found = (entry for entry in islice(entries, MOST_ENTRIES) if entry.name.endswith(_SUFFIXES))
            # a name that cannot be printed is no program's
            names = [entry.path for entry in islice(found, MOST_FILES + 1) if entry.name.isprintable()]
    except FileNotFoundError:
        return []
    if len(names) > MOST_FILES:
        wrong.append(f"{folder} has more than {MOST_FILES} specs: some are left out")
    root = os.path.realpath(folder)
    return [path for path in sorted(names[:MOST_FILES]) if _is_inside(os.path.realpath(path), root)]


def _is_inside(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}{os.sep}")


def _read(path: str, identity: Identity, before: Spec | None, most: int) -> Spec:
    try:
        devices = read_spec(_parse(_text(path)), most)
    except OSError as why:
        # its rights may change, and that is no change of the file
        identity, refused = _NEVER, why.strerror or str(why)
    except RecursionError:
        refused = "it is nested too deeply"
    except (ValueError, DuplicateKey) as why:
        refused = str(why)
    else:
        return Spec(identity=identity, devices=devices)
    return Spec(identity=identity, devices=before.devices if before else (), refused=refused)


def _text(path: str) -> str:
    """A file's text.

    Raises:
        OSError: it cannot be read, or is no file.
        ValueError: it has more than MOST_BYTES, or is no UTF-8.
    """
    with open_regular(path) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    return content.decode()


def _parse(text: str) -> object:
    """JSON, or else YAML; each key once."""
    if text.lstrip().startswith("{"):
        with suppress(json.JSONDecodeError):
            content: object = json.loads(text, object_pairs_hook=unique_keys)
            return content
    # 1 MiB of memory that only such a file is worth
    from exporter.config.plain_yaml import load_plain  # noqa: PLC0415

    return load_plain(text)


def places_of(specs: Specs, minors: str) -> tuple[Mapping[int, Place], bool]:
    """The places of the capabilities that the specs name, and whether some of them are not known."""
    wanted = {cap for spec in specs.files.values() for device in spec.devices for cap in device.caps}
    if not wanted:
        return {}, False
    try:
        places = read_mig_minors(_text(minors), wanted)
    except (OSError, ValueError):
        return {}, True
    return places, len(places) < len(wanted)


class CdiInventory:
    """The inventory as the CDI specs tell it. Where there is none, nobody misses it."""

    name = NAME
    patience_seconds = PATIENCE_SECONDS

    def __init__(
        self, *, folders: tuple[str, ...], minors: str, on_health: OnHealth, again_seconds: float = AGAIN_SECONDS
    ) -> None:
        """`minors` is the driver's list of MIG capabilities."""
        self.inventory = Inventory()
        self.bounds: Mapping[str, Bound] = {"cdi_devices": Bound(MOST_DEVICES, lambda: self._specs.devices)}
        self._folders = folders
        self._minors = minors
        self._again_seconds = again_seconds
        self._attempts = Attempts(NAME, on_health)
        self._specs = Specs(files={})
        self._lacks_minors = False
        self._first: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None

    @property
    def health(self) -> Health:
        """How the last look at the files went; that of an absent source where there are none."""
        return self._attempts.health if self._specs.files or self._specs.wrong else _ABSENT

    def begin(self) -> Attempt | None:
        """Look at the files from now on; only the first look is worth waiting for."""
        if self._first is None:
            self._first = asyncio.create_task(self._look())
            self._following = asyncio.create_task(self._follow(self._first))
        return None if self._first.done() else self._first

    async def close(self) -> None:
        """Wait for nobody: a thread that reads ends with its read."""
        for task in (self._first, self._following):
            if task is not None:
                task.cancel()

    async def _follow(self, first: asyncio.Task[None]) -> None:
        await asyncio.wait((first,))
        while True:
            await asyncio.sleep(self._again_seconds)
            await self._look()

    async def _look(self) -> None:
        started = time.monotonic()
        specs = await asyncio.to_thread(look, self._folders, self._specs)
        if specs is self._specs and not self._lacks_minors:
            if self._attempts.health.up:
                self._attempts.heard(time.time())
            return
        places, lacks_minors = await asyncio.to_thread(places_of, specs, self._minors)
        self._specs, self._lacks_minors = specs, lacks_minors
        inventory = inventory_of({path: spec.devices for path, spec in specs.files.items()}, places)
        if inventory != self.inventory:
            self.inventory = inventory
        if specs.files or specs.wrong:
            self._attempts.note(
                _error(specs),
                took_seconds=time.monotonic() - started,
                now_seconds=time.time(),
                odd=_NO_MINORS if lacks_minors else None,
            )


def _error(specs: Specs) -> SourceError | None:
    refused = [f"{path} is refused: {spec.refused}" for path, spec in specs.files.items() if spec.refused]
    if refused:
        more = f" (and {len(refused) - 1} more files)" if len(refused) > 1 else ""
        return Malformed("garbage", f"{refused[0]}{more}", remedy=_KEPT)
    if specs.wrong:
        return Unavailable("permission", specs.wrong[0], remedy="until then what is known of it counts")
    return None
