"""The lines of the page's table: nodes, their GPUs, and the MIG instances or owners of these, as a tree. Pure.

They are made of the objects of /container/metrics. A line that has others below it says what they do together.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from exporter.dcgm.fields import METRICS
from exporter.dividing.figures import Figures, of_cut_gpu, of_device, of_holder, total_of
from exporter.model.slices import ITEMS_A_SLICE, Work
from exporter.model.states import IN_HAND, DeviceState, counts_of, last_xid, state_of_device, stated
from exporter.outputs.page.view import PageView

Object = Mapping[str, Any]
DeviceId = tuple[str, str, str]

_MOST_UNFOLDED = 48  # lines, of an address that does not say what is folded
_DEVICES_A_SLICE = 100
_NOBODY = dict.fromkeys(("namespace", "pod", "container", "workload_name"), "")
_OF_GPU = ("node_name", "model_name", "device", "device_id", "device_uuid", "gpu_shared")
# From bad to worse, as /container/metrics has them.
_HEALTHS = ("ok", "unknown", "degraded", "failing", "gone")
_SEARCHED = (
    *("node_name", "device_uuid", "model_name", "mig_profile", "namespace"),
    *("pod", "container", "workload_name", "workload_kind", "health"),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceLine:
    """A line: `row` says what it is, and `figures` what it does.

    `rows` are the objects that it stands for, and `below` the lines under it.

    `kind`: node, gpu (or an instance whose GPU is not known), instance, owner. `key` names it in addresses. `depth` is
    that in the tree as it is shown; `is_open` is None where nothing is below it. `parts` counts the instances of a
    GPU that is cut, of which those that the view asks for are below it.
    """

    kind: str
    key: str
    row: Object
    figures: Figures
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
    cut = yield from _cut_gpus(rows)
    lines: list[DeviceLine] = []
    by_gpu = groupby(devices, lambda of: device_of(of[0])[:2])
    for count, (gpu, of_gpu) in enumerate(by_gpu, start=1):
        if gpu in cut:
            shown_ones = {device_of(of[0]) for of in of_gpu}
            lines.append(_cut_gpu(cut[gpu], shown_ones))
        else:
            lines += map(_device, of_gpu)
        if not count % _DEVICES_A_SLICE:
            yield
    return lines


def _cut_gpus(rows: Sequence[Object]) -> Work[Mapping[tuple[str, str], Sequence[Sequence[Object]]]]:
    """The GPUs that are cut: the objects of each, made up where there is none, and those of each of its instances."""
    parents = {device_of(row)[:2]: [row] for row in rows if row["entity"] == "mig-parent"}
    yield
    cut: dict[tuple[str, str], list[Sequence[Object]]] = {gpu: [parent] for gpu, parent in parents.items()}
    for count, (device, of) in enumerate(groupby(rows, device_of), start=1):
        of_device = [*of]
        if of_device[0]["entity"] == "mig" and not device[1].startswith("MIG-"):
            cut.setdefault(device[:2], [[_parent_of(of_device[0])]]).append(of_device)
        if not count % _DEVICES_A_SLICE:
            yield
    return cut


def _parent_of(instance: Object) -> Object:
    """The object of a GPU of which only its instances are known."""
    return {**dict.fromkeys(METRICS), **_NOBODY, **{name: instance[name] for name in _OF_GPU}, "entity": "mig-parent"}


def _cut_gpu(objects: Sequence[Sequence[Object]], shown_ones: Container[DeviceId]) -> DeviceLine:
    """The line of a GPU that is cut, above those of its instances that are shown."""
    (parent,), *of_instances = objects
    instances = [replace(_device(rows), kind="instance") for rows in of_instances]
    below = tuple(line for line in instances if device_of(line.row) in shown_ones)
    return DeviceLine(
        kind="gpu",
        key=_key(parent),
        row=parent,
        figures=of_cut_gpu(parent, [rows[0] for rows in of_instances], [line.figures for line in instances]),
        rows=[parent, *(row for line in below for row in line.rows)],
        below=below,
        parts=len(instances),
    )


def _device(rows: Sequence[Object]) -> DeviceLine:
    first, figures = rows[0], of_device(rows)
    if len(rows) == 1:
        return DeviceLine(kind="gpu", key=_key(first), row=first, figures=figures, rows=rows)
    below = tuple(
        DeviceLine(kind="owner", key="", row=row, figures=of_holder(row, is_alone=False), rows=(row,)) for row in rows
    )
    return DeviceLine(kind="gpu", key=_key(first), row={**first, **_NOBODY}, figures=figures, rows=rows, below=below)


def _key(row: Object) -> str:
    instance = row.get("mig_instance_id", "")
    name = f"{row['node_name']}/{row['device_id'] or row['device_uuid'] or row['device']}"
    return f"{name}/{instance}" if instance else name


def by_node(gpus: Lines) -> Work[Lines]:
    """A line for each node: what its GPUs use on average, have and draw together, and how hot the hottest is."""
    nodes = []
    for name, of in groupby(gpus, lambda line: line.row["node_name"]):
        lines = [*of]
        figures = [line.figures for line in lines]
        busy = [each.activity for each in figures if each.activity is not None]
        temperatures = [each.temperature_celsius for each in figures if each.temperature_celsius is not None]
        together = Figures(
            activity=sum(busy) / len(busy) if busy else None,
            memory_used_mib=total_of(each.memory_used_mib for each in figures),
            memory_total_mib=total_of(each.memory_total_mib for each in figures),
            power_watts=total_of(each.power_watts for each in figures),
            temperature_celsius=max(temperatures, default=None),
        )
        objects = [each for line in lines for each in line.rows]
        row = {**lines[0].row, **_NOBODY}
        nodes.append(DeviceLine(kind="node", key=name, row=row, figures=together, rows=objects, below=lines))
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
