"""The source of what device plugins gave: the checkpoint of the kubelet's device manager.

The kubelet keeps each plugin's answer to Allocate in a file beside the plugins' sockets (Kubernetes'
pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go and pod_devices.go), readable by root alone:

    {"Data": {"PodDeviceEntries": [{"PodUID", "ContainerName", "ResourceName",
                                    "DeviceIDs": {"<NUMA node, or -1>": [<id>, …]},
                                    "AllocResp": <base64 of a v1beta1.ContainerAllocateResponse>}, …],
              "RegisteredDevices": {"<resource>": [<id>, …]}},
     "Checksum": <number>, "BootID": "<since Kubernetes 1.36>"}

Before Kubernetes 1.20 DeviceIDs was a plain list. The entries come first, so the reader stops after them:
RegisteredDevices may have tens of thousands of ids. The kubelet replaces the file by a rename, each time that it has
given devices. Entries of pods that have ended stay until the kubelet gives devices again.
"""

import asyncio
import base64
import binascii
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from exporter._gen import deviceplugin_pb2 as messages
from exporter.config.files import Identity, read_at_most
from exporter.errors import Malformed, SourceError, Unavailable
from exporter.lenient import AnyObject, text
from exporter.model.grants import CheckpointEntry
from exporter.ownership.counted_ids import grouped
from exporter.ownership.plugin_answers import PluginAnswer, needed_of, read_answer
from exporter.sources.json_text import JsonText
from exporter.sources.source import AskedSource, Attempt, Bound, Bounds, Clock, OnHealth, absent

NAME = "device-checkpoint"
CHECKPOINT = "device-plugins/kubelet_internal_checkpoint"  # below the kubelet's folder
SOURCE = "the kubelet's checkpoint"
# an entry takes some 3 KiB, and one of 80,000 ids some 4 MiB
MOST_BYTES = 16 * 1024 * 1024
MOST_ENTRIES = 10_000
_REMEDY = "look at the kubelet's log on this node: does another program write the file?"
_SIZE_REMEDY = "does some device plugin offer tens of thousands of devices? Until then its answers are not known"
_MEANWHILE = "until then the node does not show what device plugins gave"


def device_checkpoint_beside(socket: str) -> str:
    """The path of the checkpoint in the kubelet's folder, which also has the pod-resources socket's folder."""
    folder = Path(socket).parent
    return str((folder.parent if folder.name == "pod-resources" else folder) / CHECKPOINT)


def parse(content: bytes) -> tuple[CheckpointEntry, ...]:
    """The entries of a checkpoint. Entries that cannot be read are left out.

    Raises Malformed: it is no checkpoint, or has too many entries.
    """
    entries: list[CheckpointEntry] = []
    for raw in _raw_entries(JsonText(content, _REMEDY)):
        if len(entries) == MOST_ENTRIES:
            raise Malformed("oversize", f"it has more than {MOST_ENTRIES} entries", remedy=_SIZE_REMEDY)
        entry = _entry(raw)
        if entry is not None:
            entries.append(entry)
    return tuple(entries)


def _raw_entries(read: JsonText) -> Iterator[dict[str, Any]]:
    """The objects in Data.PodDeviceEntries, which is null before the kubelet gives devices."""
    read.expect("{", "it is no JSON object")
    for name in read.names():
        if name != "Data":
            read.value()
            continue
        read.expect("{", "Data is no JSON object")
        for part in read.names():
            if part != "PodDeviceEntries":
                read.value(MOST_BYTES, part)
            elif read.has("["):
                yield from read.objects(MOST_BYTES, "entry")
                return
            elif read.value() is None:
                return
            else:
                raise read.garbage("PodDeviceEntries is no list")
        break
    raise read.garbage("it has no Data with PodDeviceEntries")


def _entry(raw: AnyObject) -> CheckpointEntry | None:
    """An entry; None if it is of another form."""
    uid, container, resource = text(raw, "PodUID"), text(raw, "ContainerName"), text(raw, "ResourceName")
    ids = _ids(raw.get("DeviceIDs"))
    answer = _answer(text(raw, "AllocResp"))
    if not (uid and container and resource and ids) or answer is None:
        return None
    given = read_answer(answer, "", SOURCE)
    # as the source of List keeps them, since ids join the two
    kept = frozenset(grouped(resource, ids))
    return CheckpointEntry(pod_uid=uid, container=container, resource=resource, ids=kept, given=given)


def needed_parts(content: bytes) -> bytes:
    """A checkpoint with only what is read of it. Content that cannot be read becomes the word `broken`."""
    try:
        entries = [_needed(raw) for raw, _ in zip(_raw_entries(JsonText(content, _REMEDY)), range(MOST_ENTRIES + 1))]  # noqa: B905 - the second is the longer one
    except Malformed:
        return b"broken"
    return json.dumps({"Data": {"PodDeviceEntries": entries}}, separators=(",", ":")).encode()


