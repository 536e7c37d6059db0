"""The reader of CDI specs: the files of two folders, read again when they change.

ownership/inventories.py interprets them. A file that cannot be used is refused, and its last version stays in force.

Tests: tests/sources/test_cdi_source.py.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from exporter.config.files import Identity, identity_of, read_at_most, unique_keys
from exporter.errors import DuplicateKey, Malformed, SourceError, Trouble, Unavailable
from exporter.lenient import mapping, mappings, text
from exporter.model.devices import Inventory
from exporter.model.nothing import NOTHING
from exporter.ownership.inventories import CdiDevice, CutPlace, inventory_of, read_mig_minors, read_spec

MOST_ENTRIES = 4096  # of a folder
MOST_FILES = 512  # specs among them; the DRA driver writes a spec for each claim
MOST_BYTES = (
    1024 * 1024
)  # of a file; a spec of 8 GPUs with 7 instances each has some 150 KiB, the driver's list 107 KiB
MOST_BYTES_TOGETHER = 8 * 1024 * 1024  # of all files; 1 MiB takes at most 0.7 s to read
_SUFFIXES = (".json", ".yaml")  # by CDI's own rule, other files are no specs
_NO_MINORS = Trouble(
    "missing",
    "CDI specs name MIG instances, and the driver's mig-minors does not list their capabilities",
    "mount nothing over /proc/driver; until then the specs do not say which instances these are",
)
_KEPT = "have it written anew (nvidia-ctk cdi generate); until then what it said last counts"
_NEVER: Identity = (0, 0, 0, 0)
NO_CAPS: Mapping[int, CutPlace] = NOTHING


class Spec(NamedTuple):
    """A file: its identity when it was read, its devices, and why it cannot be used now ("" if it can)."""

    identity: Identity
    devices: tuple[CdiDevice, ...] = ()
    refused: str = ""


class SpecsReading(NamedTuple):
    """A reading of all files.

    Attributes:
        files: the files by their paths.
        wrong: a sentence about each folder with something wrong.
        inventory: the inventory that the files give together.
        lacks_minors: the driver's list of MIG capabilities is not there, or lacks a capability that a file names.
        caps: the places of the capabilities that files name, by the list with the hash `list_hash`.
        list_hash: see `caps`.
    """

    files: Mapping[str, Spec]
    wrong: tuple[str, ...] = ()
    inventory: Inventory = Inventory()
    lacks_minors: bool = False
    caps: Mapping[int, CutPlace] = NO_CAPS
    list_hash: int = 0

    @property
    def is_there(self) -> bool:
        """Whether there are specs, or may be some in a folder that cannot be read."""
        return bool(self.files or self.wrong)

    @property
    def devices(self) -> int:
        """The number of GPUs and MIG instances in all files."""
        return sum(len(spec.devices) for spec in self.files.values())

    @property
    def error(self) -> SourceError | None:
        """The failure, if a file or a folder cannot be used."""
        refused = [f"{path} is refused: {spec.refused}" for path, spec in self.files.items() if spec.refused]
        if refused:
            more = f" (and {len(refused) - 1} more files)" if len(refused) > 1 else ""
            return Malformed("garbage", f"{refused[0]}{more}", remedy=_KEPT)
        if self.wrong:
            return Unavailable("permission", self.wrong[0], remedy="until then what is known of it counts")
        return None

    @property
    def odd(self) -> Trouble | None:
        """The trouble, if the list of MIG capabilities lacks some although all files can be used."""
        return _NO_MINORS if self.lacks_minors else None


def read(folders: tuple[str, ...], minors: str, before: SpecsReading | None, most_devices: int) -> SpecsReading:
    """Read the files that have changed since `before`. Returns `before` itself if nothing has changed.

    `minors` is the path of the driver's list of MIG capabilities, which never changes but may come with the driver.
    """
    files_before = before.files if before else {}
    paths: list[str] = []
    wrong: list[str] = []
    for folder in folders:
        paths += _paths_in(folder, files_before, wrong)
    files = _read_files(paths, files_before, most_devices)
    if before and not before.lacks_minors and (files, tuple(wrong)) == (before.files, before.wrong):
        return before
    caps, lacks_minors, list_hash = _caps(files, minors, before)
    inventory = inventory_of({path: spec.devices for path, spec in files.items()}, caps)
    reading = SpecsReading(files, tuple(wrong), inventory, lacks_minors, caps, list_hash)
    return before if before is not None and before == reading else reading


def needed_parts(content: bytes) -> bytes:
    """A spec with only what is read of it, as JSON. Content that cannot be used becomes the word `broken`."""
    try:
        spec = _parse(content.decode())
    except (ValueError, RecursionError, DuplicateKey):
        return b"broken"
    devices = [
        {
            **{name: device[name] for name in ("name",) if name in device},
            "containerEdits": {
                "deviceNodes": [
                    {name: node[name] for name in ("path", "hostPath") if name in node}
                    for node in mappings(mapping(device, "containerEdits"), "deviceNodes", MOST_ENTRIES)
                ]
            },
        }
        for device in mappings(spec, "devices", MOST_ENTRIES)
    ]
    return json.dumps({"kind": text(mapping(spec), "kind"), "devices": devices}, separators=(",", ":")).encode()


def _paths_in(folder: str, files_before: Mapping[str, Spec], wrong: list[str]) -> list[str]:
    """The paths of a folder's specs. If the folder cannot be read now, these are the paths that it had before."""
    try:
        return _specs_in(folder, wrong)
    except OSError as why:
        wrong.append(f"{folder} cannot be read: {why.strerror}")
        return [path for path in files_before if str(Path(path).parent) == folder]


