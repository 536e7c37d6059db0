"""What the driver tells without being asked: that a GPU was cut anew, and errors of the GPUs (XIDs).

Nobody waits for events: they are taken when the next reading asks for them. nvml.h says which there are; a GPU says
which it supports. Changes of MIG instances are told of Ampere and later, by drivers since R450. Errors of one MIG
instance come only to the privileged, those of the whole GPU to everybody.
"""

import ctypes
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType

from exporter.sources.nvml.failures import Failed
from exporter.sources.nvml.gpus import Gpu
from exporter.sources.nvml.library import Library

XID, MIG_CHANGE = 0x8, 0x100  # nvmlEventTypeXidCriticalError, nvmlEventMigConfigChange
# What comes faster than this waits for the next reading.
MOST_EVENTS = 64


class Events:
    """One event set, which is made of the GPUs that there are, and made anew after a failure."""

    def __init__(self, library: Library) -> None:
        self.tells_changes = False
        self._library = library
        self._set: object = None
        self._told_of: dict[str, int] = {}  # the types of events by UUID
        self._uuids: dict[int | None, str] = {}  # by the address that is the GPU's handle
        self._last_xids: dict[str, int] = {}

    @property
    def last_xids(self) -> Mapping[str, int]:
        """The last error by the GPU's UUID; 0 where none came. A GPU that tells of none is missing."""
        told_of = self._told_of.items()
        return MappingProxyType({uuid: self._last_xids.get(uuid, 0) for uuid, types in told_of if types & XID})

    def forget(self) -> None:
        """The library was loaded anew: the set has gone with the old one. The GPUs' last errors stay."""
        self._set, self.tells_changes = None, False
        self._told_of, self._uuids = {}, {}

    def listen(self, gpus: Iterable[Gpu]) -> bool:
        """Have the driver tell of these GPUs from now on, and of no others.

        Returns whether one is new: what happened to it before this call is not told.

        Raises:
            Failed: the library is gone.
        """
        now = {gpu.known.uuid: gpu for gpu in gpus}
        for uuid in self._told_of.keys() - now.keys():
            del self._told_of[uuid]  # it is lost; when it comes back it is registered again
        new = [gpu for uuid, gpu in now.items() if uuid not in self._told_of]
        try:
            if new and self._set is None:
                self._set = self._library.call("nvmlEventSetCreate")
            for gpu in new:
                self._told_of[gpu.known.uuid] = self._register(gpu)
                self._uuids[_address(gpu.handle)] = gpu.known.uuid
        except Failed as failed:
            self._deafen(failed)
            return False
        told = (self._told_of[uuid] & MIG_CHANGE for uuid, gpu in now.items() if gpu.can_be_cut)
        self.tells_changes = bool(now) and all(told)
        return any(self._told_of[gpu.known.uuid] & MIG_CHANGE for gpu in new)

    def have_changed(self) -> bool:
        """Take what has come. Returns whether MIG instances may have changed.

        Raises:
            Failed: the library is gone.
        """
        is_changed = False
        for _ in range(MOST_EVENTS):
            if self._set is None:
                break
            try:
                event = self._library.call("nvmlEventSetWait_v2", self._set, 0)
            except Failed as failed:
                if failed.is_timeout:
                    break
                self._deafen(failed)
                return True
            is_changed |= bool(event.eventType & MIG_CHANGE)
            uuid = self._uuids.get(_address(event.device))
            if event.eventType & XID and uuid:
                self._last_xids[uuid] = int(event.eventData)
        return is_changed

    def _register(self, gpu: Gpu) -> int:
        """The types of events that the driver will tell of a GPU."""
        try:
            types = self._library.call("nvmlDeviceGetSupportedEventTypes", gpu.handle) & (XID | MIG_CHANGE)
            if types:
                self._library.call("nvmlDeviceRegisterEvents", gpu.handle, types, self._set)
        except Failed as failed:
            # By nvml.h the set is then as good as before. A GPU that is lost is told of by other calls.
            if failed.is_lack or failed.scope == "gpu":
                return 0
            raise
        return int(types)

    def _deafen(self, failed: Failed) -> None:
        """Let go of the set, which is in no defined state after a failure."""
        events = self._set
        self.forget()
        if failed.scope == "library":
            raise failed
        if events is not None:
            with suppress(Failed):
                self._library.call("nvmlEventSetFree", events)


def _address(handle: object) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value  # type: ignore[arg-type]
