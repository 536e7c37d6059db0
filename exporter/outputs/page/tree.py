"""The lines of the page's table as a tree: nodes, their GPUs, and the GPUs' MIG instances or owners. Pure.

Lines are made of the rows of /container/metrics. A line with lines below it sums them up.

Tests: tests/outputs/test_page.py.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

from exporter.dividing.figures import Figures, of_cut_gpu, of_device, of_holder, total_of
from exporter.model.device_row import DeviceRow, RowDevice
from exporter.model.slices import ITEMS_A_SLICE, Work
from exporter.model.states import IN_HAND, DeviceState, counts_of, state_of_device
from exporter.outputs.page.view import PageView

_MOST_UNFOLDED = 48  # the most lines that are shown unfolded, if the address does not say what to fold
_DEVICES_A_SLICE = 100
_ROW_DEVICE = attrgetter("row_device")
_OF_GPU = ("node_name", "model_name", "device", "device_id", "device_uuid", "gpu_shared")
# From sound to worst, in the words of /container/metrics. A device that is known to be degraded is worth a look before
# one that nobody speaks of, so `unknown` comes earlier here than among the reasons of one device (model/health.py).
_HEALTHS = ("ok", "unknown", "degraded", "failing", "gone")
_SEARCHED_TEXTS = attrgetter(
    *("node_name", "device_uuid", "model_name", "mig_profile", "namespace"),
    *("pod", "container", "workload_name", "workload_kind", "health"),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceLine:
    """A line of the table.

    Attributes:
        kind: node, gpu (also a MIG instance whose GPU is not known), instance or owner.
        key: the line's name in addresses; "" for an owner.
        row: the device, its holder and its state.
        figures: the measurements.
        rows: all rows that the line stands for.
        below: the lines under it. Below a MIG GPU they are the instances that the view asks for.
        depth: the line's depth in the tree, as it is shown.
        is_open: whether the lines below are shown; None if there are none.
        parts: the number of all instances of a MIG GPU; 0 for any other line.
    """

    kind: str
    key: str
    row: DeviceRow
    figures: Figures
    rows: Sequence[DeviceRow]
    below: Sequence["DeviceLine"] = ()
    depth: int = 0
    is_open: bool | None = None
    parts: int = 0

    @property
    def state(self) -> DeviceState:
        """The state of the device. A MIG GPU has the state of its instances that `state_of_device` puts first."""
        states = [row.state for row in self.rows]
        return state_of_device([state for state in states if state is not DeviceState.CUT] or states)

    @property
    def is_cut(self) -> bool:
        """Whether the line is a GPU that is cut into MIG instances."""
        return any(row.state is DeviceState.CUT for row in self.rows)

    @property
    def worst(self) -> DeviceRow:
        """The row of the device with the worst health."""
        return max(self.rows, key=health_rank)

    @property
    def is_ill(self) -> bool:
        """Whether one of its devices is known not to be sound."""
        return health_rank(self.worst) > _HEALTHS.index("unknown")

    @property
    def illness(self) -> float:
        """The rank by health, higher if worse. Of two devices with the same health, one with an XID ranks higher."""
        return health_rank(self.worst) + bool(self.worst.last_xid) / 2


# The value that lines are sorted by. None (unknown) comes last.
Rank = Callable[[DeviceLine], Any]
Lines = Sequence[DeviceLine]
Devices = Sequence[Sequence[DeviceRow]]


def health_rank(row: DeviceRow) -> int:
    """The rank of a device's health: 0 for ok, then unknown (and words of newer nodes), degraded, failing, gone."""
    health = row.health or "ok"
    return _HEALTHS.index(health) if health in _HEALTHS else _HEALTHS.index("unknown")


def figures_of(rows: Sequence[DeviceRow]) -> Work[Mapping[str, int]]:
    """The numbers of GPUs and MIG instances, and the number of devices in each state.

    Devices are MIG instances, and GPUs without instances. An `idle` device is held, but none of its holders works on
    it. The numbers of the other states add up to all devices.
    """
    gpus: set[tuple[str, str]] = set()
    instances: set[RowDevice] = set()
    states: dict[RowDevice, list[DeviceState]] = {}
    for count, row in enumerate(rows, start=1):
        if not count % ITEMS_A_SLICE:
            yield
        device = row.row_device
        states.setdefault(device, []).append(row.state)
        if row.entity == "mig":
            instances.add(device)
        # an instance whose GPU is unknown adds no GPU
        if not device[1].startswith("MIG-"):
            gpus.add(device[:2])
    return {"gpus": len(gpus), "instances": len(instances), **counts_of(map(state_of_device, states.values()))}