def _needed(raw: AnyObject) -> AnyObject:
    needed = {name: raw[name] for name in ("PodUID", "ContainerName", "ResourceName", "DeviceIDs") if name in raw}
    answer = _answer(text(raw, "AllocResp"))
    if answer is None:
        return {**needed, "AllocResp": "?"}
    answer = needed_of(answer)
    response = messages.ContainerAllocateResponse(
        envs=answer.envs,
        annotations=answer.annotations,
        cdi_devices=[messages.CDIDevice(name=name) for name in answer.cdi_devices],
        mounts=[messages.Mount(container_path=path) for path in answer.mounts],
        devices=[messages.DeviceSpec(host_path=path) for path in answer.nodes],
    )
    return {**needed, "AllocResp": base64.b64encode(response.SerializeToString(deterministic=True)).decode()}


def _ids(value: object) -> frozenset[str]:
    """The ids, by NUMA node or, before Kubernetes 1.20, as a list."""
    lists = value.values() if isinstance(value, dict) else (value,)
    return frozenset(id_ for ids in lists if isinstance(ids, list) for id_ in ids if isinstance(id_, str))


def _answer(text_of_answer: str) -> PluginAnswer | None:
    """The fields of a plugin's answer that tell devices; None if it cannot be decoded."""
    try:
        response = messages.ContainerAllocateResponse.FromString(base64.b64decode(text_of_answer, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return None
    return PluginAnswer(
        envs=dict(response.envs),
        annotations=dict(response.annotations),
        cdi_devices=[device.name for device in response.cdi_devices],
        mounts=[mount.container_path for mount in response.mounts],
        nodes=[device.host_path for device in response.devices],
    )


class DeviceCheckpoint(AskedSource):
    """The entries of the checkpoint: `entries`, the same object as long as the file is the same.

    `changed_at` is when the kubelet wrote it (seconds since 1970). Whoever needs entries calls `begin`; otherwise the
    file is not read. A file that cannot be read leaves the entries as they were, with the health saying why.
    """

    def __init__(self, *, path: str, on_health: OnHealth, clock: Clock = time.monotonic) -> None:
        super().__init__(NAME, on_health)
        self.entries: tuple[CheckpointEntry, ...] = ()
        self.changed_at = 0.0
        self.bounds: Bounds = {"device_checkpoint": Bound(MOST_ENTRIES, lambda: len(self.entries))}
        self._absent = absent(
            "no container has a device whose id does not say which one it is", "nothing is to be done"
        )
        self._no_file = absent(
            f"there is no {path}", "mount the folder of the kubelet's device plugins read-only, and run as uid 0"
        )
        self._path = path
        self._clock = clock
        self._read_as: Identity | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> Attempt | None:
        """Read the file if it has changed. The attempt ends when it has been read."""
        if self._task is not None and not self._task.done():
            return self._task
        try:
            status = os.stat(self._path)  # noqa: PTH116 - one system call, also on every scrape
        except PermissionError as error:
            self._fail(_unreadable(self._path, error))
            return None
        except OSError:
            self._lose()
            return None
        identity = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
        if identity == self._read_as:
            return None
        self._task = asyncio.create_task(self._read(identity))
        return self._task

    async def close(self) -> None:
        """End the read in flight; nobody waits for its thread."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _read(self, identity: Identity) -> None:
        """Read the file, whose identity was this before."""
        started = self._clock()
        self._read_as = identity  # it is not read again before it changes
        try:
            entries = await asyncio.to_thread(_read_file, self._path)
        except FileNotFoundError:
            self._lose()
        except OSError as error:
            self._read_as = None  # what is wrong may pass without a change to the file
            self._fail(_unreadable(self._path, error), started)
        except SourceError as error:
            self._fail(error, started)
        else:
            self._absent = None
            self.entries = entries
            self.changed_at = identity[-1] / 1e9
            self._attempts.note(None, took_seconds=self._clock() - started, now_seconds=time.time())

    def _lose(self) -> None:
        """Note that there is no file."""
        self._absent, self._read_as = self._no_file, None
        self.entries = ()

    def _fail(self, error: SourceError, started: float | None = None) -> None:
        """Note that the file cannot be used. What it said before may be of containers that have ended."""
        self._absent = None
        self.entries = ()
        took = 0.0 if started is None else self._clock() - started
        self._attempts.note(error, took_seconds=took, now_seconds=time.time())


def _unreadable(path: str, error: OSError) -> Unavailable:
    message = f"{path} cannot be read: {error.strerror or error}"
    if isinstance(error, PermissionError):
        return Unavailable("permission", message, remedy=f"run as uid 0, as the manifests do; {_MEANWHILE}")
    return Unavailable("unreachable", message, remedy=f"look at the file on this node; {_MEANWHILE}")


def _read_file(path: str) -> tuple[CheckpointEntry, ...]:
    """Read a checkpoint. Raises OSError: it cannot be read; Malformed: it has another form, or too many bytes."""
    try:
        content = read_at_most(path, MOST_BYTES)
    except ValueError as error:
        raise Malformed("oversize", f"{path}: {error}", remedy=_SIZE_REMEDY) from error
    try:
        return parse(content)
    except Malformed as error:
        raise Malformed("garbage", f"{path} cannot be used: {error}", remedy=error.trouble.remedy) from error
