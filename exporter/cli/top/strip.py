"""The picture of several nodes at a glance: one cell a GPU, whose character says the state, also without colours."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from exporter.cli.top.columns import Glyphs, Line, TextSpan, cut, harmless, width_of
from exporter.cli.top.devices import Shown, ShownDevice
from exporter.model.states import BROKEN, WORDS, DeviceState, state_of_device

_GAP = 3
# The states in the order of the legend and of Glyphs.cells, each with its style.
_STYLES = {
    DeviceState.USED: "load",
    DeviceState.HELD: "owner",
    DeviceState.IDLE: "idle.number",
    DeviceState.FREE: "dim",
    DeviceState.OUTSIDE: "warn",
    DeviceState.UNKNOWN: "warn",
    DeviceState.FAILING: "bad",
}


def strip(shown: Shown, width: int, most_lines: int, glyphs: Glyphs) -> Iterator[Line]:
    """The legend, and below it a run of cells for each node. Of too many nodes those with most to look at stay."""
    states: dict[str, dict[tuple[str, str], list[ShownDevice]]] = {node.name: {} for node in shown.missing}
    for device in shown.devices:
        states.setdefault(device.node, {}).setdefault(device.gpu_name, []).append(device)
    if len(states) < 2:  # noqa: PLR2004 - a node alone has a table that is as short
        return
    nodes = {name: [_state(each) for each in gpus.values()] for name, gpus in states.items()}
    names = {name: harmless(name, glyphs) for name in nodes}
    ends = zip(min(names.values()), max(names.values()), strict=False)
    start = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], ends))
    start = start[: max(start.rfind("-"), start.rfind(".")) + 1]
    names = {name: cut(text[len(start) :], width // 3, glyphs, keeps_end=8) for name, text in names.items()}
    most = max(map(width_of, names.values()))
    each_width = most + 1 + max(len("missing"), *map(len, nodes.values()))
    across = max(1, (width + _GAP) // (each_width + _GAP))
    room = across * max(1, most_lines - 1)
    chosen = sorted(nodes)
    if len(chosen) > room:
        chosen = sorted(sorted(chosen, key=lambda name: _worth(nodes[name]))[: across * max(1, most_lines - 2)])
    seen = {state for cells in nodes.values() for state in cells}
    of_states = {state: TextSpan(char, _STYLES[state]) for state, char in zip(_STYLES, glyphs.cells, strict=True)}
    of_states[DeviceState.CUT] = of_states[DeviceState.FREE]  # into nothing yet
    yield _legend(
        f"{start}{glyphs.ellipsis}" if start else "",
        {state: of_states[state] for state in of_states if state in seen},
        width,
    )
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


def _state(of_gpu: Sequence[ShownDevice]) -> DeviceState:
    """Of a GPU, whole or cut. What is failing or gone is shown so, whoever holds it."""
    if any(device.health in BROKEN for device in of_gpu):
        return DeviceState.FAILING
    return state_of_device(device.state for device in of_gpu)


def _worth(states: Sequence[DeviceState]) -> tuple[bool, int]:
    """The less, the earlier: a missing node, then those with most that fails, is not known, or is not used."""
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
