"""The whole picture of a reading, as lines of a width. Pure: no clock, no terminal."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pkgutil import get_data
from typing import TypeVar

from exporter.model.name_order import as_people_count
from exporter.model.states import BROKEN, WORDS, DeviceState, state_of_device
from exporter.top import columns as table
from exporter.top.columns import Glyphs, Line, TextSpan, TopColumn, cut, harmless, width_of
from exporter.top.history import DeviceHistory, charts
from exporter.top.shown_devices import ShownDevice, ShownExporter, ShownProcess, ShownSource
from exporter.top.state import SORTS, State, chosen_devices, chosen_processes
from exporter.top.tables import TableEntry, device_columns, entries, gib, process_columns

MOST_TROUBLES = 3  # shown in full
_LEAST_OF_PROCESSES = 5  # lines for processes on the screen of a device's history
_MOST_OF_STRIP = 60  # lines of the strip if the whole table is printed
_GAP = 3  # spaces between nodes
# The states with their styles, in the order of the legend and of Glyphs.cells.
_STYLES = {
    DeviceState.USED: "load",
    DeviceState.HELD: "owner",
    DeviceState.IDLE: "idle.number",
    DeviceState.FREE: "dim",
    DeviceState.OUTSIDE: "warn",
    DeviceState.UNKNOWN: "warn",
    DeviceState.FAILING: "bad",
}
Row = TypeVar("Row")
Lines = Sequence[Line]

HELP: Sequence[tuple[str, str]] = json.loads(get_data(__package__, "keys.json") or b"")  # keys or a word, what it does


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture: lines above the table, its heads, and its rows. Only the rows on the screen are made into lines."""

    above: Lines = ()
    heads: Lines = ()
    count: int = 0
    row: Callable[[int], Line] = lambda _: ()

    @property
    def lines(self) -> Lines:
        """Every line."""
        return [*self.above, *self.heads, *map(self.row, range(self.count))]