def _read_files(paths: list[str], files_before: Mapping[str, Spec], most_devices: int) -> dict[str, Spec]:
    """The specs by path. A file that is as it was is not read again; a file beyond the limits on bytes is refused."""
    files: dict[str, Spec] = {}
    devices_left = most_devices
    bytes_left = MOST_BYTES_TOGETHER
    for path in paths:
        identity = identity_of(path)
        if identity is None:
            continue  # it was removed since the folder was listed
        last = files_before.get(path)
        bytes_left -= identity[2]
        if bytes_left < 0:
            spec = _refused(_NEVER, last, f"all specs together have more than {MOST_BYTES_TOGETHER} bytes")
        elif last and last.identity == identity:
            spec = last
        else:
            spec = _read(path, identity, last, devices_left)
        files[path] = spec
        devices_left = max(0, devices_left - len(spec.devices))
    return files


def _specs_in(folder: str, wrong: list[str]) -> list[str]:
    """The sorted paths of a folder's specs, without links out of the folder. Raises OSError: it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            specs = (entry for entry in islice(entries, MOST_ENTRIES) if entry.name.endswith(_SUFFIXES))
            # no program writes a name that cannot be printed
            named = [entry for entry in islice(specs, MOST_FILES + 1) if entry.name.isprintable()]
    except FileNotFoundError:
        return []
    if len(named) > MOST_FILES:
        wrong.append(f"{folder} has more than {MOST_FILES} specs: some are left out")
    inside = f"{os.path.realpath(folder)}{os.sep}"
    return sorted(
        entry.path
        for entry in named[:MOST_FILES]
        if not entry.is_symlink() or os.path.realpath(entry.path).startswith(inside)
    )


def _read(path: str, identity: Identity, before: Spec | None, most: int) -> Spec:
    try:
        devices = read_spec(_parse(_text(path)), most)
    except OSError as why:
        # a change of the file's rights does not change its identity, so it is tried again each time
        identity = _NEVER
        refused = why.strerror or str(why)
    except RecursionError:
        refused = "it is nested too deeply"
    except (ValueError, DuplicateKey) as why:
        refused = str(why)
    else:
        return Spec(identity=identity, devices=devices)
    return _refused(identity, before, refused)


def _refused(identity: Identity, before: Spec | None, why: str) -> Spec:
    """A file that is refused. Its last devices count on."""
    return Spec(identity=identity, devices=before.devices if before else (), refused=why)


def _text(path: str) -> str:
    """A file's text. Raises OSError: it cannot be read; ValueError: it has more than MOST_BYTES, or is no UTF-8."""
    return read_at_most(path, MOST_BYTES).decode()


def _parse(text: str) -> object:
    """The content of JSON, or else of YAML. A key that is there twice is an error."""
    if text.lstrip().startswith("{"):
        with suppress(json.JSONDecodeError):
            content: object = json.loads(text, object_pairs_hook=unique_keys)
            return content
    # it takes 1 MiB of memory, so only a YAML file imports it
    from exporter.config.strict_yaml import load_plain  # noqa: PLC0415

    return load_plain(text)


def _caps(
    files: Mapping[str, Spec], minors: str, before: SpecsReading | None
) -> tuple[Mapping[int, CutPlace], bool, int]:
    """The places of the capabilities that the files name, whether the list lacks some, and the list's hash."""
    wanted = {cap for spec in files.values() for device in spec.devices for cap in device.caps}
    if not wanted:
        return {}, False, 0
    try:
        text = _text(minors)
        if before and before.list_hash == hash(text) and wanted <= before.caps.keys():
            return before.caps, False, before.list_hash
        caps = read_mig_minors(text, wanted)
    except (OSError, ValueError):
        return {}, True, 0
    return caps, len(caps) < len(wanted), hash(text)
