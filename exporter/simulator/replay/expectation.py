"""The owners of each device in a bundle, moment by moment, compared with an expectation.

An expectation is a YAML or JSON file beside the bundle: the owners that are right. Where a bundle has none, the program
writes what it says now, and a person corrects that.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.bundle import archive
from exporter.bundle.recording import Recording
from exporter.config.files import as_yaml, read_structured
from exporter.config.named_files import read_node_files
from exporter.errors import ConfigError, ExporterError
from exporter.lenient import AnyObject, mapping
from exporter.model.devices import DeviceKey
from exporter.model.snapshot import Snapshot
from exporter.node.build import make_node
from exporter.node.first_look import look_at_all
from exporter.node.node import Node
from exporter.outputs import mapping as mapping_output
from exporter.outputs.output import LOOK_AT_NODE, Need
from exporter.simulator.replay.replay_node import ReplayNode, refuse_without_answers
from exporter.sources.kubelet.allocatable import KubeletAllocatable
from exporter.wording import counted

# What is expected at a moment: by device, its owners, its health, and why it has no owner.
Owners = Mapping[str, Mapping[str, Any]]

ENDING = ".owners.yaml"
_ENDINGS = (ENDING, ".owners.json")
_BUNDLE = ".tar.gz"
_NEEDS = LOOK_AT_NODE | {Need.DIAGNOSIS, Need.VERDICTS}

# Each look asks the kubelet anew, so that it sees the moment that is shown.
_SETTINGS = {"kubelet.max-age": ("0s",)}
# Inventories and NVML are read once a second at most.
_INVENTORY_SECONDS = 1.2
_CHANGE_SECONDS = 0.15
_AGAIN_SECONDS = 0.05
_PATIENCE_SECONDS = 3.0
_MOST_SECONDS = 15.0

_EVERY = "every moment"
_ANEW = "write it anew with `bundle test FILE --update`"
_MOMENTS = "moments"
_HEAD = """\
# The owners of each device in {name}, which `bundle test` and tests/bundles compare with what the program says.
# The program wrote this file, with its mistakes. Correct them by hand: the test fails until the program is mended.
"""


async def owners_in(recording: Recording, expected: Sequence[Owners] = ()) -> list[Owners]:
    """The owners at each moment, as an exporter in front of the replay says them.

    Args:
        recording: what is played.
        expected: the owners that are right, a mapping for each moment; none if nobody wrote them down. On a busy
            machine a source may see a moment late: so a moment that differs is looked at for some seconds more.

    Raises:
        ExporterError: the bundle cannot be played.
    """
    replayed = ReplayNode(recording)
    node: Node | None = None
    try:
        await replayed.start()
        config = replayed.config(_SETTINGS)
        node = make_node(config, read_node_files(config))
        right: Sequence[Owners | None] = expected or [None] * len(recording.moments)
        await _ask_offers(node)
        await look_at_all(node, _NEEDS)
        owners = [await _settled(node, 0.0, right[0])]
        for number in range(1, len(recording.moments)):
            before = replayed.inventory()
            await replayed.show(number)
            has_changed = replayed.inventory() != before
            seconds = _INVENTORY_SECONDS if has_changed else _CHANGE_SECONDS
            owners.append(await _settled(node, seconds, right[number]))
    finally:
        if node is not None:
            await node.close()
        await replayed.stop()
    return owners


async def _settled(node: Node, seconds: float, expected: Owners | None) -> Owners:
    """The owners once so many seconds have passed and two looks say the same, or what is expected."""
    began = time.monotonic()
    last: Owners | None = None
    while True:
        await _ask_offers(node)
        owners = _owners_in(await node.look(None, _NEEDS))
        took = time.monotonic() - began
        is_late = took >= _PATIENCE_SECONDS
        is_settled = owners == last if expected is None or is_late else owners == expected
        if (is_settled and took >= seconds) or took > _MOST_SECONDS:
            return owners
        last = owners
        await asyncio.sleep(_AGAIN_SECONDS)


async def _ask_offers(node: Node) -> None:
    """Ask the kubelet what it can hand out, as an exporter does beside its looks. Devices that it lacks may be ill."""
    offers = [source.begin() for source in node.sources if isinstance(source, KubeletAllocatable)]
    asked = [attempt for attempt in offers if attempt is not None]
    if asked:
        await asyncio.wait(asked, timeout=_MOST_SECONDS)


def _owners_in(snapshot: Snapshot) -> Owners:
    """The owners of a look, by device. Ids of the kubelet that name no device of samples come last."""
    content = mapping_output.debug(snapshot)
    devices: dict[str, dict[str, Any]] = {}
    for device in content["seen"]:
        key = DeviceKey(uuid=device["uuid"], instance=device["gpu_i_id"])
        verdict = snapshot.verdicts.get(key)
        devices[_name_of(key, device)] = {
            "owners": sorted(_holder(owner) for owner in device["owners"]),
            **({"why": str(device["reason"])} if device["reason"] else {}),
            **({"health": verdict.verdict} if verdict else {}),
        }
    for assigned in content["assigned"]:
        if not assigned["matched"]:
            name = f"{assigned['resource']} {assigned['device_id']}"
            entry = devices.setdefault(name, {"owners": [], "why": str(assigned["reason"])})
            entry["owners"] = sorted({*entry["owners"], _holder(assigned)})
    return devices


def _name_of(key: DeviceKey, device: AnyObject) -> str:
    """A device by its UUID, and by its instance; without a UUID by its number."""
    uuid = key.uuid or f"{device['device']} {device['gpu']}".strip()
    return f"{uuid}/{key.instance}" if key.instance else uuid


def _holder(owner: AnyObject) -> str:
    """A container, and whether it shares the device."""
    shares = " (shared)" if owner.get("shared") else ""
    return f"{owner['namespace']}/{owner['pod']}/{owner['container']}{shares}"


def expectation_beside(bundle: Path) -> Path:
    """The path of a bundle's expectation: the one that is there, else the one to be written."""
    stem = bundle.name.removesuffix(_BUNDLE)
    paths = [bundle.with_name(f"{stem}{ending}") for ending in _ENDINGS]
    return next((path for path in paths if path.exists()), paths[0])