def matching(rows: Sequence[DeviceRow], view: PageView) -> Work[list[list[DeviceRow]]]:
    """The devices that match the view's filter and state, each as its rows."""
    words = view.filter.lower().split()
    devices = []
    for count, (_, rows_of_one) in enumerate(groupby(rows, _ROW_DEVICE), start=1):
        device_rows = [*rows_of_one]
        if _is_shown(device_rows, view.show) and (not words or _has_words(device_rows, words)):
            devices.append(device_rows)
        if not count % _DEVICES_A_SLICE:
            yield
    return devices


def _is_shown(rows: Sequence[DeviceRow], show: str) -> bool:
    if show not in {"held", *DeviceState}:
        return True
    states = [row.state for row in rows]
    if show == DeviceState.IDLE:
        return DeviceState.IDLE in states
    state = state_of_device(states)
    return state in IN_HAND if show == "held" else state == show


def _has_words(rows: Sequence[DeviceRow], words: Sequence[str]) -> bool:
    texts = [text for row in rows for text in (f"gpu {row.device_id}", *_SEARCHED_TEXTS(row))]
    text = "\n".join(texts).lower()
    return all(word in text for word in words)


def tree(devices: Devices, rows: Sequence[DeviceRow]) -> Work[Lines]:
    """A line for each GPU of these devices. A GPU with a MIG instance in `rows` is a MIG GPU.

    A MIG GPU has the lines of its instances among the `devices` below it. Its figures are made of all its instances
    among the `rows`.
    """
    cut = yield from _cut_gpus(rows)
    lines: list[DeviceLine] = []
    by_gpu = groupby(devices, lambda device_rows: device_rows[0].row_device[:2])
    for count, (gpu, of_gpu) in enumerate(by_gpu, start=1):
        if gpu in cut:
            shown_ones = {device_rows[0].row_device for device_rows in of_gpu}
            lines.append(_cut_gpu(cut[gpu], shown_ones))
        else:
            lines += map(_device, of_gpu)
        if not count % _DEVICES_A_SLICE:
            yield
    return lines


def _cut_gpus(rows: Sequence[DeviceRow]) -> Work[Mapping[tuple[str, str], Sequence[Sequence[DeviceRow]]]]:
    """The MIG GPUs: first the GPU's own row (made up if there is none), then the rows of each of its instances."""
    cut: dict[tuple[str, str], list[Sequence[DeviceRow]]] = {}
    for row in rows:
        if row.entity == "mig-parent":
            cut[row.row_device[:2]] = [[row]]
    yield
    for count, (device, rows_of_one) in enumerate(groupby(rows, _ROW_DEVICE), start=1):
        device_rows = [*rows_of_one]
        if device_rows[0].entity == "mig" and not device[1].startswith("MIG-"):
            cut.setdefault(device[:2], [[_parent_of(device_rows[0])]]).append(device_rows)
        if not count % _DEVICES_A_SLICE:
            yield
    return cut


def _parent_of(instance: DeviceRow) -> DeviceRow:
    """A row for a GPU whose instances alone are known, made of the row of an instance."""
    names = {name: getattr(instance, name) for name in _OF_GPU}
    return DeviceRow(**names, entity="mig-parent", state=DeviceState.CUT)


def _of_nobody(row: DeviceRow) -> DeviceRow:
    """The row without its holder, for the line of a device or a node as such."""
    return row._replace(namespace="", pod="", container="", workload_name="")


