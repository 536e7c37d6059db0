"""For how long kernels of each holder of a shared device ran, from one look to the next: what NVML measures."""

from collections.abc import Mapping

from exporter.accounting.held import HeldDevice, HeldGpu
from exporter.accounting.stretches import Kernels
from exporter.model.devices import DeviceKey
from exporter.model.pods import Owner

_Times = Mapping[Owner | None, int]
SmNs = Mapping[DeviceKey, _Times]
_NOTHING: SmNs = {}


class KernelTimes:
    """Remembers what was measured at the last look: `Measured.sm_ns`, which begins at 0 with each process."""

    def __init__(self) -> None:
        self._last = _NOTHING

    def since_last(self, now: SmNs, before: Mapping[str, HeldGpu]) -> Mapping[str, Kernels]:
        """By GPU the times since the last look, of those who held it then.

        `now` is measured at this look; it is empty where nobody measures.
        """
        last, self._last = self._last, now
        if not last or not now:
            return {}
        found: dict[str, dict[str, list[int]]] = {}
        for key in now.keys() & last.keys():
            held = before.get(key.uuid)
            for device in held.devices if held is not None else ():
                if device.key == key and device.is_shared and (times := _grown(device, last[key], now[key])):
                    found.setdefault(key.uuid, {})[key.instance] = times
        return found


def _grown(device: HeldDevice, last: _Times, now: _Times) -> list[int]:
    """The holders' times, and at last nobody's; [] where one of them is not known."""
    owners = [entry.owner for entry, _ in device.holders]
    if any(owner not in last or owner not in now for owner in owners):
        return []
    times = [now.get(owner, 0) - last.get(owner, 0) for owner in (*owners, None)]
    return times if min(times) >= 0 else []
