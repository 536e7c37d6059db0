"""The lines of the page's table: nodes, their GPUs, and the MIG instances or owners of these, as a tree. Pure.

They are made of the objects of /container/metrics. A line that has others below it says what they do together.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from exporter.lenient import finite, mapping
from exporter.model.slices import ITEMS_A_SLICE, Work
from exporter.model.states import IN_HAND, DeviceState, counts_of, last_xid, state_of_device, stated
from exporter.outputs.page.view import PageView

Object = Mapping[str, Any]
DeviceId = tuple[str, str, str]

_MOST_UNFOLDED = 48  # lines, of an address that does not say what is folded
_DEVICES_A_SLICE = 100
_MEMORY = ("framebuffer_used", "framebuffer_total")
_NUMBERS = ("gpu_utilization", *_MEMORY, "power_usage", "temperature")
_NOBODY = dict.fromkeys(("namespace", "pod", "container", "workload_name"), "")
# From bad to worse, as /container/metrics has them.
_HEALTHS = ("ok", "unknown", "degraded", "failing", "gone")
_SEARCHED = (
    *("node_name", "device_uuid", "model_name", "mig_profile", "namespace"),
    *("pod", "container", "workload_name", "workload_kind", "health"),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceLine:
    """A line. `row` has its values, `rows` are the objects that it stands for, and `below` the lines under it.

    `kind`: node, gpu (or an instance whose GPU is not known), instance, owner. `key` names it in addresses. `depth` is
    that in the tree as it is shown; `is_open` is None where nothing is below it. `parts` counts the instances of a
    GPU that is cut, of which those that the view asks for are below it.
    """

    kind: str
    key: str
    row: Object
    rows: Sequence[Object]
    below: Sequence["DeviceLine"] = ()
    depth: int = 0
    is_open: bool | None = None
    parts: int = 0

    @property
    def state(self) -> DeviceState:
        """That of the device; of a GPU that is cut the one that comes first among its instances'."""
        states = [*map(stated, self.rows)]
        return state_of_device([each for each in states if each is not DeviceState.CUT] or states)

    @property
    def is_cut(self) -> bool:
        """Whether it is a GPU that is cut into MIG instances."""
        return any(stated(row) is DeviceState.CUT for row in self.rows)

    @property
    def worst(self) -> Object:
        """The object of the device that is in the worst health."""
        return max(self.rows, key=health_rank)

    @property
    def is_ill(self) -> bool:
        """Whether one of its devices is known not to be sound."""
        return health_rank(self.worst) > _HEALTHS.index("unknown")

    @property
    def illness(self) -> float:
        """How ill; a device with an XID more than one without."""
        return health_rank(self.worst) + ((last_xid(self.worst)[0] or 0) > 0) / 2


# What lines are sorted by; None, which is not known, comes last.
Rank = Callable[[DeviceLine], Any]
Lines = Sequence[DeviceLine]
Devices = Sequence[Sequence[Object]]


def device_of(row: Object) -> DeviceId:
    """Which device an object is of."""
    return row["node_name"], row["device_uuid"] or row["device"], row.get("mig_instance_id", "")


def utilisation(row: Object) -> float | None:
    """Percent. A MIG instance has no utilisation of its own, but how long its engine was active says as much."""
    if row["gpu_utilization"] is not None:
        return float(row["gpu_utilization"])
    active = row["graphics_engine_active"]
    return None if active is None else float(active * 100)


def total_mib(row: Object) -> float | None:
    """How much memory the device has, by an object of an unshared one."""
    if row["framebuffer_total"] is not None:
        return float(row["framebuffer_total"])
    used, free = row["framebuffer_used"], row["framebuffer_free"]
    return None if used is None or free is None else float(used + free)


def health_rank(row: Object) -> int:
    """0 for a sound device; one that is not known to be ill comes after it."""
    health = row.get("health", "ok")
    return _HEALTHS.index(health) if health in _HEALTHS else 1