def read_expectation(path: Path, moments: int) -> Sequence[Owners]:
    """The expectation for each of so many moments.

    Raises:
        ConfigError: the file is no expectation, or one of another bundle.
    """
    content = mapping(read_structured(str(path), "bundle test"))
    of_every = content.get(_EVERY)
    if isinstance(of_every, Mapping):
        return [of_every] * moments
    of_each = content.get(_MOMENTS)
    if (
        not isinstance(of_each, list)
        or len(of_each) != moments
        or not all(isinstance(owners, Mapping) for owners in of_each)
    ):
        says = f"has neither `{_EVERY}` nor `{_MOMENTS}` with an entry for each of the bundle's {moments}"
        raise ConfigError(f"{path} {says} -> {_ANEW}")
    return of_each


def write_expectation(path: Path, bundle: Path, owners: Sequence[Owners]) -> None:
    """Write down owners as expectation. Raises ExporterError: the file cannot be written."""
    is_same = all(of_moment == owners[0] for of_moment in owners)
    content: Mapping[str, object] = {_EVERY: owners[0]} if is_same else {_MOMENTS: [*owners]}
    try:
        path.write_text(_HEAD.format(name=bundle.name) + as_yaml(_plain(content)), encoding="utf-8")
    except OSError as error:
        raise ExporterError(f"{path} cannot be written: {error.strerror}") from error


def _plain(content: object) -> object:
    """Copies of all parts, since YAML would name a part that is there twice only once, by an anchor."""
    if isinstance(content, Mapping):
        return {key: _plain(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_plain(value) for value in content]
    return content


def differences(expected: Sequence[Owners], owners: Sequence[Owners]) -> list[str]:
    """What differs, a line for each device and moment, with the expectation first."""
    lines: list[str] = []
    for number, (right, now) in enumerate(zip(expected, owners, strict=True), 1):
        lines.extend(
            f"moment {number}, {device}: expected {_words(right.get(device))}; now {_words(now.get(device))}"
            for device in sorted(right.keys() | now.keys())
            if right.get(device) != now.get(device)
        )
    return lines


def _words(device: AnyObject | None) -> str:
    """The owners, the health and the reason of a device."""
    if device is None:
        return "no such device"
    owners = device.get("owners") or ["nobody"]
    why = f" ({device['why']})" if device.get("why") else ""
    health = f", {device['health']}" if device.get("health") else ""
    return f"{', '.join(map(str, owners))}{why}{health}"


def check_bundle(bundle: Path, *, is_update: bool = False) -> tuple[bool, list[str]]:
    """Play a bundle and compare its owners with the expectation beside it. Without an expectation, write one.

    Args:
        bundle: the bundle's path.
        is_update: write the expectation anew in any case.

    Returns:
        Whether all is as expected or is newly written, and lines that say what was done.

    Raises:
        ExporterError: the bundle or the expectation cannot be used.
    """
    recording = archive.read(bundle)
    refuse_without_answers(recording)
    path = expectation_beside(bundle)
    is_new = is_update or not path.exists()
    expected = () if is_new else read_expectation(path, len(recording.moments))
    owners = asyncio.run(owners_in(recording, expected))
    devices = len({device for of_moment in owners for device in of_moment})
    count = f"{counted(devices, 'device')} at {counted(len(owners), 'moment')}"
    if is_new:
        write_expectation(path, bundle, owners)
        return True, [f"Wrote {path}: the owners that the program says now, {count} -> correct there what is wrong"]

    if _is_of_another_bundle(expected, owners):
        return False, [f"{path} has none of the bundle's devices: it is of another bundle -> {_ANEW}"]

    lines = differences(expected, owners)
    if lines:
        count = counted(len(lines), "difference")
        return False, [*lines, f"{count} to {path.name} -> mend the program, or correct that file where it is wrong"]

    return True, [f"{bundle}: the owners of {count} are as {path.name} expects"]


def _is_of_another_bundle(expected: Sequence[Owners], owners: Sequence[Owners]) -> bool:
    """Whether an expectation names devices, but none of these: a bundle that is taken again has other names."""
    devices = {device for of_moment in expected for device in of_moment}
    return bool(devices) and devices.isdisjoint(device for of_moment in owners for device in of_moment)
