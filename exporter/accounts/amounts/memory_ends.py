"""Containers that ended and may have lacked GPU memory: suspicions, each counted once.

Looks keep what they see of the memory of each held device for a minute. When the kubelet says that a holder has ended,
the judge (out_of_memory.py) says whether it may have lacked memory. A container with several GPUs is counted on the GPU
that was fullest. Without pods nobody knows how a container ended, and nothing is counted.

Tests: tests/accounts/test_memory_ends.py, tests/node/test_memory_ends.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from exporter.accounts.entries import Entry
from exporter.accounts.gpu import GpuAtLook
from exporter.accounts.holdings import Device
from exporter.accounts.memory_looks import FAMILY, MemoryAtLook, Suspect
from exporter.accounts.out_of_memory import WINDOW_NS, EndOfHolder, SeenMemory, judge, largest
from exporter.model.accounts import SuspectedOutOfMemory
from exporter.model.devices import DeviceKey
from exporter.model.pods import ContainerEnd, Owner

FAMILIES = (FAMILY,)
_TOGETHER_NS = 10_000_000_000
_CLOSE_LOOKS = 3
_MOST_LOOKS = 24  # two for each ten seconds of two minutes
_MOST_JUDGED = 64  # ends of two minutes
_KEPT_NS = 2 * WINDOW_NS


@dataclass(slots=True, eq=False)
class MemoryEnds:
    """What is kept of one GPU: `looks` at its devices, by GPU_I_ID, the oldest first, and the ends that are `judged`.

    `suspected` are its last suspicions, the newest first.
    """

    looks: dict[str, list[SeenMemory]] = field(default_factory=dict)
    judged: list[str] = field(default_factory=list)
    suspected: list[SuspectedOutOfMemory] = field(default_factory=list)

    def count(self, gpu: GpuAtLook) -> None:
        """Note the memory of held devices, and judge the ends of those who held them."""
        memory = gpu.memory
        if memory is None:
            return
        for device in gpu.holders_now.devices:
            self._note(gpu.at_ns, device, memory)
        for instance in [*self.looks]:
            looks = [look for look in self.looks[instance] if look.at_ns >= gpu.at_ns - _KEPT_NS][-_MOST_LOOKS:]
            if not looks:
                del self.looks[instance]
                continue
            self.looks[instance] = looks
            if memory.ends:
                self._judge(gpu, memory, DeviceKey(uuid=gpu.holders_now.key.uuid, instance=instance))

    def _note(self, at_ns: int, device: Device[Entry], memory: MemoryAtLook) -> None:
        """Note a device's memory, if somebody holds it. Looks that saw the same are kept as one."""
        of_device = memory.values.get(device.key)
        if not device.holders or of_device is None:
            return
        holders = [entry for entry, _ in device.holders]
        users = largest(memory.users.get(device.key, ()))
        seen = SeenMemory(at_ns, at_ns, *of_device, holders, users)
        looks = self.looks.setdefault(device.key.instance, [])
        if looks and looks[-1].is_same(seen):
            looks[-1].at_ns = at_ns
        else:
            looks.append(seen)
            _thin_out(looks)

    def _judge(self, gpu: GpuAtLook, memory: MemoryAtLook, key: DeviceKey) -> None:
        """Judge the ends of those who held a device of late."""
        looks = self.looks[key.instance]
        holders = dict.fromkeys(entry for look in looks for entry in look.holders)
        for entry in holders:
            owner = entry.owner
            if owner is None or entry.is_dropped:
                continue
            for end in memory.ends.get(owner, ()):
                ended_at_ns = memory.moment(end)
                if ended_at_ns < gpu.at_ns - _KEPT_NS or not self._is_new(end, owner, key):
                    continue
                held = EndOfHolder(
                    owner=owner,
                    device=key,
                    end=end,
                    ended_at_ns=ended_at_ns,
                    looks=looks,
                    xids=frozenset(_lately(gpu, ended_at_ns)),
                    failed_allocations=memory.failed_of(owner, key.uuid),
                )
                suspected = judge(held)
                if suspected is not None:
                    suspects = memory.suspects.setdefault((owner, end), [])
                    suspects.append(Suspect(suspected, entry, self.suspected))

    def _is_new(self, end: ContainerEnd, owner: Owner, key: DeviceKey) -> bool:
        """Whether this end is judged for the first time on this device; it counts as judged from now on."""
        container = end.id or f"{owner.name} {end.at_seconds}"
        identity = f"{container} {key.instance}"
        if identity in self.judged:
            return False
        self.judged = [*self.judged, identity][-_MOST_JUDGED:]
        return True


def _thin_out(looks: list[SeenMemory]) -> None:
    """Of the last looks within ten seconds keep the fullest and the emptiest, as long as the holders stay the same."""
    *before, newest = looks[-_CLOSE_LOOKS:]
    if len(before) < _CLOSE_LOOKS - 1 or newest.since_at_ns - before[0].since_at_ns >= _TOGETHER_NS:
        return
    if all(look.holders == newest.holders for look in before):
        _, between, _ = sorted((*before, newest), key=lambda look: look.ratio)
        looks.remove(between)


def _lately(gpu: GpuAtLook, ended_at_ns: int) -> Sequence[int]:
    """The XIDs of the GPU that were counted in the minute before an end, or since."""
    return [xid for xid, at_ns in gpu.state.xids.items() if at_ns >= ended_at_ns - WINDOW_NS]
