"""The two tables: devices with their owners, and processes. Rows → columns; pure.

Tests: tests/top/test_parts.py.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from exporter.model.device_row import RowDevice
from exporter.model.states import BROKEN, IN_HAND, WORDS, DeviceState, rounded
from exporter.top.columns import EMPTY, Glyphs, TextCell, TopColumn, harmless
from exporter.top.shown_devices import ShownDevice, ShownExporter, ShownHolder, ShownProcess

_KIB = 1024
_HOT_CELSIUS = 80
_WARM_CELSIUS = 70
_FULL = 0.9
_LONG_IDLE_SECONDS = 3600
_LONGEST_NODE = 40
_END_OF_A_POD = 5  # the number of characters that a ReplicaSet appends to a pod's name
_BEFORE = TextCell("before", "dim")  # stands for what was read before the device came into these hands


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """A line of the table of devices: a device, with its holder if it has only one; or a holder's part of a device."""

    device: ShownDevice
    holder: ShownHolder | None = None
    is_part: bool = False
    is_last: bool = False

    @property
    def name(self) -> tuple[RowDevice, str]:
        """The name that no other line has: the device, and the holder whose part of it the line shows."""
        return (self.device.name, self.holder.name if self.is_part and self.holder else "")

    @property
    def user(self) -> ShownDevice | ShownHolder:
        """The device or the holder whose use the line shows."""
        return self.holder if self.is_part and self.holder else self.device


def entries(devices: Sequence[ShownDevice]) -> Iterator[TableEntry]:
    """The lines of devices. Below a device's line are lines for each of several holders, and for other users of it."""
    for device in devices:
        is_alone = len(device.holders) == 1
        yield TableEntry(device=device, holder=device.holders[0] if is_alone else None)
        parts = [*(() if is_alone else device.holders), *device.strangers]
        for part in parts:
            yield TableEntry(device=device, holder=part, is_part=True, is_last=part is parts[-1])


def device_columns(
    shown: ShownExporter, glyphs: Glyphs, width: int, *, number_says_idle: bool = False
) -> Sequence[TopColumn[TableEntry]]:
    """The columns of devices, in their order on the screen.

    The word "idle" takes the place of the bar, or with `number_says_idle` that of the number.
    """
    cells = _Cells(glyphs, number_says_idle)
    columns: list[TopColumn[TableEntry]] = []
    if len({device.node for device in shown.devices}) > 1:
        node = cells.words(lambda device: device.node)
        columns.append(TopColumn("NODE", worth=3, cell=node, least=12, most=_LONGEST_NODE))
    columns.append(TopColumn("GPU", worth=0, cell=cells.label, most=9))
    if any(device.health not in ("", "ok") for device in shown.devices):
        columns.append(TopColumn("HEALTH", worth=2, cell=cells.health, most=17))
    model = cells.words(lambda device: device.mig_profile or device.model.removeprefix("NVIDIA "))
    columns.append(TopColumn("MODEL", worth=10, cell=model, least=12, most=24))
    container = cells.of_holder(lambda holder: holder.container)
    pods = _width_of_pods(shown, width)
    granted: list[TopColumn[TableEntry]] = []
    if any(holder.granted for device in shown.devices for holder in device.holders):
        granted.append(TopColumn("GRANTED", worth=3, cell=cells.of_holder(lambda holder: holder.granted), most=16))
    hang: list[TopColumn[TableEntry]] = []
    if any(device.suspected_hang for device in shown.devices):
        hang.append(TopColumn("SUSPECTED HANG", worth=4, cell=cells.hang, least=24, most=100))
    reason: list[TopColumn[TableEntry]] = []
    if any(device.health_reason for device in shown.devices):
        why = cells.words(lambda device: device.health_reason)
        reason.append(TopColumn("REASON", worth=19, cell=why, least=24, most=90))
    return [
        *columns,
        *_measured_columns(shown, cells),
        *hang,
        *granted,
        TopColumn("POD", worth=1, cell=cells.owner, least=pods, most=200, keeps_end=_END_OF_A_POD),
        TopColumn("CONTAINER", worth=12, cell=container, least=12, most=40),
        TopColumn("WORKLOAD", worth=11, cell=cells.of_holder(_workload), least=16, most=60),
        *reason,
        TopColumn("UUID", worth=17, cell=cells.words(lambda device: device.uuid), is_extra=True),
    ]


