"""How many GPUs and MIG instances there are, and in which states: the line of figures on top of the page."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields

from exporter.model.states import IN_HAND, DeviceState, state_of_device, stated
from exporter.outputs.page.devices import DeviceId, Object, device_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """GPUs and MIG instances; and of devices (a MIG instance, or a GPU that is not cut) how many are in each state.

    `held`, `free`, `outside` and `unknown` add up to all devices. `idle` ones are held, and no holder does anything.
    """

    gpus: int = 0
    instances: int = 0
    held: int = 0
    idle: int = 0
    free: int = 0
    outside: int = 0
    unknown: int = 0

    @classmethod
    def of(cls, rows: Iterable[Object]) -> "Figures":
        """Those for the objects of /container/metrics."""
        return cls.of_states((device_of(row), row["entity"], stated(row)) for row in rows)

    @classmethod
    def of_states(cls, objects: Iterable[tuple[DeviceId, str, DeviceState]]) -> "Figures":
        """Those for objects of which the device, its `entity` and the state are given."""
        gpus: set[tuple[str, str]] = set()
        instances: set[DeviceId] = set()
        states: dict[DeviceId, list[DeviceState]] = {}
        for device, entity, state in objects:
            states.setdefault(device, []).append(state)
            if entity == "mig":
                instances.add(device)
            # an instance that nothing resolves says of no GPU that it is there
            if not device[1].startswith("MIG-"):
                gpus.add(device[:2])
        devices = Counter(map(state_of_device, states.values()))
        return cls(
            gpus=len(gpus),
            instances=len(instances),
            held=sum(devices[state] for state in IN_HAND),
            idle=devices[DeviceState.IDLE],
            free=devices[DeviceState.FREE],
            outside=devices[DeviceState.OUTSIDE],
            unknown=devices[DeviceState.UNKNOWN],
        )

    @classmethod
    def sum(cls, several: Iterable["Figures"]) -> "Figures":
        """Those of several nodes together."""
        added = [*several]
        return cls(**{name: sum(getattr(each, name) for each in added) for name in TITLES})


TITLES = {
    "gpus": "GPUs",
    "instances": "MIG instances",
    "held": "held",
    "idle": "held but idle",
    "free": "free",
    "outside": "used around Kubernetes",
    "unknown": "unknown",
}
assert [*TITLES] == [field.name for field in fields(Figures)]  # noqa: S101 - each figure has its title


def summary(figures: Figures) -> str:
    """The figures, by the names that the script knows them by."""
    items = "".join(
        f'<div><dt>{title}</dt><dd id="figure-{name}">{getattr(figures, name)}</dd></div>'
        for name, title in TITLES.items()
    )
    return f'<dl id="figures">{items}</dl>'