def figures_of(rows: Sequence[Object]) -> Work[Mapping[str, int]]:
    """How many GPUs and MIG instances there are, and how many devices are in each state.

    Devices are MIG instances, and GPUs that are not cut. Those that are `idle` are held, and no holder does anything;
    the other states add up to all devices.
    """
    gpus: set[tuple[str, str]] = set()
    instances: set[DeviceId] = set()
    states: dict[DeviceId, list[DeviceState]] = {}
    for count, row in enumerate(rows, start=1):
        if not count % ITEMS_A_SLICE:
            yield
        device = device_of(row)
        states.setdefault(device, []).append(stated(row))
        if row["entity"] == "mig":
            instances.add(device)
        # an instance whose GPU is unknown adds no GPU
        if not device[1].startswith("MIG-"):
            gpus.add(device[:2])
    return {"gpus": len(gpus), "instances": len(instances), **counts_of(map(state_of_device, states.values()))}


def matching(rows: Sequence[Object], view: PageView) -> Work[list[list[Object]]]:
    """The devices, each with its objects, that the view filters out."""
    words = view.filter.lower().split()
    devices = []
    for count, (_, of) in enumerate(groupby(rows, device_of), start=1):
        device = [*of]
        if _is_shown(device, view.show) and (not words or _has_words(device, words)):
            devices.append(device)
        if not count % _DEVICES_A_SLICE:
            yield
    return devices


def _is_shown(rows: Sequence[Object], show: str) -> bool:
    if show not in {"held", *DeviceState}:
        return True
    states = [*map(stated, rows)]
    if show == DeviceState.IDLE:
        return DeviceState.IDLE in states
    state = state_of_device(states)
    return state in IN_HAND if show == "held" else state == show


def _has_words(rows: Sequence[Object], words: Sequence[str]) -> bool:
    texts = [f"gpu {row['device_id']}\n" + "\n".join(str(row.get(name, "")) for name in _SEARCHED) for row in rows]
    text = "\n".join(texts).lower()
    return all(word in text for word in words)


def tree(devices: Devices, rows: Sequence[Object]) -> Work[Lines]:
    """A line for each GPU of these devices. One that is cut, by any of the `rows`, stands above its instances.

    Of a GPU that is cut, the instances among the `devices` are below it, and its values are those of all of its
    instances among the `rows`.
    """
    cut = {device_of(row)[:2]: row for row in rows if row["entity"] == "mig-parent"}
    yield
    of_cut = (row for row in rows if row["entity"] != "mig-parent" and device_of(row)[:2] in cut)
    instances: dict[tuple[str, str], list[DeviceLine]] = {gpu: [] for gpu in cut}
    for count, (device, of) in enumerate(groupby(of_cut, device_of), start=1):
        instances[device[:2]].append(replace(_device([*of]), kind="instance"))
        if not count % _DEVICES_A_SLICE:
            yield
    lines: list[DeviceLine] = []
    by_gpu = groupby(devices, lambda of: device_of(of[0])[:2])
    for count, (gpu, of_gpu) in enumerate(by_gpu, start=1):
        if gpu in cut:
            shown_ones = {device_of(of[0]) for of in of_gpu}
            lines.append(_cut_gpu(cut[gpu], instances[gpu], shown_ones))
        else:
            lines += map(_device, of_gpu)
        if not count % _DEVICES_A_SLICE:
            yield
    return lines


def _cut_gpu(parent: Object, instances: Sequence[DeviceLine], shown_ones: Container[DeviceId]) -> DeviceLine:
    """The line of a GPU that is cut, above those of its instances that are shown."""
    of_instances = [line.row for line in instances]
    memory: Mapping[str, float | None] = {name: _sum(name, [parent]) for name in _MEMORY}
    if None in memory.values():
        memory = {name: _sum(name, of_instances) for name in _MEMORY}
    # a page repeats on instances what the GPU draws, and how hot it is
    highest = {name: _highest(name, [parent, *of_instances]) for name in ("power_usage", "temperature")}
    below = tuple(line for line in instances if device_of(line.row) in shown_ones)
    objects = [parent, *(row for line in below for row in line.rows)]
    row = {**parent, **memory, **highest}
    return DeviceLine(kind="gpu", key=_key(parent), row=row, rows=objects, below=below, parts=len(instances))