def _measured_columns(shown: ShownExporter, cells: "_Cells") -> Sequence[TopColumn[TableEntry]]:
    """The columns of what is measured of a device."""
    fan: list[TopColumn[TableEntry]] = []
    if any(device.fan_percent is not None for device in shown.devices):
        fan.append(TopColumn("FAN", worth=15, cell=_whole(lambda device: device.fan_percent, "%"), right=True))
    nvlink: list[TopColumn[TableEntry]] = []
    if any(device.nvlink_gigabytes for device in shown.devices):
        cell = _whole(lambda device: device.nvlink_gigabytes, " GB/s")
        nvlink.append(TopColumn("NVLINK", worth=18, cell=cell, right=True))
    return [
        TopColumn("", worth=5, cell=cells.utilization_bar, least=6, most=10, is_bar=True),
        TopColumn("UTIL", worth=2, cell=cells.utilization, right=True),
        TopColumn("", worth=9, cell=cells.memory_bar, least=5, most=10, is_bar=True),
        TopColumn("MEM", worth=4, cell=cells.memory, right=True),
        TopColumn("TEMP", worth=6, cell=cells.temperature, right=True),
        *fan,
        TopColumn("POWER", worth=7, cell=cells.power, right=True),
        TopColumn("SM MHz", worth=16, cell=_whole(lambda device: device.sm_clock_mhz), right=True),
        TopColumn("DRAM", worth=13, cell=_whole(lambda device: device.dram_active_percent, "%"), right=True),
        TopColumn("TENSOR", worth=14, cell=_whole(lambda device: device.tensor_active_percent, "%"), right=True),
        *nvlink,
        TopColumn("XID", worth=8, cell=cells.xid, right=True),
    ]


