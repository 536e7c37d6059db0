"""The two tables: the devices with their owners, and the processes. Rows → columns; pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from exporter.cli.top.columns import EMPTY, Cell, Column
from exporter.cli.top.devices import Device, Holder, Process, Shown
from exporter.cli.top.words import Glyphs, harmless
from exporter.model.states import DeviceState

_KIB = 1024
_HOT_CELSIUS = 80
_WARM_CELSIUS = 70
_FULL = 0.9
_LONGEST_NODE = 40
_END_OF_A_POD = 5  # what a ReplicaSet puts after a pod's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of the table of devices: a device, with its holder if it has one alone, or one of several `holder`s."""

    device: Device
    holder: Holder | None = None
    is_part: bool = False
    is_last: bool = False

    @property
    def is_idle(self) -> bool:
        """Held, and not used."""
        return self.holder.idle if self.is_part and self.holder else self.device.idle


def entries(devices: Sequence[Device]) -> Iterator[Entry]:
    """The lines of devices: one each, and below a device with several holders one each of theirs."""
    for device in devices:
        if len(device.holders) == 1:
            yield Entry(device=device, holder=device.holders[0])
            continue
        yield Entry(device=device)
        for holder in device.holders:
            yield Entry(device=device, holder=holder, is_part=True, is_last=holder is device.holders[-1])


