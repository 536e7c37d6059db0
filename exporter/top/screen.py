"""The whole picture of a reading, as lines of a width. Pure: no clock, no terminal.

Tests: tests/top/test_parts.py.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

from exporter.model.name_order import as_people_count
from exporter.model.states import BROKEN, WORDS, DeviceState, state_of_device
from exporter.top import columns as table
from exporter.top.columns import Glyphs, Line, TextSpan, TopColumn, cut, harmless, width_of
from exporter.top.history import DeviceHistory, charts
from exporter.top.shown_devices import ShownDevice, ShownExporter, ShownProcess, ShownSource
from exporter.top.state import SORTS, State, chosen_devices, chosen_processes
from exporter.top.tables import TableEntry, device_columns, entries, gib, process_columns
from exporter.wording import counted

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
# How many devices there are in a state, in words; of these, held and free are said where there are none, too.
_COUNTS = (
    ("instances", "MIG instances", ""),
    ("held", "held", ""),
    ("idle", WORDS[DeviceState.IDLE], "idle"),
    ("free", "free", ""),
    ("failing", WORDS[DeviceState.FAILING], "bad"),
    ("outside", WORDS[DeviceState.OUTSIDE], "warn"),
    ("unknown", WORDS[DeviceState.UNKNOWN], "warn"),
)
Row = TypeVar("Row")
Lines = Sequence[Line]

# keys or a word, and what it does
HELP = (
    ("u m w t", "sort by utilization, memory, watts or temperature, the largest first"),
    ("n i g", "sort by name of the pod, idle ones first, or by GPU"),
    ("r", "reverse the order"),
    ("/", "filter by words: pod, namespace, workload, model, node; idle, held, free"),
    ("Escape", "end the filter"),
    ("p", "the processes (the exporter needs --processes.expose on), and back"),
    ("Enter", "the last minutes and the processes of a device or a holder, and back"),
    ("Space", "pause, and go on"),
    ("arrows j k", "choose a line; also Page Up, Page Down, Home, End"),
    ("q", "quit, as Ctrl-C does"),
    ("idle", "held but idle: a container holds it and does not use it (--accounting.idle-below)"),
    ("free", "no container holds it"),
    ("failing", "broken: no container holds it, and its health is failing or gone"),
    ("unknown", "its holder is unknown; the reason stands in the pod's place"),
    ("before", "the values were read before the device changed hands"),
)


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


@dataclass(frozen=True, slots=True)
class _Canvas:
    """Puts texts on lines that are this wide."""

    width: int
    glyphs: Glyphs

    def harmless(self, text: str) -> str:
        return harmless(text, self.glyphs)

    def cut(self, text: str, style: str, width: int | None = None) -> TextSpan:
        return TextSpan(cut(text, self.width if width is None else width, self.glyphs), style)

    def words(self, text: str, style: str) -> Line:
        """A text that may have come from anywhere."""
        return [self.cut(self.harmless(" ".join(text.split())), style)]

    def headed(self, head: str, head_style: str, text: str, style: str = "") -> Line:
        first = self.cut(head, head_style)
        return [first, self.cut(text, style, self.width - width_of(first.text))]


def draw(shown: ShownExporter, state: State, width: int, glyphs: Glyphs, height: int = _MOST_OF_STRIP * 3) -> Picture:
    """The picture of all rows that match the filter. The strip takes at most a third of the height."""
    canvas = _Canvas(width, glyphs)
    above = [_summary(shown, canvas), *_health(shown, canvas), *strip(shown, width, height // 3, glyphs)]
    if state.view == "devices":
        return _devices(above, shown, [*entries(chosen_devices(shown.devices, state))], state, canvas)
    return _processes(above, shown, chosen_processes(shown.processes or (), state), state, canvas)


def _devices(above: Lines, shown: ShownExporter, rows: Sequence[TableEntry], state: State, canvas: _Canvas) -> Picture:
    columns = device_columns(shown, canvas.glyphs, canvas.width)
    if not any(column.is_bar for column in table.fit(columns, rows, canvas.width)):
        columns = device_columns(shown, canvas.glyphs, canvas.width, number_says_idle=True)
    return _table(above, columns, rows, _nothing(shown, state), canvas)


def _processes(
    above: Lines, shown: ShownExporter, rows: Sequence[ShownProcess], state: State, canvas: _Canvas
) -> Picture:
    if shown.processes is None:
        return _alone(above, shown.processes_trouble or "the exporter is being asked for processes", canvas)
    columns = process_columns(shown, canvas.glyphs, canvas.width)
    return _table(above, columns, rows, _nothing(shown, state), canvas)


def _history(
    shown: ShownExporter, state: State, height: int, interval_seconds: float, canvas: _Canvas, history: DeviceHistory
) -> tuple[Picture, State]:
    """The picture of a device's history: its lines, charts and processes; and the state with the device as its subject.

    If the line is a holder's part of the device, only that holder's processes are shown.
    """
    rows = [*entries(chosen_devices(shown.devices, state))]
    cursor = _cursor_of_subject(rows, state)
    if cursor is None:
        return _alone((), "this device is not there any more, or the filter leaves it out", canvas), state
    chosen = rows[cursor]
    device = chosen.device
    holder = chosen.name[1]
    parts = [row for row in rows if row.device is device and (not holder or row.name == chosen.name)]
    names = (device.node, f"GPU {device.label}", WORDS[device.state], device.model, device.mig_profile, device.uuid)
    title = "  ".join(canvas.harmless(name) for name in names if name)
    above: list[Line] = [canvas.words(shown.trouble, "bad")] if shown.trouble else []
    above += _devices([canvas.headed(title, "title", "")], shown, parts, state, canvas).lines
    size = (canvas.width, height - len(above) - _LEAST_OF_PROCESSES)
    above += charts(device, history, size, interval_seconds, canvas.glyphs)
    of_device = [
        process
        for process in chosen_processes(shown.processes or (), replace(state, filter=""))
        if process.device == device.label and process.node in ("", device.node) and process.owner.startswith(holder)
    ]
    state = replace(state, cursor=cursor, subject=chosen.name)
    return _processes(above, shown, of_device, replace(state, view="processes", filter=""), canvas), state


def _cursor_of_subject(rows: Sequence[TableEntry], state: State) -> int | None:
    """The line of the device whose history is seen; None if it is not there any more."""
    cursor = min(state.cursor, len(rows) - 1)
    if cursor < 0:
        return None
    if not state.subject or rows[cursor].name == state.subject:
        return cursor
    return next((number for number, row in enumerate(rows) if row.name == state.subject), None)


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
    canvas = _Canvas(width, glyphs)
    has_cursor = False
    if shown and trouble:
        shown = replace(shown, trouble=trouble)
    if shown is None:
        waits = canvas.words(trouble or "the exporter is being asked", "bad" if trouble else "")
        picture = Picture([waits])
    elif state.helps:
        picture = _help(canvas)
    elif state.view == "history":
        picture, state = _history(shown, state, height, interval_seconds, canvas, history)
    else:
        picture = draw(shown, state, width, glyphs, height)
        state = replace(state, cursor=max(0, min(state.cursor, picture.count - 1)))
        has_cursor = True
    # the table is more important than the third trouble, so some lines are left for it
    above = [*picture.above[: max(1, height - 4)], *picture.heads][: height - 1]
    space = height - 1 - len(above)
    rows, seen = _screenful(picture, space, state.cursor if has_cursor else None, width)
    empty: Lines = [()] * (space - len(rows))
    return [*above, *rows, *empty, status(state, width, interval_seconds, glyphs, seen)], state


def _help(canvas: _Canvas) -> Picture:
    lines = [canvas.headed(f"  {key:<12}", "label", does) for key, does in HELP]
    return Picture(count=len(lines), row=lines.__getitem__)


def _screenful(picture: Picture, space: int, cursor: int | None, width: int) -> tuple[Lines, str]:
    """The rows that have room, those around the cursor; and in words which of all they are, where not all are."""
    most = max(0, picture.count - max(space, 1))
    first = 0 if cursor is None else min(max(0, cursor - space // 2), most)
    rows = [picture.row(number) for number in range(first, min(first + space, picture.count))]
    if not rows:
        return rows, ""
    if cursor is not None:
        text = "".join(span.text for span in rows[cursor - first])
        rows[cursor - first] = [TextSpan(table.pad(text, width), "status")]
    return rows, f"{first + 1}-{first + len(rows)} of {picture.count}" if most else ""


def status(state: State, width: int, interval_seconds: float, glyphs: Glyphs, seen: str = "") -> Line:
    """The last line: interval, order and filter of the table, and the keys that people look for first."""
    if state.typing:
        return [TextSpan(cut(f" filter: {harmless(state.filter, glyphs)}_", width, glyphs), "status")]
    # the arrow points down if the largest is first, as it is by default
    arrow = glyphs.up if state.reverse else glyphs.down
    parts = ["paused" if state.paused else f"every {interval_seconds:g}s", f"sort {state.sort} {arrow}"]
    if state.filter:
        parts.append(f"filter {harmless(state.filter, glyphs)}")
    if seen:
        parts.append(seen)
    keys = f"{'Esc back' if state.view == 'history' else 'Enter history'}  ? help  q quit"
    left = " " + f" {glyphs.dot} ".join(parts)
    space = width - width_of(left) - len(keys) - 1
    text = f"{left}{' ' * space}{keys} " if space > 0 else cut(left, width, glyphs)
    return [TextSpan(table.pad(text, width), "status")]


def _summary(shown: ShownExporter, canvas: _Canvas) -> Line:
    """How much there is, and how busy it is: as many facts as there is room for, the first ones first."""
    line: list[TextSpan] = []
    left = canvas.width
    for fact in _facts(shown, canvas):
        gap = 2 if line else 0
        if line and left < gap + width_of(fact.text):
            break
        if gap:
            line.append(TextSpan(" " * gap))
        span = canvas.cut(fact.text, fact.style, left - gap)
        line.append(span)
        left -= gap + width_of(span.text)
    return line


def _facts(shown: ShownExporter, canvas: _Canvas) -> Iterator[TextSpan]:
    counts = shown.counts
    where = f"node {canvas.harmless(shown.node)}" if shown.role == "node" else f"{shown.nodes} nodes"
    yield TextSpan(where, "title")
    yield TextSpan(counted(counts["gpus"], "GPU"))
    for name, words, style in _COUNTS:
        if counts[name] or name in ("held", "free"):
            yield TextSpan(f"{counts[name]} {words}", style)
    yield from map(TextSpan, _amounts(shown))
    time = _time(shown.at)
    if time:
        yield TextSpan(time, "dim")
    if shown.version:
        yield TextSpan(f"version {canvas.harmless(shown.version)}", "dim")


def _amounts(shown: ShownExporter) -> Iterator[str]:
    totals = shown.totals
    percent = totals["utilization_percent"]
    used = totals["memory_used_mib"]
    total = totals["memory_total_mib"]
    watts = totals["power_watts"]
    if percent is not None:
        yield f"{percent:.0f}% busy"
    if used is not None and total is not None:
        yield f"{gib(used)}/{gib(total)}G"
    if watts is not None:
        yield f"{watts / 1000:.1f} kW" if watts >= 1000 else f"{watts:.0f} W"  # noqa: PLR2004


def _health(shown: ShownExporter, canvas: _Canvas) -> Iterator[Line]:
    """One line if all is well, else a line for each trouble."""
    if shown.trouble:
        yield canvas.words(shown.trouble, "bad")
    # a source that is switched off is down, too, and gives no reason
    down = [source for source in shown.sources if not source.up and (source.message or source.reason)]
    if shown.sources and not down and not shown.missing:
        names = " ".join(source.name for source in shown.sources if source.up)
        yield canvas.headed("up ", "good", canvas.harmless(names), "dim")
    yield from _troubles(down, "down", "sources are down", canvas)
    yield from _troubles(shown.missing, "missing", "nodes are missing", canvas)


def _troubles(sources: Sequence[ShownSource], word: str, of_more: str, canvas: _Canvas) -> Iterator[Line]:
    for source in sources[:MOST_TROUBLES]:
        why = f" {source.name}: {source.message or source.reason}"
        if source.remedy:
            why = f"{why}: {source.remedy}"
        yield canvas.headed(word, "bad", canvas.harmless(why))
    if len(sources) > MOST_TROUBLES:
        yield [canvas.cut(f"and {len(sources) - MOST_TROUBLES} more {of_more}", "bad")]


def _table(
    above: Lines, columns: Sequence[TopColumn[Row]], rows: Sequence[Row], empty: str, canvas: _Canvas
) -> Picture:
    """The picture of a table; `empty` are the words in its place if it has no row."""
    if not rows:
        return _alone(above, empty, canvas)
    widths = table.fit(columns, rows, canvas.width)
    heads = [[TextSpan(table.head(widths), "head")]]
    return Picture(above, heads, len(rows), lambda number: table.line(widths, rows[number], canvas.glyphs))


def _alone(above: Lines, text: str, canvas: _Canvas) -> Picture:
    """The picture with words in the table's place."""
    return Picture(above=[*above, canvas.words(text, "dim")] if text else above)