def _width_of_pods(shown: ShownExporter, width: int) -> int:
    """Two fifths of a terminal, since most names of pods are shorter; up to three for who does not hold a device."""
    strangers = [_words_of(stranger) for device in shown.devices for stranger in device.strangers]
    longest = max(map(len, strangers), default=0)
    return max(min(max(16, width * 2 // 5), 48), min(longest, width * 3 // 5))


def _workload(holder: ShownHolder) -> str:
    return "/".join(filter(None, (holder.workload_kind, holder.workload))) if holder.workload else ""


@dataclass(frozen=True, slots=True)
class _Cells:
    """The cells that need glyphs."""

    glyphs: Glyphs
    number_says_idle: bool

    def _harmless(self, text: str) -> str:
        return harmless(text, self.glyphs)

    def words(self, text: Callable[[ShownDevice], str]) -> Callable[[TableEntry], TextCell]:
        """A text about the whole device, which the lines of its parts leave out."""
        return lambda entry: EMPTY if entry.is_part else TextCell(self._harmless(text(entry.device)), "dim")

    def of_holder(self, text: Callable[[ShownHolder], str]) -> Callable[[TableEntry], TextCell]:
        return lambda entry: TextCell(self._harmless(text(entry.holder)), "dim") if entry.holder else EMPTY

    def label(self, entry: TableEntry) -> TextCell:
        if entry.is_part:
            return TextCell(f" {self.glyphs.last if entry.is_last else self.glyphs.branch}", "dim")
        return TextCell(self._harmless(entry.device.label), "bad" if entry.device.health in BROKEN else "label")

    def utilization_bar(self, entry: TableEntry) -> TextCell:
        if entry.device.before:
            return _BEFORE
        if entry.user.idle:
            seconds = entry.holder.idle_seconds if entry.holder else None
            words = f"idle {rounded(seconds).replace(' ', '')}".rstrip()
            style = "idle" if (seconds or 0) >= _LONG_IDLE_SECONDS else "idle.number"
            return TextCell(words, style, short="idle")
        percent = entry.user.utilization_percent
        if percent is None:
            return EMPTY
        return TextCell("", "busy" if percent > 100 * _FULL else "load", percent / 100)

    def utilization(self, entry: TableEntry) -> TextCell:
        style = "idle.number" if entry.user.idle else ""
        if entry.device.before:
            style = "dim"
        if self.number_says_idle and style:
            return _BEFORE if entry.device.before else TextCell("idle", style)
        return _number(entry.user.utilization_percent, "%")._replace(style=style)

    def memory_bar(self, entry: TableEntry) -> TextCell:
        used = entry.user.memory_used_mib
        total = entry.device.memory_total_mib
        if used is None or not total:
            return EMPTY
        return TextCell("", "full" if used > total * _FULL else "memory", used / total)

    def memory(self, entry: TableEntry) -> TextCell:
        used = entry.user.memory_used_mib
        total = entry.device.memory_total_mib
        if used is None:
            return EMPTY
        # the line of a holder's part is below the device's own, which has the total
        return TextCell(f"{gib(used)}G" if entry.is_part or not total else f"{gib(used)}/{gib(total)}G")

    def temperature(self, entry: TableEntry) -> TextCell:
        celsius = None if entry.is_part else entry.device.temperature_celsius
        return EMPTY if celsius is None else TextCell(f"{celsius:.0f}{self.glyphs.degrees}", heat_style(celsius))

    def power(self, entry: TableEntry) -> TextCell:
        cell = _whole(lambda device: device.power_watts, "W")(entry)
        return cell._replace(style="dim") if entry.device.older else cell

    def xid(self, entry: TableEntry) -> TextCell:
        xid = None if entry.is_part else entry.device.xid
        return EMPTY if xid is None else TextCell(str(xid), "bad" if entry.device.is_xid_why else "warn")

    def health(self, entry: TableEntry) -> TextCell:
        if entry.is_part:
            return TextCell("", "warn")
        health = self._harmless(entry.device.health)
        style = {"failing": "bad", "gone": "bad", "ok": "dim"}.get(health, "warn")
        return TextCell(f"{health}: XID {entry.device.xid}" if entry.device.is_xid_why else health, style)

    def hang(self, entry: TableEntry) -> TextCell:
        return EMPTY if entry.is_part else TextCell(self._harmless(entry.device.suspected_hang), "warn")

    def owner(self, entry: TableEntry) -> TextCell:
        device = entry.device
        holder = entry.holder
        if holder and not holder.holds:
            return TextCell(self._harmless(_words_of(holder)), "warn")
        if holder:
            return TextCell(self._harmless(holder.name), "idle.owner" if entry.user.idle else "owner")
        if device.entity == "mig-parent":
            return TextCell(f"{device.mig_instances} MIG instances", "dim")
        if device.holders:
            return TextCell(f"{len(device.holders)} containers share it", "dim")
        words = "held" if device.state in IN_HAND else WORDS[device.state]
        if device.why:
            words = f"{words} ({self._harmless(device.why)})"
        style = {DeviceState.FREE: "dim", DeviceState.FAILING: "bad"}.get(device.state, "warn")
        return TextCell(words, style)


def _words_of(stranger: ShownHolder) -> str:
    return f"used by {stranger.name}, which does not hold it"


def process_columns(shown: ShownExporter, glyphs: Glyphs, width: int) -> Sequence[TopColumn[ShownProcess]]:
    """The columns of processes, in their order on the screen."""

    def words(field: str, style: str = "") -> Callable[[ShownProcess], TextCell]:
        text = attrgetter(field)
        return lambda process: TextCell(harmless(text(process), glyphs), style)

    columns: list[TopColumn[ShownProcess]] = []
    if len({process.node for process in shown.processes or ()}) > 1:
        columns.append(TopColumn("NODE", worth=3, cell=words("node", "dim"), least=12, most=40))
    owner = words("owner", "owner")
    return [
        *columns,
        TopColumn("GPU", worth=0, cell=words("device", "label"), most=9),
        TopColumn("PID", worth=1, cell=lambda process: TextCell(str(process.pid)), right=True),
        TopColumn("USER", worth=7, cell=words("user"), least=4, most=12),
        TopColumn("UTIL", worth=4, cell=lambda process: _number(process.utilization_percent, "%"), right=True),
        TopColumn("MEM", worth=3, cell=lambda process: _number(process.memory_used_mib, "G", gib), right=True),
        TopColumn("KIND", worth=8, cell=words("kinds", "dim"), least=4, most=20),
        TopColumn("POD", worth=2, cell=owner, least=max(16, width // 3), most=80, keeps_end=_END_OF_A_POD),
        TopColumn("COMMAND", worth=5, cell=words("command"), least=12, most=400),
    ]


def _number(value: float | None, unit: str, words: Callable[[float], str] = "{:.0f}".format) -> TextCell:
    return EMPTY if value is None else TextCell(f"{words(value)}{unit}")


def _whole(value: Callable[[ShownDevice], float | None], unit: str = "") -> Callable[[TableEntry], TextCell]:
    """A number about the whole device, which the lines of its parts leave out."""
    return lambda entry: _number(None if entry.is_part else value(entry.device), unit)


def heat_style(celsius: float) -> str:
    """The style of a temperature: hot, warm, or neither."""
    if celsius >= _HOT_CELSIUS:
        return "bad"
    return "warn" if celsius >= _WARM_CELSIUS else ""


def gib(mib: float) -> str:
    """Memory in GiB for people."""
    gib = mib / _KIB
    # from 10 on there is no decimal, and none for 0
    return f"{gib:.1f}" if 0 < gib < 9.95 else f"{gib:.0f}"  # noqa: PLR2004