def _device(rows: Sequence[Object]) -> DeviceLine:
    first = rows[0]
    if len(rows) == 1:
        return DeviceLine(kind="gpu", key=_key(first), row=first, rows=rows)
    whole = mapping(first, "whole_device")
    # an owner's part of the memory is not the GPU's
    highest = {name: None if name in _MEMORY else _highest(name, rows) for name in _NUMBERS}
    known_whole = {name: value for name in _NUMBERS if (value := finite(whole, name)) is not None}
    row = {**first, **_NOBODY, **highest, **known_whole, "framebuffer_free": finite(whole, "framebuffer_free")}
    below = tuple(DeviceLine(kind="owner", key="", row=each, rows=(each,)) for each in rows)
    return DeviceLine(kind="gpu", key=_key(first), row=row, rows=rows, below=below)


def _highest(name: str, rows: Sequence[Object]) -> Any:  # noqa: ANN401 - the field's
    return max((row[name] for row in rows if row[name] is not None), default=None)


def _key(row: Object) -> str:
    instance = row.get("mig_instance_id", "")
    name = f"{row['node_name']}/{row['device_id'] or row['device_uuid'] or row['device']}"
    return f"{name}/{instance}" if instance else name


def _sum(name: str, rows: Sequence[Object]) -> float | None:
    """What rows have together: a sum in which something is missing is not known."""
    values: list[Any] = [total_mib(row) if name == "framebuffer_total" else row[name] for row in rows]
    return float(sum(values)) if values and None not in values else None


def by_node(gpus: Lines) -> Work[Lines]:
    """A line for each node: what its GPUs use on average, have and draw together, and how hot the hottest is."""
    nodes = []
    for name, of in groupby(gpus, lambda line: line.row["node_name"]):
        lines = [*of]
        rows = [line.row for line in lines]
        busy = [value for value in map(utilisation, rows) if value is not None]
        row = {
            **rows[0],
            **_NOBODY,
            **{name: _sum(name, rows) for name in (*_MEMORY, "power_usage")},
            "framebuffer_free": None,
            "gpu_utilization": sum(busy) / len(busy) if busy else None,
            "temperature": _highest("temperature", rows),
        }
        objects = [each for line in lines for each in line.rows]
        nodes.append(DeviceLine(kind="node", key=name, row=row, rows=objects, below=lines))
        yield
    return nodes


def shown(
    devices: Devices, rows: Sequence[Object], view: PageView, rank: Rank | None, *, with_node: bool
) -> Work[tuple[Lines, str]]:
    """The lines of the view from the first to the last, and what is folded: a key of FOLDS. `rank` is of its column."""
    gpus = yield from tree(devices, rows)
    fold = view.fold
    if fold not in ("none", "gpu", "node"):
        is_long = sum(1 + len(line.below) for line in gpus) > _MOST_UNFOLDED
        fold = ("node" if with_node and len(gpus) > _MOST_UNFOLDED else "gpu") if is_long else "none"
    top = (yield from by_node(gpus)) if fold == "node" and with_node else gpus
    return [*_unfolded(top, view, rank, fold, 0)], fold


def _unfolded(lines: Lines, view: PageView, rank: Rank | None, fold: str, depth: int) -> Iterator[DeviceLine]:
    if rank is not None:
        all_ranked = [(rank(line), line) for line in lines]
        ranked = [each for each in all_ranked if each[0] is not None]
        ranked.sort(key=itemgetter(0), reverse=view.sort.startswith("-"))
        lines = [line for _, line in ranked] + [line for value, line in all_ranked if value is None]
    for line in lines:
        # a node folds its GPUs, and a GPU its owners or instances, unless the address has it the other way
        is_open = (fold == "none") != (line.key in view.but) if line.below else None
        yield replace(line, depth=depth, is_open=is_open)
        if is_open:
            yield from _unfolded(line.below, view, rank, fold, depth + 1)
