"""For how long kernels of each holder of a shared device ran, from one look to the next: what NVML measures."""

from collections.abc import Mapping, Sequence

from exporter.accounting.held import HeldDevice, HeldGpu
from exporter.accounting.stretches import MOST_UNREAD_NS, Kernels
from exporter.model.devices import DeviceKey
from exporter.model.pods import Owner

_Times = Mapping[Owner | None, int]
SmNs = Mapping[DeviceKey, _Times]
_NOTHING: SmNs = {}
_FAINT_NS = 1_000


class KernelTimes:
    """Remembers what was measured at the last look: `Measured.sm_ns`, which begins at 0 with each process.

    NVML may have no new sample since then. That is no news: the last sample's proportion stays for two minutes.
    """

    def __init__(self) -> None:
        self._last = _NOTHING
        self._newest: dict[DeviceKey, tuple[int, Sequence[object], list[int]]] = {}

    def since_last(self, now: SmNs, before: Mapping[str, HeldGpu], at_ns: int) -> Mapping[str, Kernels]:
        """By GPU the times since the last look, of those who held it then.

        `now` is measured at this look, at `at_ns`; it is empty where nobody measures.
        """
        last, self._last = self._last, now
        if not last or not now:
            self._newest.clear()
            return {}
        found: dict[str, dict[str, list[int]]] = {}
        for key in now.keys() & last.keys():
            held = before.get(key.uuid)
            for device in held.devices if held is not None else ():
                if device.key == key and device.is_shared and (times := _grown(device, last[key], now[key])):
                    found.setdefault(key.uuid, {})[key.instance] = self._with_newest(device, times, at_ns)
        return found

    def _with_newest(self, device: HeldDevice, times: list[int], at_ns: int) -> list[int]:
        """The times; where there is no new sample, the proportion of the last one, which any new sample outweighs."""
        if any(times):
            self._newest[device.key] = at_ns, device.holders, times
            return times
        since_ns, holders, newest = self._newest.get(device.key, (at_ns, (), times))
        if holders != device.holders or at_ns - since_ns >= MOST_UNREAD_NS:
            return times
        return [time * _FAINT_NS // sum(newest) for time in newest]


def _grown(device: HeldDevice, last: _Times, now: _Times) -> list[int]:
    """The holders' times, and at last nobody's; [] where one of them is not known."""
    owners = [entry.owner for entry, _ in device.holders]
    if any(owner not in last or owner not in now for owner in owners):
        return []
    times = [now.get(owner, 0) - last.get(owner, 0) for owner in (*owners, None)]
    return times if min(times) >= 0 else []
