"""How many GPUs there are, are held, and are held for nothing: the line of figures on top of the page."""

from collections.abc import Iterable
from dataclasses import dataclass

from exporter.outputs.page.devices import DeviceId, Object, device_of, is_held, is_wasted


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of GPUs: all, and those of which somebody holds all or a part. `instances` are of MIG.

    `wasted` are devices (GPUs and instances) that are held, and of which no owner does anything.
    """

    gpus: int = 0
    held: int = 0
    instances: int = 0
    wasted: int = 0

    @classmethod
    def of(cls, rows: Iterable[Object]) -> "Figures":
        """Those for the objects of /container/metrics."""
        gpus: dict[tuple[str, str], bool] = {}
        is_wasted_by_device: dict[DeviceId, bool] = {}
        instances = set()
        for row in rows:
            device = device_of(row)
            if row["entity"] == "mig":
                instances.add(device)
            # an instance that nothing resolves says of no GPU that it is there
            if not device[1].startswith("MIG-"):
                gpus[device[:2]] = gpus.get(device[:2], False) or is_held(row)
            is_wasted_by_device[device] = is_wasted_by_device.get(device, True) and is_wasted(row)
        return cls(
            gpus=len(gpus),
            held=sum(gpus.values()),
            instances=len(instances),
            wasted=sum(is_wasted_by_device.values()),
        )

    @classmethod
    def sum(cls, several: Iterable["Figures"]) -> "Figures":
        """Those of several nodes together."""
        found = [*several]
        return cls(
            gpus=sum(each.gpus for each in found),
            held=sum(each.held for each in found),
            instances=sum(each.instances for each in found),
            wasted=sum(each.wasted for each in found),
        )


def summary(figures: Figures) -> str:
    """The figures, by the names that the script knows them by."""
    said = (
        ("gpus", "GPUs", figures.gpus),
        ("held", "held", figures.held),
        ("free", "free", figures.gpus - figures.held),
        ("instances", "MIG instances", figures.instances),
        ("wasted", "held but idle", figures.wasted),
    )
    items = "".join(f'<div><dt>{title}</dt><dd id="figure-{name}">{number}</dd></div>' for name, title, number in said)
    return f'<dl id="figures">{items}</dl>'