def _cut_gpu(devices: Devices, shown_ones: Container[RowDevice]) -> DeviceLine:
    """The line of a MIG GPU. Below it are the lines of its instances among `shown_ones`."""
    (parent,), *of_instances = devices
    instances = [replace(_device(rows), kind="instance") for rows in of_instances]
    below = tuple(line for line in instances if line.row.row_device in shown_ones)
    return DeviceLine(
        kind="gpu",
        key=_key(parent),
        row=parent,
        figures=of_cut_gpu(parent, [rows[0] for rows in of_instances], [line.figures for line in instances]),
        rows=[parent, *(row for line in below for row in line.rows)],
        below=below,
        parts=len(instances),
    )


def _device(rows: Sequence[DeviceRow]) -> DeviceLine:
    first = rows[0]
    line = DeviceLine(kind="gpu", key=_key(first), row=first, figures=of_device(rows), rows=rows)
    if len(rows) == 1:
        return line
    return replace(line, row=_of_nobody(first), below=tuple(map(_owner, rows)))


def _owner(row: DeviceRow) -> DeviceLine:
    """The line of one of several holders, below its device."""
    return DeviceLine(kind="owner", key="", row=row, figures=of_holder(row, is_alone=False), rows=(row,))


def _key(row: DeviceRow) -> str:
    name = f"{row.node_name}/{row.device_id or row.device_uuid or row.device}"
    return f"{name}/{row.mig_instance_id}" if row.mig_instance_id else name


def by_node(gpus: Lines) -> Work[Lines]:
    """A line for each node, above the lines of its GPUs. `_together` makes its figures."""
    nodes = []
    for name, lines_of_node in groupby(gpus, lambda line: line.row.node_name):
        lines = [*lines_of_node]
        nodes.append(
            DeviceLine(
                kind="node",
                key=name,
                row=_of_nobody(lines[0].row),
                figures=_together([line.figures for line in lines]),
                rows=[row for line in lines for row in line.rows],
                below=lines,
            )
        )
        yield
    return nodes


def _together(gpus: Sequence[Figures]) -> Figures:
    """A node's figures: the mean activity, the sums of memory and power, and the temperature of the hottest GPU."""
    busy = [figures.activity for figures in gpus if figures.activity is not None]
    temperatures = [figures.temperature_celsius for figures in gpus if figures.temperature_celsius is not None]
    return Figures(
        activity=sum(busy) / len(busy) if busy else None,
        memory_used_mib=total_of(figures.memory_used_mib for figures in gpus),
        memory_total_mib=total_of(figures.memory_total_mib for figures in gpus),
        power_watts=total_of(figures.power_watts for figures in gpus),
        temperature_celsius=max(temperatures, default=None),
    )


def shown(
    devices: Devices, rows: Sequence[DeviceRow], view: PageView, rank: Rank | None, *, with_node: bool
) -> Work[tuple[Lines, str]]:
    """The lines of the view in their order, and the fold: a key of FOLDS.

    `devices` are the devices to show, and `rows` the rows of all devices. `rank` belongs to the column that the view
    sorts by; None if it sorts by no column.
    """
    gpus = yield from tree(devices, rows)
    fold = view.fold
    if fold not in ("none", "gpu", "node"):
        fold = _usual_fold(gpus, with_node=with_node)
    top = (yield from by_node(gpus)) if fold == "node" and with_node else gpus
    return [*_unfolded(top, view, rank, fold, 0)], fold


def _usual_fold(gpus: Lines, *, with_node: bool) -> str:
    """What is folded if the address does not say it: as little as leaves few lines."""
    if sum(1 + len(line.below) for line in gpus) <= _MOST_UNFOLDED:
        return "none"
    return "node" if with_node and len(gpus) > _MOST_UNFOLDED else "gpu"


def _unfolded(lines: Lines, view: PageView, rank: Rank | None, fold: str, depth: int) -> Iterator[DeviceLine]:
    if rank is not None:
        all_ranked = [(rank(line), line) for line in lines]
        ranked = [(value, line) for value, line in all_ranked if value is not None]
        ranked.sort(key=itemgetter(0), reverse=view.sort.startswith("-"))
        lines = [line for _, line in ranked] + [line for value, line in all_ranked if value is None]
    for line in lines:
        # `fold` decides for all lines; the address names the lines that are the other way round
        is_open = (fold == "none") != (line.key in view.but) if line.below else None
        yield replace(line, depth=depth, is_open=is_open)
        if is_open:
            yield from _unfolded(line.below, view, rank, fold, depth + 1)