def _nothing(shown: ShownExporter, state: State) -> str:
    """The reason why there is no row."""
    if state.filter:
        return f"the filter leaves nothing: {state.filter}"
    if state.view == "processes":
        return "no process uses a GPU"
    if shown.of_pods_in and not shown.trouble:
        return f"no pod of the namespace {shown.of_pods_in} holds a GPU"
    return "" if shown.trouble else "no GPU is known"


def _time(at: str) -> str:
    """The time of day of a timestamp such as 2026-01-31T12:34:56.789Z."""
    day, _, time = at.partition("T")
    return f"{time[:8]} UTC" if day and time.endswith("Z") and time[:8].replace(":", "").isdigit() else ""


def strip(shown: ShownExporter, width: int, most_lines: int, glyphs: Glyphs) -> Iterator[Line]:
    """Several nodes at a glance: a legend, and for each node a cell for each GPU, whose character shows its state.

    If there are too many nodes, those with most troubles stay.
    """
    nodes = _states_of_nodes(shown)
    if len(nodes) < 2:  # noqa: PLR2004 - the table of a single node is as short
        return
    canvas = _Canvas(width, glyphs)
    names = {name: harmless(name, glyphs) for name in nodes}
    start = _common_start([*names.values()])
    names = {name: cut(text[len(start) :], width // 3, glyphs, keeps_end=8) for name, text in names.items()}
    longest = max(map(width_of, names.values()))
    width_of_cells = max(len("missing"), *map(len, nodes.values()))
    across = max(1, (width + _GAP) // (longest + 1 + width_of_cells + _GAP))
    chosen = _chosen_nodes(nodes, across, most_lines)
    cells = {state: TextSpan(char, _STYLES[state]) for state, char in zip(_STYLES, glyphs.cells, strict=True)}
    cells[DeviceState.CUT] = cells[DeviceState.FREE]  # a GPU with MIG on, but without instances yet
    seen = set(chain.from_iterable(nodes.values()))
    legend = {state: cell for state, cell in cells.items() if state in seen}
    yield _legend(f"{start}{glyphs.ellipsis}" if start else "", legend, width)
    room = width - longest - 1
    for first in range(0, len(chosen), across):
        line: list[TextSpan] = []
        for name in chosen[first : first + across]:
            if line:
                line.append(TextSpan(" " * _GAP))
            line.append(TextSpan(table.pad(names[name], longest, right=True) + " ", "label"))
            of_gpus = [cells[state] for state in nodes[name][:room]] or [TextSpan("missing"[:room], "bad")]
            used = sum(width_of(cell.text) for cell in of_gpus)
            line += [*of_gpus, TextSpan(" " * (width_of_cells - used))]
        yield line
    if len(chosen) < len(nodes):
        yield [canvas.cut(f"and {len(nodes) - len(chosen)} more nodes, with less to look at", "dim")]


def _states_of_nodes(shown: ShownExporter) -> Mapping[str, Sequence[DeviceState]]:
    """The state of each GPU, by node; a missing node has none."""
    devices: dict[str, dict[tuple[str, str], list[ShownDevice]]] = {node.name: {} for node in shown.missing}
    for device in shown.devices:
        devices.setdefault(device.node, {}).setdefault(device.gpu_name, []).append(device)
    return {name: [*map(_state_of_gpu, gpus.values())] for name, gpus in devices.items()}


def _common_start(names: Sequence[str]) -> str:
    """What all names begin with, up to a - or a dot."""
    start = min(names)
    while not max(names).startswith(start):
        start = start[:-1]
    return start[: max(start.rfind("-"), start.rfind(".")) + 1]


def _chosen_nodes(nodes: Mapping[str, Sequence[DeviceState]], across: int, most_lines: int) -> Sequence[str]:
    """All of them, in order, or those that are worth most if there is no room for all."""
    chosen = sorted(nodes, key=as_people_count)
    if len(chosen) <= across * max(1, most_lines - 1):
        return chosen
    worst = sorted(chosen, key=lambda name: _worth(nodes[name]))[: across * max(1, most_lines - 2)]
    return sorted(worst, key=as_people_count)


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
