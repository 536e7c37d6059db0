"""The devices on which NVML has listed processes of each container, since the container's pod began.

This does not depend on who holds which device. What a container has, it has for as long as its pod lives: so a process
that ends takes nothing away, and a pod that is made anew under the name begins with nothing. A container may see more
devices than it was given (privileged ones see all), and use fewer.

Pure, except for what `SeenDevices` remembers.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from exporter.model.device_ref import DeviceRef
from exporter.model.devices import DeviceKey
from exporter.model.driver import DriverReading
from exporter.model.grants import Given
from exporter.model.measured import HostProcesses
from exporter.model.nothing import NOTHING
from exporter.model.pods import Owner
from exporter.usage.owner_use import each_once
from exporter.usage.process_owners import Containers, owner_of

SOURCE = "NVML"
NOTHING_SEEN: Mapping[Owner, Given] = NOTHING

_Devices = frozenset[DeviceKey]
_ByUid = Mapping[str, AbstractSet[DeviceKey]]  # the devices with processes, by their pod's uid
_NO_DEVICES: _Devices = frozenset()


@dataclass(slots=True)
class _SeenContainer:
    """What is remembered of a container: of the pod that bears its pod's name now, and of pods that bore it before.

    Attributes:
        ids: the ids that the kubelet gave it.
        uid: the uid of the pod whose processes were seen; None before that.
        devices: the devices on which they were seen.
        current: the uids of pods that may bear the name now.
        ended: the uids of pods that bore the name before.
        is_newer: a newer pod came after the kubelet listed `ids`, so other ids will be its.
    """

    ids: frozenset[str]
    uid: str | None = None
    devices: _Devices = _NO_DEVICES
    current: AbstractSet[str] = frozenset()
    ended: AbstractSet[str] = frozenset()
    is_newer: bool = False

    def turn_to(self, ids: frozenset[str]) -> None:
        """Take in the ids that the kubelet lists now. Other ids are those of another pod."""
        if ids != self.ids:
            self.ids = ids
            if not self.is_newer:
                self._end()
            self.is_newer = False

    def look(self, listed: _ByUid, uids: AbstractSet[str]) -> None:
        """Take in the processes that are listed now, and the uids that pods of this name have."""
        if self.current and uids - self.current - self.ended:
            self._end()
            self.is_newer = True
        self.current = (uids | self.current) - self.ended
        running = [uid for uid in listed if uid not in self.ended]
        if len(running) > 1:
            self.uid, self.devices = None, _NO_DEVICES
        for uid in running if len(running) == 1 else ():
            if self.uid is not None and uid != self.uid:
                self._end(self.current - {uid})
            self.uid = uid
            self.current |= {uid}
            self.devices = frozenset(self.devices | listed[uid])
        self.ended = self.ended & (uids | listed.keys())

    def _end(self, uids: AbstractSet[str] | None = None) -> None:
        """Note that the pods with these uids, by default all current ones, no longer bear the name."""
        self.ended = self.ended | (self.current if uids is None else uids)
        self.current = self.current - self.ended
        self.uid, self.devices = None, _NO_DEVICES


@dataclass(eq=False)
class SeenDevices:
    """Remembers the devices of each container that has some of the ids that are asked about."""

    _containers: dict[Owner, _SeenContainer] = field(default_factory=dict)
    _given: Mapping[Owner, Given] = field(default_factory=lambda: NOTHING_SEEN)

    def __len__(self) -> int:
        return len(self._containers)

    def look(
        self,
        ids: Mapping[Owner, frozenset[str]],
        reading: DriverReading | None = None,
        processes: HostProcesses | None = None,
        tables: Sequence[Containers] = (),
    ) -> Mapping[Owner, Given]:
        """The devices of the containers that have these ids; the same object as long as nothing changes.

        `processes` are those of the driver's `reading`, and `tables` their containers. Without these, what is
        remembered counts.
        """
        self._containers = {
            owner: self._containers.get(owner) or _SeenContainer(of_one) for owner, of_one in ids.items()
        }
        for owner, container in self._containers.items():
            container.turn_to(ids[owner])
        if reading is not None and processes is not None and reading.processes is not None:
            listed = _listed(reading, processes, tables)
            uids = _uids(tables)
            for owner, container in self._containers.items():
                container.look(listed.get(owner, {}), uids.get(owner, frozenset()))
        given = {owner: _given(one.devices) for owner, one in self._containers.items() if one.devices}
        if given != self._given:
            self._given = given or NOTHING_SEEN
        return self._given


def _listed(
    reading: DriverReading, processes: HostProcesses, tables: Sequence[Containers]
) -> Mapping[Owner, Mapping[str, AbstractSet[DeviceKey]]]:
    """The devices on which processes of each container are now, by the uid of its pod.

    A process on a GPU that is cut into instances counts only if the driver says on which of them it is.
    """
    cut = {gpu.uuid for gpu in reading.inventory.gpus if gpu.mig}
    listed: dict[Owner, defaultdict[str, set[DeviceKey]]] = {}
    for gpu_process in each_once(reading.processes or ()):
        process = processes.by_pid.get(gpu_process.pid)
        device = gpu_process.device
        # a process that started after the driver was asked has got the pid of an earlier process
        if process is None or process.started_at > reading.read_at or process.place is None:
            continue
        owner = owner_of(process.place, tables)
        if owner is not None and (device.instance or device.uuid not in cut):
            listed.setdefault(owner, defaultdict(set))[process.place.pod_uid].add(device)
    return listed


def _uids(tables: Iterable[Containers]) -> Mapping[Owner, AbstractSet[str]]:
    """The uids that the pods with each container have, as far as the tables say it."""
    uids: defaultdict[Owner, set[str]] = defaultdict(set)
    for table in tables:
        for of_id in table.by_id.values():
            for named in of_id:
                if named.pod_uid:
                    uids[named.owner].add(named.pod_uid)
        for uid, owner in table.alone.items():
            uids[owner].add(uid)
    return uids


def _given(devices: Iterable[DeviceKey]) -> Given:
    refs = (DeviceRef(form=SOURCE, uuid=device.uuid, instance=device.instance) for device in sorted(devices))
    return Given(source=SOURCE, refs=tuple(refs), is_whole=False)