def draw(shown: ShownExporter, state: State, width: int, glyphs: Glyphs, height: int = _MOST_OF_STRIP * 3) -> Picture:
    """The picture of all rows that match the filter. The strip takes at most a third of the height."""
    above = [*_summary(shown, width, glyphs), *_health(shown, width, glyphs)]
    above += strip(shown, width, height // 3, glyphs)
    if state.view == "devices":
        return _devices(above, shown, [*entries(chosen_devices(shown.devices, state))], state, width, glyphs)
    return _processes(above, shown, chosen_processes(shown.processes or (), state), state, width, glyphs)


def _devices(
    above: Lines, shown: ShownExporter, rows: Sequence[TableEntry], state: State, width: int, glyphs: Glyphs
) -> Picture:
    columns = device_columns(shown, glyphs, width)
    if not any(column.is_bar for column in table.fit(columns, rows, width)):
        columns = device_columns(shown, glyphs, width, number_says_idle=True)
    return _table(above, columns, rows, _nothing(shown, state), width, glyphs)


def _processes(
    above: Lines, shown: ShownExporter, rows: Sequence[ShownProcess], state: State, width: int, glyphs: Glyphs
) -> Picture:
    if shown.processes is None:
        return _alone(above, shown.processes_trouble or "the exporter is being asked for processes", width, glyphs)
    return _table(above, process_columns(shown, glyphs, width), rows, _nothing(shown, state), width, glyphs)


def _history(
    shown: ShownExporter,
    state: State,
    size: tuple[int, int],
    interval_seconds: float,
    glyphs: Glyphs,
    history: DeviceHistory,
) -> tuple[Picture, State]:
    """The picture of a device's history: its lines, charts and processes; and the state with the device as its subject.

    If the line is a holder's part of the device, only that holder's processes are shown.
    """
    width, height = size
    rows = [*entries(chosen_devices(shown.devices, state))]
    cursor = min(state.cursor, len(rows) - 1)
    if rows and state.subject and rows[cursor].name != state.subject:
        cursor = next((number for number, each in enumerate(rows) if each.name == state.subject), -1)
    if cursor < 0:
        return _alone((), "this device is not there any more, or the filter leaves it out", width, glyphs), state
    chosen = rows[cursor]
    device, (_, holder) = chosen.device, chosen.name
    parts = [row for row in rows if row.device is device and (not holder or row.name == chosen.name)]
    names = (device.node, f"GPU {device.label}", WORDS[device.state], device.model, device.mig_profile, device.uuid)
    title = "  ".join(harmless(name, glyphs) for name in names if name)
    about = _devices(
        [_headed(TextSpan(title, "title"), TextSpan(""), width, glyphs)], shown, parts, state, width, glyphs
    )
    above = [*([_words(shown.trouble, "bad", width, glyphs)] if shown.trouble else ()), *about.lines]
    above += charts(device, history, (width, height - len(above) - _LEAST_OF_PROCESSES), interval_seconds, glyphs)
    of_device = [
        process
        for process in chosen_processes(shown.processes or (), replace(state, filter=""))
        if process.device == device.label and process.node in ("", device.node) and process.owner.startswith(holder)
    ]
    state = replace(state, cursor=cursor, subject=chosen.name)
    return _processes(above, shown, of_device, replace(state, view="processes", filter=""), width, glyphs), state


def frame(
    shown: ShownExporter | None,
    trouble: str,
    state: State,
    size: tuple[int, int],
    interval_seconds: float,
    glyphs: Glyphs,
    history: DeviceHistory,
) -> tuple[Lines, State]:
    """The lines of a whole screen (`size`: columns and lines), and the state with the cursor on one of its lines.

    `shown` is the last reading, None before the first. `trouble` is the reason why there is no newer one, else "".
    """
    width, height = size
    shown = replace(shown, trouble=trouble) if shown and trouble else shown
    if shown is None:
        words = _words(trouble or "the exporter is being asked", "bad" if trouble else "", width, glyphs)
        picture = Picture([words])
    elif state.helps:
        keys = ((TextSpan(f"  {key:<12}" if key else "", "label"), TextSpan(does)) for key, does in HELP)
        helps = [_headed(key, does, width, glyphs) for key, does in keys]
        picture = Picture(count=len(helps), row=helps.__getitem__)
    elif state.view == "history":
        picture, state = _history(shown, state, size, interval_seconds, glyphs, history)
    else:
        picture = draw(shown, state, width, glyphs, height)
        state = replace(state, cursor=max(0, min(state.cursor, picture.count - 1)))
    # the table is more important than the third trouble, so some lines are left for it
    above = [*picture.above[: max(1, height - 4)], *picture.heads][: height - 1]
    space = height - 1 - len(above)
    has_cursor = state.view != "history" and not state.helps
    most = max(0, picture.count - max(space, 1))
    first = min(max(0, state.cursor - space // 2), most) if has_cursor else 0
    rows = [picture.row(number) for number in range(first, min(first + space, picture.count))]
    if has_cursor and shown and rows:
        text = "".join(span.text for span in rows[state.cursor - first])
        rows[state.cursor - first] = [TextSpan(table.pad(text, width), "status")]
    empty: Lines = [()] * (space - len(rows))
    seen = f"{first + 1}-{first + len(rows)} of {picture.count}" if most and rows else ""
    return [*above, *rows, *empty, status(state, width, interval_seconds, glyphs, seen)], state


def status(state: State, width: int, interval_seconds: float, glyphs: Glyphs, seen: str = "") -> Line:
    """The last line: interval, order and filter of the table, and the keys that people look for first."""
    if state.typing:
        return [TextSpan(cut(f" filter: {harmless(state.filter, glyphs)}_", width, glyphs), "status")]
    # the arrow points down if the largest is first, as it is by default
    arrow = glyphs.up if state.reverse else glyphs.down
    parts = [
        "paused" if state.paused else f"every {interval_seconds:g}s",
        f"sort {state.sort} {arrow}",
        *([f"filter {harmless(state.filter, glyphs)}"] if state.filter else ()),
        *([seen] if seen else ()),
    ]
    keys = f"{'Esc back' if state.view == 'history' else 'Enter history'}  ? help  q quit"
    left = " " + f" {glyphs.dot} ".join(parts)
    space = width - width_of(left) - len(keys) - 1
    text = f"{left}{' ' * space}{keys} " if space > 0 else cut(left, width, glyphs)
    return [TextSpan(text + " " * (width - width_of(text)), "status")]


def _summary(shown: ShownExporter, width: int, glyphs: Glyphs) -> Iterator[Line]:
    """The first line: counts and sums, of which as many are shown as there is room for."""
    counts, totals = shown.counts, shown.totals
    where = f"node {harmless(shown.node, glyphs)}" if shown.role == "node" else f"{shown.nodes} nodes"
    percent, watts = totals["utilization_percent"], totals["power_watts"]
    used, total = totals["memory_used_mib"], totals["memory_total_mib"]
    amounts = [
        "" if percent is None else f"{percent:.0f}% busy",
        "" if used is None or total is None else f"{gib(used)}/{gib(total)}G",
        "" if watts is None else f"{watts / 1000:.1f} kW" if watts >= 1000 else f"{watts:.0f} W",  # noqa: PLR2004
    ]
    parts = [
        TextSpan(where, "title"),
        TextSpan(f"{counts['gpus']} GPU{'' if counts['gpus'] == 1 else 's'}"),
        *([TextSpan(f"{counts['instances']} MIG instances")] if counts["instances"] else ()),
        TextSpan(f"{counts['held']} held"),
        *([TextSpan(f"{counts['idle']} {WORDS[DeviceState.IDLE]}", "idle")] if counts["idle"] else ()),
        TextSpan(f"{counts['free']} free"),
        *([TextSpan(f"{counts['failing']} {WORDS[DeviceState.FAILING]}", "bad")] if counts["failing"] else ()),
        *([TextSpan(f"{counts['outside']} {WORDS[DeviceState.OUTSIDE]}", "warn")] if counts["outside"] else ()),
        *([TextSpan(f"{counts['unknown']} {WORDS[DeviceState.UNKNOWN]}", "warn")] if counts["unknown"] else ()),
        *(TextSpan(amount) for amount in amounts if amount),
        *([TextSpan(_time(shown.at), "dim")] if _time(shown.at) else ()),
        *([TextSpan(f"version {harmless(shown.version, glyphs)}", "dim")] if shown.version else ()),
    ]
    # the first parts are shown, as many as there is room for
    line: list[TextSpan] = []
    left = width
    for part in parts:
        gap = 2 if line else 0
        if left < gap + width_of(part.text) and line:
            break
        line += [TextSpan(" " * gap)] if gap else []
        text = cut(part.text, left - gap, glyphs)
        line.append(TextSpan(text, part.style))
        left -= gap + width_of(text)
    yield line


def _health(shown: ShownExporter, width: int, glyphs: Glyphs) -> Iterator[Line]:
    """One line if all is well, else a line for each trouble."""
    if shown.trouble:
        yield _words(shown.trouble, "bad", width, glyphs)
    down = [source for source in shown.sources if not source.up]
    # a source that is switched off is down, too, and gives no reason
    described = [source for source in down if source.message or source.reason]
    if shown.sources and not described and not shown.missing:
        names = " ".join(source.name for source in shown.sources if source.up)
        yield _headed(TextSpan("up ", "good"), TextSpan(harmless(names, glyphs), "dim"), width, glyphs)
    for source in described[:MOST_TROUBLES]:
        yield _down(source, "down", width, glyphs)
    yield from _more(len(described), "sources are down", width, glyphs)
    for node in shown.missing[:MOST_TROUBLES]:
        yield _down(node, "missing", width, glyphs)
    yield from _more(len(shown.missing), "nodes are missing", width, glyphs)


def _down(source: ShownSource, word: str, width: int, glyphs: Glyphs) -> Line:
    remedy = f": {source.remedy}" if source.remedy else ""
    says = harmless(f" {source.name}: {source.message or source.reason}{remedy}", glyphs)
    return _headed(TextSpan(word, "bad"), TextSpan(says), width, glyphs)


def _headed(head: TextSpan, rest: TextSpan, width: int, glyphs: Glyphs) -> Line:
    first = cut(head.text, width, glyphs)
    return [TextSpan(first, head.style), TextSpan(cut(rest.text, width - width_of(first), glyphs), rest.style)]


def _more(count: int, what: str, width: int, glyphs: Glyphs) -> Iterator[Line]:
    if count > MOST_TROUBLES:
        yield [TextSpan(cut(f"and {count - MOST_TROUBLES} more {what}", width, glyphs), "bad")]


def _words(text: str, style: str, width: int, glyphs: Glyphs) -> Line:
    return [TextSpan(cut(harmless(" ".join(text.split()), glyphs), width, glyphs), style)]


def _table(
    above: Lines, columns: Sequence[TopColumn[Row]], rows: Sequence[Row], empty: str, width: int, glyphs: Glyphs
) -> Picture:
    """The picture of a table; `empty` are the words in its place if it has no row."""
    if not rows:
        return _alone(above, empty, width, glyphs)
    widths = table.fit(columns, rows, width)
    heads = [[TextSpan(table.head(widths), "head")]]
    return Picture(above, heads, len(rows), lambda number: table.line(widths, rows[number], glyphs))


def _alone(above: Lines, text: str, width: int, glyphs: Glyphs) -> Picture:
    """The picture with words in the table's place."""
    return Picture(above=[*above, _words(text, "dim", width, glyphs)] if text else above)


def _nothing(shown: ShownExporter, state: State) -> str:
    """The reason why there is no row."""
    if state.filter:
        return f"the filter leaves nothing: {state.filter}"
    if state.view == "processes":
        return "no process uses a GPU"
    return "" if shown.trouble else "no GPU is known"


def _time(at: str) -> str:
    """The time of day of a timestamp such as 2026-01-31T12:34:56.789Z."""
    day, _, time = at.partition("T")
    return f"{time[:8]} UTC" if day and time.endswith("Z") and time[:8].replace(":", "").isdigit() else ""


def strip(shown: ShownExporter, width: int, most_lines: int, glyphs: Glyphs) -> Iterator[Line]:
    """Several nodes at a glance: a legend, and for each node a cell for each GPU, whose character shows its state.

    If there are too many nodes, those with most troubles stay.
    """
    states: dict[str, dict[tuple[str, str], list[ShownDevice]]] = {node.name: {} for node in shown.missing}
    for device in shown.devices:
        states.setdefault(device.node, {}).setdefault(device.gpu_name, []).append(device)
    if len(states) < 2:  # noqa: PLR2004 - the table of a single node is as short
        return
    nodes = {name: [_state_of_gpu(gpu) for gpu in gpus.values()] for name, gpus in states.items()}
    names = {name: harmless(name, glyphs) for name in nodes}
    ends = zip(min(names.values()), max(names.values()), strict=False)
    start = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], ends))
    start = start[: max(start.rfind("-"), start.rfind(".")) + 1]
    names = {name: cut(text[len(start) :], width // 3, glyphs, keeps_end=8) for name, text in names.items()}
    most = max(map(width_of, names.values()))
    each_width = most + 1 + max(len("missing"), *map(len, nodes.values()))
    across = max(1, (width + _GAP) // (each_width + _GAP))
    room = across * max(1, most_lines - 1)
    chosen = sorted(nodes, key=as_people_count)
    if len(chosen) > room:
        worst = sorted(chosen, key=lambda name: _worth(nodes[name]))[: across * max(1, most_lines - 2)]
        chosen = sorted(worst, key=as_people_count)
    seen = {state for cells in nodes.values() for state in cells}
    of_states = {
        state: TextSpan(char, style) for (state, style), char in zip(_STYLES.items(), glyphs.cells, strict=True)
    }
    of_states[DeviceState.CUT] = of_states[DeviceState.FREE]  # a GPU with MIG on, but without instances yet
    of_seen = {state: cell for state, cell in of_states.items() if state in seen}
    yield _legend(f"{start}{glyphs.ellipsis}" if start else "", of_seen, width)
    for first in range(0, len(chosen), across):
        line: list[TextSpan] = []
        for name in chosen[first : first + across]:
            line += [TextSpan(" " * _GAP)] if line else []
            line.append(TextSpan(" " * (most - width_of(names[name])) + names[name] + " ", "label"))
            cells = [of_states[state] for state in nodes[name][: width - most - 1]]
            cells = cells or [TextSpan("missing"[: width - most - 1], "bad")]
            line += [*cells, TextSpan(" " * (each_width - most - 1 - sum(width_of(cell.text) for cell in cells)))]
        yield line
    if len(chosen) < len(nodes):
        rest = f"and {len(nodes) - len(chosen)} more nodes, with less to look at"
        yield [TextSpan(cut(rest, width, glyphs), "dim")]


def _state_of_gpu(of_gpu: Sequence[ShownDevice]) -> DeviceState:
    """The state of a GPU, whole or cut. A broken GPU is shown as failing, whoever holds it."""
    if any(device.health in BROKEN for device in of_gpu):
        return DeviceState.FAILING
    return state_of_device(device.state for device in of_gpu)


def _worth(states: Sequence[DeviceState]) -> tuple[bool, int]:
    """The sort key of a node: a missing node is first, then those with most failing, unknown, outside or idle GPUs."""
    order = (DeviceState.FAILING, DeviceState.UNKNOWN, DeviceState.OUTSIDE, DeviceState.IDLE)
    return bool(states), -sum((state in order) * 100 ** (3 - order.index(state)) for state in states if state in order)


def _legend(start: str, of_states: Mapping[DeviceState, TextSpan], width: int) -> Line:
    line = [TextSpan(f"{start} " if start else "", "dim")]
    for state, cell in of_states.items():
        words = "failing or gone" if state is DeviceState.FAILING else WORDS[state]
        spans = [cell, TextSpan(f" {words}  ", "dim")]
        if sum(width_of(span.text) for span in (*line, *spans)) <= width + 2:
            line += spans
    return line


assert set(SORTS.values()) <= {key for keys, _ in HELP for key in keys.split()}  # noqa: S101 - the help has every key that sorts