def device_columns(
    shown: Shown, glyphs: Glyphs, width: int, *, number_says_idle: bool = False
) -> Sequence[Column[Entry]]:
    """The columns of devices, in their order on the screen. The word idle stands where a bar would, or the number."""
    cells = _Cells(glyphs, number_says_idle=number_says_idle)
    several_nodes = len({device.node for device in shown.devices}) > 1
    # the names of pods are worth two fifths of a terminal, and most of them are shorter than this
    pods = min(max(16, width * 2 // 5), 48)
    node = [Column(name="node", title="NODE", worth=3, cell=cells.node, least=12, most=_LONGEST_NODE)]
    return [
        *(node if several_nodes else ()),
        Column(name="gpu", title="GPU", worth=0, cell=cells.label, most=9),
        Column(name="model", title="MODEL", worth=10, cell=cells.model, least=12, most=24),
        Column(name="bar", title="", worth=5, cell=cells.utilization_bar, least=6, most=10, is_bar=True),
        Column(name="util", title="UTIL", worth=2, cell=cells.utilization, right=True),
        Column(name="membar", title="", worth=9, cell=cells.memory_bar, least=5, most=10, is_bar=True),
        Column(name="memory", title="MEM", worth=4, cell=cells.memory, right=True),
        Column(name="temperature", title="TEMP", worth=6, cell=cells.temperature, right=True),
        Column(name="power", title="POWER", worth=7, cell=cells.power, right=True),
        Column(name="clock", title="SM MHz", worth=15, cell=_part(lambda of: of.sm_clock_mhz), right=True),
        Column(name="dram", title="DRAM", worth=13, cell=_percent(lambda of: of.memory_activity_percent), right=True),
        Column(name="tensor", title="TENSOR", worth=14, cell=_percent(lambda of: of.tensor_percent), right=True),
        Column(name="xid", title="XID", worth=8, cell=cells.xid, right=True),
        Column(name="pod", title="POD", worth=1, cell=cells.owner, least=pods, most=200, keeps_end=_END_OF_A_POD),
        Column(name="container", title="CONTAINER", worth=12, cell=cells.container, least=12, most=40),
        Column(name="workload", title="WORKLOAD", worth=11, cell=cells.workload, least=16, most=60),
        Column(name="uuid", title="UUID", worth=16, cell=cells.uuid, is_extra=True),
    ]


class _Cells:
    """The cells that need glyphs."""

    def __init__(self, glyphs: Glyphs, *, number_says_idle: bool) -> None:
        self._glyphs = glyphs
        self._number_says_idle = number_says_idle

    def _harmless(self, text: str) -> str:
        return harmless(text, self._glyphs)

    def node(self, entry: Entry) -> Cell:
        return EMPTY if entry.is_part else Cell(self._harmless(entry.device.node), "dim")

    def label(self, entry: Entry) -> Cell:
        if entry.is_part:
            return Cell(f" {self._glyphs.last if entry.is_last else self._glyphs.branch}", "dim")
        return Cell(self._harmless(entry.device.label), "label")

    def model(self, entry: Entry) -> Cell:
        device = entry.device
        if entry.is_part:
            return EMPTY
        return Cell(self._harmless(device.profile or device.model.removeprefix("NVIDIA ")), "dim")

    def utilization_bar(self, entry: Entry) -> Cell:
        if entry.device.is_before or entry.is_idle:
            return Cell("before", "dim") if entry.device.is_before else Cell("idle", "idle")
        percent = _utilization(entry)
        return EMPTY if percent is None else Cell("", _of_load(percent), percent / 100)

    def utilization(self, entry: Entry) -> Cell:
        percent = _utilization(entry)
        if self._number_says_idle and (entry.is_idle or entry.device.is_before):
            return Cell("before", "dim") if entry.device.is_before else Cell("idle", "idle")
        if percent is None:
            return EMPTY
        return Cell(f"{percent:.0f}%", "dim" if entry.device.is_before else "idle.number" if entry.is_idle else "")

    def memory_bar(self, entry: Entry) -> Cell:
        used, total = _memory(entry)
        if used is None or not total:
            return EMPTY
        return Cell("", "full" if used > total * _FULL else "memory", used / total)

    def memory(self, entry: Entry) -> Cell:
        used, total = _memory(entry)
        if used is None:
            return EMPTY
        # a holder's part is below the device's own line, which has the total
        return Cell(f"{_gib(used)}G" if entry.is_part or not total else f"{_gib(used)}/{_gib(total)}G")

    def temperature(self, entry: Entry) -> Cell:
        celsius = None if entry.is_part else entry.device.temperature_celsius
        if celsius is None:
            return EMPTY
        style = "bad" if celsius >= _HOT_CELSIUS else "warn" if celsius >= _WARM_CELSIUS else ""
        return Cell(f"{celsius:.0f}{self._glyphs.degrees}", style)

    def power(self, entry: Entry) -> Cell:
        watts = None if entry.is_part else entry.device.power_watts
        return EMPTY if watts is None else Cell(f"{watts:.0f}W")

    def xid(self, entry: Entry) -> Cell:
        xid = None if entry.is_part else entry.device.xid
        return EMPTY if xid is None else Cell(str(xid), "bad")

    def owner(self, entry: Entry) -> Cell:
        device, holder = entry.device, entry.holder
        if holder:
            return Cell(self._harmless(holder.name), "idle.owner" if entry.is_idle else "owner")
        if device.entity == "mig-parent":
            return Cell(f"{device.instances} MIG instances", "dim")
        if device.holders:
            return Cell(f"{len(device.holders)} containers share it", "dim")
        if device.state is DeviceState.OUTSIDE:
            return Cell("used around Kubernetes", "warn")
        why = f" ({self._harmless(device.why)})" if device.why else ""
        return Cell(f"{device.held}{why}", "dim" if device.held == "free" else "warn")

    def container(self, entry: Entry) -> Cell:
        return Cell(self._harmless(entry.holder.container), "dim") if entry.holder else EMPTY

    def workload(self, entry: Entry) -> Cell:
        holder = entry.holder
        if not holder or not holder.workload:
            return EMPTY
        kind = f"{holder.workload_kind}/" if holder.workload_kind else ""
        return Cell(self._harmless(kind + holder.workload), "dim")

    def uuid(self, entry: Entry) -> Cell:
        return EMPTY if entry.is_part else Cell(self._harmless(entry.device.uuid), "dim")


def process_columns(shown: Shown, glyphs: Glyphs, width: int) -> Sequence[Column[Process]]:
    """The columns of processes, in their order on the screen."""
    processes = shown.processes or ()
    several_nodes = len({process.node for process in processes}) > 1

    def words(of: Callable[[Process], str], style: str = "") -> Callable[[Process], Cell]:
        return lambda process: Cell(harmless(of(process), glyphs), style)

    node = [Column(name="node", title="NODE", worth=3, cell=words(lambda of: of.node, "dim"), least=12, most=40)]
    return [
        *(node if several_nodes else ()),
        Column(name="gpu", title="GPU", worth=0, cell=words(lambda of: of.device, "label"), most=9),
        Column(name="pid", title="PID", worth=1, cell=lambda process: Cell(str(process.pid)), right=True),
        Column(name="user", title="USER", worth=7, cell=words(lambda of: of.user), least=4, most=12),
        Column(name="util", title="UTIL", worth=4, cell=_process_utilization, right=True),
        Column(name="memory", title="MEM", worth=3, cell=_process_memory, right=True),
        Column(name="kinds", title="KIND", worth=8, cell=words(lambda of: of.kinds, "dim"), least=4, most=20),
        Column(
            name="pod",
            title="POD",
            worth=2,
            cell=words(lambda of: of.owner, "owner"),
            least=max(16, width // 3),
            most=80,
            keeps_end=_END_OF_A_POD,
        ),
        Column(name="command", title="COMMAND", worth=5, cell=words(lambda of: of.command), least=12, most=400),
    ]


def _process_utilization(process: Process) -> Cell:
    percent = process.utilization_percent
    return EMPTY if percent is None else Cell(f"{percent:.0f}%")


def _process_memory(process: Process) -> Cell:
    used = process.memory_used_mib
    return EMPTY if used is None else Cell(f"{_gib(used)}G")


def _part(of: Callable[[Device], float | None]) -> Callable[[Entry], Cell]:
    def cell(entry: Entry) -> Cell:
        value = None if entry.is_part else of(entry.device)
        return EMPTY if value is None else Cell(f"{value:.0f}")

    return cell


def _percent(of: Callable[[Device], float | None]) -> Callable[[Entry], Cell]:
    def cell(entry: Entry) -> Cell:
        value = None if entry.is_part else of(entry.device)
        return EMPTY if value is None else Cell(f"{value:.0f}%")

    return cell


def _utilization(entry: Entry) -> float | None:
    if entry.is_part and entry.holder:
        return entry.holder.utilization_percent
    return entry.device.utilization_percent


def _memory(entry: Entry) -> tuple[float | None, float | None]:
    """What is used, and of how much, in MiB."""
    total = entry.device.memory_total_mib
    if entry.is_part and entry.holder:
        return entry.holder.memory_used_mib, total
    return entry.device.memory_used_mib, total


def _of_load(percent: float) -> str:
    return "busy" if percent > 100 * _FULL else "load"


def _gib(mib: float) -> str:
    gib = mib / _KIB
    # what rounds to ten or more needs no decimal, and nothing needs none
    return f"{gib:.1f}" if 0 < gib < 9.95 else f"{gib:.0f}"  # noqa: PLR2004
